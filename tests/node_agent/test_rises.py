from hypothesis import given
from hypothesis import strategies as st

from node_agent.readings.rises import Rises


def risen(window: float, *readings: tuple[float, int]) -> float:
    rises = Rises(window)
    return [rises.note("counter", value, now) for now, value in readings][-1]


def test_the_first_reading_is_no_rise_however_high():
    assert risen(10, (0, 10**18)) == 0


def test_rises_count_until_the_window_has_passed():
    assert risen(10, (0, 0), (5, 3), (9, 4)) == 4
    assert risen(10, (0, 0), (5, 3), (15, 3)) == 0


def test_a_counter_that_goes_backwards_began_anew():
    assert risen(10, (0, 100), (1, 5)) == 0
    assert risen(10, (0, 100), (1, 5), (2, 7)) == 2


def test_of_a_rise_over_a_long_gap_only_the_windows_share_counts():
    assert risen(10, (0, 0), (100, 50)) == 5


def test_what_was_kept_counts_on():
    before, after = Rises(60), Rises(60)
    before.note("counter", 0, 0)
    before.note("counter", 7, 30)
    after.restore(before.steps)
    assert after.note("counter", 7, 40) == 7
    assert after.note("counter", 7, 95) == 0


@given(st.lists(st.tuples(st.floats(0, 1e3), st.integers(0, 2**64 - 1)), max_size=50), st.floats(0.1, 1e5))
def test_no_series_gives_a_negative_rise_or_grows_without_bound(series, window):
    rises, now = Rises(window), 0.0
    for step, value in series:
        now += step
        assert rises.note("counter", value, now) >= 0
    assert len(rises.steps.get("counter", [])) <= 11
