"""How many pods of each kind fit on which nodes, by everything that kube-scheduler and health would hold against it."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from outrider.api.core import Toleration
from scheduler_plugin.cluster.members import Member
from scheduler_plugin.cluster.nodes import NodeView
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.placing.checks import Checks
from scheduler_plugin.placing.constraints import selects, untolerated

_MANY: Final = 1 << 30


class Room:
    """Room for one gang's members on one snapshot; ``use`` takes from it, so it belongs to one plan only.

    ``tolerated`` are suspicions that refuse nothing, ``joining`` opens the spares of domains (see Checks).
    """

    def __init__(
        self,
        snapshot: Snapshot,
        job_uid: str,
        members: Sequence[Member],
        excluded: frozenset[str],
        now: float,
        tolerated: Collection[str] = (),
        *,
        joining: bool = False,
    ) -> None:
        kinds: defaultdict[tuple[object, ...], list[Member]] = defaultdict(list)
        self._checks = Checks(snapshot, members, job_uid, tolerated, joining=joining)
        for one in members:
            kinds[self._checks.kind(one)].append(one)
        self.kinds = list(kinds.values())
        self._shapes = {one.uid: shape for shape, kind in kinds.items() for one in kind}
        self._free: dict[str, dict[str, int]] = {}
        self._snapshot, self._job_uid, self._excluded, self._now = snapshot, job_uid, excluded, now
        self._eligible: defaultdict[tuple[object, ...], dict[str, bool]] = defaultdict(dict)
        if self._checks.peers.matter:  # what is so before any member is placed
            for kind in self.kinds:
                for view in snapshot.nodes.values():
                    self._able(kind[0], view)

    @property
    def intertwined(self) -> bool:
        """True where members decide about each other's nodes, so that counting slots is not enough."""
        return self._checks.peers.intertwined

    def counts(self, one: Member, names: Iterable[str]) -> list[int]:
        """Return how many members of this kind fit on each of the nodes."""
        nodes, gpus = self._snapshot.nodes, one.gpus
        most = 1 if self._checks.peers.alone(one) else _MANY
        asked = [(name, amount) for name, amount in one.requests.items() if amount > 0]
        found = []
        for name in names:
            view, count = nodes[name], 0
            if view.free_gpus >= gpus:
                count = _times(asked, self._seen(view) if view.holds or self._free else view.free, most)
                if count and not self._able(one, view):
                    count = 0
            found.append(count)
        return found

    def fitting(self, one: Member) -> Iterator[NodeView]:
        """Yield the nodes that have room for the member."""
        views = self._snapshot.nodes.values()
        return (view for view in views if self._fits(one, view) and self._able(one, view))

    def on(self, name: str, one: Member) -> NodeView | None:
        """Return the node of that name if it has room for the member."""
        view = self._snapshot.nodes.get(name)
        return view if view is not None and self._fits(one, view) and self._able(one, view) else None

    def use(self, view: NodeView, one: Member) -> None:
        """Take the member's requests from the node."""
        room = self._room(view)
        for name, amount in one.requests.items():
            room[name] = room.get(name, 0) - amount
        if self._checks.peers.matter:
            self._checks.peers.add(one, view)

    def first_fit(self, members: Sequence[Member], names: Iterable[str]) -> dict[str, str] | None:
        """Return a node for each member by pod UID, each on the first node with room; None where one has none.

        What was taken on the way is given back in that case.
        """
        allowed = [self._snapshot.nodes[name] for name in names]
        nodes: dict[str, str] = {}
        passed: dict[tuple[object, ...], int] = {}  # nodes that had no room for a kind have none later on
        for one in members:
            kind = self._shapes[one.uid]
            start = 0 if self._checks.peers.matter else passed.get(kind, 0)
            able = (at for at in range(start, len(allowed)) if self.on(allowed[at].name, one))
            passed[kind] = next(able, len(allowed))
            if passed[kind] == len(allowed):
                self.give_back(members, nodes)
                return None
            view = allowed[passed[kind]]
            nodes[one.uid] = view.name
            self.use(view, one)
        return nodes

    def give_back(self, members: Iterable[Member], nodes: Mapping[str, str]) -> None:
        """Undo ``use`` for the members that have a node in ``nodes`` (by pod UID)."""
        for one in members:
            if one.uid in nodes:
                room = self._free[nodes[one.uid]]
                for name, amount in one.requests.items():
                    room[name] += amount
                if self._checks.peers.matter:
                    self._checks.peers.remove(one, self._snapshot.nodes[nodes[one.uid]])

    def _able(self, one: Member, view: NodeView) -> bool:
        """Return whether anything but room is against the member there; the same for all of its kind."""
        known = self._eligible[self._shapes[one.uid]]
        if view.name not in known:
            known[view.name] = (
                view.name not in self._excluded
                and eligible(view, one, self._now)
                and not self._checks.against(view, one)
            )
        return known[view.name]

    def _fits(self, one: Member, view: NodeView) -> bool:
        peers = self._checks.peers
        return fits(one, self._seen(view)) and (not peers.matter or peers.allows(one, view))

    def _seen(self, view: NodeView) -> Mapping[str, int]:
        """Return the node's room to look at, copied only where it differs from what is free."""
        return self._room(view) if view.holds or view.name in self._free else view.free

    def _room(self, view: NodeView) -> dict[str, int]:
        if view.name not in self._free:
            self._free[view.name] = view.room(self._job_uid)
        return self._free[view.name]


def eligible(view: NodeView, one: Member, now: float) -> bool:
    """Return whether the node may take the member at ``now`` (seconds since 1970), whatever is free on it."""
    if view.usable_until < now and (view.refusal(now) if one.needs_gpu else view.closed(now)):
        return False
    if (view.taints or view.cordoned) and untolerated(view.taints, one.tolerations, cordoned=view.cordoned):
        return False
    if not one.node_selector and not one.affinity:
        return True
    return selects(one.node_selector, one.affinity, view.name, view.labels)


def _times(asked: Sequence[tuple[str, int]], room: Mapping[str, int], most: int) -> int:
    """Return how often the room covers what is asked for, ``most`` at most."""
    for name, amount in asked:
        times = room.get(name, 0) // amount
        if times < most:
            if times <= 0:
                return 0
            most = times
    return most


def fits(one: Member, room: Mapping[str, int]) -> bool:
    """Return whether the room covers the member's requests."""
    for name, amount in one.requests.items():  # noqa: SIM110 - runs for every node, and all() costs twice as much
        if room.get(name, 0) < amount:
            return False
    return True


def usable(view: NodeView | None, tolerations: Sequence[Toleration], now: float) -> bool:
    """Return whether a planned pod can still start on the node: there, healthy, and with no taint against it."""
    if view is None or view.refusal(now):
        return False
    return untolerated(view.taints, tolerations, cordoned=view.cordoned) is None
