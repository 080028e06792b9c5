"""Tells people in a GangPlacement's conditions that it was bent by hand, and that it is ignored. Pure.

A placement that the planner wrote carries no Accepted condition: only one that was found wrong does, and keeps it,
turned to True, once it makes sense again.
"""

from collections import Counter

from outrider.api.gangplacement import GangPlacement, PlacementState
from outrider.api.meta import Condition
from outrider.api.reasons import ACCEPTED, INVALID_SPEC
from outrider.api.times import parse_rfc3339, rfc3339


def problem(placement: GangPlacement, *, orphaned: bool) -> str:
    """Return what no planner can have written, empty where nothing is.

    ``orphaned`` says that the placement's job is unknown and has no pods.
    """
    status = placement.status
    if orphaned:
        return f"spec.jobUid: {placement.spec.job_uid!r} is no job that Outrider knows, so no node is held for it"
    if status.expires_at is not None and not _is_time(status.expires_at):
        return f"status.expiresAt: {status.expires_at!r} is no RFC 3339 time; the plan counts as expired"
    if twice := _twice(placement):
        return f"status.ranks: {twice} stands there more than once; the planner goes by the pods themselves"
    if status.state is PlacementState.WAITING and status.ranks:
        return "status.ranks: a waiting gang has none; they are ignored"
    return ""


def accepted(placement: GangPlacement, wrong: str, now: float) -> Condition | None:
    """Return the Accepted condition that the placement should get, None where nothing needs to be said."""
    old = next((condition for condition in placement.status.conditions if condition.type == ACCEPTED), None)
    status = "False" if wrong else "True"
    message = (
        f"{wrong}. Delete the placement: a gang that needs one gets a new one" if wrong else "the placement makes sense"
    )
    said = (old.status, old.message) if old else ("True", "the placement makes sense")
    if said == (status, message):
        return None
    return Condition(
        type=ACCEPTED,
        status=status,
        reason=INVALID_SPEC if wrong else ACCEPTED,
        message=message,
        last_transition_time=rfc3339(now),
        observed_generation=placement.metadata.generation,
    )


def _is_time(text: str) -> bool:
    try:
        parse_rfc3339(text)
    except ValueError:
        return False
    return True


def _twice(placement: GangPlacement) -> str:
    ranks = Counter(f"rank {rank.rank}" for rank in placement.status.ranks)
    pods = Counter(f"pod {rank.pod}" for rank in placement.status.ranks)
    return next((name for name, count in (ranks + pods).items() if count > 1), "")
