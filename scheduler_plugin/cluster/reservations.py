"""Room that placements hold for pods without a node: of gangs that wait, and seats of pods still to come. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from outrider.api.gangplacement import GangPlacementStatus, Reservation
from outrider.workloads import BadQuantity, milli
from scheduler_plugin.cluster.members import Member


def reserved(status: GangPlacementStatus) -> dict[str, dict[str, int]]:
    """Return what the placement's reservations hold, in thousandths by node and resource name.

    The nodes are those of ``seats``. A quantity that is none, written by hand, holds nothing there.
    """
    held: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for node, requests in _by_rank(status).values():
        held[node].update(requests)
    return {node: dict(amounts) for node, amounts in held.items()}


def seats(status: GangPlacementStatus) -> dict[int, str]:
    """Return the node that is held for each rank: one, whatever was written by hand; a rank without any has none."""
    return {rank: node for rank, (node, _) in _by_rank(status).items()}


def _by_rank(status: GangPlacementStatus) -> dict[int, tuple[str, Mapping[str, int]]]:
    return {
        rank: (node, amounts)
        for one in status.reservations
        for amounts in (_amounts(one.requests),)
        for rank, node in zip(one.ranks, one.nodes, strict=False)
    }


def reservations(members: Iterable[Member], nodes: Mapping[str, str]) -> list[Reservation]:
    """Return what holds ``nodes`` (by the members' UIDs) for members, those of one shape together, in rank order."""
    shapes: defaultdict[tuple[tuple[str, int], ...], list[Member]] = defaultdict(list)
    for one in sorted(members, key=lambda one: one.rank):
        if one.uid in nodes:
            shapes[tuple(sorted(one.requests.items()))].append(one)
    return [
        Reservation(
            requests={name: quantity(amount) for name, amount in shape},
            ranks=[one.rank for one in alike],
            nodes=[nodes[one.uid] for one in alike],
        )
        for shape, alike in shapes.items()
    ]


def quantity(thousandths: int) -> str:
    """Return thousandths as Kubernetes writes an amount: "8", "500m"."""
    whole, rest = divmod(thousandths, 1000)
    return f"{thousandths}m" if rest else str(whole)


def _amounts(requests: Mapping[str, str]) -> dict[str, int]:
    try:
        return {name: max(milli(text), 0) for name, text in requests.items()}
    except BadQuantity:
        return {}
