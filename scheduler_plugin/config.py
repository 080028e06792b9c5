"""Configuration of the scheduler plugin; the chart writes it from its values."""

from typing import Annotated

import msgspec

from outrider.component import ComponentConfig, Port
from outrider.topology import Levels, depth_of, levels_from, names_of
from outrider.workloads.resources import GPU_RESOURCES
from scheduler_plugin.rules import LONGEST_SECONDS, DomainSpares, Rules
from scheduler_plugin.tls import TLS

Seconds = Annotated[float, msgspec.Meta(gt=0, le=LONGEST_SECONDS)]


class Config(ComponentConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What people may set. Times are in seconds."""

    extender_host: str = "127.0.0.1"
    """Address of the extender: loopback, since kube-scheduler runs in the same pod; empty: every address."""

    extender_port: Port = 8888
    """Where kube-scheduler finds it; the chart's scheduler configuration names the same."""

    extender_tls: TLS | None = None
    """Serves the extender over HTTPS, for a kube-scheduler elsewhere; plain HTTP without it."""

    topology_preset: str = "nvidia"
    """Node labels that hold the network topology: nvidia, topograph, aws, gke, oci, coreweave, crusoe or generic."""

    topology_labels: list[str] = []
    """Own node labels, from the widest level to the narrowest, instead of a preset."""

    stale_seconds: Seconds = 180.0
    """A GPUNode not observed for longer counts as unknown health: no new work there. Agents write every few seconds."""

    require_gpu_node: bool = msgspec.field(default=False, name="requireGPUNode")
    """True refuses nodes that no agent watches; false lets clusters place before every node has its agent."""

    plan_seconds: Seconds = 60.0
    """A planned pod that kube-scheduler could not place for this long gets another node."""

    gpu_resources: list[str] = msgspec.field(default_factory=lambda: list(GPU_RESOURCES))
    """Resource names that count as GPUs; a last * stands for any ending, as in nvidia.com/mig-*."""

    domain_spares: list[DomainSpares] = []
    """Spare nodes in every domain of a level: new gangs leave them free for ranks that have to move there."""

    borrowers_below: int = 0
    """Pods of no gang whose priority is below this may run on such spare nodes until they are needed."""

    patience_seconds: Seconds = 14400.0
    """A gang that has waited this long comes before all newer ones, whatever their priority: no wait is endless."""

    reserving_gangs: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 1
    """So many waiting gangs of each priority hold the nodes that they will get; others pass them only elsewhere."""

    reservation_percent: Annotated[float, msgspec.Meta(ge=0, le=100)] = 100.0
    """Most GPUs of the cluster that waiting gangs may hold; one that needs more holds none, and may be passed."""

    gang_preemption: bool = False
    """True evicts whole gangs of lower priority for one that does not fit; least lost training first."""

    retry_seconds: Seconds = 5.0
    """Wait before a gang is planned again that did not bind and was released; doubles each time."""

    retry_cap_seconds: Seconds = 300.0
    """The longest such wait."""

    lag_seconds: Seconds = 90.0
    """Nothing is planned on older data of nodes, pods or placements. A quiet watch says something each minute."""

    deadline_seconds: Seconds = 0.5
    """Longest wait for the body of an extender request; kube-scheduler's own timeout should be above it."""

    def __post_init__(self) -> None:
        """Refuse a topology that can't be used, while the settings are read."""
        levels = self.levels()
        for one in self.domain_spares:
            if depth_of(levels, one.level) is None:
                raise ValueError(f"domainSpares: no level {one.level!r} here: use one of {names_of(levels)}")

    def levels(self) -> Levels:
        """Return the topology levels. Raises ValueError that says what to set instead."""
        return levels_from(self.topology_preset, self.topology_labels)

    def rules(self) -> Rules:
        """Return what the pure decisions need of the configuration."""
        return Rules(
            levels=self.levels(),
            stale_seconds=self.stale_seconds,
            require_gpu_node=self.require_gpu_node,
            plan_seconds=self.plan_seconds,
            gpu_resources=tuple(self.gpu_resources),
            domain_spares=tuple(self.domain_spares),
            borrowers_below=self.borrowers_below,
            patience_seconds=self.patience_seconds,
            reserving_gangs=self.reserving_gangs,
            reservation_percent=self.reservation_percent,
            gang_preemption=self.gang_preemption,
            retry_seconds=self.retry_seconds,
            retry_cap_seconds=self.retry_cap_seconds,
        )
