from outrider.health.catalogue import load
from outrider.health.overrides import apply_overrides
from tools.fault_docs import page

CATALOGUE = load()
PAGE = page(CATALOGUE)


def test_every_code_stands_on_the_page_with_its_verdict_or_among_the_unused_ones():
    for code in CATALOGUE.codes:
        row = CATALOGUE.of(code)
        if row.fault_class == "unused":
            continue
        assert f"| `{code}` | {row.meaning}" in PAGE
    assert "judged like unknown codes: 1-7, 9-10, 12, 14-24," in PAGE


def test_codes_are_sorted_by_number():
    places = [PAGE.index(f"| `xid/{number}` |") for number in (8, 11, 79, 119)]
    assert places == sorted(places)


def test_rows_about_silence_are_marked():
    assert "| `monitor/blind` | a probe of the node agent gives no answer *(silence)* | no-new-work |" in PAGE


def test_the_overrides_that_the_page_shows_are_valid():
    text = PAGE.partition("```yaml\n")[2].partition("```")[0]
    after = apply_overrides(CATALOGUE, text)
    assert after.of("xid/63").verdict == "none"
    assert after.of("xid/9001").half_life_seconds == 3600
