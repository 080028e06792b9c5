"""Selectors on labels, read as kube-scheduler reads them. What is malformed matches nothing and never raises."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

_LONGEST_NUMBER: Final = 20  # characters of the longest 64-bit number


class Requirement(msgspec.Struct, frozen=True):
    """One test of one label."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels pass the test."""
        test = _OPERATORS.get(self.operator)
        return test is not None and test(labels.get(self.key), self.values)


class Selector(msgspec.Struct, frozen=True):
    """A LabelSelector (apimachinery, meta/v1): all its tests must hold. ``nothing`` for one that is absent."""

    tests: tuple[Requirement, ...] = ()
    nothing: bool = False

    @property
    def everything(self) -> bool:
        """True for a selector that is there and tests nothing."""
        return not self.tests and not self.nothing

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels pass all tests."""
        return not self.nothing and all(test.holds(labels) for test in self.tests)

    def and_equal(self, labels: Mapping[str, str]) -> "Selector":
        """Return a selector that asks for these labels too; one that matches nothing stays so."""
        return msgspec.structs.replace(self, tests=(*self.tests, *_equal(labels)))


NOTHING: Final = Selector(nothing=True)


def label_selector(value: object) -> Selector:
    """Return a LabelSelector as the API server writes it; absent, it matches nothing."""
    if not isinstance(value, Mapping):
        return NOTHING
    return Selector((*_equal(mapping(value.get("matchLabels"))), *requirements(value.get("matchExpressions"))))


def requirements(value: object) -> tuple[Requirement, ...]:
    """Return a list of label tests as the API server writes them."""
    return tuple(
        Requirement(text(one.get("key")), text(one.get("operator")), texts(one.get("values")))
        for one in (mapping(entry) for entry in listed(value))
    )


def any_term_matches(terms: Iterable[object], name: str, labels: Mapping[str, str]) -> bool:
    """Return whether one of a NodeSelector's terms matches the node."""
    return any(_term_matches(mapping(term), name, labels) for term in terms)


def _term_matches(term: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> bool:
    expressions, fields = requirements(term.get("matchExpressions")), requirements(term.get("matchFields"))
    if not expressions and not fields:
        return False  # the API defines an empty term as matching nothing
    names = {"metadata.name": name}
    return all(one.holds(labels) for one in expressions) and all(one.holds(names) for one in fields)


def mapping(value: object) -> Mapping[str, Any]:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def listed(value: object) -> Sequence[Any]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list | tuple) else ()


def text(value: object) -> str:
    """Return the value if it is text, else an empty one."""
    return value if isinstance(value, str) else ""


def texts(value: object) -> tuple[str, ...]:
    """Return the texts of a list."""
    return tuple(one for one in listed(value) if isinstance(one, str))


def _equal(labels: Mapping[str, str]) -> tuple[Requirement, ...]:
    return tuple(Requirement(key, "In", (text(value),)) for key, value in labels.items())


def whole_number(value: str | None) -> int | None:
    """Return a number as Go's ParseInt reads it, None for what is none."""
    digits = (value or "").removeprefix("-").removeprefix("+")
    plain = digits.isascii() and digits.isdigit() and len(digits) < _LONGEST_NUMBER
    return int(value or "") if plain and (value or "").count("-") + (value or "").count("+") <= 1 else None


def _compares(value: str | None, bounds: Sequence[str], *, above: bool) -> bool:
    number, bound = whole_number(value), whole_number(bounds[0] if bounds else None)
    if number is None or bound is None:
        return False
    return number > bound if above else number < bound


_OPERATORS: Final[Mapping[str, Callable[[str | None, Sequence[str]], bool]]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: _compares(value, values, above=True),
    "Lt": lambda value, values: _compares(value, values, above=False),
}
