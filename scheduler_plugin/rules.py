"""What decisions need of the configuration."""

from typing import Annotated, Final

import msgspec

from outrider.topology import Levels
from outrider.workloads.resources import GPU_RESOURCES

LONGEST_SECONDS: Final = 86400


class DomainSpares(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nodes kept free in every domain of a level: so many, or so many percent of its GPU nodes, whichever is more."""

    level: str
    nodes: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 0
    percent: Annotated[float, msgspec.Meta(ge=0, le=100)] = 0.0


class Rules(msgspec.Struct, frozen=True):
    """The policy that decisions depend on; times in seconds."""

    levels: Levels
    stale_seconds: float = 180.0
    require_gpu_node: bool = False
    plan_seconds: float = 60.0
    gpu_resources: tuple[str, ...] = GPU_RESOURCES
    domain_spares: tuple[DomainSpares, ...] = ()
    borrowers_below: int = 0
    patience_seconds: float = 14400.0
    reserving_gangs: int = 1
    reservation_percent: float = 100.0
    gang_preemption: bool = False
    retry_seconds: float = 5.0
    retry_cap_seconds: float = 300.0
