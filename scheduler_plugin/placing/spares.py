"""Spare nodes: the nearest that could take over a rank of a gang. Pure and deterministic."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import Final

from outrider.api.gangplacement import GangPlacementStatus
from outrider.topology import Levels, TopologyAsk, depth_of
from outrider.topology.domains import Path
from scheduler_plugin.cluster.nodes import NodeView
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.cluster.spares import without_borrowers
from scheduler_plugin.placing.domains import weakness
from scheduler_plugin.placing.gang import Gang
from scheduler_plugin.placing.nearness import Nearness
from scheduler_plugin.placing.room import Room

_MOST_OF_SEGMENTS: Final = 8  # every pod is pinned to all spares besides its node, and each one costs the scheduler


def spares_for(gang: Gang, used: Collection[str], snapshot: Snapshot, count: int, now: float) -> tuple[str, ...]:
    """Return the nearest nodes outside ``used`` that could take the largest member now."""
    room = Room(snapshot, gang.job_uid, gang.members, gang.excluded, now)
    return nearest_spares(room, used, snapshot, count, gang.ask)


def worn(status: GangPlacementStatus, snapshot: Snapshot, now: float) -> bool:
    """Return whether one of the spares on record could not take over a rank any more: gone, unwell or in use.

    Who only borrows a spare is not in its way.
    """
    gpus = max((rank.gpus for rank in status.ranks), default=0) * 1000
    views = (_vacated(snapshot, name) for name in status.spares)
    return any(view is None or view.refusal(now) or view.cordoned or view.spare_gpus < gpus for view in views)


def _vacated(snapshot: Snapshot, name: str) -> NodeView | None:
    view, kept = snapshot.nodes.get(name), snapshot.kept.get(name)
    return without_borrowers(view, kept.borrowers_below) if view is not None and kept is not None else view


def nearest_spares(
    room: Room,
    used: Collection[str],
    snapshot: Snapshot,
    count: int,
    ask: TopologyAsk | None = None,
) -> tuple[str, ...]:
    """Return up to ``count`` of the nearest nodes outside ``used`` that have room for the largest member.

    Where ``ask`` requires a level, they are in the domain of that level that the gang uses; where it requires one for
    segments, in the domains of those, up to ``count`` in each and 8 in all.
    """
    if not count:
        return ()
    largest = max((kind[0] for kind in room.kinds), key=lambda one: one.gpus)
    views = [snapshot.nodes[name] for name in used if name in snapshot.nodes]
    near = Nearness(view.place.near for view in views)
    depths = _required(ask, snapshot.levels) if ask is not None else []
    homes = [(depth, {view.place.domain(depth) for view in views}) for depth in depths]

    gpus = largest.gpus

    def fit(view: NodeView) -> NodeView | None:
        if view.free_gpus < gpus or view.name in used:
            return None
        inside = all(view.place.domain(depth) in domains for depth, domains in homes)
        return room.on(view.name, largest) if inside else None

    found = _nearest(snapshot, near, fit)
    if not (ask and ask.segment_required and depths):
        return tuple(view.name for view in islice(found, count))
    depth, domains = homes[-1]
    spread = _in_each(found, depth, len(domains), count)
    return tuple(view.name for view in islice(spread, max(count, _MOST_OF_SEGMENTS)))


def within(ask: TopologyAsk, node: str, spares: Sequence[str], snapshot: Snapshot) -> Sequence[str]:
    """Return the spares that a pod on the node may use: those in the domains that it must not leave."""
    depths, home = _required(ask, snapshot.levels), snapshot.nodes.get(node)
    if not depths or home is None:
        return spares
    views = ((name, snapshot.nodes.get(name)) for name in spares)
    return [
        name
        for name, view in views
        if view is not None and all(view.place.domain(depth) == home.place.domain(depth) for depth in depths)
    ]


def _required(ask: TopologyAsk, levels: Levels) -> list[int]:
    """Return the depths of the levels that spares must keep to, the gang's and then its segments'."""
    names = (ask.required_level, ask.segment_level if ask.segment_required else "")
    return [depth for name in names if name and (depth := depth_of(levels, name))]


def _nearest(snapshot: Snapshot, near: Nearness, fit: Callable[[NodeView], NodeView | None]) -> Iterator[NodeView]:
    """Yield the nodes that fit, nearest first; those of one distance are looked at only when their turn comes."""
    fabric = snapshot.atlas.fabric(snapshot.nodes, len(snapshot.levels))
    for _, groups in groupby(sorted(fabric.groups, key=lambda one: -near(one[0])), key=lambda one: near(one[0])):
        views = [snapshot.nodes[name] for _, start, end in groups for name in fabric.names[start:end]]
        views.sort(key=lambda view: (weakness(view), view.free_gpus))  # equals stay in the order of the topology
        yield from (view for view in views if fit(view) is not None)


def _in_each(views: Iterable[NodeView], depth: int, domains: int, count: int) -> Iterator[NodeView]:
    """Yield up to ``count`` of the views in each of so many domains of that depth."""
    taken: Counter[Path] = Counter()
    for view in views:
        domain = view.place.domain(depth)
        if taken[domain] < count:
            taken[domain] += 1
            yield view
        if taken.total() == count * domains:
            return
