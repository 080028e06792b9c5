"""What stands between one node and one pod of a gang, as one of few states. Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec

from outrider.api import reasons
from outrider.api.why import NodeState
from scheduler_plugin.cluster.members import PODS, Member
from scheduler_plugin.cluster.nodes import NodeView
from scheduler_plugin.placing.checks import Checks
from scheduler_plugin.placing.constraints import selects, untolerated
from scheduler_plugin.placing.room import fits

_REFUSED: Final = {
    reasons.NODE_UNHEALTHY: NodeState.UNHEALTHY,
    reasons.NODE_UNKNOWN_HEALTH: NodeState.UNKNOWN_HEALTH,
    reasons.NODE_QUARANTINED: NodeState.QUARANTINED,
    reasons.NODE_REJECTS: NodeState.REJECTING,
}
_NO_BOUND: Final = 1 << 31
_PASSING: Final = (NodeState.FREE, NodeState.IN_USE, NodeState.RESERVED, NodeState.SHORT)


class Spot(msgspec.Struct, frozen=True):
    """A node for one kind of pod: how it stands, and how many such pods it takes now."""

    view: NodeView
    state: NodeState
    cause: str
    slots: int

    @property
    def only_full(self) -> bool:
        """True where nothing but other pods is in the way: their end makes room."""
        return self.state in _PASSING


def spot(
    view: NodeView, one: Member, job_uid: str, excluded: frozenset[str], now: float, checks: Checks | None = None
) -> Spot:
    """Return how the node stands for the member at ``now`` (seconds since 1970)."""
    state, cause = _fixed(view, one, excluded, now) or _checked(view, one, checks) or _usage(view, one, job_uid)
    most = 1 if checks is not None and checks.peers.alone(one) else _NO_BOUND
    return Spot(view, state, cause, min(slots(one, view.room(job_uid)), most) if state is NodeState.FREE else 0)


def slots(one: Member, room: Mapping[str, int]) -> int:
    """Return how many such pods the room takes."""
    return min((max(room.get(name, 0), 0) // amount for name, amount in one.requests.items() if amount > 0), default=0)


def _fixed(view: NodeView, one: Member, excluded: frozenset[str], now: float) -> tuple[NodeState, str] | None:
    """Return what keeps the pod away however empty the node is."""
    refusal = view.refusal(now) if one.gpus else ""
    if refusal:
        known = _REFUSED.get(refusal)
        cause = "" if known is NodeState.REJECTING else view.judgement.cause
        return (known, cause) if known else (NodeState.OTHER, refusal)
    taint = untolerated(view.taints, one.tolerations)
    if taint is not None:
        return NodeState.TAINTED, taint.key
    if untolerated((), one.tolerations, cordoned=view.cordoned):
        return NodeState.CORDONED, ""
    if not selects(one.node_selector, one.affinity, view.name, view.labels):
        return NodeState.NOT_SELECTED, ""
    return (NodeState.TRIED, "") if view.name in excluded else None


def _checked(view: NodeView, one: Member, checks: Checks | None) -> tuple[NodeState, str] | None:
    """Return what keeps the pod away beyond the node itself."""
    words = checks.against(view, one) if checks is not None else ""
    if not words:
        return None
    return (NodeState.SUSPECT, view.suspect) if words.startswith(reasons.NODE_SUSPECT) else (NodeState.OTHER, words)


def _usage(view: NodeView, one: Member, job_uid: str) -> tuple[NodeState, str]:
    if one.gpus > view.gpus:
        return NodeState.SMALLER, ""
    if one.gpus > view.free_gpus:
        return NodeState.IN_USE, ""
    if fits(one, view.room(job_uid)):
        return NodeState.FREE, ""
    if fits(one, view.free):
        return NodeState.RESERVED, ""
    lacking = next(name for name, amount in one.requests.items() if view.free.get(name, 0) < amount)
    return NodeState.SHORT, "room for pods" if lacking == PODS else lacking
