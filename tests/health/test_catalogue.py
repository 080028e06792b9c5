import tracemalloc

import pytest
from evidence import CATALOGUE

from outrider.api.gpunode import Verdict
from outrider.health.catalogue import CatalogueError, parse

ROW = "{meaning: m, verdict: watch, weight: 0.1, clears: boot, source: s, advice: a}"
ACTION = "{meaning: m, verdict: watch, weight: 0, firm: false, advice: a}"
HEAD = f"version: 1\nunknown: {ROW}\nrecovery_actions: {{other: {ACTION}}}\n"


def test_every_row_has_a_meaning_a_source_and_advice():
    for code in CATALOGUE.codes:
        row = CATALOGUE.of(code)
        assert row.meaning
        assert row.source
        assert row.advice


def test_hard_verdicts_weigh_enough_to_be_seen_in_the_score():
    weights = {code: CATALOGUE.of(code).weight for code in CATALOGUE.codes if CATALOGUE.of(code).verdict.hard}
    assert {code for code, weight in weights.items() if weight < 0.5} == set()


def test_an_unlisted_code_has_the_row_unknown_and_an_unlisted_action_the_row_other():
    assert CATALOGUE.of("xid/12345").verdict is Verdict.WATCH
    assert CATALOGUE.of("recovery/12345").verdict is Verdict.NO_NEW_WORK
    assert CATALOGUE.of("xid/154.12345").verdict is Verdict.NO_NEW_WORK


def test_a_flood_of_unknown_codes_is_answered_from_a_memory_that_stays_small():
    catalogue = parse(HEAD + "faults: {}")
    tracemalloc.start()
    rows = {id(catalogue.of(f"xid/{number}")) for number in range(20_000)}
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert rows == {id(catalogue.of("nonsense"))}
    assert grown < 250_000  # bytes; all 20,000 would take over 1 MB
    assert catalogue.of("xid/154.77") is catalogue.of("xid/154.other")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "object"),
        (": [", "fault catalogue"),
        ("version: 1\n", "unknown"),
        (HEAD + "faults: {x/1: {}}", "x/1: .*meaning"),
        (HEAD + f"faults: {{x/1: {ROW.replace('watch', 'explode')}}}", "x/1: .*verdict"),
        (HEAD + f"faults: {{x/1: {ROW.replace('0.1', '1.5')}}}", "x/1: .*weight"),
        (HEAD + "faults: [a]", "faults"),
        (HEAD.replace("weight: 0,", "weight: 2,") + "faults: {}", "recovery_actions"),
        (HEAD + f"faults: {{a: {ROW.replace('boot', 'time')}}}", "half_life_seconds"),
        (HEAD + f"faults: {{a: {ROW.replace('watch', 'reset').replace('}', ', blind: true}')}}}", "silence"),
        (HEAD + f"faults: {{a: {ROW.replace('}', ', decided_by: [z]}')}}}", "z"),
        (HEAD + f"faults: {{a: {ROW.replace('}', ', colour: red}')}}}", "colour"),
        (HEAD.replace("version: 1", "version: 2") + "faults: {}", "version"),
        (HEAD.replace("verdict: watch", "verdict: reset", 1) + "faults: {}", "unknown"),
        (HEAD.replace("other", "1") + "faults: {}", "other"),
    ],
)
def test_a_wrong_catalogue_is_refused_and_the_error_names_what_is_wrong(text, word):
    with pytest.raises(CatalogueError, match=word):
        parse(text)
