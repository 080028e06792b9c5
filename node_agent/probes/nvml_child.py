"""The NVML child process as the agent holds it: what is asked of it, what it says, how it is ended."""

import asyncio
import sys
from collections.abc import Callable
from typing import Final

import msgspec

from node_agent.metrics import NVML_CHILD_STARTS
from node_agent.probes.nvml_wire import Answer, Ask, Event

_LINE_MAX: Final = 64 * 1024  # a reading has 2 KiB, with 36 links of the newest kind 6
_REAP_SECONDS: Final = 1.0
START_SECONDS: Final = 60.0  # until the first word of a new child: a starved machine takes long to start Python
_DECODER: Final = msgspec.json.Decoder(Answer)


class Hung(Exception):
    """The child gave no answer in time, or ended without one."""


class Child:
    """One child process. ``heard`` is called with each event, also between questions."""

    def __init__(self, process: asyncio.subprocess.Process, heard: Callable[[Event], None]) -> None:
        self._process = process
        self._heard = heard
        self._answers: asyncio.Queue[Answer | Hung] = asyncio.Queue()
        self._silent = True
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def start(cls, heard: Callable[[Event], None]) -> "Child":
        """Return a new child. Raises OSError where no process can be started."""
        NVML_CHILD_STARTS.inc()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "node_agent.probes.nvml",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE_MAX,
        )
        return cls(process, heard)

    @property
    def ended(self) -> bool:
        """True once the process is gone for good."""
        return self._process.returncode is not None

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    async def ask(self, skip: list[int]) -> None:
        """Ask for a reading. Raises Hung."""
        assert self._process.stdin is not None  # noqa: S101 - opened as a pipe above
        try:
            self._process.stdin.write(msgspec.json.encode(Ask(skip)) + b"\n")
            await self._process.stdin.drain()
        except ConnectionError as error:
            raise Hung("the NVML child process ended by itself") from error

    async def answer(self, hang_seconds: float) -> Answer:
        """Return the next answer. Raises Hung where none comes in time; a new child gets longer for its first."""
        seconds = max(hang_seconds, START_SECONDS) if self._silent else hang_seconds
        try:
            async with asyncio.timeout(seconds):
                said = await self._answers.get()
        except TimeoutError as error:
            raise Hung(f"NVML gave no answer for {seconds:g} s") from error
        self._silent = False
        if isinstance(said, Hung):
            raise said
        return said

    async def _listen(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - opened as a pipe above
        while True:
            try:
                said = _DECODER.decode(await self._process.stdout.readuntil(b"\n"))
            except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, msgspec.DecodeError, OSError) as error:
                self._answers.put_nowait(Hung(f"the NVML child process broke off: {type(error).__name__}"))
                return
            if isinstance(said, Event):
                self._heard(said)
            else:
                self._answers.put_nowait(said)

    async def end(self) -> bool:
        """Kill the process and wait a moment; return whether it is gone."""
        self._listening.cancel()
        if not self.ended:
            self._process.kill()
        try:
            async with asyncio.timeout(_REAP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            return False
        return True
