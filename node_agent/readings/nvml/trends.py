"""What several readings of a GPU show together: counters that rise, how often the clocks are held down. Pure.

A counter that falls was reset (driver reload, GPU reset): the fall is no rise, and counting goes on from there.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

import msgspec

from node_agent.probes.nvml_wire import GPUReading, Trend

WINDOW_SECONDS: Final = 60.0
_READINGS_MAX: Final = 64  # events bring extra readings; a storm of them must not grow the window
_COUNTERS: Final = ("ecc_corrected", "ecc_uncorrected_life", "pcie_replays", "pcie_fatal_errors")
_REASON_BITS: Final = (0x8, 0x20, 0x40, 0x80)  # nvml.h, nvmlClocksEventReason*: those that tell of trouble
_RATES: Final = frozenset({"effective_ber", "speed_mbps"})  # listed with the counters of a link, but no counter
_LOADED_PERCENT: Final = 50
_IDLE_REASON: Final = 0x1
_SLOW_SECONDS: Final = 2.0  # a healthy GPU is read in milliseconds
_POWER_TOLERANCE: Final = 1.05  # the limit is kept on average over a second, not at each moment


class Sample(msgspec.Struct, frozen=True):
    """A reading and when it was taken, in seconds of a monotonic clock."""

    at: float
    gpu: GPUReading


Window = tuple[Sample, ...]


def extended(window: Window, gpu: GPUReading, at: float) -> Window:
    """Return the window with one more reading and without those that are too old."""
    kept = tuple(sample for sample in window if at - sample.at <= WINDOW_SECONDS)
    return (*kept, Sample(at, gpu))[-_READINGS_MAX:]


def trend(window: Window) -> Trend:
    """Return what the readings of a window show together."""
    gpus = [sample.gpu for sample in window]
    return Trend(
        seconds=window[-1].at - window[0].at if window else 0.0,
        rises=_rises(gpus),
        reasons=_reasons(gpus),
        loaded=_run(under_load(gpu) for gpu in reversed(gpus)),
        slow=_run(gpu.seconds >= _SLOW_SECONDS for gpu in reversed(gpus)),
        over_power=_run(_over_power(gpu) for gpu in reversed(gpus)),
    )


def under_load(gpu: GPUReading) -> bool:
    """True where the GPU works, so that it must show the speed it can.

    Where utilization is not known (MIG), performance state 0 with more than half of the highest clock counts.
    """
    if gpu.utilization is not None:
        return gpu.utilization >= _LOADED_PERCENT
    if gpu.performance_state != 0 or (gpu.clock_reasons or 0) & _IDLE_REASON:
        return False
    return bool(gpu.clock_sm and gpu.clock_sm_max and gpu.clock_sm * 2 > gpu.clock_sm_max)


def _run(holds: Iterable[bool]) -> int:
    """Return in how many readings, from the latest back, something held without a break."""
    length = 0
    for one in holds:
        if not one:
            break
        length += 1
    return length


def _over_power(gpu: GPUReading) -> bool:
    return bool(gpu.power and gpu.power_limit and gpu.power > gpu.power_limit * _POWER_TOLERANCE)


def _rises(gpus: list[GPUReading]) -> dict[str, int]:
    rises: Counter[str] = Counter()
    for before, after in pairwise(gpus):
        for name in _COUNTERS:
            rises[name] += _rise(getattr(before, name), getattr(after, name))
        rises.update(_link_rises(before, after))
    return {name: rise for name, rise in rises.items() if rise}


def _link_rises(before: GPUReading, after: GPUReading) -> dict[str, int]:
    return {
        f"{name}/{link}": _rise(old, new)
        for name, values in after.link_counters.items()
        if name not in _RATES and values != before.link_counters.get(name)
        for link, (old, new) in enumerate(zip(before.link_counters.get(name, ()), values, strict=False))
    }


def _rise(before: int | None, after: int | None) -> int:
    return max(0, after - before) if before is not None and after is not None else 0


def _reasons(gpus: list[GPUReading]) -> dict[int, float]:
    told = [gpu.clock_reasons for gpu in gpus if gpu.clock_reasons is not None]
    if len(told) < 2:
        return {}
    return {bit: share for bit, share in _shares(told) if share}


def _shares(told: list[int]) -> Iterator[tuple[int, float]]:
    for bit in _REASON_BITS:
        yield bit, sum(1 for reasons in told if reasons & bit) / len(told)
