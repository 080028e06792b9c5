"""Whose end would make room for a gang: from what others hold now, not from when they end, which nobody knows. Pure."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from outrider.api.why import ENDS_MAX
from outrider.topology.domains import Path
from scheduler_plugin.cluster.members import Member
from scheduler_plugin.cluster.nodes import Amounts, NodeView
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.placing.obstacles import Spot, slots

Inner = tuple[Path, Path]  # a domain of the required level, and one of the segments' below it
_ALTERNATIVES: Final = 3  # gangs named of which any one is enough
_MOST_DOMAINS: Final = 16  # tried for gangs that would have to end together


class Departures:
    """What each other gang holds where only other pods are in the way of ``one``, and the room that it leaves.

    ``inner_of`` tells the domains of a node, ``unit`` how many pods belong together in an inner one.
    """

    def __init__(
        self,
        one: Member,
        job_uid: str,
        snapshot: Snapshot,
        spots: Iterable[Spot],
        inner_of: Callable[[NodeView], Inner],
        unit: int,
    ) -> None:
        self._one, self._job_uid, self._unit = one, job_uid, unit
        self._plans = snapshot.plans
        self._views: dict[str, NodeView] = {}
        self._inner: dict[str, Inner] = {}
        self._held: defaultdict[str, list[str]] = defaultdict(list)  # names of nodes by job UID
        self._rooms: Counter[Inner] = Counter()
        for spot in spots:
            inner = inner_of(spot.view)
            self._rooms[inner] += spot.slots
            if spot.only_full:
                self._take(spot, inner)
        self._outer: Counter[Path] = Counter()
        for inner, room in self._rooms.items():
            self._outer[inner[0]] += self._whole(room)
        self._gains = {uid: self._gain(uid) for uid in self._held}

    def _take(self, spot: Spot, inner: Inner) -> None:
        view = spot.view
        others = [uid for uid in {*view.uses, *view.holds} if uid != self._job_uid]
        known = [uid for uid in others if uid in self._plans and self._plans[uid].planned]
        if known:
            self._views[view.name], self._inner[view.name] = view, inner
            for uid in known:
                self._held[uid].append(view.name)

    def first(self, need: int) -> tuple[list[str], bool]:
        """Return the gangs whose end makes room for ``need`` pods: any one of them, or (True) all of them together."""
        enough = [uid for uid in self._gains if any(room >= need for room in self._without(uid).values())]
        if enough:
            return sorted(enough, key=self._age)[:_ALTERNATIVES], False
        return self._together(need), True

    def _without(self, uid: str) -> dict[Path, int]:
        """Return the pods that fit under each domain once the gang is gone, where that makes a difference."""
        rooms: dict[Path, int] = {}
        for inner, gain in self._gains[uid].items():
            before = self._rooms[inner]
            more = self._whole(before + gain) - self._whole(before)
            rooms[inner[0]] = rooms.get(inner[0], self._outer[inner[0]]) + more
        return rooms

    def _together(self, need: int) -> list[str]:
        """Return the fewest gangs found whose end makes room together, none where that takes too many or is no help."""
        gains: defaultdict[Path, Counter[str]] = defaultdict(Counter)
        for uid, names in self._held.items():
            gains_of = self._gains[uid]
            for inner in {self._inner[name] for name in names}:
                gains[inner[0]][uid] += gains_of[inner]
        hopeful = sorted(gains, key=lambda path: (-self._outer[path], -gains[path].total(), path))[:_MOST_DOMAINS]
        found = [(uids, path) for path in hopeful if (uids := self._until(path, gains[path], need))]
        if not found:
            return []
        uids, path = min(found, key=lambda entry: len(entry[0]))
        return self._needed(path, uids, need)

    def _until(self, path: Path, gains: Mapping[str, int], need: int) -> list[str]:
        """Return the gangs of a domain to end, largest gain first, until the need is met; none beyond ENDS_MAX.

        A gang whose end alone gains nothing counts too: it may share its nodes with another.
        """
        largest = sorted(gains, key=lambda uid: (-gains[uid], -len(self._held[uid]), self._age(uid)))[:ENDS_MAX]
        for count, room in enumerate(self._rooms_after(path, largest), 1):
            if room >= need:
                return largest[:count]
        return []

    def _needed(self, path: Path, uids: list[str], need: int) -> list[str]:
        """Return the gangs without those whose end the others do not need."""
        for uid in list(uids):
            rest = [one for one in uids if one != uid]
            if rest and list(self._rooms_after(path, rest))[-1] >= need:
                uids = rest
        return uids

    def _rooms_after(self, path: Path, uids: Iterable[str]) -> Iterator[int]:
        """Yield the pods that fit under a domain after the end of one gang after the other."""
        left: dict[str, dict[str, int]] = {}
        more: Counter[Inner] = Counter()
        total = self._outer[path]
        for uid in uids:
            for name in self._held[uid]:
                inner = self._inner[name]
                if inner[0] == path:
                    before = self._rooms[inner] + more[inner]
                    more[inner] += self._leave(left.setdefault(name, self._views[name].room(self._job_uid)), name, uid)
                    total += self._whole(self._rooms[inner] + more[inner]) - self._whole(before)
            yield total

    def _gain(self, uid: str) -> "Counter[Inner]":
        gains: Counter[Inner] = Counter()
        for name in self._held[uid]:
            gain = self._leave(self._views[name].room(self._job_uid), name, uid)
            if gain:
                gains[self._inner[name]] += gain
        return gains

    def _leave(self, room: dict[str, int], name: str, uid: str) -> int:
        """Give the room of a node what the gang has there; return how many pods more fit."""
        before, view = slots(self._one, room), self._views[name]
        for amounts in (view.uses.get(uid), view.holds.get(uid)):
            _add(room, amounts or {})
        return slots(self._one, room) - before

    def _whole(self, room: int) -> int:
        return room // self._unit * self._unit

    def _age(self, uid: str) -> tuple[str, str]:
        return self._plans[uid].placement.metadata.creation_timestamp or "", uid


def _add(room: dict[str, int], amounts: Amounts) -> None:
    for name, amount in amounts.items():
        room[name] = room.get(name, 0) + amount
