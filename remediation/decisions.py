"""What the ladder answers: the status to record, then the actions to take. Values only."""

from dataclasses import dataclass

from outrider.api.core import Taint
from outrider.api.remediation import RemediationStatus


@dataclass(frozen=True)
class AddTaint:
    """Keep new work off a node."""

    node: str
    taint: Taint


@dataclass(frozen=True)
class RequestCheckpoint:
    """Ask the ranks of one pod for a checkpoint; ``value`` is the CheckpointRequest as JSON."""

    namespace: str
    pod: str
    uid: str
    value: str


@dataclass(frozen=True)
class Evict:
    """Move one pod off its sick node; its job's controller makes a new one, and the planner places it elsewhere."""

    namespace: str
    pod: str
    uid: str
    node: str


Action = AddTaint | RequestCheckpoint | Evict


@dataclass(frozen=True)
class Decision:
    """One look at an episode. ``status`` is recorded before ``actions`` run.

    ``after_seconds`` says when to look again even if nothing changes; None: only on a change.
    """

    status: RemediationStatus
    actions: tuple[Action, ...] = ()
    after_seconds: float | None = None
