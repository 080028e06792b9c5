"""What NVIDIA lists is listed here: its Xid catalogue (173 codes) and the SXids of its Fabric Manager guide (95)."""

import time
from collections import Counter

import pytest
from evidence import CATALOGUE

from outrider.api.gpunode import Verdict
from outrider.health.catalogue import Clears, FaultClass, Reach, load

CORRECTED = [11012, 11021, 11022, 11023, 12021, 12023, 15008, 15011, 19049, 19055, 19057, 19059, 19062, 19065, 19068]
CORRECTED += [19071, 24001, 24002, 24003]
GOES_ON = [*CORRECTED, 11004, 12028, 19084, 20001, 20012, 22013, 28002, 28006]
NOTABLE = [10001, 10002, 10004, 10005, 20009]
ALWAYS_FATAL = [10003, 12020, 22003, 22011, *range(23001, 23018)]
PORT_DECIDES = [11001, 11009, 11013, *range(11018, 11021), 12001, 12002, 12022, *range(12024, 12028)]
PORT_DECIDES += [
    *range(12030, 12033),
    14017,
    15001,
    15006,
    15009,
    15010,
    15012,
    15013,
    19047,
    19048,
    19054,
    19056,
    19058,
    19060,
    19061,
]
PORT_DECIDES += [19063, 19064, 19066, 19067, 19069, 19070, 20034, 22012, *range(24004, 24008)]

UNUSED = [*range(1, 8), 9, 10, 12, *range(14, 25), *range(26, 31), *range(33, 37), 42, 47, *range(49, 54)]
UNUSED += [*range(55, 60), 61, 65, 73, 81, 87, 90, 91, *range(111, 119), *range(122, 126), 138]


def sxids() -> list[int]:
    return sorted(int(code.removeprefix("sxid/")) for code in CATALOGUE.codes if code.startswith("sxid/"))


def test_every_xid_from_1_to_173_has_a_row_with_its_name_and_class():
    for number in range(1, 174):
        assert f"xid/{number}" in CATALOGUE
        row = CATALOGUE.of(f"xid/{number}")
        assert row.name or number == 173  # NVIDIA's list does not name it yet
        assert row.fault_class is not None
        assert row.fatal_to is not None


def test_the_classes_are_those_of_the_list():
    classes = Counter(CATALOGUE.of(f"xid/{number}").fault_class for number in range(1, 174))
    assert classes == {
        FaultClass.UNUSED: 62,
        FaultClass.TRANSIENT: 44,
        FaultClass.INFORMATIONAL: 20,
        FaultClass.GPU_RESET: 15,
        FaultClass.APP: 10,
        FaultClass.LINK: 8,
        FaultClass.HARDWARE: 4,
        FaultClass.REBOOT: 4,
        FaultClass.ENVIRONMENT: 3,
        FaultClass.COLLATERAL: 1,
        FaultClass.CONTAINED_MEMORY: 1,
        FaultClass.RECOVERY_STATE: 1,
    }


def test_codes_that_drivers_no_longer_use_are_judged_like_unknown_ones():
    unknown = CATALOGUE.of("xid/12345")
    classes = {number: CATALOGUE.of(f"xid/{number}").fault_class for number in range(1, 174)}
    assert [number for number, one in classes.items() if one is FaultClass.UNUSED] == UNUSED
    for number in UNUSED:
        row = CATALOGUE.of(f"xid/{number}")
        assert (row.verdict, row.weight, row.half_life_seconds) == (
            unknown.verdict,
            unknown.weight,
            unknown.half_life_seconds,
        )


@pytest.mark.parametrize(
    ("verdict", "numbers"),
    [
        (Verdict.RESET, [46, 48, 62, 74, 95, 109, 110, 119, 120, 136, 140, 143, 150, 155, 158, 169, 172]),
        (Verdict.REBOOT, [79, 151, 166, 167, 173]),
        (Verdict.REPLACE, [54, 64]),
        (Verdict.NO_NEW_WORK, [144, 145, 146, 149, 154, 168]),
    ],
)
def test_only_these_xids_keep_work_off_a_gpu(verdict, numbers):
    assert [number for number in range(1, 174) if CATALOGUE.of(f"xid/{number}").verdict is verdict] == numbers


def test_what_takes_only_a_program_along_never_leads_to_hardware():
    hard_alone = {48, 109}  # what comes with them tells how far they reach; alone they ask for a reset
    for number in set(range(1, 174)) - hard_alone:
        row = CATALOGUE.of(f"xid/{number}")
        if row.fatal_to is Reach.PROCESS:
            assert not row.verdict.hard


def test_every_sxid_is_listed_and_nothing_else():
    assert sxids() == sorted([*GOES_ON, *NOTABLE, *ALWAYS_FATAL, *PORT_DECIDES])
    assert len(sxids()) == 95


@pytest.mark.parametrize(
    ("numbers", "verdicts", "clears"),
    [
        (GOES_ON, {Verdict.WATCH, Verdict.NONE}, Clears.TIME),
        (NOTABLE, {Verdict.WATCH, Verdict.NONE}, Clears.TIME),
        (PORT_DECIDES, {Verdict.NO_NEW_WORK}, Clears.BOOT),
        (ALWAYS_FATAL, {Verdict.REBOOT}, Clears.BOOT),
    ],
)
def test_each_group_of_sxids_has_its_verdict(numbers, verdicts, clears):
    rows = [CATALOGUE.of(f"sxid/{number}") for number in numbers]
    assert {row.verdict for row in rows} <= verdicts
    assert {row.clears for row in rows} == {clears}


@pytest.mark.parametrize("number", range(144, 151))
def test_the_parts_of_nvlink5_ask_for_a_reset_only_where_their_line_or_the_only_rule_says_so(number):
    assert CATALOGUE.of(f"xid/{number}").verdict.hard == (number == 150)
    assert f"xid/{number}.{'reset' if number == 150 else 'ignore'}" in CATALOGUE


def test_no_two_rows_of_a_driver_tell_the_same_unless_they_mean_the_same():
    meanings = Counter(
        CATALOGUE.of(code).meaning
        for code in CATALOGUE.codes
        if code.startswith("xid/") and CATALOGUE.of(code).fault_class is not FaultClass.UNUSED
    )
    assert [meaning for meaning, count in meanings.items() if count > 1] == [CATALOGUE.of("xid/150").meaning]


def test_every_source_that_rows_name_is_described():
    assert {CATALOGUE.of(code).source for code in CATALOGUE.codes} <= set(CATALOGUE.sources)


def test_the_catalogue_is_read_fast():
    assert min(seconds_of_load() for _ in range(3)) < 0.15, "the best of three: others use the machine too"


def seconds_of_load() -> float:
    started = time.process_time()
    load()
    return time.process_time() - started
