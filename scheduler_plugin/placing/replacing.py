"""Nodes for members that join a gang that runs: new pods, and those whose nodes failed. Pure and deterministic.

Any number at once. Pods that run stay where they are. A member never leaves the domain that its gang, or its segment,
requires; within it the vacancies nearest to those that stay are chosen for all joining members together.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from outrider.topology import TopologyAsk, depth_of
from outrider.topology.domains import Path
from outrider.workloads import NO_SEGMENT
from scheduler_plugin.cluster.members import Member
from scheduler_plugin.cluster.nodes import NodeView
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.cluster.spares import called_in
from scheduler_plugin.placing.domains import weakness
from scheduler_plugin.placing.explain import Scope, refusal
from scheduler_plugin.placing.gang import Gang, Placement, Refusal
from scheduler_plugin.placing.nearness import Nearness, closest
from scheduler_plugin.placing.room import Room
from scheduler_plugin.placing.seating import Best, Vacancy, best_vacancies

_MOST_FREE: Final = (1 << 23) - 1  # thousandths of GPUs told apart between nodes that are otherwise equal
Wishes = Mapping[str, Sequence[str]]


def replace(
    gang: Gang,
    survivors: Sequence[str],
    wishes: Wishes,
    snapshot: Snapshot,
    now: float,
    segments: Mapping[int, Sequence[str]] | None = None,
) -> Placement | Refusal:
    """Return nodes for members that join pods already on ``survivors`` (node names, one per pod).

    ``wishes`` by pod UID are nodes to take first: the rank's last node, then spares, the nearest first. Then the
    nearest to all that are there. ``segments`` has the survivors of each segment by ``Member.segment`` (or by rank
    divided by ``segment_pods``). Members without room are left out: a running gang gains nothing if the others wait
    for them.
    """
    join = _joining(gang, survivors, wishes, snapshot, now, segments or {})
    nodes = join.place()
    if len(nodes) < len(gang.members):
        nodes = _with_borrowed(gang, survivors, wishes, snapshot, now, segments or {}) or nodes
    return Placement(nodes) if nodes else refusal(gang, snapshot, now, scope=join.scope)


def _joining(
    gang: Gang,
    survivors: Sequence[str],
    wishes: Wishes,
    snapshot: Snapshot,
    now: float,
    segments: Mapping[int, Sequence[str]],
) -> "_Join":
    views = [snapshot.nodes[name] for name in survivors if name in snapshot.nodes]
    suspicions = [view.suspect for view in views]
    room = Room(snapshot, gang.job_uid, gang.members, gang.excluded, now, suspicions, joining=True)
    return _Join(gang, snapshot, room, wishes, views, segments, now)


def _with_borrowed(
    gang: Gang,
    survivors: Sequence[str],
    wishes: Wishes,
    snapshot: Snapshot,
    now: float,
    segments: Mapping[int, Sequence[str]],
) -> dict[str, str]:
    """Return nodes for more members by calling in spare nodes that are lent; empty where that helps nobody."""
    lent = [name for name, kept in snapshot.kept.items() if kept.gang in ("", gang.job_uid)]
    if not lent:
        return {}
    priority = min(one.guest.priority for one in gang.members)
    nodes = called_in(snapshot.nodes, lent, priority)
    after = msgspec.structs.replace(snapshot, nodes=nodes)
    return _joining(gang, survivors, wishes, after, now, segments).place()


def segment_of(one: Member, ask: TopologyAsk) -> int:
    """Return the number of the member's segment: its owner's own, else by rank; NO_SEGMENT without segments."""
    if one.segment != NO_SEGMENT or not ask.segment_pods:
        return one.segment
    return one.rank // ask.segment_pods


class _Group(msgspec.Struct, frozen=True):
    """Members that ask for the same and belong to one segment, in rank order."""

    members: tuple[Member, ...]
    segment: int


class _Join:
    """Members that join a gang, placed group by group; what is placed counts for the next."""

    def __init__(
        self,
        gang: Gang,
        snapshot: Snapshot,
        room: Room,
        wishes: Wishes,
        survivors: Sequence[NodeView],
        segments: Mapping[int, Sequence[str]],
        now: float,
    ) -> None:
        self._gang, self._now = gang.job_uid, now
        ask, levels = gang.ask, snapshot.levels
        self._ask, self._snapshot, self._room, self._wishes = ask, snapshot, room, wishes
        self._top = (depth_of(levels, ask.required_level) or 0) if ask.required_level else 0
        self._inner = (depth_of(levels, ask.segment_level) or 0) if ask.segment_level else 0
        self._allowed = frozenset(view.place.domain(self._top) for view in survivors)
        self._stay = [view.place.near for view in survivors]
        self._segments: defaultdict[int, list[NodeView]] = defaultdict(list)
        for number, names in segments.items():
            self._segments[number] = [snapshot.nodes[name] for name in names if name in snapshot.nodes]
        self._groups = [
            _Group(tuple(members), segment)
            for kind in sorted(room.kinds, key=lambda kind: (-kind[0].gpus, kind[0].rank))
            for segment, members in _by_segment(kind, ask)
        ]

    @property
    def scope(self) -> Scope:
        """What the gang's refusal is about."""
        within = next(iter(self._allowed)) if self._top and len(self._allowed) == 1 else ()
        return Scope(self._top, 0, within)

    def place(self) -> dict[str, str]:
        """Return the nodes by pod UID of all members that find one."""
        if not self._top or self._allowed:
            return self._fill()
        return self._fill_one_domain()

    def _fill_one_domain(self) -> dict[str, str]:
        """Nobody is left to stay with: take the domain of the required level that takes most of them."""
        domains = {view.place.domain(self._top) for view in self._snapshot.nodes.values()}
        best: tuple[int, Path] | None = None
        stay, segments = list(self._stay), {number: list(views) for number, views in self._segments.items()}
        for domain in sorted(domains):
            self._allowed = frozenset((domain,))
            nodes = self._fill()
            self._room.give_back([one for group in self._groups for one in group.members], nodes)
            self._stay = list(stay)
            self._segments = defaultdict(list, {number: list(views) for number, views in segments.items()})
            if nodes and (best is None or len(nodes) > best[0]):
                best = len(nodes), domain
        if best is None:
            return {}
        self._allowed = frozenset((best[1],))
        return self._fill()

    def _fill(self) -> dict[str, str]:
        nodes: dict[str, str] = {}
        for group in self._groups:
            nodes |= self._back(group)
        for group in self._groups:
            left = [one for one in group.members if one.uid not in nodes]
            nodes |= self._one_by_one(left, group) if self._room.intertwined else self._together(left, group)
        return nodes

    def _back(self, group: _Group) -> dict[str, str]:
        """Give each member the node that it wants first, its own last one, where that has room."""
        nodes: dict[str, str] = {}
        for one in group.members:
            name = next(iter(self._wishes.get(one.uid, ())), "")
            view = self._room.on(name, one) if name else None
            if view is not None and self._gate(group)(view) and not self._rejects(view):
                nodes[one.uid] = self._take(view, one, group)
        return nodes

    def _together(self, members: Sequence[Member], group: _Group) -> dict[str, str]:
        if not members:
            return {}
        near, wanted = self._near(group), len(members)
        tries = [best_vacancies(vacancies, near, wanted) for vacancies in self._pools(members[0], group)]
        best = max(tries, key=lambda best: (len(best.nodes), best.value), default=Best())
        names = dict(zip((one.uid for one in members), best.nodes, strict=False))
        for one in members:
            if one.uid in names:
                self._take(self._snapshot.nodes[names[one.uid]], one, group)
        return names

    def _one_by_one(self, members: Sequence[Member], group: _Group) -> dict[str, str]:
        nodes: dict[str, str] = {}
        for one in members:
            near, spares, gate = Nearness(self._near(group)), self._spares(one), self._gate(group)
            fitting = (view for view in self._room.fitting(one) if gate(view))
            view = min(fitting, key=lambda view: (view.name not in spares, closest(view, near)), default=None)
            if view is not None:
                nodes[one.uid] = self._take(view, one, group)
        return nodes

    def _pools(self, one: Member, group: _Group) -> Iterable[list[Vacancy]]:
        """Return the vacancies among which the group may choose: of each domain apart, where it must keep to one."""
        vacancies = self._vacancies(one, group)
        if not self._ask.segment_required or group.segment == NO_SEGMENT or not self._inner:
            return [vacancies]
        pools: defaultdict[Path, list[Vacancy]] = defaultdict(list)
        for vacancy in vacancies:
            pools[self._snapshot.nodes[vacancy.node].place.domain(self._inner)].append(vacancy)
        return [pools[domain] for domain in sorted(pools)]

    def _vacancies(self, one: Member, group: _Group) -> list[Vacancy]:
        nodes, spares, gate = self._snapshot.nodes, self._spares(one), self._gate(group)
        fabric = self._snapshot.atlas.fabric(nodes, len(self._snapshot.levels))
        names = [name for name in fabric.names if gate(nodes[name])]
        return [
            Vacancy(name, view.place.near, count, name in spares, _worth(view, doubtful=self._rejects(view)))
            for name, count in zip(names, self._room.counts(one, names), strict=True)
            if count > 0 and (view := nodes[name])
        ]

    def _rejects(self, view: NodeView) -> bool:
        """Return whether the node's kubelet turned a pod of this gang away a short while ago."""
        return view.rejected.get(self._gang, 0.0) > self._now

    def _spares(self, one: Member) -> frozenset[str]:
        return frozenset(self._wishes.get(one.uid, ())[1:])

    def _near(self, group: _Group) -> list[Path]:
        """Return whom the group is to be near: above all its own segment, then the whole gang."""
        own = [view.place.near for view in self._segments[group.segment]] if group.segment != NO_SEGMENT else []
        return self._stay + own * (len(self._stay) + 1)

    def _gate(self, group: _Group) -> Callable[[NodeView], bool]:
        """Return a test of nodes: within the gang's domain, within the segment's, outside those of other segments."""
        top, allowed = self._top, self._allowed
        if not self._inner or group.segment == NO_SEGMENT:
            return lambda view: not top or view.place.domain(top) in allowed
        inner, own, others = self._inner, self._domains(group.segment), self._of_others(group)
        bound = own if self._ask.segment_required else set[Path]()

        def may(view: NodeView) -> bool:
            domain = view.place.domain(inner)
            inside = not top or view.place.domain(top) in allowed
            return inside and (not bound or domain in bound) and domain not in others

        return may

    def _domains(self, segment: int) -> set[Path]:
        return {view.place.domain(self._inner) for view in self._segments[segment]}

    def _of_others(self, group: _Group) -> set[Path]:
        if not self._ask.segment_exclusive:
            return set()
        numbers = [number for number in self._segments if number != group.segment]
        return set[Path]().union(*(self._domains(number) for number in numbers))

    def _take(self, view: NodeView, one: Member, group: _Group) -> str:
        self._room.use(view, one)
        self._stay.append(view.place.near)
        if group.segment != NO_SEGMENT:
            self._segments[group.segment].append(view)
        return view.name


def _by_segment(members: Iterable[Member], ask: TopologyAsk) -> Iterator[tuple[int, list[Member]]]:
    parts: defaultdict[int, list[Member]] = defaultdict(list)
    for one in sorted(members, key=lambda one: one.rank):
        parts[segment_of(one, ask)].append(one)
    yield from sorted(parts.items())


def _worth(view: NodeView, *, doubtful: bool) -> int:
    """Return what decides between nodes that are equally close: no doubt, then health, then the fullest."""
    sound = 0 if view.suspect or doubtful else 1
    return (sound * 11 + 10 - weakness(view)) * (_MOST_FREE + 1) + _MOST_FREE - min(max(view.free_gpus, 0), _MOST_FREE)
