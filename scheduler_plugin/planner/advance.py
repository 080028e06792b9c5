"""What to do next for one gang: a function of its pods, its placement and the snapshot. Pure.

Every call starts from what the API server holds, so a planner that died at any point is continued by the next one.
"""

from collections.abc import Sequence

import msgspec

from outrider.api.core import Pod
from outrider.api.gangplacement import GangPlacementStatus, PlacementState, RankAssignment, RejectedAlternative
from outrider.api.meta import MESSAGE_MAX
from outrider.api.times import parse_rfc3339, rfc3339
from outrider.topology.domains import Path, common
from outrider.workloads import gated
from scheduler_plugin.cluster.members import GangState
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.placing.domains import label
from scheduler_plugin.placing.gang import Gang, Placement, Refusal
from scheduler_plugin.placing.plan import plan
from scheduler_plugin.placing.replacing import replace
from scheduler_plugin.placing.spares import spares_for
from scheduler_plugin.planner.case import DID_NOT_BIND, Case, case_of, expired
from scheduler_plugin.rules import Rules

_RECHECK_SECONDS = 5.0  # how soon a plan past its time is looked at again, until kube-scheduler has tried it


class Advance(msgspec.Struct, frozen=True):
    """The next step. ``status`` is to be written first; then pods are released to the scheduler, evicted, told why.

    ``release`` has for each gated pod the nodes it may use, planned one first; ``wake`` the pods without a gate that
    kube-scheduler may have put aside; ``moved`` the ranks that got a new place beside a gang that runs.
    ``again_seconds`` asks for another look.
    """

    outcome: str
    size: int = 1
    status: GangPlacementStatus | None = None
    release: tuple[tuple[Pod, tuple[str, ...]], ...] = ()
    wake: tuple[Pod, ...] = ()
    evict: tuple[Pod, ...] = ()
    waiting: tuple[Pod, ...] = ()
    message: str = ""
    moved: tuple[RankAssignment, ...] = ()
    again_seconds: float | None = None


def advance(gang: GangState, snapshot: Snapshot, rules: Rules, now: float) -> Advance:
    """Return the gang's next step at ``now`` (seconds since 1970). Raises BadQuantity."""
    case = case_of(gang, snapshot, rules, now)
    if not case.newcomers and not case.strays:
        return _settled(case) if not case.unbound else _release(case)
    if case.owner_pending:
        return Advance("waiting", message=case.size.unknown, again_seconds=1.0)
    if not case.fresh or case.size.unknown:
        return _join(case)
    if case.size.pods > len(gang.pods):
        return _incomplete(case)
    return _whole(case)


def _incomplete(case: Case) -> Advance:
    """Wait for the members that are missing; say so once their controller should have made them."""
    message = f"{len(case.gang.pods)} of {case.size.pods} pods exist; the gang is placed once all do"
    if case.assembling:
        return Advance("waiting", case.seats, message=message, again_seconds=1.0)
    return _waiting(case, case.unbound, _unplaced(case, message), message)


def _whole(case: Case) -> Advance:
    """Place the whole gang or nothing of it."""
    result = plan(case.ask(case.unbound), case.snapshot, case.gang.policy.spares, case.now)
    if isinstance(result, Refusal):
        said = _unplaced(case, result.message, result.rejected)
        return _waiting(case, case.unbound, said, result.message)
    ranks = [case.seat(pod, result.nodes[pod.metadata.uid]) for pod in case.unbound]
    return _planned(case, ranks, result)


def _unplaced(case: Case, message: str, rejected: Sequence[RejectedAlternative] = ()) -> GangPlacementStatus:
    return GangPlacementStatus(
        revision=case.status.revision, message=message, rejected=list(rejected), traceparent=case.traceparent
    )


def _join(case: Case) -> Advance:
    """Place what is new or lost beside the pods that stay."""
    seeking = case.newcomers + case.strays
    kept = case.kept(case.strays)
    survivors = [rank.node for rank in kept if rank.pod_uid in case.ranks]
    before = {rank.rank: rank.node for rank in case.old.values()}
    asked = case.ask(seeking)
    wishes = {one.uid: [before.get(one.rank, ""), *case.status.spares] for one in asked.members}
    result = replace(asked, survivors, wishes, case.snapshot, case.now)
    evict = _evictable(case, asked, result, survivors)
    if isinstance(result, Refusal):
        message = _alone(case, result.message)
        have = f"{len(kept)} of {len(kept) + len(seeking)} ranks have their nodes"
        told = f"{have}; the rest waits: {message}"[:MESSAGE_MAX]
        said = msgspec.structs.replace(case.status, message=told)
        return msgspec.structs.replace(_waiting(case, seeking, said, message), evict=evict)
    joined = [case.seat(pod, node) for pod in seeking if (node := result.nodes.get(pod.metadata.uid))]
    taken = {rank.rank for rank in joined}
    ranks = [rank for rank in kept if rank.rank not in taken] + joined
    complete = msgspec.structs.replace(
        result,
        spares=spares_for(asked, {rank.node for rank in ranks}, case.snapshot, case.gang.policy.spares, case.now),
        rejected=tuple(RejectedAlternative(domain=node, reason=DID_NOT_BIND) for node in sorted(case.excluded)),
    )
    left = tuple(pod for pod in seeking if pod.metadata.uid not in result.nodes)
    return msgspec.structs.replace(_planned(case, ranks, complete), evict=evict, waiting=left, moved=tuple(joined))


