"""Why a gang waits: what it needs, what keeps each node from being it, and what would make room first. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from outrider.api.gangplacement import GangPlacement, RejectedAlternative
from outrider.api.why import CAUSES_MAX, ENDS_MAX, STATES_MAX, BestDomain, NodeState, StateCount, WaitReason, Why
from outrider.topology.domains import Path, order
from scheduler_plugin.cluster.members import Member
from scheduler_plugin.cluster.nodes import Amounts, NodeView
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.placing.checks import Checks
from scheduler_plugin.placing.constraints import selects
from scheduler_plugin.placing.domains import label
from scheduler_plugin.placing.gang import Gang, Refusal
from scheduler_plugin.placing.obstacles import Spot, slots, spot
from scheduler_plugin.placing.wording import sentence

_LONGEST_CAUSE: Final = 128  # characters
_Inner = tuple[Path, Path]  # a domain of the required level, and one of the segments' below it
_MOST_DOMAINS: Final = 16  # tried for a set of gangs that would have to end together


class Scope(msgspec.Struct, frozen=True):
    """Where the gang must go: all under one domain of ``depth`` levels, within ``within``.

    Each ``Gang.ask.segment_pods`` of it belong under one domain of ``segment_depth`` levels, 0 where that is no must.
    """

    depth: int = 0
    segment_depth: int = 0
    within: Path = ()


ANYWHERE: Final = Scope()


def refusal(
    gang: Gang,
    snapshot: Snapshot,
    now: float,
    *,
    scope: Scope = ANYWHERE,
    rejected: tuple[RejectedAlternative, ...] = (),
    notes: Sequence[str] = (),
) -> Refusal:
    """Return the refusal of a gang that does not fit, with its counterfactual in words and as data.

    ``notes`` are what else the search knows.
    """
    why = explain(gang, snapshot, now, scope)
    why = msgspec.structs.replace(why, notes=[*why.notes, *notes])
    return Refusal(sentence(why), rejected, why)


def explain(gang: Gang, snapshot: Snapshot, now: float, scope: Scope = ANYWHERE) -> Why:
    """Return why the gang does not fit at ``now`` (seconds since 1970)."""
    cases = [_Case(gang, kind, snapshot, scope, now) for kind in _kinds(gang.members)]
    return next((case for case in cases if case.room < case.need), cases[0]).why()


def missing(exist: int, size: int, notes: Sequence[str] = ()) -> Why:
    """Return why a gang of ``size`` pods waits of which only some exist."""
    return Why(reason=WaitReason.MEMBERS_MISSING, exist=exist, pods=size, notes=list(notes))


def name_of(placement: GangPlacement) -> str:
    """Return a gang's name for people: kind namespace/name."""
    spec = placement.spec
    return f"{spec.job_kind} {placement.metadata.namespace}/{spec.job_name}"


def _kinds(members: Iterable[Member]) -> list[list[Member]]:
    """Return the members by what they ask for, those with most GPUs first."""
    kinds: defaultdict[bytes, list[Member]] = defaultdict(list)
    for one in members:
        kinds[one.shape()].append(one)
    return sorted(kinds.values(), key=lambda kind: (-kind[0].gpus, -len(kind), kind[0].rank))


