"""The PCIe link of a GPU: width always, generation under load, replays, fatal errors. Pure.

An idle link may lower its generation to save power, never its width. The limit of replays is DCGM's for each lane and
generation, taken at what the link can do: at what it does now, a link that has fallen back would lower its own limit.
"""

import math
from collections.abc import Iterator
from typing import Final

from node_agent.readings.nvml.look import Look, usual
from outrider.health.findings import Evidence

REPLAYS_PER_LANE: Final = {1: 0.15, 2: 0.3, 3: 0.48, 4: 0.96, 5: 1.92, 6: 3.84}
"""Usual replays a minute and lane by PCIe generation, the limits of DCGM's own health watch."""
_LOADED_READINGS: Final = 2  # the link of a GPU that has just begun to work may still be rising


def bad(look: Look) -> Iterator[Evidence]:
    """Yield the faults of the link."""
    yield from _width(look)
    yield from _generation(look)
    yield from _slot(look)
    yield from _errors(look)


def _width(look: Look) -> Iterator[Evidence]:
    now, most = look.gpu.pcie_width, look.gpu.pcie_width_max
    if now is not None and most and now < most:
        others = usual(sibling.pcie_width for sibling in look.siblings)
        beside = f"; the node's other GPUs have x{others}" if others and others != now else ""
        yield look.finding("pcie/width", f"PCIe x{now} of x{most}{beside}")


def _generation(look: Look) -> Iterator[Evidence]:
    now, most = look.gpu.pcie_generation, look.gpu.pcie_generation_max
    if now is not None and most and now < most and look.trend.loaded >= _LOADED_READINGS:
        yield look.finding("pcie/generation", f"PCIe generation {now} of {most} while the GPU is under load")


def _slot(look: Look) -> Iterator[Evidence]:
    """A board or slot that can do less than those of the siblings."""
    gpu = look.gpu
    width = usual(sibling.pcie_width_max for sibling in look.siblings)
    generation = usual(sibling.pcie_generation_max for sibling in look.siblings)
    narrower = width is not None and gpu.pcie_width_max is not None and gpu.pcie_width_max < width
    slower = generation is not None and gpu.pcie_generation_max is not None and gpu.pcie_generation_max < generation
    if narrower or slower:
        line = f"board and slot allow generation {gpu.pcie_generation_max} x{gpu.pcie_width_max}"
        yield look.finding("pcie/slot", f"{line}, those of the node's other GPUs {generation} x{width}")


def _errors(look: Look) -> Iterator[Evidence]:
    replays, limit = look.trend.rises.get("pcie_replays", 0), replay_limit(look)
    if limit is not None and replays > limit:
        yield look.finding("pcie/replays", f"{replays} PCIe replays within a minute, up to {limit} are usual")
    fatal = look.trend.rises.get("pcie_fatal_errors", 0)
    if fatal:
        yield look.finding("pcie/fatal", f"{fatal} fatal PCIe errors within a minute")


def replay_limit(look: Look) -> int | None:
    """Return how many replays a minute are usual for what the link can do; None where that is not known."""
    generation, width = look.gpu.pcie_generation_max, look.gpu.pcie_width_max
    if not generation or not width:
        return None
    fastest = REPLAYS_PER_LANE[max(REPLAYS_PER_LANE)]
    return math.ceil(REPLAYS_PER_LANE.get(generation, fastest) * width)
