"""Runs other people's programs, within bounds: time, output, environment, user. Whatever they do, the agent goes on.

A program gets a process group of its own, so that what it started ends with it. Its output comes through a pipe that
the agent lets go of when the program itself has ended: a child that escaped the group can neither keep the agent
waiting nor write on.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

_READ_BYTES: Final = 16 * 1024
_HEAD_BYTES: Final = 256  # the kernel reads no more of a script's first line
_REAP_SECONDS: Final = 2.0  # for the kernel to end a killed process; longer: it is stuck in a driver
_ENVIRONMENT: Final = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """How a program ended."""

    status: int | None = None
    """Exit code, minus the signal's number where a signal ended it; None where it was ended by us or never started."""
    output: bytes = b""
    """Both streams together, at most as long as was allowed."""
    problem: str = ""
    """Why there is no exit code."""


async def run(
    command: Sequence[str], *, seconds: float, output_max: int, uid: int | None = None, environment: dict[str, str]
) -> Ran:
    """Run the program ``command[0]`` to its end, at most ``seconds``; as user and group ``uid`` where it is given.

    More than ``output_max`` bytes of output end it too. The environment holds a search path and ``environment``.
    """
    reading, writing = os.pipe()
    output = _Output(reading, output_max)
    try:
        process = await _start(command, writing, uid, environment)
    except (OSError, ValueError) as error:
        output.close()
        return Ran(problem=f"can't be started: {_why_not(command[0], error)}")
    finally:
        os.close(writing)
    try:
        return await _to_the_end(process, output, seconds)
    finally:
        _kill(process)
        output.close()


def _why_not(program: str, error: Exception) -> str:
    """Say why a program was not started: of a script, the kernel names the script even where its interpreter lacks."""
    if not isinstance(error, FileNotFoundError):
        return str(error)
    try:
        with Path(program).open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return str(error)
    words = head.partition(b"\n")[0].removeprefix(b"#!").decode("utf-8", "replace").split()
    if not head.startswith(b"#!") or not words:
        return f"{program}: what it needs to run, such as its loader, is not there: the agent's image has no such file"
    return f"{program}: its interpreter {words[0]} is not there: the agent's image has no such program"


async def _start(
    command: Sequence[str], output: int, uid: int | None, environment: dict[str, str]
) -> asyncio.subprocess.Process:
    other = uid if os.geteuid() == 0 else None  # who is not root can't become anybody, and is harmless enough
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        cwd="/",
        env=_ENVIRONMENT | environment,
        process_group=0,
        user=other,
        group=other,
        extra_groups=None if other is None else [],
    )


async def _to_the_end(process: asyncio.subprocess.Process, output: "_Output", seconds: float) -> Ran:
    ended = asyncio.ensure_future(process.wait())
    flooded = asyncio.ensure_future(output.full.wait())
    await asyncio.wait((ended, flooded), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    problem = ""
    if not ended.done():
        problem = "wrote too much" if output.full.is_set() else f"did not end within {seconds:g} s"
        _kill(process)
        await asyncio.wait((ended,), timeout=_REAP_SECONDS)
    for waiting in (ended, flooded):
        waiting.cancel()
    output.drain()
    return Ran(status=None if problem else process.returncode, output=bytes(output.text), problem=problem)


def _kill(process: asyncio.subprocess.Process) -> None:
    """End the whole group: where the program itself has ended, what it left behind."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


class _Output:
    """The reading end of the pipe: keeps the first bytes, and says when there were more than allowed."""

    def __init__(self, file: int, limit: int) -> None:
        self.text = bytearray()
        self.full = asyncio.Event()
        self._file, self._limit = file, limit
        os.set_blocking(file, False)
        asyncio.get_running_loop().add_reader(file, self._read)

    def _read(self) -> bool:
        """Take what is there; return False where that was nothing."""
        try:
            chunk = os.read(self._file, _READ_BYTES)
        except BlockingIOError:
            return False
        self.text += chunk[: self._limit - len(self.text)]
        if len(chunk) and len(self.text) >= self._limit:
            self.full.set()
        if not chunk or self.full.is_set():
            asyncio.get_running_loop().remove_reader(self._file)
        return bool(chunk)

    def drain(self) -> None:
        """Take what an ended program has left in the pipe."""
        while not self.full.is_set() and self._read():
            pass

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._file)
        os.close(self._file)
