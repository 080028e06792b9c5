import re

import pytest
from evidence import CATALOGUE
from hypothesis import given
from hypothesis import strategies as st

from outrider.api.gpunode import Verdict
from outrider.health.catalogue import Catalogue, Clears, contradiction
from outrider.health.overrides import LENGTH_MAX, OverrideError, apply_overrides

NEW = "  xid/9001: {meaning: m, verdict: reset, weight: .9, clears: boot, advice: a}\n"
ALLOWED = "can be none, watch, restart-app, no-new-work, reset, reboot, replace"


def overridden(rows: str) -> Catalogue:
    return apply_overrides(CATALOGUE, f"faults:\n{rows}")


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "---\n", "faults:\n", "faults: {}\n"])
def test_an_empty_file_changes_nothing(text):
    catalogue = apply_overrides(CATALOGUE, text)
    assert {code: catalogue.of(code) for code in catalogue.codes} == {
        code: CATALOGUE.of(code) for code in CATALOGUE.codes
    }


def test_a_row_keeps_what_the_user_does_not_name_and_says_that_it_was_changed():
    before, after = CATALOGUE.of("xid/63"), overridden("  xid/63: {verdict: none, weight: 0}\n").of("xid/63")
    assert (after.verdict, after.weight, after.source) == (Verdict.NONE, 0, "user")
    assert (after.meaning, after.advice, after.clears, after.name) == (
        before.meaning,
        before.advice,
        before.clears,
        before.name,
    )


def test_rows_that_are_not_named_stay():
    after = overridden("  xid/63: {verdict: none}\n")
    assert after.of("xid/64") == CATALOGUE.of("xid/64")
    assert CATALOGUE.of("xid/63").verdict is Verdict.WATCH  # the catalogue itself is never touched


def test_advice_half_life_and_meaning_can_be_changed():
    row = overridden("  xid/13:\n    advice: call Kim\n    half_life_seconds: 60\n    meaning: shader fault\n").of(
        "xid/13"
    )
    assert (row.advice, row.half_life_seconds, row.meaning) == ("call Kim", 60, "shader fault")


def test_a_row_that_no_longer_fades_loses_its_half_life():
    row = overridden("  xid/13: {verdict: reset, weight: 0.9, clears: boot}\n").of("xid/13")
    assert (row.verdict, row.clears, row.half_life_seconds) == (Verdict.RESET, Clears.BOOT, None)


def test_a_new_code_gets_a_row_of_its_own():
    after = overridden(NEW)
    assert after.of("xid/9001").verdict is Verdict.RESET
    assert "xid/9001" in after.codes
    assert after.of("xid/9002") == CATALOGUE.of("xid/9002")


def test_one_code_of_a_family_can_be_changed_without_the_others():
    after = overridden("  check/disk: {verdict: watch, weight: 0.1}\n")
    assert after.of("check/disk").verdict is Verdict.WATCH
    assert after.of("check/disk").meaning == CATALOGUE.of("check/disk").meaning
    assert after.of("check/network") == CATALOGUE.of("check/network")


def test_the_driver_s_advice_stays_firm():
    after = overridden("  recovery/1: {advice: call Kim}\n").of("recovery/1")
    assert (after.firm, after.verdict) == (True, CATALOGUE.of("recovery/1").verdict)


