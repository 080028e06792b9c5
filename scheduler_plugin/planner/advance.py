"""What to do next for one gang: a function of its pods, its placement and the snapshot. Pure.

Every call starts from what the API server holds, so a planner that died at any point is continued by the next one.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from outrider.api.core import Pod
from outrider.api.gangplacement import (
    GangPlacementStatus,
    PlacementState,
    RankAssignment,
    RejectedAlternative,
    Reservation,
    Victim,
)
from outrider.api.meta import MESSAGE_MAX
from outrider.api.names import RETRY_ANNOTATION
from outrider.api.times import parse_rfc3339, rfc3339
from outrider.api.why import WaitReason, Why
from outrider.words import plural
from outrider.workloads import gated
from scheduler_plugin.cluster.members import GangState, Member
from scheduler_plugin.cluster.reservations import reservations, seats
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.cluster.spares import called_in
from scheduler_plugin.placing.explain import missing
from scheduler_plugin.placing.gang import Gang, Placement, Refusal
from scheduler_plugin.placing.room import fits
from scheduler_plugin.placing.spares import spares_for, within, worn
from scheduler_plugin.placing.wording import sentence
from scheduler_plugin.planner import statuses
from scheduler_plugin.planner.backfill import reserve
from scheduler_plugin.planner.case import DID_NOT_BIND, Case, case_of, turned_away
from scheduler_plugin.planner.fitting import beside, first_in_line, fit, most
from scheduler_plugin.planner.preempting import Choice, Losses, choose, displaced_by, may_preempt, remaining
from scheduler_plugin.planner.retry import hopeless, pause_seconds, released
from scheduler_plugin.rules import Rules

_RETRY_SECONDS: Final = 1.0  # kube-scheduler is asked to try a pod again no more often
_RECHECK_SECONDS: Final = 5.0  # how soon a plan past its time is looked at again, until kube-scheduler has tried it


class Advance(msgspec.Struct, frozen=True):
    """The next step. ``status`` is to be written first; then pods are released to the scheduler, evicted, told why.

    ``release`` has for each gated pod the nodes it may use, planned one first; ``wake`` the pods without a gate that
    kube-scheduler may have put aside, ``retry`` those that it did though their node has room; ``moved`` the ranks whose
    pod was lost and got a new place beside the others; ``displace`` the gangs to evict whole. ``foretold`` says that
    pods took the seats kept for them, and no more. ``asks_losses`` says that ``losses`` would tell whether some gang
    should be displaced. ``needs`` are the GPUs (thousandths) without which a waiting gang fits nowhere.
    ``again_seconds`` asks for another look.
    """

    outcome: str
    size: int = 1
    status: GangPlacementStatus | None = None
    release: tuple[tuple[Pod, tuple[str, ...]], ...] = ()
    wake: tuple[Pod, ...] = ()
    retry: tuple[Pod, ...] = ()
    evict: tuple[Pod, ...] = ()
    displace: tuple[Victim, ...] = ()
    waiting: tuple[Pod, ...] = ()
    message: str = ""
    moved: tuple[RankAssignment, ...] = ()
    foretold: bool = False
    asks_losses: bool = False
    needs: int = 0
    again_seconds: float | None = None


def advance(
    gang: GangState, snapshot: Snapshot, rules: Rules, now: float, losses: Losses | None = None, ahead: int = 0
) -> Advance:
    """Return the gang's next step at ``now`` (seconds since 1970). Raises BadQuantity.

    ``losses``, what preemption would cost, are needed only where a step asks for them.
    Of a gang with so many others ``ahead`` of it that are still to be looked at, only their number is told.
    """
    case = case_of(gang, snapshot, rules, now)
    return _to_the_end(case, _in_line(case, ahead) or _next(case, losses))


def _in_line(case: Case, ahead: int) -> Advance | None:
    """Return the first word to a gang that may have no node yet, None where it can be told more at once."""
    if not ahead or case.old or case.short or case.held_elsewhere or case.owner_pending or not case.newcomers:
        return None
    said = statuses.waiting(case, f"{plural(ahead, 'gang')} whose turn comes first may use what is free; then it may")
    return msgspec.structs.replace(_waiting(case, case.unbound, said, said.message), again_seconds=0.0)


def _next(case: Case, losses: Losses | None) -> Advance:
    if case.resting:
        return _rest(case)
    if case.settled:
        return _settled(case) if not case.unbound else _release(case)
    if not_yet := _not_yet(case):
        return not_yet
    piecemeal = not case.fresh or bool(case.size.unknown) or case.growing
    seeking = case.prelude or (case.admitted if piecemeal else [])
    if seeking or (piecemeal and case.lost_seats):
        return _join(case, seeking)
    if case.held_elsewhere:
        return _held_elsewhere(case)
    return _incomplete(case) if case.short else _whole(case, losses)


def _not_yet(case: Case) -> Advance | None:
    """Return the step of a gang that is to wait for what others do first, None where there is nothing like that."""
    if case.owner_pending:
        return Advance("waiting", message=case.size.unknown, again_seconds=1.0)
    by = displaced_by(case)
    if not by:
        return None
    message = f"makes room for {by}, which has a higher priority; it is planned again once all its pods are gone"
    return Advance("waiting", case.gang_size, waiting=tuple(case.newcomers), message=message, again_seconds=1.0)


def _held_elsewhere(case: Case) -> Advance:
    """Wait for whoever else holds the pods, and hold nothing meanwhile; a gang that has its plan keeps it."""
    message = case.held_elsewhere
    said = statuses.waiting(case, message) if case.fresh else case.status
    return _waiting(case, case.unbound, said, message)


def _to_the_end(case: Case, step: Advance) -> Advance:
    """Go on with a preemption once decided until no pod of its victims is left: half a gang is of use to nobody."""
    left = remaining(case.snapshot, case.status.preempting)
    if step.displace or not left:
        return step
    status = None if step.status is None else msgspec.structs.replace(step.status, preempting=list(left))
    again_seconds = min(step.again_seconds or _RECHECK_SECONDS, _RECHECK_SECONDS)
    return msgspec.structs.replace(step, displace=left, status=status, again_seconds=again_seconds)


def _rest(case: Case) -> Advance:
    """Wait before the next plan; what the last one released goes, so that its nodes are free for others."""
    pause = pause_seconds(
        case.gang.job.uid, case.status.attempts, case.rules.retry_seconds, case.rules.retry_cap_seconds
    )
    evict = released(case, before=case.now + case.resting - pause)
    fresh = tuple(pod for pod in case.unbound if gated(pod))
    return Advance(
        "waiting", case.gang_size, evict=evict, waiting=fresh, message=case.status.message, again_seconds=case.resting
    )


def _incomplete(case: Case) -> Advance:
    """Wait for the members that are missing; say so once their controller should have made them."""
    why = missing(case.present, case.size.least, case.notes)
    if case.assembling:
        return Advance("waiting", case.gang_size, message=sentence(why), again_seconds=1.0)
    said = statuses.waiting(case, sentence(why), why=why)
    return _waiting(case, case.unbound, said, said.message)


def _whole(case: Case, losses: Losses | None) -> Advance:
    """Place the whole gang or nothing of it; of an elastic one, as many as fit."""
    fresh = [pod for pod in case.core if not pod.spec.node_name]
    members = (*case.members(fresh), *case.to_come)
    result = fit(case, members, case.gang.policy.spares)
    if isinstance(result, Refusal):
        fewer = most(case, members, case.size.min, case.gang.policy.spares) if case.size.min else None
        if fewer is None:
            return _held_back(case, members, result, losses)
        result = fewer
    placed = {pod.metadata.uid for pod in fresh}
    ranks = [rank for rank in case.kept() if rank.pod_uid not in placed and rank.pod_uid in case.ranks]
    ranks += [case.assigned(pod, node) for pod in fresh if (node := result.nodes.get(pod.metadata.uid))]
    left = tuple(pod for pod in fresh if pod.metadata.uid not in result.nodes)
    advanced = _planned(case, ranks, result, reservations(case.to_come, result.nodes))
    return msgspec.structs.replace(advanced, waiting=left)


def _held_back(case: Case, members: Sequence[Member], refused: Refusal, losses: Losses | None) -> Advance:
    """Nothing fits: hold the nodes that the gang will get, or have others make room, and say why it waits."""
    needed = sorted(members, key=lambda one: one.rank)[: case.size.min or len(members)]
    displacing = may_preempt(case)
    choice = choose(case, needed, losses) if displacing and losses is not None else None
    held = reservations(needed, choice.nodes) if choice else reserve(case, needed)
    victims = _victims(case, choice, held)
    why = _why(case, members, refused)
    message = sentence(why) if why else refused.message
    told = "; ".join((message, *_held_words(case, held, victims)))
    said = statuses.waiting(case, told, why=why, rejected=refused.rejected, held=held, preempting=victims)
    waiting = _waiting(case, case.unbound, said, message)
    return msgspec.structs.replace(
        waiting,
        displace=victims,
        asks_losses=displacing and losses is None,
        needs=sum(one.gpus for one in needed),
        again_seconds=_RECHECK_SECONDS if victims else None,
    )


def _victims(case: Case, choice: Choice | None, held: Sequence[Reservation]) -> tuple[Victim, ...]:
    """Return the gangs that make room: those just chosen, or those on record while their nodes are still wanted."""
    if choice is not None:
        return choice.victims
    return remaining(case.snapshot, case.status.preempting) if list(held) == case.status.reservations else ()


def _why(case: Case, members: Sequence[Member], refused: Refusal) -> Why | None:
    ahead = first_in_line(case, members)
    if refused.why is None:
        return None
    notes = [*refused.why.notes, *case.notes]
    if not ahead:
        return msgspec.structs.replace(refused.why, notes=notes)
    return msgspec.structs.replace(refused.why, reason=WaitReason.BEHIND, ends=list(ahead), notes=notes)


def _held_words(case: Case, held: Sequence[Reservation], victims: Sequence[Victim]) -> tuple[str, ...]:
    nodes = {node for one in held for node in one.nodes}
    free = sum(not view.uses for name in nodes if (view := case.snapshot.nodes.get(name)))
    said = (f"{plural(len(nodes), 'node')} held for it, {free} of them empty",) if nodes else ()
    names = ", ".join(f"{one.job_kind} {one.namespace}/{one.job_name}" for one in victims[:3])
    more = f" and {len(victims) - 3} more" if len(victims) > 3 else ""
    return (*said, f"evicting {names}{more} for it") if victims else said


def _join(case: Case, seeking: Sequence[Pod]) -> Advance:
    """Place what is new or lost beside the pods that stay; lost seats of pods to come as well."""
    kept = case.kept(case.strays)
    survivors = [rank.node for rank in kept if rank.pod_uid in case.ranks]
    asked = case.gang_of((*case.members(seeking), *case.lost_seats))
    result = beside(case, asked, survivors, _wishes(case, asked))
    left = tuple(pod for pod in seeking if isinstance(result, Refusal) or pod.metadata.uid not in result.nodes)
    evict = _evictable(case, left, asked, survivors)
    if left and not evict and hopeless(case):
        return _give_up(case, left, result)
    held = _seats(case, result)
    if isinstance(result, Refusal):
        return _unjoined(case, kept, seeking, result, evict)
    joined = [case.assigned(pod, node) for pod in seeking if (node := result.nodes.get(pod.metadata.uid))]
    taken = {rank.rank for rank in joined}
    ranks = [rank for rank in kept if rank.rank not in taken] + joined
    nodes = {rank.node for rank in ranks} | {node for one in held for node in one.nodes}
    complete = msgspec.structs.replace(
        result,
        spares=spares_for(asked, nodes, case.snapshot, case.gang.policy.spares, case.now),
        rejected=_tried(case),
    )
    advanced = _planned(case, ranks, complete, held)
    before = {rank.rank for rank in case.old.values()}
    moved = tuple(rank for rank in joined if rank.rank in before)
    return msgspec.structs.replace(advanced, evict=evict, waiting=left, moved=moved, foretold=_foretold(case, joined))


def _foretold(case: Case, joined: Sequence[RankAssignment]) -> bool:
    """Return whether the pods that joined did nothing but take the seats kept for them."""
    kept = seats(case.status)
    return bool(joined) and not case.lost_seats and all(kept.get(rank.rank) == rank.node for rank in joined)


def _wishes(case: Case, asked: Gang) -> dict[str, Sequence[str]]:
    """Return the nodes that each member should get: its seat, the node its rank had before, the spares."""
    before = {rank.rank: rank.node for rank in case.old.values()} | seats(case.status)
    return {one.uid: [before.get(one.rank, ""), *case.status.spares] for one in asked.members}


def _seats(case: Case, result: Placement | Refusal) -> list[Reservation]:
    """Return what is held for pods to come: their old seats, and new ones for those lost."""
    held = seats(case.status)
    lost = {one.uid for one in case.lost_seats}
    nodes = {one.uid: held[one.rank] for one in case.to_come if one.uid not in lost}
    found = result.nodes if isinstance(result, Placement) else {}
    return reservations(case.to_come, nodes | {uid: found[uid] for uid in lost & found.keys()})


def _unjoined(
    case: Case, kept: Sequence[RankAssignment], seeking: Sequence[Pod], refused: Refusal, evict: tuple[Pod, ...]
) -> Advance:
    """Say what waits; the rest of the plan holds, and what of it is not yet released is."""
    message = statuses.alone(case, refused.message)
    total = len(kept) + len(seeking)
    told = f"{len(kept)} of {total} ranks have their nodes; the rest waits: {message}"[:MESSAGE_MAX]
    said = msgspec.structs.replace(case.status, message=told, why=refused.why, priority=case.priority)
    going_on = _deliver(case, msgspec.structs.replace(said, ranks=list(kept)), _RECHECK_SECONDS)
    waiting = _waiting(case, seeking, said, message)
    return msgspec.structs.replace(waiting, evict=evict, release=going_on.release, wake=going_on.wake)


def _evictable(case: Case, left: Sequence[Pod], asked: Gang, survivors: Sequence[str]) -> tuple[Pod, ...]:
    """Return released pods that are pinned to lost nodes while a new pod of their rank would find a place."""
    strays = {pod.metadata.uid for pod in case.strays}
    stuck = [pod for pod in left if pod.metadata.uid in strays and not gated(pod) and pod.metadata.controller()]
    if not stuck:
        return ()
    uids = {pod.metadata.uid for pod in stuck}
    unpinned = tuple(msgspec.structs.replace(one, affinity={}) for one in asked.members if one.uid in uids)
    elsewhere = beside(case, msgspec.structs.replace(asked, members=unpinned), survivors, {})
    found = elsewhere.nodes if isinstance(elsewhere, Placement) else {}
    return tuple(pod for pod in stuck if pod.metadata.uid in found)


def _give_up(case: Case, left: Sequence[Pod], result: Placement | Refusal) -> Advance:
    """Release the whole gang: nothing of it works, and it can't be completed where it is."""
    attempts = case.status.attempts + 1
    pause = pause_seconds(case.gang.job.uid, attempts, case.rules.retry_seconds, case.rules.retry_cap_seconds)
    why = result.why if isinstance(result, Refusal) else None
    message = (
        f"{plural(len(left), 'pod')} could not start where planned, so the whole gang was released after"
        f" {plural(attempts, 'attempt')}; it is planned again in {pause:.0f} s, on other nodes if it can"
    )
    said = msgspec.structs.replace(
        statuses.waiting(case, message, why=why), attempts=attempts, retry_at=rfc3339(case.now + pause)
    )
    waiting = _waiting(case, case.unbound, said, message)
    return msgspec.structs.replace(waiting, evict=released(case, before=case.now), again_seconds=pause)


