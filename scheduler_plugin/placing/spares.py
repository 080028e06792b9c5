"""Spare nodes: the nearest that could take over a rank of a gang. Pure and deterministic."""

from collections.abc import Collection, Sequence

from outrider.topology import TopologyAsk, depth_of
from scheduler_plugin.cluster.members import Member
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.placing.gang import Gang
from scheduler_plugin.placing.nearness import Nearness, closest
from scheduler_plugin.placing.room import Room


def spares_for(gang: Gang, used: Collection[str], snapshot: Snapshot, count: int, now: float) -> tuple[str, ...]:
    """Return the nearest nodes outside ``used`` that could take the largest member now."""
    room = Room(snapshot, gang.job_uid, gang.members, gang.excluded, now)
    return nearest_spares(room, gang.members, used, snapshot, count, gang.ask)


def nearest_spares(
    room: Room,
    members: Sequence[Member],
    used: Collection[str],
    snapshot: Snapshot,
    count: int,
    ask: TopologyAsk | None = None,
) -> tuple[str, ...]:
    """Return up to ``count`` of the nearest nodes outside ``used`` that have room for the largest member.

    Where ``ask`` requires a level, they are in the domain of that level that the gang uses.
    """
    if not count:
        return ()
    largest = max(members, key=lambda one: one.gpus)
    views = [snapshot.nodes[name] for name in used if name in snapshot.nodes]
    near = Nearness(view.place.near for view in views)
    depth = (depth_of(snapshot.levels, ask.required_level) or 0) if ask is not None and ask.required_level else 0
    domains = {view.place.domain(depth) for view in views}
    free = [
        view
        for view in room.fitting(largest)
        if view.name not in used and (not depth or view.place.domain(depth) in domains)
    ]
    return tuple(view.name for view in sorted(free, key=lambda view: closest(view, near))[:count])
