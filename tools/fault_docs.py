"""Writes docs/reference/faults.md: every code of the fault catalogue with its verdict, and how to change it.

`python -m tools.fault_docs [--check]`; --check only says whether the committed page is current.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from itertools import groupby

from outrider.health.catalogue import Catalogue, Clears, Fault, FaultClass, load
from tools.pages import ROOT, checking, write

PAGE = ROOT / "docs" / "reference" / "faults.md"
_SECTIONS = {
    "Xids: what the driver reports about a GPU": ("xid",),
    "SXids: what the driver reports about NVSwitches": ("sxid",),
    "The driver's recovery action": ("recovery",),
    "GPUs, as NVML shows them": (
        *("gpu", "ecc", "remap", "pages", "memory", "pcie", "clocks", "thermal", "power", "mode", "mig", "nvml"),
    ),
    "NVLink and fabric": ("nvlink", "fabric"),
    "Kernel log, in words": ("kernel",),
    "Network adapters": ("nic",),
    "Host and cloud": ("host", "cloud", "kubelet"),
    "DCGM": ("dcgm",),
    "Users' own checks": ("check",),
}
_OTHERS = "Outrider itself"
_PLACES = {family: place for place, families in enumerate(_SECTIONS.values()) for family in families}
_HEAD = """<!-- Written by tools/fault_docs.py from outrider/health/faults: edit the catalogue instead. -->

# Fault codes

What each code means and what Outrider does about it. `outrider explain xid 119` prints the same with advice, and reads
a line of the driver to the bit. Verdicts are explained under [Health](../concepts/health.md).

Order of belief for one GPU: the recovery action that the driver itself wants (`recovery/N` from NVML, `xid/154.N` from
the kernel log), then what an Xid's line says beyond its number (`xid/74.memory`, `xid/149.reset`), then the number. A
code that no row lists is kept, shown and never acted on. A row marked *silence* never leads to a reset, reboot or
replacement.

*Weight* is the share of the score that one fresh occurrence takes: [the score, by
hand](../concepts/health.md#the-score-by-hand).

*Clears* says how a finding ends: `boot` with the next boot of the node (or, for what a reset repairs, when the driver
takes its advice back), `recovery` after a while of good readings, *half in 6 h* by fading.
"""
_OVERRIDES = """
## Changing a row

Overrides are YAML of the same form as the catalogue, under the key `faults.yaml` of the ConfigMap that the chart value
`nodeAgent.catalogueConfigMap` names (`outrider-faults`). They change the rows of listed codes, or add rows; what is not
named stays:

```yaml
faults:
  xid/63: {verdict: none, weight: 0}
  xid/9001:
    meaning: what happened
    verdict: no-new-work
    weight: 0.5             # share of the score that one occurrence takes
    clears: time            # boot, recovery or time
    half_life_seconds: 3600 # with clears: time
    advice: what to do next
```

Try the file, then hand it over:

    outrider explain xid 63 --overrides faults.yaml
    kubectl -n outrider-system create configmap outrider-faults --from-file=faults.yaml

Agents follow it while they run, within two minutes of a change. A mistake is named by line, code and key in the finding
`catalogue/overrides`, and the last good file stays in force.

## Sources
"""


def page(catalogue: Catalogue) -> str:
    """Return the page: a table for each family of codes, the form of overrides, the sources."""
    titles = [*_SECTIONS, _OTHERS]
    sections = [
        f"\n## {titles[place]}\n\n" + "\n".join(_table(catalogue, list(codes)))
        for place, codes in groupby(sorted(catalogue.codes, key=_order), key=_place)
    ]
    sources = "\n".join(f"- `{word}`: {meaning}" for word, meaning in catalogue.sources.items())
    return _HEAD + "\n".join(sections) + "\n" + _OVERRIDES + "\n" + sources + "\n"


def _place(code: str) -> int:
    return _PLACES.get(code.partition("/")[0], len(_SECTIONS))


def _order(code: str) -> tuple[int, list[tuple[int, int, str]]]:
    """By section, then by name, numbers by value."""
    parts = re.findall(r"\d+|\D+", code)
    return _place(code), [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]


def _table(catalogue: Catalogue, codes: list[str]) -> Iterator[str]:
    rows = {code: catalogue.of(code) for code in codes}
    unused = [code for code, row in rows.items() if row.fault_class is FaultClass.UNUSED]
    yield from ("| Code | Meaning | Verdict | Weight | Clears | Source |", "| --- | --- | --- | --- | --- | --- |")
    for code, row in rows.items():
        if code not in unused:
            yield f"| `{code}` | {_meaning(row)} | {row.verdict} | {row.weight:g} | {_clears(row)} | {row.source} |"
    if unused:
        yield from ("", f"Not used by current drivers, and judged like unknown codes: {_ranges(unused)}.")


def _meaning(row: Fault) -> str:
    return row.meaning + (" *(silence)*" if row.blind or row.silent else "")


def _clears(row: Fault) -> str:
    if row.clears is Clears.TIME and row.half_life_seconds is not None:
        return f"half in {row.half_life_seconds / 3600:g} h"
    return row.clears


def _ranges(codes: Iterable[str]) -> str:
    """Return codes such as xid/1, xid/2, xid/4 as `1-2, 4`."""
    spans: list[list[int]] = []
    for number in sorted(int(code.partition("/")[2]) for code in codes):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(f"{first}-{last}" if first != last else str(first) for first, last in spans)


def main() -> int:
    """Write the page, or check it."""
    return 0 if write({PAGE: page(load())}, check=checking()) else 1


if __name__ == "__main__":
    sys.exit(main())