def _alone(case: Case, message: str) -> str:
    return f"{message}; placed as single pods, since {case.size.unknown}" if case.size.unknown else message


def _evictable(case: Case, asked: Gang, result: Placement | Refusal, survivors: Sequence[str]) -> tuple[Pod, ...]:
    """Return released pods that are pinned to lost nodes while a new pod of their rank would find a place."""
    placed = result.nodes if isinstance(result, Placement) else {}
    stuck = [pod for pod in case.strays if not gated(pod) and pod.metadata.uid not in placed]
    if not stuck:
        return ()
    uids = {pod.metadata.uid for pod in stuck}
    unpinned = tuple(msgspec.structs.replace(one, affinity={}) for one in asked.members if one.uid in uids)
    elsewhere = replace(msgspec.structs.replace(asked, members=unpinned), survivors, {}, case.snapshot, case.now)
    found = elsewhere.nodes if isinstance(elsewhere, Placement) else {}
    return tuple(pod for pod in stuck if pod.metadata.uid in found)


def _planned(case: Case, ranks: Sequence[RankAssignment], result: Placement) -> Advance:
    domain = _domain(case, ranks)
    status = GangPlacementStatus(
        state=PlacementState.PLANNED,
        revision=case.status.revision + 1,
        message=_alone(case, _summary(case, ranks, result.spares, domain)),
        domain=label(domain),
        ranks=sorted(ranks, key=lambda rank: rank.rank),
        spares=list(result.spares),
        rejected=list(result.rejected),
        expires_at=rfc3339(case.now + case.rules.plan_seconds),
        traceparent=case.traceparent,
    )
    return _deliver(case, status, case.rules.plan_seconds, written=status)


def _release(case: Case) -> Advance:
    """Everything is planned, not all is bound: go on lifting gates where a planner before us stopped."""
    left = _RECHECK_SECONDS
    if case.status.expires_at and not expired(case.status, case.now):
        left = max(parse_rfc3339(case.status.expires_at) - case.now, 1.0)
    return _deliver(case, case.status, left)


def _deliver(
    case: Case, status: GangPlacementStatus, again_seconds: float, *, written: GangPlacementStatus | None = None
) -> Advance:
    nodes = {rank.pod_uid: (rank.node, *status.spares) for rank in status.ranks}
    planned = [pod for pod in case.unbound if pod.metadata.uid in nodes]
    return Advance(
        outcome="planned",
        size=case.seats,
        status=written,
        release=tuple((pod, nodes[pod.metadata.uid]) for pod in planned if gated(pod)),
        wake=tuple(pod for pod in planned if not gated(pod)),
        message=status.message,
        again_seconds=again_seconds,
    )


def _settled(case: Case) -> Advance:
    """No pod is left to place: note it, with the nodes they really got."""
    if case.gang.placement is None or not case.gang.pods:
        return Advance("settled", case.seats)
    ranks = sorted(case.kept(), key=lambda rank: rank.rank)
    running = msgspec.structs.replace(
        case.status,
        state=PlacementState.PLACED,
        message=f"all {len(ranks)} ranks have their nodes",
        ranks=ranks,
        rejected=[one for one in case.status.rejected if one.reason != DID_NOT_BIND],
        expires_at=None,
    )
    return Advance("settled", case.seats, None if running == case.status else running)


def _waiting(case: Case, pods: Sequence[Pod], said: GangPlacementStatus, message: str) -> Advance:
    """Nothing fits: say so. A gang that runs keeps its plan; one that does not holds no nodes while it waits."""
    return Advance("waiting", case.seats, None if said == case.status else said, waiting=tuple(pods), message=message)


def _summary(case: Case, ranks: Sequence[RankAssignment], spares: Sequence[str], domain: Path) -> str:
    nodes = {rank.node for rank in ranks}
    leaves = {view.place.path for name in nodes if (view := case.snapshot.nodes.get(name))}
    spare = f"spare: {', '.join(spares)}" if spares else "no spare node is free"
    return f"{len(ranks)} pods on {len(nodes)} nodes under {len(leaves)} leaves of {label(domain)}; {spare}"


def _domain(case: Case, ranks: Sequence[RankAssignment]) -> Path:
    """Return the smallest domain that holds all the ranks."""
    paths = [view.place.path for rank in ranks if (view := case.snapshot.nodes.get(rank.node))]
    if not paths:
        return ()
    return paths[0][: min(common(paths[0], path) for path in paths)]
