"""Which gangs make room for one of higher priority: whole ones, those that lose least work. Pure.

The choice is written into the placement of the gang that needs the room before the first pod is evicted, and holds
until that gang has its nodes: whoever leads next goes on with it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from outrider.api.gangplacement import GangPlacement, PlacementState, RankAssignment, Victim
from outrider.api.gpunode import GPUNode, RankState
from outrider.api.times import parse_rfc3339
from scheduler_plugin.cluster.members import Member
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.cluster.whatif import without_gangs, without_holds
from scheduler_plugin.placing.explain import name_of
from scheduler_plugin.placing.plan import places
from scheduler_plugin.planner.case import Case
from scheduler_plugin.planner.fitting import behind_of

_MOST_VICTIMS: Final = 64  # the list's limit in the placement
_NEVER: Final = "Never"  # Kubernetes' preemptionPolicy of a pod that waits for its turn


class Losses(msgspec.Struct, frozen=True):
    """What ending gangs would cost: ``seconds`` of training since the last checkpoint, by pod UID.

    ``guarded`` are the UIDs of gangs that a disruption budget does not let go whole (``budgets.guarded``).
    """

    seconds: Mapping[str, float] = {}
    guarded: frozenset[str] = frozenset()


class Choice(msgspec.Struct, frozen=True):
    """The gangs to evict, and the nodes that are then the gang's, by member UID."""

    victims: tuple[Victim, ...]
    nodes: Mapping[str, str]


def may_preempt(case: Case) -> bool:
    """Return whether the gang may displace others: the setting allows it, and its pods do not forbid it."""
    if not case.rules.gang_preemption or case.status.preempting:
        return False
    return not any(pod.spec.preemption_policy == _NEVER for pod in case.pods)


def choose(case: Case, members: Sequence[Member], losses: Losses) -> Choice | None:
    """Return the gangs of lower priority whose end lets ``members`` in, None where no such set does.

    They are taken in the order of priority and then of lost GPU time; those that turn out to be needless are spared,
    the dearest first.
    """
    base = without_holds(case.snapshot, behind_of(case) | {case.gang.job.uid})
    candidates = _candidates(case, losses)[:_MOST_VICTIMS]
    asked = case.gang_of(members)

    def once(victims: Sequence[Victim]) -> Mapping[str, str] | None:
        return places(asked, without_gangs(base, [one.job_uid for one in victims]), case.now)

    if once(candidates) is None:
        return None
    low, high = 1, len(candidates)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if once(candidates[:middle]) else (middle + 1, high)
    chosen = list(candidates[:low])
    for one in reversed(candidates[:low]):
        fewer = [other for other in chosen if other is not one]
        if fewer and once(fewer):
            chosen = fewer
    nodes = once(chosen)
    return Choice(tuple(chosen), nodes) if nodes else None


def losses_of(nodes: Sequence[GPUNode]) -> dict[str, float]:
    """Return the seconds of training since the last checkpoint of each pod whose ranks report steps, by its UID.

    Steps since the checkpoint times the time of a step; a pod with several ranks loses what its worst one does.
    """
    losses: dict[str, float] = {}
    for node in nodes:
        for rank in node.status.ranks:
            losses[rank.pod_uid] = max(losses.get(rank.pod_uid, 0.0), _lost_seconds(rank))
    return losses


def _lost_seconds(rank: RankState) -> float:
    steps = rank.step - rank.checkpoint_step if rank.checkpoint_step >= 0 else rank.step
    return max(steps, 0) * rank.step_seconds


def _candidates(case: Case, losses: Losses) -> list[Victim]:
    """Return the placed gangs of lower priority, those to take first before the others."""
    found = [
        _victim(plan.placement, losses.seconds, case.now)
        for plan in case.snapshot.plans.values()
        if _displaceable(plan.placement, case, losses.guarded)
    ]
    return sorted(found, key=lambda one: (one.priority, one.lost_gpu_seconds, one.lost_seconds, one.job_uid))


def _displaceable(placement: GangPlacement, case: Case, guarded: Collection[str]) -> bool:
    """Return whether the gang has nodes and a priority, on record, below that of the gang that needs room.

    A gang whose pods nothing would make again is left alone, and one that a disruption budget keeps.
    """
    status = placement.status
    if status.state is PlacementState.WAITING or not status.ranks or not placement.spec.owned:
        return False
    if placement.spec.job_uid in guarded:
        return False
    return status.priority is not None and status.priority < case.priority


def _victim(placement: GangPlacement, losses: Mapping[str, float], now: float) -> Victim:
    spec, status = placement.spec, placement.status
    lost = _lost(placement, status.ranks, losses, now)
    return Victim(
        job_kind=spec.job_kind,
        job_name=spec.job_name,
        job_uid=spec.job_uid,
        namespace=placement.metadata.namespace,
        priority=status.priority or 0,
        lost_seconds=round(lost, 1),
        lost_gpu_seconds=round(lost * sum(rank.gpus for rank in status.ranks), 1),
        pods=[rank.pod for rank in status.ranks],
        pod_uids=[rank.pod_uid for rank in status.ranks],
    )


def _lost(placement: GangPlacement, ranks: Sequence[RankAssignment], losses: Mapping[str, float], now: float) -> float:
    """Return the seconds that the gang would train again: known from its ranks, else all since it was made."""
    known = [losses[rank.pod_uid] for rank in ranks if rank.pod_uid in losses]
    if known:
        return max(known)
    try:
        return max(now - parse_rfc3339(placement.metadata.creation_timestamp or ""), 0.0)
    except ValueError:
        return 0.0


def remaining(snapshot: Snapshot, victims: Sequence[Victim]) -> tuple[Victim, ...]:
    """Return the victims of which a pod is still on some node; pods made since then are none of them."""
    if not victims:
        return ()
    using = {uid for view in snapshot.nodes.values() for uid in view.uses}
    return tuple(one for one in victims if one.job_uid in using and _on_record(snapshot, one))


def displaced_by(case: Case) -> str:
    """Return the name of the gang that this one makes room for, and is not yet out of the way; else nothing."""
    bound = {pod.metadata.uid for pod in case.pods if pod.spec.node_name}
    if not bound:
        return ""
    for plan_ in case.snapshot.plans.values():
        for victim in plan_.placement.status.preempting:
            if victim.job_uid == case.gang.job.uid and not bound.isdisjoint(victim.pod_uids):
                return name_of(plan_.placement)
    return ""


def _on_record(snapshot: Snapshot, victim: Victim) -> bool:
    known = snapshot.plan_of(victim.job_uid)
    return known is not None and any(uid in known.ranks for uid in victim.pod_uids)
