"""Whether a GPU can be reached at all, and how it answers. Pure.

What a return code means comes from the field: 15 the GPU is lost, 16 it wants a reset; 8 and 11 are told when a
handle is asked for; 4, 6 and 17 speak of the agent's own access. Anything else that is not "no such value" makes the
GPU unreadable, which is silence and not a verdict on the hardware.
"""

from collections.abc import Iterator
from typing import Final

from node_agent.readings.nvml.look import Look
from outrider.health.findings import Evidence

_GRAVEST_FIRST: Final = (
    (15, "gpu/lost", "GPU is lost"),
    (16, "gpu/reset-required", "GPU requires reset"),
    (8, "gpu/power-cable", "insufficient external power"),
    (11, "gpu/irq", "interrupt problem"),
)
_ACCESS: Final = frozenset({4, 6, 17})
_ROWS_SLOW: Final = 2  # one slow reading may be the machine's fault


def bad(look: Look) -> Iterator[Evidence]:
    """Yield what the codes of failed calls, the driver's advice and the time of the reading say."""
    gpu = look.gpu
    if gpu.errors:
        yield _unanswered(look)
    if gpu.recovery_action:
        yield look.finding(f"recovery/{gpu.recovery_action}", f"NVML recovery action {gpu.recovery_action}")
    if look.trend.slow >= _ROWS_SLOW:
        yield look.finding("gpu/slow", f"NVML took {gpu.seconds:.1f} s to read the GPU, milliseconds are usual")


def _unanswered(look: Look) -> Evidence:
    errors = look.gpu.errors
    calls = ", ".join(f"{call} answers {code}" for call, code in sorted(errors.items()))
    codes = set(errors.values())
    for code, name, words in _GRAVEST_FIRST:
        if code in codes:
            return look.finding(name, f"NVML: {calls} ({words})")
    if codes <= _ACCESS:
        return look.finding("gpu/no-access", f"NVML: {calls}")
    return look.finding("gpu/unreadable", f"NVML: {calls}")
