"""Nodes that a waiting gang holds, so that smaller ones pass it only where they do not delay it. Pure.

This is backfilling with a reservation (EASY: Lifka, "The ANL/IBM SP scheduling system", 1995). How long others will
run is not known here, so the reservation names nodes instead of a time: what it names is not given to anyone behind,
and all else is.
"""

from collections.abc import Mapping, Sequence

from outrider.api.gangplacement import Reservation
from outrider.api.times import parse_rfc3339
from outrider.topology.domains import natural
from outrider.workloads import gpus_in
from scheduler_plugin.cluster.members import Member
from scheduler_plugin.cluster.nodes import NodeView
from scheduler_plugin.cluster.reservations import reservations, reserved
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.cluster.whatif import LONE, tenants, vacated, without_holds
from scheduler_plugin.placing.plan import places
from scheduler_plugin.placing.room import eligible
from scheduler_plugin.planner.case import Case
from scheduler_plugin.planner.fitting import ahead_of, behind_of, holders
from scheduler_plugin.rules import Rules


def reserve(case: Case, members: Sequence[Member]) -> list[Reservation]:
    """Return what the gang holds while it waits for nodes for ``members``: nothing where others come first.

    Nodes once chosen are kept as long as they will do, so that what becomes free adds up.
    """
    if not members or not _allowed(case, members):
        return []
    if _still_good(case, members):
        return case.status.reservations
    nodes = _once_free(case, members)
    return [] if nodes is None else reservations(members, nodes)


def _allowed(case: Case, members: Sequence[Member]) -> bool:
    """Return whether so few gangs of this priority are ahead, and so few GPUs are held, that this one may hold some."""
    plans = case.snapshot.plans
    alike = [uid for uid in ahead_of(case) if (plans[uid].placement.status.priority or 0) == case.priority]
    if len(alike) >= case.rules.reserving_gangs:
        return False
    quota, held = quota_of(case.snapshot, case.rules), held_gpus(case.snapshot, case.rules, but=case.gang.job.uid)
    return held + sum(one.gpus for one in members) <= quota


def quota_of(snapshot: Snapshot, rules: Rules) -> float:
    """Return the thousandths of GPUs that waiting gangs may hold together."""
    return sum(view.gpus for view in snapshot.nodes.values()) * rules.reservation_percent / 100


def held_gpus(snapshot: Snapshot, rules: Rules, but: str = "") -> int:
    """Return the thousandths of GPUs that waiting gangs hold, that of UID ``but`` left out."""
    return sum(
        gpus_in(amounts, rules.gpu_resources)
        for uid in holders(snapshot)
        if uid != but
        for amounts in reserved(snapshot.plans[uid].placement.status).values()
    )


def _still_good(case: Case, members: Sequence[Member]) -> bool:
    """Return whether the nodes on record still can take the members once they are free."""
    held = case.status.reservations
    nodes = {rank: node for one in held for rank, node in zip(one.ranks, one.nodes, strict=False)}
    if set(nodes) != {one.rank for one in members}:
        return False
    if reservations(members, {one.uid: nodes[one.rank] for one in members}) != held:
        return False
    views = case.snapshot.nodes
    if not all((view := views.get(nodes[one.rank])) and eligible(view, one, case.now) for one in members):
        return False
    firm = without_holds(case.snapshot, behind_of(case))
    return all(_large_enough(firm.nodes[name], amounts, case) for name, amounts in reserved(case.status).items())


def _large_enough(view: NodeView, amounts: dict[str, int], case: Case) -> bool:
    """Return whether the node, empty but for what those ahead hold, has room for what is held there."""
    ahead = [view.holds[other] for other in view.waits & view.holds.keys() - {case.gang.job.uid}]
    return all(
        amount + sum(held.get(name, 0) for held in ahead) <= view.allocatable.get(name, 0)
        for name, amount in amounts.items()
    )


def _once_free(case: Case, members: Sequence[Member]) -> Mapping[str, str] | None:
    """Return the nodes that the gang gets once those that run have left: as few of them as it takes."""
    base = without_holds(case.snapshot, behind_of(case) | {case.gang.job.uid})
    leaving = _by_age(case, base)
    asked = case.gang_of(members)

    def once(count: int) -> Mapping[str, str] | None:
        return places(asked, vacated(base, leaving[:count]), case.now)

    found, low, high = once(len(leaving)), 0, len(leaving)
    while found is not None and low < high:
        middle = (low + high) // 2
        sooner = once(middle)
        if sooner is None:
            low = middle + 1
        else:
            found, high = sooner, middle
    return found


def _by_age(case: Case, snapshot: Snapshot) -> list[tuple[str, str]]:
    """Return who leaves which node, in the order to count on: the oldest gangs first, those not on record later.

    Pods of no gang come last: nothing tells when they end.
    """
    staying = {*holders(snapshot), case.gang.job.uid}
    pairs = [(view.name, uid) for view in snapshot.nodes.values() for uid in tenants(view) if uid not in staying]
    ages = {uid: _since(snapshot, uid) for _, uid in pairs}
    return sorted(pairs, key=lambda pair: (pair[1] == LONE, ages[pair[1]], pair[1], natural(pair[0])))


def _since(snapshot: Snapshot, uid: str) -> float:
    known = snapshot.plans.get(uid)
    try:
        return parse_rfc3339((known.placement.metadata.creation_timestamp if known else "") or "")
    except ValueError:
        return float("inf")
