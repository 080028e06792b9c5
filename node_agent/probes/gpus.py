"""The NVML probe, the agent's half: keeps the child process, asks it, watches the time, ends it when it hangs.

A GPU whose calls hang is left out of the next readings for a while, so that it hides no other; it is named in each
report meanwhile. A failed start of NVML ends the child: the next reading starts a new one, which finds a driver that
came back or was replaced.
"""

import asyncio
import sys
import time
from typing import Final

import msgspec

from node_agent.config import Config
from node_agent.metrics import NVML_CHILD_STARTS
from node_agent.probes.nvml_wire import Answer, Ask, Begin, End, Failed, GPUReading, Hang, Read, Snapshot
from node_agent.probes.registry import probe
from node_agent.probes.report import Report

_LINE_MAX: Final = 64 * 1024  # a reading has well under 2 KiB
_REAP_SECONDS: Final = 1.0
_START_SECONDS: Final = 60.0  # until the first word of a new child: a starved machine takes long to start Python
_AFTER_FAILURE_SECONDS: Final = 5.0  # between two starts of NVML that fail: each costs a process
_STUCK_MAX: Final = 2  # children that even SIGKILL does not end (state D in the driver); more would only pile up
_DECODER: Final = msgspec.json.Decoder(Answer)


class Hung(Exception):
    """The child gave no answer in time, or ended without one."""


class NVMLProbe:
    """Reads all GPUs of the node through the child process."""

    wake: asyncio.Event | None = None

    def __init__(self, config: Config) -> None:
        self.period_seconds = config.nvml_period_seconds
        self._hang_seconds = config.nvml_hang_seconds
        self._retry_seconds = config.nvml_retry_seconds
        # The watchdog works on each GPU; the runner's own limit only guards against mistakes in it.
        self.timeout_seconds = _START_SECONDS + 32 * config.nvml_hang_seconds
        self._child: asyncio.subprocess.Process | None = None
        self._stuck: list[asyncio.subprocess.Process] = []
        self._hangs: dict[int, tuple[Hang, float]] = {}
        self._starting = False
        self._failed: Failed | None = None
        self._not_before = float("-inf")

    async def read(self) -> Report:
        """Return a snapshot; ``blind`` where the child can't be started, or hangs before it reads any GPU."""
        now = time.monotonic()
        self._hangs = {index: (hang, until) for index, (hang, until) in self._hangs.items() if until > now}
        snapshot = Snapshot(hangs=[hang for hang, _ in self._hangs.values()], failed=self._failed)
        if now < self._not_before:
            return Report(snapshot=snapshot)
        try:
            return Report(snapshot=await self._read(snapshot))
        except Hung as hung:
            await self._end()
            return Report(blind=str(hung))

    async def _read(self, snapshot: Snapshot) -> Snapshot:
        child = await self._running()
        skip = sorted(self._hangs)
        await self._ask(child, Ask(skip))
        reading, gpus = -1, list[GPUReading]()
        while True:
            try:
                answer = await self._answer(child)
            except Hung:
                if reading < 0:
                    raise
                return await self._after_hang(snapshot, gpus, reading)
            match answer:
                case Begin(index):
                    reading = index
                case Read(gpu):
                    gpus.append(gpu)
                case End(driver):
                    self._failed = None
                    return msgspec.structs.replace(snapshot, gpus=gpus, driver_version=driver, failed=None)
                case Failed():
                    return await self._after_failure(snapshot, answer)

    async def _after_failure(self, snapshot: Snapshot, failed: Failed) -> Snapshot:
        await self._end()
        self._failed = failed
        self._not_before = time.monotonic() + min(_AFTER_FAILURE_SECONDS, self._retry_seconds)
        return msgspec.structs.replace(snapshot, failed=failed)

    async def _after_hang(self, snapshot: Snapshot, gpus: list[GPUReading], index: int) -> Snapshot:
        await self._end()
        hang = Hang(index, self._hang_seconds)
        self._hangs[index] = (hang, time.monotonic() + self._retry_seconds)
        return msgspec.structs.replace(snapshot, gpus=gpus, hangs=[*snapshot.hangs, hang], failed=None)

    async def _ask(self, child: asyncio.subprocess.Process, ask: Ask) -> None:
        assert child.stdin is not None  # noqa: S101 - opened as a pipe below
        try:
            child.stdin.write(msgspec.json.encode(ask) + b"\n")
            await child.stdin.drain()
        except ConnectionError as error:
            raise Hung("the NVML child process ended by itself") from error

    async def _answer(self, child: asyncio.subprocess.Process) -> Answer:
        assert child.stdout is not None  # noqa: S101 - opened as a pipe below
        seconds = max(self._hang_seconds, _START_SECONDS) if self._starting else self._hang_seconds
        try:
            async with asyncio.timeout(seconds):
                line = await child.stdout.readuntil(b"\n")
            self._starting = False
            return _DECODER.decode(line)
        except TimeoutError as error:
            raise Hung(f"NVML gave no answer for {seconds:g} s") from error
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, msgspec.DecodeError, OSError) as error:
            raise Hung(f"the NVML child process broke off: {type(error).__name__}") from error

    async def _running(self) -> asyncio.subprocess.Process:
        if self._child is not None and self._child.returncode is None:
            return self._child
        self._stuck = [child for child in self._stuck if child.returncode is None]
        if len(self._stuck) >= _STUCK_MAX:
            raise Hung(f"{len(self._stuck)} NVML child processes are stuck in the driver and can't be ended")
        NVML_CHILD_STARTS.inc()
        self._starting = True
        self._child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "node_agent.probes.nvml",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE_MAX,
        )
        return self._child

    async def _end(self) -> None:
        """Kill the child and wait a moment; one that does not go is remembered as stuck."""
        child, self._child = self._child, None
        if child is None:
            return
        if child.returncode is None:
            child.kill()
        try:
            async with asyncio.timeout(_REAP_SECONDS):
                await child.wait()
        except TimeoutError:
            self._stuck.append(child)

    async def close(self) -> None:
        """End the child process."""
        await self._end()


@probe("nvml")
def _build(config: Config) -> NVMLProbe:
    return NVMLProbe(config)
