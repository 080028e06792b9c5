"""Spare nodes: the nearest that could take over a rank of a gang. Pure and deterministic."""

from collections.abc import Collection, Sequence

from scheduler_plugin.cluster.members import Member
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.placing.gang import Gang
from scheduler_plugin.placing.nearness import Nearness, closest
from scheduler_plugin.placing.room import Room


def spares_for(gang: Gang, used: Collection[str], snapshot: Snapshot, count: int, now: float) -> tuple[str, ...]:
    """Return the nearest nodes outside ``used`` that could take the largest member now."""
    return nearest_spares(
        Room(snapshot, gang.job_uid, gang.members, gang.excluded, now), gang.members, used, snapshot, count
    )


def nearest_spares(
    room: Room, members: Sequence[Member], used: Collection[str], snapshot: Snapshot, count: int
) -> tuple[str, ...]:
    """Return up to ``count`` of the nearest nodes outside ``used`` that have room for the largest member."""
    largest = max(members, key=lambda one: one.gpus)
    near = Nearness(snapshot.nodes[name].place.path for name in used if name in snapshot.nodes)
    free = [view for view in room.fitting(largest) if view.name not in used]
    return tuple(view.name for view in sorted(free, key=lambda view: closest(view, near))[:count])
