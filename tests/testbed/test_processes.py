"""Processes of a testbed are found again, and only they."""

import os
import time
from collections.abc import Callable, Iterator

import pytest

from testbed import cleanup, locks, processes
from testbed.errors import BusyError, TestbedError
from testbed.paths import state_root
from testbed.state import State


@pytest.fixture
def bed() -> Iterator[State]:
    """State of a testbed that is only folders."""
    name = f"unit-{os.getpid()}"
    yield State(name, 0, "h100")
    cleanup.remove(name)


def _until(is_true: Callable[[], bool]) -> bool:
    """Wait up to 10 s for a real process to get so far."""
    deadline = time.monotonic() + 10
    while not is_true() and time.monotonic() < deadline:
        time.sleep(0.01)
    return is_true()


def test_a_process_and_its_children_are_found_by_the_marker_and_end_together(bed: State) -> None:
    pid = processes.spawn(bed, "shell", ["sh", "-c", "sleep 60 & sleep 60 & wait"])
    assert _until(lambda: len(set(processes.of_testbed(bed.name))) == 3)
    assert pid in set(processes.of_testbed(bed.name))
    assert processes.find(bed, "shell") == pid
    processes.end(list(processes.of_testbed(bed.name)))
    assert not set(processes.of_testbed(bed.name))
    assert processes.find(bed, "shell") is None


def test_a_process_that_ignores_sigterm_is_killed(bed: State) -> None:
    pid = processes.spawn(bed, "deaf", ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"])
    assert _until(lambda: processes.tail(bed, "deaf") == "ready")
    processes.stop(bed, "deaf", term_s=0.2)
    assert not processes.is_alive(pid)


def test_an_id_that_now_belongs_to_another_process_does_not_count(bed: State) -> None:
    processes.spawn(bed, "short", ["true"])
    (bed.folder / "pids" / "short").write_text(f"{os.getpid()} 1")
    assert processes.find(bed, "short") is None


def test_the_end_of_a_process_is_told_with_its_last_words(bed: State) -> None:
    pid = processes.spawn(bed, "loud", ["sh", "-c", "echo no such file; exit 3"])
    assert _until(lambda: not processes.is_alive(pid))
    with pytest.raises(TestbedError, match=r"loud ended unexpectedly(.|\n)*no such file"):
        processes.require_running(bed, "loud")


def test_a_second_command_on_the_same_testbed_is_refused_and_told_who_works_on_it(bed: State) -> None:
    lock = state_root() / "locks" / bed.name
    with (
        locks.exclusive(lock, "testbed x"),
        pytest.raises(BusyError, match=f"process {os.getpid()}"),
        locks.exclusive(lock, "testbed x"),
    ):
        pass
    with locks.exclusive(lock, "testbed x"):
        lock.unlink()
