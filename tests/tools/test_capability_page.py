import msgspec
import pytest

from tools.capability_docs import BOOKS, COVERED, PLACED, Row, page, problems, read

GOOD = Row(
    capability="Heat",
    does="Sees heat.",
    by=["nvml", "agent", "remediation"],
    codes=["thermal/*", "xid/62"],
    tests=["tools/test_capability_page.py::test_a_row_that_names_what_exists_has_no_problem"],
)
OUT = Row(capability="Smell", left_out="No sensor.")


def sections(row: Row) -> dict[str, list[Row]]:
    return {"detection": [row, OUT], "judging": [], "incidents": []}


def changed(**changes: object) -> list[str]:
    return list(problems(sections(msgspec.structs.replace(GOOD, **changes))))


@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.page.stem)
def test_the_committed_rows_name_only_what_exists_and_the_page_is_theirs(book):
    committed = read(book.rows.read_text("utf-8"))
    assert list(problems(committed, book)) == []
    assert book.page.read_text("utf-8") == page(committed, book)


def test_a_row_of_placement_names_tests_too():
    rows: dict[str, list[Row]] = {key: [] for key in PLACED.sections}
    rows |= {"gangs": [Row(capability="Halves", does="Whole.", tests=["a::b"])]}
    assert list(problems(rows, PLACED)) == ["Halves: a::b is no test"]


def test_a_row_that_names_what_exists_has_no_problem():
    assert changed() == []


async def test_a_test_may_be_a_coroutine():
    assert changed(tests=["tools/test_capability_page.py::test_a_test_may_be_a_coroutine"]) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tests": ["tools/test_capability_page.py::test_of_nothing"]}, "test_of_nothing is no test"),
        ({"tests": ["tools/test_capability_page.py::sections"]}, "sections is no test"),
        ({"tests": ["tools/no_such_file.py::test_a"]}, "no_such_file.py::test_a is no test"),
        ({"tests": ["nonsense"]}, "nonsense is no test"),
        ({"codes": ["thermal/cold"]}, "thermal/cold is no code"),
        ({"codes": ["nothing/*"]}, "nothing/* is no code"),
        ({"by": ["nose"]}, "nose: no such probe"),
        ({"tests": []}, "must say what is done"),
        ({"does": ""}, "must say what is done"),
        ({"left_out": "No time."}, "left out and done"),
    ],
)
def test_a_row_that_names_what_does_not_exist_is_refused_by_name(changes, words):
    (problem,) = changed(**changes)
    assert problem.startswith("Heat: ")
    assert words in problem


def test_a_section_that_nobody_shows_is_refused():
    assert "smells" in next(problems(sections(GOOD) | {"smells": [GOOD]}))
    assert "incidents" in next(problems({"detection": [GOOD], "judging": []}))


def test_a_key_that_is_not_known_is_refused():
    with pytest.raises(msgspec.ValidationError, match="colour"):
        read("detection:\n  - {capability: Heat, colour: red}\n")


def test_each_row_stands_on_the_page_and_what_is_left_out_with_its_reason():
    text = page(sections(GOOD))
    assert "| Heat | Sees heat. | `nvml`, judging, remediation | `thermal/*`, `xid/62` | `tools/test_capability" in text
    assert "- **Smell.** No sensor." in text


def test_every_probe_has_a_row():
    committed = read(COVERED.rows.read_text("utf-8"))
    named = {probe for rows in committed.values() for row in rows for probe in row.by}
    assert {"nvml", "kernel-log", "nics", "host", "cloud", "dcgm", "dcgm-diag", "kubelet", "checks"} <= named
