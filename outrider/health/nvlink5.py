"""Reads what an NVLink5 line (Xids 144 to 150, Blackwell) says about its link.

The number alone decides nothing: the same Xid stands for a corrected bit and for a dead link. The line ends with hex
words: the first names the unit and a sub-code (bits 20 to 25), the second the status, and the driver's branch decides
which bits of the first word name the unit. The word Fatal or Nonfatal in the line is the driver's grade of the link
and may contradict the table, which is what counts. Rules: nvlink5_rules.yaml, from NVIDIA's Xid catalogue.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Final

import msgspec
import yaml

from outrider.health.catalogue import LOADER

XIDS: Final = range(144, 151)
_NEW_LAYOUT: Final = 575  # driver branch that moved the bits of the first word
_WORDS: Final = re.compile(r"\(0x([0-9a-fA-F]{1,8})[ ,]{1,4}0x([0-9a-fA-F]{1,8})[ ,)]")
_UNIT: Final = re.compile(r"\b([A-Z][A-Z0-9_]{2,31})\s{1,8}(?:Fatal|Nonfatal)\b")
_BRANCH: Final = re.compile(r"(\d{3,4})\.")
_REASON_SHIFT: Final = 20
_REASON_MASK: Final = 0x3F


class Resolution(StrEnum):
    """What NVIDIA's catalogue wants done, mildest first."""

    IGNORE = "ignore"
    ASK_154 = "ask-154"
    RESET = "reset"


class Reading(msgspec.Struct, frozen=True):
    """``resolution`` is None where no rule fits, or where it is not known which layout holds."""

    resolution: Resolution | None
    detail: str


class _Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    status: int
    then: Resolution
    severity: str
    origin: str
    look: str
    reason: int = 0
    effects: tuple[str, ...] = ()


class _Unit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    xid: int
    unit: str
    v1: str
    v2: str
    rules: tuple[_Rule, ...]
    promoted_v1: str = ""
    promoted_v2: str = ""


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    look: dict[str, str]
    effects: dict[str, str]
    units: tuple[_Unit, ...]


class _Fit(msgspec.Struct, frozen=True):
    """A rule that fits the words of a line."""

    unit: str
    rule: _Rule
    then: Resolution


def read(xid: int, message: str, driver_version: str = "") -> Reading:
    """Return what the line says. ``driver_version`` such as 580.65.06 gives the layout; empty where it is not known.

    Then the name of the unit may tell, as some changed with the layout. Else both are tried and the milder answer
    holds: it never acts on hardware, for a reset is only read where both say so.
    """
    words = _WORDS.search(message)
    if words is None or xid not in XIDS:
        return Reading(None, "no status words that can be read")
    first, status = int(words[1], 16), int(words[2], 16)
    layouts = _layouts(message, driver_version)
    fit = min((_fit(xid, first, status, newer=newer) for newer in layouts), key=_harshness)
    return Reading(fit.then if fit else None, _detail(fit, first, status))


def rules() -> Iterator[tuple[int, str, int, int, Resolution]]:
    """Yield Xid, unit, sub-code, status word and resolution of each rule."""
    for unit in _table().units:
        for rule in unit.rules:
            yield unit.xid, unit.unit, rule.reason, rule.status, rule.then


def _layouts(message: str, driver_version: str) -> tuple[bool, ...]:
    """Return the layouts that may hold: False for the one before R575, True for the one since."""
    if branch := _BRANCH.match(driver_version):
        return (int(branch[1]) >= _NEW_LAYOUT,)
    unit = _UNIT.search(message)
    old, new = _renamed()
    if unit and unit[1] in old | new:
        return (unit[1] in new,)
    return (False, True)


@cache
def _renamed() -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of units that only drivers before R575 print, and those that only later ones do."""
    pairs = [unit.unit.split("/") for unit in _table().units if "/" in unit.unit]
    return frozenset(old for old, _ in pairs), frozenset(new for _, new in pairs)


def _harshness(fit: _Fit | None) -> int:
    """Order of mildness; a line that no rule fits stops new work, so it stands before a reset."""
    order = (Resolution.IGNORE, Resolution.ASK_154, None, Resolution.RESET)
    return order.index(fit.then if fit else None)


def _fit(xid: int, first: int, status: int, *, newer: bool) -> _Fit | None:
    reason = first >> _REASON_SHIFT & _REASON_MASK
    for unit in _table().units:
        pattern, promoted = (unit.v2, unit.promoted_v2) if newer else (unit.v1, unit.promoted_v1)
        raised = bool(promoted) and _has(first, promoted)
        if unit.xid != xid or not (raised or _has(first, pattern)):
            continue
        for rule in unit.rules:
            if (rule.reason, rule.status) == (reason, status):
                return _Fit(unit.unit, rule, Resolution.RESET if raised else rule.then)
    return None


def _has(word: int, pattern: str) -> bool:
    mask, value = _bits(pattern)
    return word & mask == value


@cache
def _bits(pattern: str) -> tuple[int, int]:
    """Return mask and value of a pattern of 0, 1 and - (any)."""
    return int(re.sub("[01]", "1", pattern).replace("-", "0"), 2), int(pattern.replace("-", "0"), 2)


def _detail(fit: _Fit | None, first: int, status: int) -> str:
    reason = first >> _REASON_SHIFT & _REASON_MASK
    words = f"sub-code {reason}, status {status:#x}"
    if fit is None:
        return f"no rule for the first word {first:#010x} with {words}"
    effects = [_table().effects[effect] for effect in fit.rule.effects]
    look = _table().look[fit.rule.look]
    parts = [f"{fit.unit}, {fit.rule.severity} ({fit.rule.origin}), {words}", *effects]
    return "; ".join([*parts, f"look at: {look}"] if look else parts)


@cache
def _table() -> _Table:
    """Return the rules, read at the first NVLink5 line: most nodes never log one."""
    text = resources.files(__package__).joinpath("nvlink5_rules.yaml").read_text("utf-8")
    return msgspec.convert(yaml.load(text, LOADER), _Table)  # noqa: S506 - the C form of the safe loader
