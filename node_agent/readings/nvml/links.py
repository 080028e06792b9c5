"""NVLinks: inactive ones, and errors that rise. Pure.

Counters since the last reset are history; what rose within the last minute is a state. Limits are those of
DCGM's health watch, the verdicts milder than its "fail": a link that recovers keeps work running.
"""

from collections.abc import Iterator
from typing import Final

from node_agent.readings.nvml.look import Look
from outrider.health.findings import Evidence

_CRC_PER_SECOND: Final = 100.0
_RATE_SECONDS_MIN: Final = 10.0  # a rate over a shorter time is a guess
_BER_MAX: Final = 1e-12
# Counter, code, words. The names are those of the child process (nvml.py).
_RISING: Final = (
    ("crc", "nvlink/crc", "checksum errors"),
    ("replay", "nvlink/replay", "replays"),
    ("recovery", "nvlink/recovery", "recoveries"),
    ("recovery_events", "nvlink/recovery", "recoveries"),
    ("recoveries_failed", "nvlink/recovery-failed", "failed recoveries"),
    ("malformed_packets", "nvlink/errors", "malformed packets"),
    ("buffer_overruns", "nvlink/errors", "buffer overruns"),
    ("receive_errors", "nvlink/errors", "receive errors"),
    ("remote_errors", "nvlink/errors", "errors told by the far side"),
    ("integrity_errors", "nvlink/errors", "integrity errors"),
    ("transmit_discards", "nvlink/errors", "discarded packets"),
)


def bad(look: Look) -> Iterator[Evidence]:
    """Yield the faults of the GPU's links; of each code once for a link."""
    yield from _inactive(look)
    yield from _rising(look)
    noisy = [link for link, value in enumerate(look.gpu.link_counters.get("effective_ber", ())) if _is_noisy(value)]
    yield from look.of_links("nvlink/ber", noisy, f"bit error rate after correction above {_BER_MAX:g}")
    yield from _slow(look)
    if look.gpu.c2c_inactive:
        links = ", ".join(map(str, look.gpu.c2c_inactive))
        yield look.finding("c2c/inactive", f"links between CPU and GPU (C2C) inactive: {links}")


def _slow(look: Look) -> Iterator[Evidence]:
    speeds = look.gpu.link_counters.get("speed_mbps", ())
    fastest = max((speed for speed in speeds if speed), default=0)
    slow = [link for link, speed in enumerate(speeds) if speed and speed < fastest]
    yield from look.of_links("nvlink/speed", slow, f"slower than the GPU's other links, which run at {fastest} Mbit/s")


def _inactive(look: Look) -> Iterator[Evidence]:
    gpu = look.gpu
    if gpu.links_inactive and _expected(look):
        links = ", ".join(map(str, gpu.links_inactive))
        of = gpu.links_active + len(gpu.links_inactive)
        yield look.finding("nvlink/inactive", f"{len(gpu.links_inactive)} of {of} NVLinks inactive: {links}")


def _expected(look: Look) -> bool:
    """True where inactive links are a fault: on boards with an NVSwitch fabric or SXM form, and where more were up.

    A PCIe board without a bridge lists all its links as inactive, and one with a bridge some of them, for ever.
    """
    fabric = bool(look.gpu.fabric_state) or "SXM" in look.gpu.model
    best = look.record.links_best if look.record else 0
    return fabric or look.gpu.links_active < best


def _rising(look: Look) -> Iterator[Evidence]:
    found: dict[str, dict[int, str]] = {}
    for counter, code, words in _RISING:
        for link, rise in _rises(look, counter).items():
            fast = counter == "crc" and rise >= _CRC_PER_SECOND * max(look.trend.seconds, _RATE_SECONDS_MIN)
            found.setdefault("nvlink/crc-rate" if fast else code, {})[link] = words
    for code, links in found.items():
        words = ", ".join(sorted(set(links.values())))
        yield from look.of_links(code, links, f"{words} within the last minute")


def _rises(look: Look, counter: str) -> dict[int, int]:
    prefix = f"{counter}/"
    return {int(name[len(prefix) :]): rise for name, rise in look.trend.rises.items() if name.startswith(prefix)}


def _is_noisy(value: int | None) -> bool:
    return value is not None and bit_error_rate(value) > _BER_MAX


def bit_error_rate(value: int) -> float:
    """Return the rate that NVML packs into a field: mantissa in bits 8-11, negated decimal exponent in bits 0-7."""
    return float((value >> 8 & 0xF) * 10.0 ** -(value & 0xFF))
