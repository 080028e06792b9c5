"""Real programs, run within bounds."""

import os
import signal
import time
from pathlib import Path

import pytest

from node_agent.probes.programs import Ran, run

SHELL = "/bin/sh"


async def ran(
    script: str, *, seconds: float = 20.0, output_max: int = 4096, uid: int | None = None, **environment
) -> Ran:
    return await run([SHELL, "-c", script], seconds=seconds, output_max=output_max, uid=uid, environment=environment)


async def test_a_program_gives_its_exit_code_and_both_streams():
    assert await ran("echo out; echo err >&2; exit 3") == Ran(status=3, output=b"out\nerr\n")


async def test_a_signal_is_its_negative_number():
    assert (await ran("kill -9 $$")).status == -signal.SIGKILL


async def test_the_environment_is_clean():
    os.environ["OUTRIDER_TEST_OURS"] = "x"
    try:
        answer = await ran("env", GIVEN="1")
    finally:
        del os.environ["OUTRIDER_TEST_OURS"]
    names = {line.split("=")[0] for line in answer.output.decode().splitlines()}
    assert {"GIVEN", "PATH", "LC_ALL"} <= names
    assert "OUTRIDER_TEST_OURS" not in names
    assert "HOME" not in names


async def test_a_program_that_hangs_is_ended_with_all_that_it_started(tmp_path):
    left = tmp_path / "child"
    answer = await ran(f"sleep 1000 & echo $! > {left}; echo started; sleep 1000", seconds=0.5)
    assert answer == Ran(output=b"started\n", problem="did not end within 0.5 s")
    assert gone(int(left.read_text()))


def gone(pid: int) -> bool:
    """Wait for the end of a process; whoever adopted it may not have collected it yet."""
    for _ in range(1000):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z"):
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


async def test_what_a_program_leaves_behind_neither_holds_up_the_answer_nor_lives_on(tmp_path):
    left = tmp_path / "child"
    began = time.monotonic()
    assert await ran(f"sleep 1000 & echo $! > {left}; echo done") == Ran(status=0, output=b"done\n")
    assert time.monotonic() - began < 10
    assert gone(int(left.read_text()))


async def test_a_child_that_leaves_the_group_does_not_hold_up_the_answer():
    began = time.monotonic()
    assert (await ran("setsid sleep 3 & echo done")).output == b"done\n"
    assert time.monotonic() - began < 3


async def test_a_program_that_writes_without_end_is_ended_and_its_output_cut():
    answer = await ran("yes")
    assert answer.problem == "wrote too much"
    assert answer.status is None
    assert len(answer.output) == 4096


async def test_output_of_just_the_allowed_length_comes_whole():
    assert (await ran("head -c 4000 /dev/zero")).output == bytes(4000)


@pytest.mark.parametrize("command", [["/nowhere"], ["/etc/hostname"], ["/bin/\0sh"]])
async def test_a_program_that_does_not_start_says_why(command):
    answer = await run(command, seconds=5, output_max=10, environment={})
    assert answer.status is None
    assert answer.problem.startswith("can't be started: ")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_a_program_runs_as_the_user_it_is_given_and_in_no_other_group():
    answer = await ran("id -u; id -G", uid=65534)
    assert answer.output.split() == [b"65534", b"65534"]


async def test_nothing_is_left_open():
    await ran("true")
    before = len(os.listdir("/proc/self/fd"))
    for script in ("true", "yes", "exit 1"):
        await ran(script)
    await run(["/nowhere"], seconds=1, output_max=1, environment={})
    assert len(os.listdir("/proc/self/fd")) == before
