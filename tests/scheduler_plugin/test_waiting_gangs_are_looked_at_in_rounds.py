"""However many gangs wait: the first are looked at often, the last at all, and half of the time is left for others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_plugin.planner.rounds import Rounds


def lived(took: list[float], seconds: float, step: float = 0.2) -> tuple[list[int], float]:
    """Return how often each gang was looked at, and the share of the time that it took."""
    rounds, looks, now, busy = Rounds(), [0] * len(took), 0.0, 0.0
    while now < seconds:
        for gang in range(rounds.due(took, now)[0]):
            looks[gang] += 1
            busy += took[gang]
        now += step
    return looks, busy / seconds


def test_a_few_gangs_are_looked_at_whenever_there_is_room() -> None:
    looks, _ = lived([0.001] * 8, seconds=10.0)
    assert min(looks) >= 50


def test_the_last_of_thousands_of_gangs_is_looked_at_again_and_again() -> None:
    took = [0.015] * 2000
    looks, busy = lived(took, seconds=4 * 3600, step=1.0)
    assert min(looks) >= 4 * 3600 // (sum(took) * 2 * 12 * 2)
    assert looks == sorted(looks, reverse=True), "nobody is looked at more often than those before"
    assert busy < 0.6


@pytest.mark.parametrize("count", [0, 1])
def test_no_gang_and_one_gang_are_no_special_case(count: int) -> None:
    assert Rounds().due([1.0] * count, 5.0) == (count, 0.0)


def test_gangs_never_looked_at_cost_nothing_yet_and_are_looked_at_at_once() -> None:
    rounds = Rounds()
    assert rounds.due([0.5] * 4, 0.0) == (4, 0.0)
    assert rounds.due([0.5] * 4, 0.1)[0] == 0
    assert rounds.due([0.0] * 100, 0.1) == (100, 0.0)


def test_a_clock_that_was_set_back_delays_no_round() -> None:
    rounds = Rounds()
    rounds.due([1.0] * 4, 1e6)
    assert rounds.due([1.0] * 4, 0.0) == (4, 0.0)


def test_room_that_came_too_soon_after_the_last_look_is_not_forgotten() -> None:
    rounds = Rounds()
    rounds.due([0.1], 0.0)
    count, later = rounds.due([0.1], 0.05)
    assert count == 0
    assert later == pytest.approx(0.15)
    assert rounds.due([0.1], 0.2) == (1, 0.0)
    rounds.due([0.1] * 4, 1.0)
    count, later = rounds.due([0.1] * 4, 1.7)
    assert count == 1
    assert later == pytest.approx(0.5), "the first two may be looked at soon, and all four later"


@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=60))
def test_rounds_leave_about_half_of_the_time(took: list[float]) -> None:
    hour = 3600.0
    first = sum(took) / hour
    assert lived(took, seconds=hour, step=7.0)[1] <= 0.5 + 2 * first + 0.01
