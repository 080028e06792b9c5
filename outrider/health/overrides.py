"""A user's changes to the fault catalogue: YAML of the same form, with only the keys that are to change.

    faults:
      xid/63: {verdict: none, weight: 0}       # a listed code: what is not named stays as it is
      xid/9001:                                # a new code: all of these are needed
        meaning: what happened
        verdict: no-new-work
        weight: 0.5
        clears: boot
        advice: what to do next

A mistake anywhere refuses the whole text, and is named by line, code and key. The merged row has to pass the checks of
the catalogue itself, so no override makes silence a reason to touch hardware.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, cast

import msgspec
import yaml

from outrider.api.gpunode import Verdict
from outrider.health.catalogue import LOADER, Catalogue, Clears, Fault, HalfLife, Text, Weight, contradiction

LENGTH_MAX: Final = 131_072  # characters; twice the catalogue itself, and read within a tenth of a second
SOURCE: Final = "user"
_TABLE: Final = "faults"
_CODE: Final = re.compile(r"[a-z0-9-]{1,32}/[A-Za-z0-9*][A-Za-z0-9._*-]{0,63}")
_FIELD: Final = re.compile(r"\$\.(\w+)|unknown field `(\w+)`")
_NO_CHOICE: Final = re.compile(r"Invalid enum value '(.*)'", re.DOTALL)
_CHOICES: Final[dict[str, type[Verdict | Clears]]] = {"verdict": Verdict, "clears": Clears}
_NEEDED: Final = ("meaning", "verdict", "weight", "clears", "advice")


class OverrideError(ValueError):
    """The overrides can't be used; the text names line, code and key, and says what is wrong."""

    def __init__(self, line: int, *parts: str) -> None:
        super().__init__(": ".join((f"line {line}", *parts)))


class _Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    meaning: Text | msgspec.UnsetType = msgspec.UNSET
    verdict: Verdict | msgspec.UnsetType = msgspec.UNSET
    weight: Weight | msgspec.UnsetType = msgspec.UNSET
    clears: Clears | msgspec.UnsetType = msgspec.UNSET
    half_life_seconds: HalfLife | msgspec.UnsetType = msgspec.UNSET
    advice: Text | msgspec.UnsetType = msgspec.UNSET


def apply_overrides(base: Catalogue, text: str) -> Catalogue:
    """Return the catalogue with the changes of a YAML text; an empty text changes nothing. Raises OverrideError."""
    if len(text) > LENGTH_MAX:
        raise OverrideError(1, f"{len(text)} characters are more than {LENGTH_MAX}")
    try:
        rows = list(_rows(text))
    except yaml.YAMLError as error:
        raise OverrideError(_line_of(error, text), f"is no YAML: {_words_of(error)}") from error
    except RecursionError as error:
        raise OverrideError(1, "is nested too deeply") from error
    return base.with_rows({row.code: _merged(base, row) for row in rows})


class _Row(msgspec.Struct, frozen=True):
    """One row of the text: keys and values as they are written, and where."""

    code: str
    values: dict[str, str]
    line: int
    lines: dict[str, int]

    def line_of(self, key: str) -> int:
        return self.lines.get(key, self.line)


def _rows(text: str) -> Iterator[_Row]:
    loader = LOADER(text)
    try:
        root = loader.get_single_node()
        for key, table in _below(root, "the file"):
            if key.value != _TABLE:
                raise OverrideError(_line(key), key.value[:80], f"is not known; all rows stand below {_TABLE}")
            for code, row in _below(table, _TABLE):
                yield _row(loader, code, row)
    finally:
        loader.dispose()


