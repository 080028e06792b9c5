"""What goes into a GangPlacement's status: the plan, or why there is none, and what is held meanwhile. Pure."""

from collections.abc import Iterable, Sequence

import msgspec

from outrider.api import reasons
from outrider.api.core import Pod
from outrider.api.gangplacement import (
    GangPlacementStatus,
    PlacementState,
    RankAssignment,
    RejectedAlternative,
    Reservation,
    Victim,
)
from outrider.api.meta import MESSAGE_MAX, Condition
from outrider.api.times import rfc3339
from outrider.api.why import Why
from outrider.topology.domains import Path, common
from outrider.words import plural
from scheduler_plugin.cluster.guests import guest_of
from scheduler_plugin.cluster.turns import since_when
from scheduler_plugin.placing.domains import label
from scheduler_plugin.placing.gang import Placement
from scheduler_plugin.planner.case import DID_NOT_BIND, Case


def planned(
    case: Case, ranks: Sequence[RankAssignment], result: Placement, held: Sequence[Reservation]
) -> GangPlacementStatus:
    """Return the status with a new plan. ``held`` are the seats of pods to come."""
    domain = _domain(case, ranks)
    return GangPlacementStatus(
        state=PlacementState.PLANNED,
        revision=case.status.revision + 1,
        message="; ".join((_planned_words(case, ranks, result.spares, domain, held), *result.notes))[:MESSAGE_MAX],
        domain=label(domain),
        ranks=sorted(ranks, key=lambda rank: rank.rank),
        spares=list(result.spares),
        spares_kept=case.gang.policy.keep_spares,
        rejected=list(result.rejected),
        expires_at=rfc3339(case.now + case.rules.plan_seconds),
        priority=case.priority,
        queued_at=_queued_at(case),
        reservations=list(held),
        attempts=case.status.attempts,
        traceparent=case.traceparent,
        conditions=case.status.conditions,
    )


def waiting(
    case: Case,
    message: str,
    *,
    why: Why | None = None,
    rejected: Sequence[RejectedAlternative] = (),
    held: Sequence[Reservation] = (),
    preempting: Sequence[Victim] = (),
) -> GangPlacementStatus:
    """Return the status of a gang without a plan. It holds what ``held`` says, and no more."""
    tried = [RejectedAlternative(domain=node, reason=DID_NOT_BIND) for node in sorted(case.excluded)]
    others = [one for one in rejected if one.reason != DID_NOT_BIND]
    return GangPlacementStatus(
        revision=case.status.revision,
        message=message[:MESSAGE_MAX],
        rejected=(tried + others)[:32],
        why=why,
        priority=case.priority,
        queued_at=_queued_at(case),
        reservations=list(held),
        preempting=list(preempting),
        attempts=case.status.attempts,
        traceparent=case.traceparent,
        conditions=case.status.conditions,
    )


def bound(case: Case, ranks: Sequence[RankAssignment], held: Sequence[Reservation]) -> GangPlacementStatus:
    """Return the status of a gang whose pods all have nodes; Placed once no further pods are to come."""
    said = f"all {len(ranks)} ranks have their nodes" if len(ranks) > 1 else "its one rank has its node"
    if held:
        said = f"{len(ranks)} of {len(ranks) + _seats(held)} ranks have their nodes; the others have seats"
    return msgspec.structs.replace(
        case.status,
        state=PlacementState.PLANNED if held else PlacementState.PLACED,
        message=said,
        ranks=sorted(ranks, key=lambda rank: rank.rank),
        rejected=[one for one in case.status.rejected if one.reason != DID_NOT_BIND],
        expires_at=None,
        priority=case.priority,
        queued_at=None,
        why=None,
        reservations=list(held),
        preempting=[],
        attempts=0,
        retry_at=None,
    )


def vacated(status: GangPlacementStatus) -> GangPlacementStatus:
    """Return the status of a gang none of whose pods is left to wait: it holds nothing for pods to come."""
    return msgspec.structs.replace(status, reservations=[], preempting=[], retry_at=None)


def with_condition(case: Case, status: GangPlacementStatus) -> GangPlacementStatus:
    """Return the status with its Planned condition; the time of the last change stays where nothing changed."""
    done = status.state is not PlacementState.WAITING
    old = next((one for one in status.conditions if one.type == reasons.PLANNED), None)
    value = "True" if done else "False"
    wanted = Condition(
        type=reasons.PLANNED,
        status=value,
        reason=reasons.GANG_PLANNED if done else str(status.why.reason) if status.why else reasons.GANG_WAITING,
        message=status.message,
        last_transition_time=old.last_transition_time if old and old.status == value else rfc3339(case.now),
        observed_generation=max(case.gang.placement.metadata.generation if case.gang.placement else 0, 1),
    )
    others = [one for one in status.conditions if one.type != reasons.PLANNED]
    return msgspec.structs.replace(status, conditions=[*others, wanted])


def alone(case: Case, message: str) -> str:
    """Return the message, with what people should know about a gang whose size is not known or does not add up."""
    notes = (f"placed as single pods, since {case.size.unknown}",) if case.size.unknown else ()
    return "; ".join((message, *notes, *case.notes))[:MESSAGE_MAX]


def _queued_at(case: Case) -> str:
    return rfc3339(since_when(case.status, case.gang.pods, case.now))


def _seats(held: Sequence[Reservation]) -> int:
    return sum(len(one.ranks) for one in held)


def _planned_words(
    case: Case, ranks: Sequence[RankAssignment], spares: Sequence[str], domain: Path, held: Sequence[Reservation]
) -> str:
    nodes = {rank.node for rank in ranks}
    leaves = {view.place.path for name in nodes if (view := case.snapshot.nodes.get(name))}
    spare = f"spare: {', '.join(spares)}" if spares else "no spare node is free"
    under = f"under {plural(len(leaves), 'leaf', 'leaves')}{', ' if len(leaves) == 1 else ' of '}{label(domain)}"
    seats = f"; {plural(_seats(held), 'seat')} for pods to come" if held else ""
    said = f"{plural(len(ranks), 'pod')} on {plural(len(nodes), 'node')} {under}{seats}; {spare}"
    return alone(case, said + _unmodelled_words(case.pods))


def _unmodelled_words(pods: Iterable[Pod]) -> str:
    """Say what the plan could not check, so that kube-scheduler may put a pod on a spare instead."""
    found = sorted({one for pod in pods for one in guest_of(pod).unmodelled})
    return f"; not planned for: {', '.join(found)} (a spare stands in where that is in the way)" if found else ""


def _domain(case: Case, ranks: Sequence[RankAssignment]) -> Path:
    """Return the smallest domain that holds all the ranks."""
    paths = [view.place.path for rank in ranks if (view := case.snapshot.nodes.get(rank.node))]
    if not paths:
        return ()
    return paths[0][: min(common(paths[0], path) for path in paths)]
