"""One measured value, as every bench writes it."""

import msgspec


class Figure(msgspec.Struct, frozen=True):
    """One measured value; ``ratio`` is value / baseline where there is something to compare with."""

    name: str
    value: float
    unit: str
    baseline: float | None = None
    ratio: float | None = None
    conditions: str = ""


def against(name: str, value: float, unit: str, baseline: float, conditions: str) -> Figure:
    """Return a figure with its ratio to a target or to a measured baseline."""
    return Figure(name, round(value, 3), unit, baseline, round(value / baseline, 3) if baseline else None, conditions)
