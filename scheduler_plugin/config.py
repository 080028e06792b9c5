"""Configuration of the scheduler plugin; the chart writes it from its values."""

from typing import Annotated

import msgspec

from outrider.topology import Levels, levels_from

Seconds = Annotated[float, msgspec.Meta(gt=0, le=86400)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]


class Config(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What people may set. Times are in seconds."""

    extender_host: str = "127.0.0.1"
    """Address of the extender: loopback, since kube-scheduler runs in the same pod."""

    extender_port: Port = 8888

    probe_port: Port = 8080
    """Serves /healthz, /readyz and /metrics."""

    log_level: str = "INFO"

    topology_preset: str = "nvidia"
    """Node labels that hold the network topology: nvidia, topograph, aws, gke, oci or coreweave."""

    topology_labels: list[str] = []
    """Own node labels, from the widest level to the narrowest, instead of a preset."""

    stale_seconds: Seconds = 180.0
    """A GPUNode not observed for longer counts as unknown health: no new work there. Agents write every few seconds."""

    require_gpu_node: bool = msgspec.field(default=False, name="requireGPUNode")
    """True refuses nodes that no agent watches; false lets clusters place before every node has its agent."""

    plan_seconds: Seconds = 60.0
    """A planned pod that kube-scheduler could not place for this long gets another node."""

    spares: Annotated[int, msgspec.Meta(ge=0, le=16)] = 1
    """Spare nodes named for each gang. They stay usable for others until they are needed."""

    deadline_seconds: Seconds = 0.5
    """Longest wait for the body of an extender request; kube-scheduler's own timeout should be above it."""

    def levels(self) -> Levels:
        """Return the topology levels. Raises ValueError that says what to set instead."""
        return levels_from(self.topology_preset, self.topology_labels)

    def rules(self) -> "Rules":
        """Return what the pure decisions need of the configuration."""
        return Rules(self.levels(), self.stale_seconds, self.require_gpu_node, self.plan_seconds, self.spares)


class Rules(msgspec.Struct, frozen=True):
    """The policy that decisions depend on; times in seconds."""

    levels: Levels
    stale_seconds: float = 180.0
    require_gpu_node: bool = False
    plan_seconds: float = 60.0
    spares: int = 1