def _tried(case: Case) -> tuple[RejectedAlternative, ...]:
    return tuple(RejectedAlternative(domain=node, reason=DID_NOT_BIND) for node in sorted(case.excluded))


def _planned(case: Case, ranks: Sequence[RankAssignment], result: Placement, held: Sequence[Reservation]) -> Advance:
    status = statuses.with_condition(case, statuses.planned(case, ranks, result, held))
    return _deliver(case, status, case.rules.plan_seconds, written=status)


def _release(case: Case) -> Advance:
    """Everything is planned, not all is bound: go on lifting gates where a planner before us stopped."""
    left = _RECHECK_SECONDS
    if case.status.expires_at and not case.expired:
        left = max(parse_rfc3339(case.status.expires_at) - case.now, 1.0)
    return _deliver(case, case.status, left)


def _deliver(
    case: Case, status: GangPlacementStatus, again_seconds: float, *, written: GangPlacementStatus | None = None
) -> Advance:
    ask, snapshot = case.gang_of(()).ask, case.snapshot
    nodes = {rank.pod_uid: (rank.node, *within(ask, rank.node, status.spares, snapshot)) for rank in status.ranks}
    planned = [pod for pod in case.unbound if pod.metadata.uid in nodes]
    return Advance(
        outcome="planned",
        size=case.gang_size,
        status=written,
        release=tuple((pod, nodes[pod.metadata.uid]) for pod in planned if gated(pod)),
        wake=tuple(pod for pod in planned if not gated(pod)),
        retry=tuple(pod for pod in planned if _put_aside(case, pod, nodes[pod.metadata.uid][0])),
        message=status.message,
        again_seconds=again_seconds,
    )


