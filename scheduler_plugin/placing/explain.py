"""Why a gang waits: what it needs, what keeps each node from being it, and what would make room first. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from outrider.api.gangplacement import GangPlacement, RejectedAlternative
from outrider.api.why import CAUSES_MAX, STATES_MAX, BestDomain, NodeState, StateCount, WaitReason, Why
from outrider.topology.domains import Path, order
from scheduler_plugin.cluster.members import Member
from scheduler_plugin.cluster.nodes import NodeView
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.placing.checks import Checks
from scheduler_plugin.placing.constraints import selects
from scheduler_plugin.placing.departures import Departures, Inner
from scheduler_plugin.placing.domains import label
from scheduler_plugin.placing.gang import Gang, Refusal
from scheduler_plugin.placing.obstacles import Spot, Spotter, slots
from scheduler_plugin.placing.wording import sentence

_LONGEST_CAUSE: Final = 128  # characters


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
        inside = (view for view in snapshot.nodes.values() if view.place.domain(len(scope.within)) == scope.within)
        needs_gpu = self._one.gpus > 0
        views = [view for view in inside if view.gpus > 0 or not needs_gpu]
        checks = Checks(snapshot, gang.members, gang.job_uid)
        look = Spotter(self._one, gang.job_uid, gang.excluded, now, checks)
        self._spots = [look(view) for view in views]
        self._rooms = self._whole(self._inside((one.view, one.slots) for one in self._spots))
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
        empty = self._whole(self._inside((one.view, self._at_best(one.view)) for one in self._spots))
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

    def _inner_of(self, view: NodeView) -> Inner:
        """Return the domain of the required level that the node is in, and within it that of a segment."""
        outer = view.place.domain(self._scope.depth)
        return outer, view.place.domain(self._scope.segment_depth) if self._scope.segment_depth else outer

    def _inside(self, counts: Iterable[tuple[NodeView, int]]) -> "Counter[Inner]":
        """Return the pods that fit under each domain in which they belong together: a segment's, else the gang's."""
        inner: Counter[Inner] = Counter()
        for view, count in counts:
            inner[self._inner_of(view)] += count
        return inner

    def _whole(self, inner: "Mapping[Inner, int]") -> "Counter[Path]":
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
        """Return the gangs whose end makes room first, and whether all of them must end."""
        plans, gang = self._snapshot.plans, self._gang
        departures = Departures(self._one, gang.job_uid, self._snapshot, self._spots, self._inner_of, self._unit)
        uids, together = departures.first(self.need)
        return [name_of(plans[uid].placement) for uid in uids], together


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
