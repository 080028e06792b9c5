"""Writes the pages of what Outrider does, each row with the tests that show it: docs/reference/capabilities.md (what is
seen and how it is judged) and docs/reference/placement-guarantees.md (what goes wrong in placement elsewhere).

`python -m tools.capability_docs [--check]`; --check only says whether the committed pages are current. Rows that name a
code, a probe or a test that does not exist are refused.
"""

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Annotated

import msgspec

import node_agent.probes.all  # noqa: F401 - registers the probes
from node_agent.config import Config
from node_agent.probes.registry import build
from outrider.config import ConfigError
from outrider.health.catalogue import load
from tools import pages
from tools.pages import ROOT

TOOLS = Path(__file__).parent
REFERENCE = ROOT / "docs" / "reference"
_JUDGES = {"agent": "judging", "remediation": "remediation"}


class Book(msgspec.Struct, frozen=True):
    """A page with its rows: ``sections`` are the titles by their key in the file, ``columns`` the first two heads."""

    rows: Path
    page: Path
    sections: dict[str, str]
    columns: tuple[str, str]
    head: str


COVERED = Book(
    rows=TOOLS / "capabilities.yaml",
    page=REFERENCE / "capabilities.md",
    sections={"detection": "What is seen", "judging": "How it is judged", "incidents": "Incidents that are replayed"},
    columns=("Capability", "What Outrider does"),
    head="""<!-- Written by tools/capability_docs.py from tools/capabilities.yaml: edit that instead. -->

# What Outrider covers

What the node agent sees and how it is judged, each row with the tests that show it (below `tests/`). The generator
refuses rows that name a code, a probe or a test that does not exist. Codes: [fault codes](faults.md); probes:
[what the node agent looks at](../concepts/probes.md).
""",
)
PLACED = Book(
    rows=TOOLS / "placement_guarantees.yaml",
    page=REFERENCE / "placement-guarantees.md",
    sections={
        "extender": "With scheduler extenders",
        "gangs": "With gangs and races",
        "replacement": "With failed nodes",
        "topology": "With the network",
        "explanation": "With waiting",
        "operation": "In operation",
    },
    columns=("What goes wrong", "What Outrider does"),
    head="""<!-- Written by tools/capability_docs.py from tools/placement_guarantees.yaml: edit that instead. -->

# What is promised of placement

What users of gang schedulers and scheduler extenders report, what Outrider does about it, and the tests that show it
(below `tests/`). The generator refuses rows that name a test that does not exist. How it works:
[gangs and placement](../concepts/placement.md); [what it does not do](../limits.md).
""",
)
BOOKS = (COVERED, PLACED)
Text = Annotated[str, msgspec.Meta(min_length=1)]


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One capability."""

    capability: Text
    does: str = ""
    by: list[str] = []
    """Probes, or who else; empty for incidents, which go through all."""
    codes: list[str] = []
    """Codes of the catalogue; * stands for any end."""
    tests: list[str] = []
    """file::function below tests/."""
    limits: str = ""
    left_out: str = ""
    """Why it is not done at all."""


Sections = Mapping[str, Sequence[Row]]


def read(text: str) -> dict[str, list[Row]]:
    """Return the rows of each section. Raises msgspec.ValidationError, which names the place."""
    return msgspec.yaml.decode(text, type=dict[str, list[Row]])


def problems(sections: Sections, book: Book = COVERED, tests: Path = ROOT / "tests") -> Iterator[str]:
    """Yield what is wrong, in words that name the row."""
    if unknown := sorted(set(sections) ^ set(book.sections)):
        yield f"sections: {', '.join(unknown)}: there must be {', '.join(book.sections)}"
    codes = load().codes
    for row in (row for rows in sections.values() for row in rows):
        for problem in (*_form(row), *_codes(row, codes), *_probes(row), *_tests(row, tests)):
            yield f"{row.capability}: {problem}"


def _form(row: Row) -> Iterator[str]:
    said = bool(row.does and row.tests)
    if row.left_out and (row.does or row.by or row.codes or row.tests or row.limits):
        yield "is left out and done"
    elif not said and not row.left_out:
        yield "must say what is done and the tests that show it, or why it is left out"


def _codes(row: Row, known: Sequence[str]) -> Iterator[str]:
    for code in row.codes:
        if not any(fnmatchcase(one, code) for one in known):
            yield f"{code} is no code of the catalogue"


def _probes(row: Row) -> Iterator[str]:
    try:
        build(Config(disabled_probes=[name for name in row.by if name not in _JUDGES]))
    except ConfigError as error:
        yield str(error)


def _tests(row: Row, tests: Path) -> Iterator[str]:
    for test in row.tests:
        file, _, function = test.partition("::")
        if function not in functions(tests / file):
            yield f"{test} is no test"


@cache
def functions(file: Path) -> frozenset[str]:
    """Return the names of the tests in a file; none where there is no such file."""
    if not file.is_file():
        return frozenset()
    tree = ast.parse(file.read_text("utf-8"))
    named = (node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(name for name in named if name.startswith("test_"))


def page(sections: Sections, book: Book = COVERED) -> str:
    """Return the page: a table for each section, then what is left out."""
    titles = book.sections.items()
    tables = (f"\n## {title}\n\n" + "\n".join(_table(sections[name], book)) for name, title in titles)
    left_out = [row for rows in sections.values() for row in rows if row.left_out]
    rest = "\n".join(f"- **{row.capability}.** {row.left_out}" for row in left_out)
    return book.head + "\n".join(tables) + (f"\n\n## Left out\n\n{rest}\n" if rest else "\n")


def _table(rows: Sequence[Row], book: Book) -> Iterator[str]:
    with_parts = any(row.by for row in rows)
    columns = [*book.columns, *(["Seen by", "Codes"] if with_parts else []), "Shown by"]
    yield f"| {' | '.join(columns)} |"
    yield f"|{' --- |' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(_cells(row, with_parts))} |"


def _cells(row: Row, with_parts: bool) -> Iterator[str]:
    yield row.capability
    yield "Left out, see below." if row.left_out else " ".join(filter(None, (row.does, row.limits)))
    if with_parts:
        yield ", ".join(_JUDGES.get(name, f"`{name}`") for name in row.by)
        yield ", ".join(f"`{code}`" for code in row.codes)
    yield "<br>".join(f"`{test}`" for test in row.tests)


def write(book: Book, *, check: bool) -> bool:
    """Write the page, or check it; return whether all is well."""
    sections = read(book.rows.read_text("utf-8"))
    if wrong := list(problems(sections, book)):
        print("\n".join(f"{book.rows.relative_to(ROOT)}: {problem}" for problem in wrong))
        return False
    return pages.write({book.page: page(sections, book)}, check=check)


def main() -> int:
    """Write all pages, or check them."""
    done = [write(book, check=pages.checking()) for book in BOOKS]
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
