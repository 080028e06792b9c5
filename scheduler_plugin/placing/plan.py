"""Plan a gang: all of it or nothing, close together, on healthy nodes. Pure and deterministic."""

from collections.abc import Sequence
from typing import Final

from outrider.api.gangplacement import RejectedAlternative
from scheduler_plugin.cluster.members import Member
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.placing.domains import Tree, label
from scheduler_plugin.placing.explain import refusal
from scheduler_plugin.placing.gang import Gang, Placement, Refusal
from scheduler_plugin.placing.room import Room
from scheduler_plugin.placing.spares import nearest_spares

_MOST_REJECTED: Final = 8  # alternatives kept for explanations


def plan(gang: Gang, snapshot: Snapshot, spares: int, now: float) -> Placement | Refusal:
    """Return nodes for every member and up to ``spares`` spare nodes, or a refusal, at ``now`` (seconds since 1970).

    In order: the lowest domain that holds the gang, the fewest leaves in it, the healthiest nodes, the domain that is
    left with the least room (so that whole free leaves stay whole). Ranks follow the topology.
    """
    room = Room(snapshot, gang.job_uid, gang.members, gang.excluded, now)
    tree = Tree(room.slots(), snapshot.nodes)
    needs = [len(kind) for kind in room.kinds]
    alike = len(needs) == 1 and not room.intertwined
    nodes = _alike(tree, needs[0], gang.members) if alike else _mixed(tree, needs, gang.members, room)
    rejected = _rejected(tree, needs)
    if nodes is None:
        return refusal(gang, snapshot, now, rejected=rejected)
    return Placement(nodes, nearest_spares(room, gang.members, set(nodes.values()), snapshot, spares), rejected)


def _alike(tree: Tree, need: int, members: Sequence[Member]) -> dict[str, str] | None:
    domains = next(tree.holding([need]), None)
    if domains is None:
        return None
    seats = [path[-1] for path, count in tree.best(domains, need) for _ in range(count)]
    ranked = sorted(members, key=lambda one: one.rank)
    return {one.uid: name for one, name in zip(ranked, seats, strict=True)}


def _mixed(tree: Tree, needs: Sequence[int], members: Sequence[Member], room: Room) -> dict[str, str] | None:
    """Place members that ask for different things: in rank order, each on the first node with room."""
    ranked = sorted(members, key=lambda one: one.rank)
    domains = (domain for level in tree.holding(needs) for domain in level)
    tries = (room.first_fit(ranked, tree.under(domain)) for domain in domains)
    return next((nodes for nodes in tries if nodes is not None), None)


def _rejected(tree: Tree, needs: Sequence[int]) -> tuple[RejectedAlternative, ...]:
    need = sum(needs)
    return tuple(
        RejectedAlternative(domain=label(path), reason=f"room for {room} of {need} pods")
        for path, room in tree.most(needs, _MOST_REJECTED)
    )
