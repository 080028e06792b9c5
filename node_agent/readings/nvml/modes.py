"""Modes that a person set, or forgot to set. Pure."""

from collections.abc import Iterator
from typing import Final

from node_agent.readings.nvml.look import Look, usual
from outrider.health.findings import Evidence

_PROHIBITED: Final = 2  # nvml.h, NVML_COMPUTEMODE_PROHIBITED


def bad(look: Look) -> Iterator[Evidence]:
    """Yield modes that surprise."""
    gpu = look.gpu
    if gpu.persistence is False:
        yield look.finding("mode/persistence", "persistence mode is off")
    if gpu.compute_mode == _PROHIBITED:
        yield look.finding("mode/compute-prohibited", "compute mode is Prohibited: no program can use the GPU")
    if gpu.mig_mode is None:
        return
    now, later = gpu.mig_mode
    if now != later:
        yield look.finding("mig/pending", f"MIG will be {_word(later)} after the next reset")
    others = usual(sibling.mig_mode[0] for sibling in look.siblings if sibling.mig_mode)
    if others is not None and others != now:
        yield look.finding("mig/differs", f"MIG is {_word(now)}, on the node's other GPUs {_word(others)}")


def _word(mode: int) -> str:
    return "on" if mode else "off"
