"""What is no fault, and what neighbours tell: the rules on readings alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.inventory import GPURecord, match
from node_agent.probes.nvml_wire import GPUReading, Snapshot, Trend
from node_agent.readings.nvml import COUNTERS_SOURCE, judge_snapshot
from node_agent.readings.nvml.links import bit_error_rate
from node_agent.readings.nvml.look import Look
from node_agent.readings.nvml.pcie import replay_limit
from outrider.health.catalogue import load

CATALOGUE = load()
MODEL = "NVIDIA H100 80GB HBM3"


def gpu(index: int, **values) -> GPUReading:
    return GPUReading(index=index, uuid=f"GPU-{index}", **{"model": MODEL, **values})


def judged(*gpus: GPUReading, trends: dict[str, Trend] | None = None, known=(), **snapshot):
    whole = Snapshot(gpus=list(gpus), trends=trends or {}, **snapshot)
    return judge_snapshot(whole, match(whole, known, 0), 0, 0.0)


def codes(*gpus: GPUReading, **more) -> list[tuple[str, str]]:
    return [(evidence.code, evidence.subject_id) for evidence in judged(*gpus, **more).bad]


NO_FAULTS = {
    "idle board at a lower PCIe generation": {"pcie_generation": 1, "pcie_generation_max": 5, "utilization": 0},
    "PCIe board without a bridge": {"model": "NVIDIA H100 PCIe", "links_inactive": [*range(12)]},
    "virtual machine with one GPU of a switched board": {"fabric_state": 0, "fabric_status": 0},
    "fabric whose health has no values": {"fabric_state": 3, "fabric_status": 0, "fabric_health_mask": 0},
    "clocks that the power limit holds down": {"clock_reasons": 0x4, "clock_sm": 1200, "clock_sm_max": 1980},
    "old errors of the board": {"ecc_uncorrected_life": 12, "ecc_uncorrected": 0, "remap_uncorrected": 3},
    "few PCIe replays": {"pcie_replays": 7},
    "board without any value": {},
    "board without spare rows told": {"remap_banks": (2560, 0, 0, 0, 0), "remap_pending": False},
    "performance state that is not known": {"performance_state": 32},
    "health summary that is not known": {"fabric_state": 3, "fabric_health_summary": 9},
}


@pytest.mark.parametrize("values", NO_FAULTS.values(), ids=NO_FAULTS)
def test_this_is_no_fault(values):
    minute = Trend(seconds=60, loaded=0, reasons={0x4: 1.0})
    assert codes(gpu(0, **values), trends={"GPU-0": minute}) == []


def test_a_power_cap_on_all_gpus_is_shown_and_not_held_against_them():
    capped = [gpu(i, power_limit=500_000, power_limit_wanted=500_000, power_limit_default=700_000) for i in range(4)]
    assert {code for code, _ in codes(*capped)} == {"power/capped"}
    assert CATALOGUE.of("power/capped").weight == 0


def test_one_busy_gpu_that_is_slower_than_the_others_is_named_although_power_explains_it():
    busy = {"utilization": 99, "clock_sm_max": 1980, "clock_reasons": 0x4}
    gpus = [gpu(i, clock_sm=1500, **busy) for i in range(7)] + [gpu(7, clock_sm=900, **busy)]
    loaded = {f"GPU-{i}": Trend(loaded=3) for i in range(8)}
    assert codes(*gpus, trends=loaded) == [("clocks/low", "GPU-7")]


def test_gpus_of_another_model_are_no_siblings():
    others = [gpu(i, mig_mode=(1, 1), model="NVIDIA T4") for i in range(1, 4)]
    assert codes(gpu(0, mig_mode=(0, 0)), *others) == []


def test_replay_limits_are_those_of_what_the_link_can_do():
    def limit(generation: int | None, width: int | None) -> int | None:
        reading = gpu(0, pcie_generation=1, pcie_generation_max=generation, pcie_width=1, pcie_width_max=width)
        return replay_limit(Look(uuid="GPU-0", gpu=reading, now=0.0))

    assert [limit(generation, 16) for generation in range(1, 7)] == [3, 5, 8, 16, 31, 62]
    assert (limit(9, 16), limit(None, 16), limit(5, None)) == (62, None, None)


def test_bit_error_rates_are_mantissa_and_exponent():
    assert bit_error_rate(0x50C) == pytest.approx(5e-12)
    assert bit_error_rate(0xF00 | 254) == pytest.approx(15e-254)
    assert bit_error_rate(0) == 0


def test_many_links_with_the_same_trouble_are_the_gpus_trouble():
    rises = Trend(seconds=10, rises={f"replay/{link}": 1 for link in range(18)})
    few = Trend(seconds=10, rises={f"replay/{link}": 1 for link in (3, 9)})
    assert codes(gpu(0), trends={"GPU-0": rises}) == [("nvlink/replay", "GPU-0")]
    assert codes(gpu(0), trends={"GPU-0": few}) == [("nvlink/replay", "GPU-0/3"), ("nvlink/replay", "GPU-0/9")]


def test_errors_of_the_board_that_came_before_a_reboot_happened_once():
    known = [GPURecord(index=0, uuid="GPU-0", ecc_uncorrected_life=4)]
    (told,) = judged(gpu(0, ecc_uncorrected_life=6, ecc_uncorrected=0), known=known).happened
    assert (told.code, told.source) == ("ecc/uncorrected-before", COUNTERS_SOURCE)
    assert judged(gpu(0, ecc_uncorrected_life=6, ecc_uncorrected=2), known=known).happened == []
    assert judged(gpu(0, ecc_uncorrected_life=1), known=known).happened == []
    assert judged(gpu(0, ecc_uncorrected_life=9)).happened == []


@pytest.mark.parametrize(
    ("library", "driver", "expected"),
    [("13.580.82.07", "580.82.07", []), ("13.580.82.07", "575.57.08", [("nvml/versions", "")]), ("", "575.57", [])],
)
def test_versions_that_differ_are_told(library, driver, expected):
    assert codes(gpu(0), nvml_version=library, driver_version=driver) == expected


@pytest.mark.parametrize(("code", "told"), [(0, False), (3, False), (13, False), (15, True), (999, True)])
def test_events_that_fail_are_told_unless_the_board_has_none(code, told):
    assert codes(gpu(0), events_code=code) == ([("nvml/events", "")] if told else [])


numbers = st.none() | st.integers(-(2**31), 2**31)


@given(st.builds(
    GPUReading,
    index=st.integers(0, 9),
    uuid=st.sampled_from(["", "GPU-0"]),
    recovery_action=st.none() | st.integers(0, 2**32),
    ecc_mode=st.none() | st.tuples(st.integers(), st.integers()),
    pcie_width=numbers, pcie_width_max=numbers, pcie_generation=numbers, pcie_generation_max=numbers,
    clock_sm=numbers, clock_sm_max=numbers, clock_reasons=st.none() | st.integers(0, 2**64),
    temperature=numbers, margin=numbers, margin_slowdown=numbers, power=numbers, power_limit=numbers,
    fabric_state=numbers, fabric_status=numbers, fabric_health_mask=st.none() | st.integers(0, 2**32),
    errors=st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
    link_counters=st.dictionaries(st.sampled_from(["crc", "effective_ber"]), st.lists(numbers, max_size=3)),
))  # fmt: skip
def test_no_number_that_a_driver_may_answer_breaks_a_reading(reading):
    bad = judged(reading, trends={"GPU-0": Trend(loaded=9, rises={"crc/0": 5})}).bad
    assert all(CATALOGUE.of(evidence.code) for evidence in bad)


def test_an_action_of_the_driver_that_is_not_known_keeps_new_work_away():
    (told,) = judged(gpu(0, recovery_action=77)).bad
    assert told.code == "recovery/77"
    assert CATALOGUE.of(told.code).verdict == "no-new-work"
