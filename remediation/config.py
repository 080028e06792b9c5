"""Configuration of the remediation controller, one YAML file with camelCase keys."""

from typing import Annotated

import msgspec

from outrider.api.remediation import ActionMode
from outrider.component import ComponentConfig
from outrider.topology import Levels, levels_from

Seconds = Annotated[float, msgspec.Meta(ge=0, le=86400)]


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How many nodes may be under remediation at once; the smaller limit holds, and at least one node may."""

    max_nodes: Annotated[int, msgspec.Meta(ge=0)] = 10
    """Nodes; 0 stops all new action."""
    max_percent: Annotated[int, msgspec.Meta(ge=0, le=100)] = 20
    """Percent of the GPU nodes, rounded up as a PodDisruptionBudget does; 20 is karpenter's node-repair breaker."""


class Config(ComponentConfig, frozen=True, kw_only=True):
    """Settings; all times in seconds."""

    mode: ActionMode = ActionMode.OBSERVE
    """How far it goes: observe records, dryRun also says in events what it would do, enforce acts."""
    budget: Budget = Budget()
    evidence_fresh_seconds: Seconds = 60
    """A GPUNode that its agent has not refreshed for longer is unknown, and nothing is done on it."""
    cache_stale_seconds: Seconds = 120
    """Longest silence of the API server's watches; a quiet watch is still heard every minute by its bookmarks."""
    taint_wait_seconds: Seconds = 3
    """Time the node's agent gets to write the taint before the controller writes it with the same key."""
    no_report_wait_seconds: Seconds = 5
    """Wait for a checkpoint of a job whose ranks report nothing and so can't answer."""
    shared_request_seconds: Seconds = 120
    """A second sick node of one job joins a checkpoint asked for less than this ago: one restart for both."""
    move_timeout_seconds: Seconds = 300
    """Longest try to evict and to see the replacement pod; after it a person is asked."""
    resume_timeout_seconds: Seconds = 900
    """Longest wait for the moved rank's first step; loading a large checkpoint takes minutes."""
    retry_seconds: Seconds = 5
    """Pause before the next try where a PodDisruptionBudget refused an eviction."""
    topology_preset: str = "nvidia"
    """Node labels that hold the network topology, as the scheduler plugin has them: which nodes share a leaf switch."""
    topology_labels: list[str] = []
    """Own node labels, from the widest level to the narrowest, instead of a preset."""
    domain_settle_seconds: Seconds = 5
    """A domain must be suspect for so long before its episode opens: by then it is clear how far the trouble goes."""
    domain_clear_seconds: Seconds = 300
    """A domain must be out of suspicion for so long before its episode ends."""

    def __post_init__(self) -> None:
        """Refuse a topology that can't be used, while the settings are read."""
        self.levels()

    def levels(self) -> Levels:
        """Return the topology levels. Raises ValueError that says what to set instead."""
        return levels_from(self.topology_preset, self.topology_labels)