class _Case:
    """One kind of member against all nodes that could ever matter to it."""

    def __init__(self, gang: Gang, kind: Sequence[Member], snapshot: Snapshot, scope: Scope, now: float) -> None:
        self._gang, self._snapshot, self._scope = gang, snapshot, scope
        self._one, self.need = kind[0], len(kind)
        self._pods = len(gang.members)
        inside = (view for view in snapshot.nodes.values() if view.place.path[: len(scope.within)] == scope.within)
        views = [view for view in inside if view.gpus > 0 or not self._one.gpus]
        checks = Checks(snapshot, gang.members, gang.job_uid)
        self._spots = [spot(view, self._one, gang.job_uid, gang.excluded, now, checks) for view in views]
        self._inner = self._inside({one.view.name: one.slots for one in self._spots})
        self._rooms = self._whole(self._inner)
        self.room = max(self._rooms.values(), default=0)

    def why(self) -> Why:
        """Return the answer."""
        ends, together = self._ends()
        ask = self._gang.ask
        segmented = bool(self._scope.segment_depth)
        return Why(
            reason=self._reason(),
            pods=self._pods if self._alike else self.need,
            gpus_per_pod=-(-self._one.gpus // 1000),
            whole_nodes=self._one.gpus * 2 > max((one.view.gpus for one in self._spots), default=0),
            level=ask.required_level if self._scope.depth else "",
            segment_pods=ask.segment_pods if segmented else 0,
            segment_level=ask.segment_level if segmented else "",
            room=sum(one.slots for one in self._spots),
            states=_counted(self._spots),
            best=self._best(),
            ends=ends,
            ends_together=together,
        )

    @property
    def _alike(self) -> bool:
        return self.need == self._pods

    def _reason(self) -> WaitReason:
        empty = self._whole(self._inside({one.view.name: self._at_best(one.view) for one in self._spots}))
        if max(empty.values(), default=0) < self.need:
            return WaitReason.NEVER_FITS
        if self._scope.depth and sum(one.slots for one in self._spots) >= self.need:
            return WaitReason.NO_ROOM_TOGETHER
        return WaitReason.NO_ROOM

    def _at_best(self, view: NodeView) -> int:
        """Return how many of the pods the node would take if nothing else were on it and it were healthy."""
        one = self._one
        allowed = selects(one.node_selector, one.affinity, view.name, view.labels)
        return slots(one, view.allocatable) if allowed else 0

    def _inside(self, counts: Mapping[str, int]) -> "Counter[_Inner]":
        """Return the pods that fit under each domain in which they belong together: a segment's, else the gang's."""
        nodes, scope = self._snapshot.nodes, self._scope
        inner: Counter[_Inner] = Counter()
        for name, count in counts.items():
            place = nodes[name].place
            outer = place.domain(scope.depth)
            inner[outer, place.domain(scope.segment_depth) if scope.segment_depth else outer] += count
        return inner

    def _whole(self, inner: "Mapping[_Inner, int]") -> "Counter[Path]":
        """Return the pods that fit under each domain of the required level, whole segments only."""
        rooms: Counter[Path] = Counter()
        for (outer, _), count in inner.items():
            rooms[outer] += count // self._unit * self._unit
        return rooms

    @property
    def _unit(self) -> int:
        return max(self._gang.ask.segment_pods, 1) if self._scope.segment_depth else 1

    def _best(self) -> BestDomain | None:
        if not (self._scope.depth or self._scope.within) or not self._rooms:
            return None
        sizes = Counter(self._domain(one.view) for one in self._spots)
        path = min(self._rooms, key=lambda one: (-self._rooms[one], -sizes[one], order(one)))
        inside = [one for one in self._spots if self._domain(one.view) == path]
        return BestDomain(domain=label(path or self._scope.within), room=self._rooms[path], states=_counted(inside))

    def _domain(self, view: NodeView) -> Path:
        return view.place.domain(self._scope.depth)

    def _ends(self) -> tuple[list[str], bool]:
        """Return gangs whose end makes it fit: any one of them, else some that must end together."""
        holders = self._holders()
        enough = [uid for uid in holders if any(room >= self.need for room in self._without(holders, [uid]).values())]
        if enough:
            return self._names(sorted(enough, key=self._age)), False
        return self._names(self._together(holders)), True

    def _together(self, holders: Mapping[str, Mapping[str, Amounts]]) -> list[str]:
        """Return the fewest gangs found whose end makes room together, none where that is not enough."""
        found: list[list[str]] = []
        for path, _ in self._rooms.most_common(_MOST_DOMAINS):
            here = {uid: self._without(holders, [uid]).get(path, 0) for uid in holders}
            chosen: list[str] = []
            for uid in sorted(filter(here.get, here), key=lambda uid: (-here[uid], self._age(uid))):
                chosen.append(uid)
                if self._without(holders, chosen).get(path, 0) >= self.need:
                    found.append(chosen)
                    break
        return min(found, key=len, default=[])

    def _without(self, holders: Mapping[str, Mapping[str, Amounts]], uids: Sequence[str]) -> dict[Path, int]:
        """Return the pods that fit under each domain once these gangs are gone, where that makes a difference."""
        freed: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for uid in uids:
            for name, amounts in holders[uid].items():
                freed[name].update(amounts)
        views, unit = self._snapshot.nodes, self._unit
        rooms: dict[Path, int] = {}
        gains = self._inside({name: self._gained(views[name], amounts) for name, amounts in freed.items()})
        for inner, gain in gains.items():
            outer, before = inner[0], self._inner[inner]
            more = (before + gain) // unit * unit - before // unit * unit
            rooms[outer] = rooms.get(outer, self._rooms[outer]) + more
        return rooms

    def _gained(self, view: NodeView, freed: Mapping[str, int]) -> int:
        room = Counter(view.room(self._gang.job_uid))
        now = slots(self._one, room)
        room.update(freed)
        return slots(self._one, room) - now

    def _holders(self) -> dict[str, dict[str, Amounts]]:
        """Return what each other gang holds on nodes where only other pods are in the way, by job UID and node."""
        full = {one.view.name: one.view for one in self._spots if one.only_full}
        held: defaultdict[str, dict[str, Amounts]] = defaultdict(dict)
        plans = self._snapshot.plans
        for name, view in full.items():
            for uid in {*view.uses, *view.holds} - {self._gang.job_uid}:
                if uid in plans and plans[uid].planned:
                    held[uid][name] = Counter(view.uses.get(uid, {})) + Counter(view.holds.get(uid, {}))
        return dict(held)

    def _age(self, uid: str) -> tuple[str, str]:
        meta = self._snapshot.plans[uid].placement.metadata
        return meta.creation_timestamp or "", uid

    def _names(self, uids: Iterable[str]) -> list[str]:
        return [name_of(self._snapshot.plans[uid].placement) for uid in uids][:ENDS_MAX]


def _counted(spots: Iterable[Spot]) -> list[StateCount]:
    """Return the nodes by state: free ones first, then the most frequent. Nodes short of different things differ."""
    causes: defaultdict[tuple[NodeState, str], Counter[str]] = defaultdict(Counter)
    for one in spots:
        apart = one.cause if one.state in (NodeState.SHORT, NodeState.OTHER) else ""
        causes[one.state, apart][one.cause[:_LONGEST_CAUSE]] += 1
    counts = [
        StateCount(state=state, nodes=sum(named.values()), causes=_frequent(named))
        for (state, _), named in causes.items()
    ]
    counts.sort(key=lambda one: (one.state is not NodeState.FREE, -one.nodes, one.state, one.causes))
    return counts[:STATES_MAX]


def _frequent(causes: "Counter[str]") -> list[str]:
    ranked = sorted(causes.items(), key=lambda entry: (-entry[1], entry[0]))
    return [cause for cause, _ in ranked if cause][:CAUSES_MAX]