def _row(loader: yaml.SafeLoader, code: yaml.ScalarNode, node: yaml.Node) -> _Row:
    if not _CODE.fullmatch(code.value):
        raise OverrideError(_line(code), code.value[:80], "is no code; one looks like xid/79")
    _pairs(node, code.value)
    loader.flatten_mapping(cast("yaml.MappingNode", node))  # merge keys (<<) become pairs of the row, before its own
    values: dict[str, str] = {}
    lines: dict[str, int] = {}
    for key, value in node.value:
        if not isinstance(value, yaml.ScalarNode):
            raise OverrideError(_line(value), code.value, str(key.value)[:80], "is no single value")
        values[key.value], lines[key.value] = value.value, _line(key)
    return _Row(code.value, values, _line(code), lines)


def _below(node: yaml.Node | None, what: str) -> list[tuple[yaml.ScalarNode, yaml.Node]]:
    """Return what ``_pairs`` does; nothing where the node is left empty."""
    if node is None or (isinstance(node, yaml.ScalarNode) and not node.value):
        return []
    return _pairs(node, what)


def _pairs(node: yaml.Node, what: str) -> list[tuple[yaml.ScalarNode, yaml.Node]]:
    """Return keys and values of a mapping whose keys are single words, each there once."""
    if not isinstance(node, yaml.MappingNode):
        raise OverrideError(_line(node), what, "is no mapping of keys to values")
    pairs: list[tuple[yaml.ScalarNode, yaml.Node]] = node.value
    seen: set[str] = set()
    for key, _ in pairs:
        if not isinstance(key, yaml.ScalarNode):
            raise OverrideError(_line(key), what, "has a key that is no single word")
        if key.value in seen:
            raise OverrideError(_line(key), what, f"names {key.value[:80]} twice")
        seen.add(key.value)
    return pairs


def _merged(base: Catalogue, row: _Row) -> Fault:
    try:
        change = msgspec.convert({key: _number(key, value) for key, value in row.values.items()}, _Change)
    except msgspec.ValidationError as error:
        key = _key_in(str(error))
        words = _plain(str(error), key)
        raise OverrideError(row.line_of(key), *filter(None, (row.code, key[:80])), words) from error
    given = {key: value for key, value in msgspec.structs.asdict(change).items() if value is not msgspec.UNSET}
    known = base.listed(row.code)
    if known is None and (missing := [key for key in _NEEDED if key not in given]):
        raise OverrideError(row.line, row.code, missing[0], "is missing, and the catalogue does not list this code")
    fault = _put(known, base.of(row.code), given)
    if problem := contradiction(fault, base):
        raise OverrideError(row.line_of(problem[0]), row.code, *problem)
    return fault


def _number(key: str, value: str) -> str | float:
    """Return a value as a number where its key asks for one and it is one; the schema refuses the rest."""
    if key not in ("weight", "half_life_seconds"):
        return value
    try:
        return float(value)
    except ValueError:
        return value


def _put(known: Fault | None, family: Fault, given: dict[str, Any]) -> Fault:
    """Return the row with the changes, or a new one, which is silence where its family is (``check/*.unknown``)."""
    if known is None:
        return Fault(**given, source=SOURCE, blind=family.blind, silent=family.silent)
    if given.get("clears", Clears.TIME) is not Clears.TIME:
        given = {"half_life_seconds": None, **given}
    return msgspec.structs.replace(known, **given, source=SOURCE)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _key_in(message: str) -> str:
    found = _FIELD.search(message)
    return (found[1] or found[2]) if found else ""


def _plain(message: str, key: str) -> str:
    """Return msgspec's message without its path, which the line and the key say better, and with what is allowed."""
    if "unknown field" in message:
        return f"can't be changed; what can: {', '.join(_Change.__struct_fields__)}"
    words = message.partition(" - at ")[0].replace("`", "")
    if (value := _NO_CHOICE.fullmatch(words)) and key in _CHOICES:
        return f"can be {', '.join(_CHOICES[key])}; not '{value[1][:80]}'"
    return words


def _line_of(error: yaml.YAMLError, text: str) -> int:
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        return int(mark.line) + 1
    return text.count("\n", 0, getattr(error, "position", 0) or 0) + 1


def _words_of(error: yaml.YAMLError) -> str:
    return str(getattr(error, "problem", None) or getattr(error, "reason", None) or error)
