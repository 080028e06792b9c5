"""One measured value, as every bench writes it."""

import json
from pathlib import Path

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


def write(figures: list[Figure], out: Path) -> None:
    """Write the figures and print them as a table."""
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(msgspec.to_builtins(figures), indent=1) + "\n")
    print(f"{'name':36} {'value':>10} {'unit':8} {'baseline':>9} {'ratio':>7}  conditions")
    for f in figures:
        print(f"{f.name:36} {f.value:>10} {f.unit:8} {_dash(f.baseline):>9} {_dash(f.ratio):>7}  {f.conditions}")


def merged(new: list[Figure], out: Path) -> list[Figure]:
    """Return the new figures after those that ``out`` holds of what was not measured again."""
    if not out.exists():
        return new
    measured = {figure.name for figure in new}
    return [one for one in msgspec.json.decode(out.read_bytes(), type=list[Figure]) if one.name not in measured] + new


def _dash(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"
