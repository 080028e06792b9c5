"""What decisions need of the configuration."""

from typing import Final

import msgspec

from outrider.topology import Levels

LONGEST_SECONDS: Final = 86400


class Rules(msgspec.Struct, frozen=True):
    """The policy that decisions depend on; times in seconds."""

    levels: Levels
    stale_seconds: float = 180.0
    require_gpu_node: bool = False
    plan_seconds: float = 60.0
