"""Writes the reference pages of the chart: values from the comments of values.yaml, rights from those of the roles.

`python -m tools.chart_docs [--check]`; --check only says whether the committed pages are current.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.pages import ROOT, checking, write

CHART = ROOT / "charts" / "outrider"
REFERENCE = ROOT / "docs" / "reference"
_ENTRY = re.compile(r"^(?P<indent> *)(?P<key>[\w./-]+):(?: (?P<value>.+))?$")
_RULE = re.compile(r"^  - (?P<flow>\{.*\})?")
_GENERATED = "<!-- Written by tools/chart_docs.py: edit the chart's comments instead. -->\n\n"


def values_page(text: str) -> str:
    """Return the page for a values.yaml whose values carry helm-docs comments (`# --`)."""
    rows = [f"| `{path}` | {_code(value)} | {comment} |" for path, value, comment in values(text.splitlines())]
    head = "# Chart values\n\nUnknown values are refused.\n\n| Value | Default | Means |\n| --- | --- | --- |\n"
    return _GENERATED + head + "\n".join(rows) + "\n"


def values(lines: list[str]) -> Iterator[tuple[str, str, str]]:
    """Yield path, default and description of each documented value."""
    parents: list[tuple[int, str]] = []
    comment: list[str] = []
    for number, line in enumerate(lines):
        stripped = line.strip()
        if stripped.startswith("#"):
            text = stripped.lstrip("# ")
            comment = [text.removeprefix("-- ")] if text.startswith("-- ") else [*comment, text] if comment else []
        elif entry := _ENTRY.match(line):
            indent = len(entry["indent"])
            parents = [(depth, key) for depth, key in parents if depth < indent]
            if comment:
                path = ".".join([key for _, key in parents] + [entry["key"]])
                yield path, entry["value"] or _block(lines[number + 1 :], indent), " ".join(comment)
            parents.append((indent, entry["key"]))
            comment = []
        else:
            comment = []


def _block(lines: list[str], indent: int) -> str:
    """Return the nested default below a key in one line."""
    inner = []
    for line in lines:
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            break
        inner.append(line.strip())
    return "; ".join(part for part in inner if part)


def _code(value: str) -> str:
    return f"`{value}`"


def rights_page(roles: dict[str, str]) -> str:
    """Return the page for role templates, given by component: each rule with its reason."""
    parts = []
    for component, text in roles.items():
        rows = [f"| {reason} | {_rule(rule)} |" for reason, rule in rights(text.splitlines())]
        parts.append(f"## {component}\n\n| Why | What |\n| --- | --- |\n" + "\n".join(rows) + "\n")
    intro = (
        "# Rights\n\nEvery rule of every role, and why it is there. No rule holds a wildcard. Writes of the node agent"
        " are narrowed further, by ValidatingAdmissionPolicies, to the node that its token was issued on.\n\n"
    )
    return _GENERATED + intro + "\n".join(parts)


def rights(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield reason and text of each rule."""
    for number, line in enumerate(lines):
        if _RULE.match(line) and "apiGroups" in line:
            rest = lines[number + 1 :]
            end = next((i for i, text in enumerate(rest) if not text.startswith("    ")), len(rest))
            yield _comment_above(lines, number), " ".join([line.strip("- "), *(t.strip() for t in rest[:end])])


def _comment_above(lines: list[str], number: int) -> str:
    words: list[str] = []
    while number and lines[number - 1].strip().startswith("#"):
        number -= 1
        words.insert(0, lines[number].strip("# "))
    return " ".join(words)


def _rule(text: str) -> str:
    found = dict(re.findall(r"(\w+): \[([^\]]*)\]", text))
    names = f" named {found['resourceNames']}" if "resourceNames" in found else ""
    return f"{found['verbs']}: `{found['resources']}`{names}"


def pages() -> dict[Path, str]:
    """Return every generated page by path."""
    roles = {path.parent.name: path.read_text() for path in sorted(CHART.glob("templates/*/rbac.yaml"))}
    roles["uninstall hook"] = (CHART / "templates/hooks/pre-delete.yaml").read_text()
    values_text = (CHART / "values.yaml").read_text()
    return {REFERENCE / "values.md": values_page(values_text), REFERENCE / "rights.md": rights_page(roles)}


def main() -> int:
    """Write the pages, or check them."""
    return 0 if write(pages(), check=checking()) else 1


if __name__ == "__main__":
    sys.exit(main())
