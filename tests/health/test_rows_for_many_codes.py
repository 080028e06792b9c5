"""Codes whose middle part users choose have one row for all of them."""

import pytest
from evidence import CATALOGUE

from outrider.api.gpunode import Verdict
from outrider.health.catalogue import parse

ROW = "{meaning: m, verdict: watch, weight: 0.1, clears: boot, source: s, advice: a}"


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        ("check/disk", Verdict.NO_NEW_WORK),
        ("check/disk.warning", Verdict.WATCH),
        ("check/disk.unknown", Verdict.WATCH),
    ],
)
def test_a_users_check_has_the_row_for_all_of_its_kind(code, verdict):
    assert CATALOGUE.of(code).verdict is verdict
    assert CATALOGUE.of(code).meaning.startswith("a check of your own")


def test_a_row_with_the_name_itself_goes_before_the_one_for_all():
    action = "{meaning: m, verdict: watch, weight: 0, firm: false, advice: a}"
    rows = f"{{'check/*': {ROW}, check/disk: {ROW.replace('watch', 'reboot')}}}"
    catalogue = parse(f"version: 1\nunknown: {ROW}\nrecovery_actions: {{other: {action}}}\nfaults: {rows}")
    assert catalogue.of("check/disk").verdict is Verdict.REBOOT
    assert catalogue.of("check/other").verdict is Verdict.WATCH


@pytest.mark.parametrize("code", ["", "/", "check", "check/disk.critical", "xid/74.new", "*/*"])
def test_a_code_that_fits_no_row_is_unknown(code):
    assert CATALOGUE.of(code).meaning == CATALOGUE.of("nonsense").meaning
