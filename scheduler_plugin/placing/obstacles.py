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


class Spotter:
    """Tells of any node how it stands for one kind of member at ``now`` (seconds since 1970)."""

    def __init__(
        self, one: Member, job_uid: str, excluded: frozenset[str], now: float, checks: Checks | None = None
    ) -> None:
        self._one, self._gpus, self._job_uid = one, one.gpus, job_uid
        self._excluded, self._now, self._checks = excluded, now, checks
        self._most = 1 if checks is not None and checks.peers.alone(one) else _NO_BOUND

    def __call__(self, view: NodeView) -> Spot:
        """Return how the node stands."""
        state, cause = self._fixed(view) or self._checked(view) or self._usage(view)
        room = min(slots(self._one, view.room(self._job_uid)), self._most) if state is NodeState.FREE else 0
        return Spot(view, state, cause, room)

    def _fixed(self, view: NodeView) -> tuple[NodeState, str] | None:
        """Return what keeps the pod away however empty the node is."""
        one = self._one
        closed = reasons.NODE_REJECTS if view.closed(self._now) else ""
        refusal = view.refusal(self._now) if one.needs_gpu else closed
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
        return (NodeState.TRIED, "") if view.name in self._excluded else None

    def _checked(self, view: NodeView) -> tuple[NodeState, str] | None:
        """Return what keeps the pod away beyond the node itself."""
        words = self._checks.against(view, self._one) if self._checks is not None else ""
        if not words:
            return None
        suspect = words.startswith(reasons.NODE_SUSPECT)
        return (NodeState.SUSPECT, view.suspect) if suspect else (NodeState.OTHER, words)

    def _usage(self, view: NodeView) -> tuple[NodeState, str]:
        one = self._one
        if self._gpus > view.gpus:
            return NodeState.SMALLER, ""
        if self._gpus > view.free_gpus:
            return NodeState.IN_USE, ""
        if fits(one, view.room(self._job_uid)):
            return NodeState.FREE, ""
        if fits(one, view.free):
            return NodeState.RESERVED, ""
        lacking = next(name for name, amount in one.requests.items() if view.free.get(name, 0) < amount)
        return NodeState.SHORT, "room for pods" if lacking == PODS else lacking


def slots(one: Member, room: Mapping[str, int]) -> int:
    """Return how many such pods the room takes."""
    most = _NO_BOUND
    for name, amount in one.requests.items():
        if amount > 0:
            fit = room.get(name, 0) // amount
            if fit <= 0:
                return 0
            most = min(most, fit)
    return most if most != _NO_BOUND else 0
