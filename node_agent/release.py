"""Asking the agent to let go of NVML: a GPU can't be reset while any process holds it. Pure.

Whoever resets a GPU sets ``outrider.dev/release-gpus-until`` on the node's GPUNode, waits for the finding
``nvml/released`` in its status, resets, and takes the annotation away; the finding goes with the next reading.
"""

from typing import Final

from outrider.api.gpunode import GPUNode
from outrider.api.names import RELEASE_ANNOTATION
from outrider.api.times import parse_rfc3339

SECONDS_MAX: Final = 600.0  # a request that is never taken back must not blind the agent for good


class MalformedRequest(ValueError):
    """The annotation holds no time; the text says what it should hold."""


def seconds_asked(gpunode: GPUNode | None, now: float) -> float:
    """Return for how long NVML is to be let go of from ``now`` on; 0 where nobody asks. Raises MalformedRequest."""
    until = gpunode.metadata.annotations.get(RELEASE_ANNOTATION) if gpunode else None
    if not until:
        return 0.0
    try:
        return min(max(0.0, parse_rfc3339(until) - now), SECONDS_MAX)
    except (ValueError, OverflowError) as error:
        raise MalformedRequest(f"{RELEASE_ANNOTATION}: {error}") from error
