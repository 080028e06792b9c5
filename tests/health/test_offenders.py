import msgspec
import pytest
from evidence import NOW
from hypothesis import given
from hypothesis import strategies as st

from outrider.api.gpunode import OFFENDERS_MAX
from outrider.health.offenders import Offender, after_boot, remembered, repeated

DAY, MINUTE = 86_400.0, 60.0
SERIAL = "1324"
GPUS = {"GPU-a": SERIAL}


def looked(*looks: tuple[float, bool], known: list[Offender] | None = None) -> list[Offender]:
    """The memory after looks at seconds since NOW, each with whether the GPU was in a hard state."""
    known = known or []
    for seconds, hard in looks:
        known = remembered(known, {SERIAL: "xid/79"} if hard else {}, NOW + seconds)
    return known


def episodes(number: int, apart: float = DAY) -> list[Offender]:
    return looked(*((place * apart + part, part == 0) for place in range(number) for part in (0, MINUTE)))


def code(known: list[Offender], seconds: float) -> str:
    return next((evidence.code for evidence in repeated(known, GPUS, NOW + seconds)), "")


@pytest.mark.parametrize(
    ("number", "finding"),
    [(1, ""), (2, ""), (3, "gpu/repeat-offender"), (4, "gpu/repeat-offender"), (5, "gpu/lemon"), (7, "gpu/lemon")],
)
def test_the_third_episode_within_a_week_asks_for_a_look_and_the_fifth_for_a_new_board(number, finding):
    assert code(episodes(number), number * DAY) == finding


@pytest.mark.parametrize(
    ("apart", "finding"), [(0.0, "gpu/repeat-offender"), (59.0, "gpu/repeat-offender"), (61.0, "gpu/lemon")]
)
def test_what_gpus_of_a_node_have_together_asks_for_no_new_board(apart, finding):
    boards = [msgspec.structs.replace(board, serial="1325") for board in episodes(7)]
    later = [msgspec.structs.replace(one, episodes=[began + apart for began in one.episodes]) for one in boards]
    assert code([*episodes(7), *later], 7 * DAY) == finding


def test_faults_of_its_own_make_a_lemon_whatever_came_over_all():
    (board,) = episodes(7)
    others = [msgspec.structs.replace(board, serial="1325", episodes=board.episodes[:2])]
    (evidence,) = repeated([board, *others], GPUS, NOW + 6.5 * DAY)
    assert (evidence.code, evidence.line) == (
        "gpu/lemon",
        "7 hard faults within 7 days, 2 of them together with other GPUs, last xid/79",
    )


def test_a_fault_that_lasts_is_one_episode_however_long():
    assert len(looked(*((minute * MINUTE, True) for minute in range(600)))[0].episodes) == 1


def test_a_state_that_comes_and_goes_within_minutes_is_one_episode():
    (board,) = looked(*((minute * MINUTE, minute % 2 == 0) for minute in range(60)))
    assert len(board.episodes) == 1


def test_a_fault_that_is_back_after_a_reboot_is_a_new_episode_at_once():
    known = looked((0, True), (MINUTE, True))
    (board,) = looked((2 * MINUTE, True), known=after_boot(known))
    assert len(board.episodes) == 2


def test_episodes_leave_the_memory_after_a_week():
    known = episodes(3)
    assert code(known, 6.9 * DAY) == "gpu/repeat-offender"
    assert code(known, 7.1 * DAY) == ""
    assert looked((20 * DAY, False), known=known) == []


def test_another_board_in_the_same_slot_is_not_blamed():
    assert repeated(episodes(5), {"GPU-new": "other"}, NOW) == []


def test_what_is_remembered_does_not_move_while_nothing_changes():
    known = looked((0, True))
    assert looked((5, True), (10, True), known=known) == known
    gone = looked((20, False), known=known)
    assert looked((25, False), known=gone) == gone


@given(st.lists(st.tuples(st.floats(0, 30 * DAY), st.booleans()), max_size=60))
def test_there_are_never_more_episodes_than_changes_to_hard(looks):
    looks.sort()
    known = looked(*looks)
    changes = sum(hard and (place == 0 or not looks[place - 1][1]) for place, (_, hard) in enumerate(looks))
    assert sum(len(board.episodes) for board in known) <= min(changes, 16)


def test_the_memory_is_bounded():
    known: list[Offender] = []
    for number in range(200):
        known = remembered(known, {f"serial-{number}": "xid/79"}, NOW + number)
    assert len(known) == OFFENDERS_MAX
    assert f"serial-{199}" in {board.serial for board in known}
