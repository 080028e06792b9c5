"""Whose turn it is: gangs that run and lost a rank, then those that wait too long, then priority, then age. Pure."""

from collections.abc import Iterable

from outrider.api.core import Pod
from outrider.api.gangplacement import GangPlacementStatus
from outrider.api.times import parse_rfc3339

Turn = tuple[int, int, float, str]  # class, priority turned round, since when it waits (seconds since 1970), UID

_REPAIR, _OVERDUE, _QUEUED = range(3)


def turn(uid: str, status: GangPlacementStatus, pods: Iterable[Pod], patience_seconds: float, now: float) -> Turn:
    """Return the gang's place in the queue at ``now`` (seconds since 1970); the lowest comes first.

    A running gang stands still until its lost rank is back, so it comes first. Priorities hold strictly until a gang
    has waited for ``patience_seconds``; from then on nobody newer passes it, which bounds every wait.
    """
    here = list(pods)
    since = since_when(status, here, now)
    if any(pod.spec.node_name for pod in here):
        return _REPAIR, 0, since, uid
    if now - since >= patience_seconds:
        return _OVERDUE, 0, since, uid
    return _QUEUED, -priority_of(status, here), since, uid


def since_when(status: GangPlacementStatus, pods: Iterable[Pod], now: float) -> float:
    """Return since when the gang waits, in seconds since 1970: as on record, else since its oldest pod was made.

    A time to come, or one that is none, counts as now: nobody gets ahead by a clock that is wrong.
    """
    times = (
        [_seconds(status.queued_at)]
        if status.queued_at
        else [_seconds(pod.metadata.creation_timestamp) for pod in pods]
    )
    return min((time for time in times if time is not None and time <= now), default=now)


def priority_of(status: GangPlacementStatus, pods: Iterable[Pod]) -> int:
    """Return the gang's priority: the highest of its pods', else the one on record."""
    return max((pod.spec.priority or 0 for pod in pods), default=status.priority or 0)


def recorded(uid: str, status: GangPlacementStatus, patience_seconds: float, now: float) -> Turn:
    """Return a gang's turn as its placement alone tells it."""
    return turn(uid, status, (), patience_seconds, now)


def _seconds(text: str | None) -> float | None:
    try:
        return parse_rfc3339(text or "")
    except ValueError:
        return None
