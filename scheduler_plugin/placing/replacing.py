"""Nodes for members that join a gang that runs: new pods, and those whose nodes failed. Pure and deterministic."""

from collections.abc import Iterable, Mapping, Sequence

from scheduler_plugin.cluster.members import Member
from scheduler_plugin.cluster.nodes import NodeView
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.placing.explain import refusal
from scheduler_plugin.placing.gang import Gang, Placement, Refusal
from scheduler_plugin.placing.nearness import Nearness, closest
from scheduler_plugin.placing.room import Room


def replace(
    gang: Gang, survivors: Sequence[str], wishes: Mapping[str, Sequence[str]], snapshot: Snapshot, now: float
) -> Placement | Refusal:
    """Return nodes for members that join pods already on ``survivors`` (node names, one per pod).

    ``wishes`` by pod UID are nodes to take first, in order: the rank's last node, the spares. Then the nearest to all
    that are there. Members without room are left out: a running gang gains nothing if the others wait for them.
    """
    room = Room(snapshot, gang.job_uid, gang.members, gang.excluded, now)
    near = Nearness(snapshot.nodes[name].place.path for name in survivors if name in snapshot.nodes)
    nodes: dict[str, str] = {}
    for one in sorted(gang.members, key=lambda one: one.rank):
        view = _wished(room, one, wishes.get(one.uid, ())) or _nearest(room, one, near)
        if view is not None:
            nodes[one.uid] = view.name
            room.use(view, one)
            near.add(view.place.path)
    if nodes:
        return Placement(nodes)
    return refusal(gang, snapshot, now)


def _wished(room: Room, one: Member, wishes: Iterable[str]) -> NodeView | None:
    return next((view for name in wishes if (view := room.on(name, one))), None)


def _nearest(room: Room, one: Member, near: Nearness) -> NodeView | None:
    return min(room.fitting(one), key=lambda view: closest(view, near), default=None)
