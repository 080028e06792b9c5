"""Spare nodes: the nearest that could take over a rank of a gang. Pure and deterministic."""

from collections.abc import Collection, Sequence
from itertools import groupby

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
    fabric = snapshot.atlas.fabric(snapshot.nodes, len(snapshot.levels))
    depth = (depth_of(snapshot.levels, ask.required_level) or 0) if ask is not None and ask.required_level else 0
    domains = {view.place.domain(depth) for view in views}
    found: list[str] = []
    for _, groups in groupby(sorted(fabric.groups, key=lambda one: -near(one[0])), key=lambda one: near(one[0])):
        names = (name for _, start, end in groups for name in fabric.names[start:end] if name not in used)
        free = [view for name in names if (view := room.on(name, largest))]
        inside = [view for view in free if not depth or view.place.domain(depth) in domains]
        found += [view.name for view in sorted(inside, key=lambda view: closest(view, near))]
        if len(found) >= count:
            break
    return tuple(found[:count])