def test_merge_keys_work_and_the_row_s_own_keys_win():
    after = overridden("  xid/63: &quiet {verdict: none, weight: 0}\n  xid/92: {<<: *quiet, weight: 0.5}\n")
    assert (after.of("xid/92").verdict, after.of("xid/92").weight) == (Verdict.NONE, 0.5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rows:\n  xid/63: {}", "line 1: rows: is not known; all rows stand below faults"),
        ("- a\n", "line 1: the file: is no mapping of keys to values"),
        ("faults: 5\n", "line 1: faults: is no mapping of keys to values"),
        ("faults:\n  xid/63: 5\n", "line 2: xid/63: is no mapping of keys to values"),
        ("faults:\n  xid/63:\n    weight: [1]\n", "line 3: xid/63: weight: is no single value"),
        ("faults:\n\n  xid/63:\n    verdict: nope\n", f"line 4: xid/63: verdict: {ALLOWED}; not 'nope'"),
        ("faults:\n  xid/63: {clears: never}\n", "line 2: xid/63: clears: can be boot, recovery, time; not 'never'"),
        ("faults:\n  xid/63:\n    verdict: none\n    weight: 2\n", "line 4: xid/63: weight: Expected float <= 1.0"),
        ("faults:\n  xid/63:\n    weight: heavy\n", "line 3: xid/63: weight: Expected float, got str"),
        ("faults:\n  xid/63:\n    weight: nan\n", "line 3: xid/63: weight: Expected float >= 0.0"),
        ("faults:\n  xid/13:\n    half_life_seconds: inf\n", "line 3: xid/13: half_life_seconds: Expected"),
        ("faults:\n  xid/63:\n    advice: ''\n", "line 3: xid/63: advice: Expected str of length >= 1"),
        (
            "faults:\n  xid/63:\n    colour: red\n",
            "line 3: xid/63: colour: can't be changed; what can: meaning",
        ),
        ("faults:\n  xid/63:\n    blind: true\n", "line 3: xid/63: blind: can't be changed"),
        ("faults:\n  xid/154.1:\n    firm: false\n", "line 3: xid/154.1: firm: can't be changed"),
        ("faults:\n  Xid 63: {weight: 0}\n", "line 2: Xid 63: is no code; one looks like xid/79"),
        ("faults:\n  63: {weight: 0}\n", "line 2: 63: is no code"),
        ("faults:\n  xid/63: {weight: 0}\n  xid/63: {weight: 1}\n", "line 3: faults: names xid/63 twice"),
        ("faults:\n  xid/63:\n    weight: 0\n    weight: 1\n", "line 4: xid/63: names weight twice"),
        ("faults:\n  ? [a]\n  : b\n", "line 2: faults: has a key that is no single word"),
        (
            "faults:\n  xid/9001: {verdict: watch}\n",
            "line 2: xid/9001: meaning: is missing, and the cat",
        ),
        ("faults:\n  xid/13:\n    verdict: reset\n", "line 3: xid/13: verdict: a hard verdict does not fade with time"),
        ("faults:\n  xid/63:\n    half_life_seconds: 5\n", "line 3: xid/63: half_life_seconds: goes with clears: time"),
        ("faults:\n  xid/63:\n    clears: time\n", "line 2: xid/63: half_life_seconds: goes with clears: time"),
        ("faults:\n  xid/63: {\n", "line 3: is no YAML: did not find expected node content"),
        ("faults:\n  xid/63: \x07\n", "line 2: is no YAML: control characters are not allowed"),
        ("a: b\n---\nc: d\n", "line 2: is no YAML: but found another document"),
        ("faults:\n  xid/63: {<<: 5}\n", "line 2: is no YAML: expected a mapping"),
        ("faults: " + "[" * 20000, "is no YAML: exceeded maximum nesting depth"),
        ("#" * (LENGTH_MAX + 1), f"line 1: {LENGTH_MAX + 1} characters are more than {LENGTH_MAX}"),
    ],
)
def test_a_mistake_refuses_the_file_and_is_named_by_line_and_key(text, said):
    with pytest.raises(OverrideError) as refused:
        apply_overrides(CATALOGUE, text)
    assert said in str(refused.value)


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict.hard])
def test_no_override_makes_silence_a_reason_to_touch_hardware(verdict):
    silence = [code for code in CATALOGUE.codes if CATALOGUE.of(code).blind or CATALOGUE.of(code).silent]
    assert {"monitor/blind", "monitor/optional-blind", "check/*.unknown", "dcgm/unreachable"} <= set(silence)
    for code in silence:
        with pytest.raises(
            OverrideError, match=f"line 4: {re.escape(code)}: verdict: silence must not lead to a hard verdict"
        ):
            overridden(f"  {code}:\n    weight: 1\n    verdict: {verdict}\n")
    assert overridden("  monitor/blind: {verdict: watch}\n").of("monitor/blind").blind
    row = f"verdict: {verdict}, meaning: x, weight: 1, clears: boot, advice: x"
    with pytest.raises(OverrideError, match=r"check/mine\.unknown: verdict: silence must not lead to a hard verdict"):
        overridden(f"  check/mine.unknown: {{{row}}}\n")


rows = ["faults:\n", "  xid/63:", "  monitor/blind:", "    verdict: ", "    weight: ", "    clears: ", "reset", "time"]
marks = ["0.5", "\n", " {", "}", "[", "]", "&a ", "*a", "<<: ", ", ", "!!int ", "|\n", ": ", "? ", "'", "- ", "# "]
words = st.sampled_from([*rows, *marks, "    half_life_seconds: 9"])


@given(st.text(max_size=200) | st.lists(words, max_size=30).map("".join))
def test_any_text_is_taken_as_a_whole_or_refused_with_a_line(text):
    try:
        after = apply_overrides(CATALOGUE, text)
    except OverrideError as error:
        refused = str(error)
        after = CATALOGUE
    else:
        refused = ""
    assert not refused or refused.startswith("line ")
    for code in after.codes:
        assert contradiction(after.of(code), after) is None
        assert after.of(code).blind == CATALOGUE.of(code).blind
