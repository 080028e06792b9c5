"""The best vacancies for pods that join others: exact for pods that ask for the same. Pure and deterministic.

Best: most of the first choice, then closest to the pods that stay, then closest to each other, then the best by their
own worth. How close is the number of domains shared, summed over all pairs. Since domains are nested, that sum
splits by branches of the network, so a knapsack from the leaves upward finds the optimum in time linear in the nodes
and at most quadratic in the pods that join.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from outrider.topology.domains import Path

_UNIT: Final = 1 << 48  # above any sum of worths, and any number of shared domains


class Vacancy(msgspec.Struct, frozen=True):
    """Room for pods on one node. ``worth`` (0 to 2^32) decides between nodes that are equally close."""

    node: str
    path: Path
    count: int
    first_choice: bool = False
    worth: int = 0


class _Branch:
    """A domain: the pods that stay under it, its own vacancies, and the domains within it."""

    def __init__(self) -> None:
        self.stay = 0
        self.vacancies: list[Vacancy] = []
        self.inner: dict[str, _Branch] = {}


class Best(msgspec.Struct, frozen=True):
    """The vacancies for as many pods as there is room for, in the order of the network; ``value`` compares choices."""

    nodes: tuple[str, ...] = ()
    value: int = 0


def best_vacancies(vacancies: Sequence[Vacancy], stay: Iterable[Path], wanted: int) -> Best:
    """Return the best vacancies for up to ``wanted`` pods that join those on ``stay`` (one path per pod).

    ``vacancies`` come in the order of the network: of those equally good the first are taken.
    """
    root = _tree(vacancies, stay)
    options = _options(root, wanted, root=True)
    value, chosen = options[-1]
    places = {vacancy.node: position for position, vacancy in enumerate(vacancies)}
    return Best(tuple(sorted(_flat(chosen), key=places.__getitem__)), value)


def _tree(vacancies: Sequence[Vacancy], stay: Iterable[Path]) -> _Branch:
    root = _Branch()
    for vacancy in vacancies:
        branch = root
        for part in vacancy.path:
            branch = branch.inner.setdefault(part, _Branch())
        branch.vacancies.append(vacancy)
    for path in stay:
        at: _Branch | None = root
        for part in path:
            at = at.inner.get(part) if at is not None else None
            if at is None:
                break  # nobody can join here: no vacancy is so close
            at.stay += 1
    return root


def _options(branch: _Branch, wanted: int, *, root: bool = False) -> "list[tuple[int, object]]":
    """Return the best value and choice for 0, 1, 2 ... pods in the branch, as far as there is room."""
    options = _own(branch.vacancies, wanted)
    for inner in branch.inner.values():
        options = _merged(options, _options(inner, wanted), wanted)
    if root:
        return options
    return [
        (value + pods * branch.stay * _UNIT**2 + pods * (pods - 1) // 2 * _UNIT, chosen)
        for pods, (value, chosen) in enumerate(options)
    ]


def _own(vacancies: Sequence[Vacancy], wanted: int) -> "list[tuple[int, object]]":
    """Return the options of a domain's own nodes: all are equally close, so the best come first."""
    ordered = sorted(vacancies, key=lambda vacancy: (not vacancy.first_choice, -vacancy.worth))
    options: list[tuple[int, object]] = [(0, None)]
    for vacancy in ordered:
        worth = vacancy.worth + (_UNIT**3 if vacancy.first_choice else 0)
        for _ in range(min(vacancy.count, wanted + 1 - len(options))):
            value, chosen = options[-1]
            options.append((value + worth, (chosen, vacancy.node)))
    return options


def _merged(
    left: "list[tuple[int, object]]", right: "list[tuple[int, object]]", wanted: int
) -> "list[tuple[int, object]]":
    if len(right) == 1:
        return left
    most = min(len(left) + len(right) - 2, wanted)
    values = [-1] * (most + 1)
    splits = [0] * (most + 1)
    for mine, (value, _) in enumerate(left):
        for theirs in range(min(len(right), most + 1 - mine)):
            total = value + right[theirs][0]
            if total > values[mine + theirs]:
                values[mine + theirs], splits[mine + theirs] = total, mine
    return [(values[pods], _pair(left[splits[pods]][1], right[pods - splits[pods]][1])) for pods in range(most + 1)]


def _pair(left: object, right: object) -> object:
    if left is None or right is None:
        return right if left is None else left
    return (left, right)


def _flat(chosen: object) -> list[str]:
    found: list[str] = []
    left = [chosen]
    while left:
        one = left.pop()
        if isinstance(one, tuple):
            left.extend(one)
        elif isinstance(one, str):
            found.append(one)
    return found
