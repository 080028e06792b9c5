"""Clocks, temperatures and power: what makes a GPU slow although it works. Pure.

Clocks that the power limit holds down (0x4) are normal on a busy board. What the hardware itself does against heat or
missing power is not: its share of the last minute's readings decides, so that a moment of it is no finding.
"""

from collections.abc import Iterator
from statistics import median
from typing import Final

from node_agent.readings.nvml.look import Look, usual
from node_agent.readings.nvml.trends import under_load
from outrider.health.findings import Evidence

_SHARE_MIN: Final = 0.5
_LOADED_READINGS: Final = 2
_OVER_POWER_READINGS: Final = 2
_CLOCK_SHARE_MIN: Final = 0.8  # GCM warns at 30 MHz under policy, which is noise on boards that boost
_LIMITING: Final = 0x2 | 0x4 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80  # clock event reasons that explain a low clock
_HW_SLOWDOWN, _HW_CAUSES = 0x8, 0x40 | 0x80  # the parent bit, and its causes
_MEMORY_CELSIUS_MAX: Final = 95  # where the board tells no limit; what HBM boards print as theirs
# Bit of the clock event reasons, code, words.
_REASONS: Final = (
    (0x40, "clocks/hw-thermal", "the hardware holds the clocks down because of heat"),
    (0x80, "clocks/power-brake", "an external signal (power brake) holds the clocks down"),
    (0x8, "clocks/hw-slowdown", "the hardware holds the clocks down"),
    (0x20, "clocks/sw-thermal", "the driver holds the clocks down because of heat"),
)


def bad(look: Look) -> Iterator[Evidence]:
    """Yield what makes the GPU slow."""
    yield from _reasons(look)
    yield from _low_clock(look)
    yield from _heat(look)
    yield from _power(look)


def _reasons(look: Look) -> Iterator[Evidence]:
    held = {bit for bit, share in look.trend.reasons.items() if share >= _SHARE_MIN}
    for bit, code, words in _REASONS:
        explained = bit == _HW_SLOWDOWN and held & {0x40, 0x80}
        if bit in held and not explained:
            yield look.finding(code, f"{words} in {look.trend.reasons[bit]:.0%} of the last minute's readings")


def _low_clock(look: Look) -> Iterator[Evidence]:
    gpu = look.gpu
    if not gpu.clock_sm or not gpu.clock_sm_max or look.trend.loaded < _LOADED_READINGS:
        return
    busy = [sibling.clock_sm for sibling in look.siblings if sibling.clock_sm and under_load(sibling)]
    if not (gpu.clock_reasons or 0) & _LIMITING and gpu.clock_sm < _CLOCK_SHARE_MIN * gpu.clock_sm_max:
        line = f"SM clock {gpu.clock_sm} MHz of {gpu.clock_sm_max} under load, and no reason is told"
        yield look.finding("clocks/low", line)
    elif len(busy) >= 2 and gpu.clock_sm < _CLOCK_SHARE_MIN * median(busy):
        line = f"SM clock {gpu.clock_sm} MHz under load, {median(busy):.0f} on the node's other busy GPUs"
        yield look.finding("clocks/low", line)


def _heat(look: Look) -> Iterator[Evidence]:
    gpu = look.gpu
    if _at_least(gpu.temperature, gpu.temperature_slowdown) or _at_least(gpu.margin_slowdown, gpu.margin):
        yield look.finding("thermal/slowdown", f"{_celsius(look)}: hot enough that the hardware slows down")
    elif _at_least(gpu.temperature, gpu.temperature_max) or _at_least(0, gpu.margin):
        yield look.finding("thermal/hot", f"{_celsius(look)}: at the highest operating temperature")
    limit = gpu.temperature_memory_max or _MEMORY_CELSIUS_MAX
    if _at_least(gpu.temperature_memory, limit):
        yield look.finding("thermal/memory", f"memory at {gpu.temperature_memory} C, its limit is {limit} C")


def _at_least(value: int | None, limit: int | None) -> bool:
    return value is not None and limit is not None and value >= limit


def _celsius(look: Look) -> str:
    margin = f", margin {look.gpu.margin} C" if look.gpu.margin is not None else ""
    return f"GPU at {look.gpu.temperature} C{margin}"


def _power(look: Look) -> Iterator[Evidence]:
    gpu = look.gpu
    if gpu.power is not None and gpu.power_limit is not None and look.trend.over_power >= _OVER_POWER_READINGS:
        line = f"{_watts(gpu.power)} W drawn, the limit is {_watts(gpu.power_limit)} W"
        yield look.finding("power/over-limit", line)
    if not gpu.power_limit:
        return
    others = usual(sibling.power_limit for sibling in look.siblings)
    wanted = max(gpu.power_limit_wanted or 0, others or 0)
    if gpu.power_limit < wanted:
        line = f"power is limited to {_watts(gpu.power_limit)} W, {_watts(wanted)} W are set or usual on the node"
        yield look.finding("power/limit", line)
    elif gpu.power_limit_default and gpu.power_limit < gpu.power_limit_default:
        default = _watts(gpu.power_limit_default)
        yield look.finding("power/capped", f"power is limited to {_watts(gpu.power_limit)} W of {default} W by default")


def _watts(milliwatts: int) -> int:
    return milliwatts // 1000