def _put_aside(case: Case, pod: Pod, node: str) -> bool:
    """Return whether kube-scheduler refused a pod whose planned node has room by now.

    It hears of room a moment before we do, may be refused by our filter then, and tries again only when something
    happens to the pod, or minutes later.
    """
    view = case.snapshot.nodes.get(node)
    if view is None or not turned_away(pod) or _asked_lately(pod, case.now):
        return False
    return fits(case.members([pod])[0], view.room(case.gang.job.uid))


def _asked_lately(pod: Pod, now: float) -> bool:
    try:
        return abs(now - parse_rfc3339(pod.metadata.annotations.get(RETRY_ANNOTATION, ""))) < _RETRY_SECONDS
    except ValueError:
        return False


def _settled(case: Case) -> Advance:
    """No pod is left to place: note it, with the nodes they really got."""
    if case.gang.placement is None or not case.gang.pods or case.status.state is PlacementState.WAITING:
        return Advance("settled", case.gang_size, statuses.vacated(case.status) if case.status.reservations else None)
    status = statuses.bound(case, case.kept(), _seats(case, Refusal("")))
    running = statuses.with_condition(case, msgspec.structs.replace(status, spares=_spares(case, status)))
    return Advance("settled", case.gang_size, None if running == case.status else running)


def _spares(case: Case, status: GangPlacementStatus) -> list[str]:
    """Return the spares on record, or others where one of them was taken meanwhile."""
    if not worn(status, case.snapshot, case.now):
        return status.spares
    used = {rank.node for rank in status.ranks} | set(seats(status).values())
    asked = case.gang_of(case.members(case.core))
    lent = [name for name in status.spares if name in case.snapshot.kept]
    nodes = called_in(case.snapshot.nodes, lent, case.priority)
    vacated = msgspec.structs.replace(case.snapshot, nodes=nodes)
    return list(spares_for(asked, used, vacated, case.gang.policy.spares, case.now)) if asked.members else []


def _waiting(case: Case, pods: Sequence[Pod], said: GangPlacementStatus, message: str) -> Advance:
    """Return the step of a gang that waits; its status is written where it says something new."""
    status = statuses.with_condition(case, said)
    return Advance(
        "waiting", case.gang_size, None if status == case.status else status, waiting=tuple(pods), message=message
    )
