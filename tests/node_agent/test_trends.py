"""What the last minute's readings show: counters rise, reset and wrap; shares and runs are of readings."""

from hypothesis import given
from hypothesis import strategies as st

from node_agent.probes.nvml_wire import GPUReading
from node_agent.readings.nvml.trends import WINDOW_SECONDS, extended, trend, under_load


def window(*gpus: GPUReading, apart: float = 10.0):
    kept = ()
    for place, gpu in enumerate(gpus):
        kept = extended(kept, gpu, place * apart)
    return kept


def replays(*values: int | None):
    return trend(window(*(GPUReading(index=0, pcie_replays=value) for value in values))).rises.get("pcie_replays", 0)


def test_rises_add_up_and_a_fall_is_a_reset():
    assert replays(7, 7, 9, 14) == 7
    assert replays(100, 3, 5) == 2
    assert replays(None, 5, None, 9) == 0


@given(st.lists(st.integers(0, 2**63), max_size=7))
def test_a_rise_is_never_negative_and_never_more_than_was_counted(values):
    assert 0 <= replays(*values) <= sum(values)


def test_what_is_older_than_the_window_no_longer_counts():
    counts = [0, 50, *[50] * 7]
    assert replays(*counts[:3]) == 50
    assert replays(*counts) == 0
    assert trend(window(*[GPUReading(index=0)] * 20)).seconds == WINDOW_SECONDS


def test_a_storm_of_readings_does_not_grow_the_window():
    assert len(window(*[GPUReading(index=0)] * 500, apart=0.01)) == 64


def test_links_rise_one_by_one_and_a_rate_is_no_counter():
    before = GPUReading(index=0, link_counters={"crc": [0, 5, None], "effective_ber": [0, 0, 0]})
    after = GPUReading(index=0, link_counters={"crc": [0, 8, 2], "replay": [1, 1, 1], "effective_ber": [9, 9, 9]})
    assert trend(window(before, after)).rises == {"crc/1": 3}


@given(st.lists(st.none() | st.integers(0, 2**64 - 1), max_size=10))
def test_shares_of_clock_reasons_need_two_readings_and_lie_between_zero_and_one(reasons):
    shares = trend(window(*(GPUReading(index=0, clock_reasons=bits) for bits in reasons), apart=1)).reasons
    assert all(0 < share <= 1 for share in shares.values())
    assert not shares or sum(bits is not None for bits in reasons) >= 2


def test_a_run_ends_with_the_first_reading_that_breaks_it():
    busy, idle = GPUReading(index=0, utilization=90), GPUReading(index=0, utilization=3)
    assert trend(window(busy, busy, idle, busy)).loaded == 1
    assert trend(window(idle, busy, busy)).loaded == 2
    assert trend(window(busy, idle)).loaded == 0
    assert trend(()).loaded == 0


def test_with_mig_on_the_clock_tells_of_load():
    mig = {"index": 0, "clock_sm_max": 1980, "performance_state": 0}
    assert under_load(GPUReading(**mig, clock_sm=1700))
    assert not under_load(GPUReading(**mig, clock_sm=345))
    assert not under_load(GPUReading(**mig, clock_sm=1700, clock_reasons=1))
    assert not under_load(GPUReading(**{**mig, "performance_state": 8}, clock_sm=1700))
    assert not under_load(GPUReading(index=0))
