"""The NVML probe, the agent's half: keeps the child process, asks it, watches the time, ends it when it hangs.

A GPU whose calls hang is left out of the next readings for a while, so that it hides no other; it is named in each
report meanwhile. A failed start of NVML ends the child: the next reading starts a new one, which finds a driver that
came back or was replaced. So does a node that shows fewer GPUs than it must have, now and then: NVML lists GPUs at
its start only.

An event is told at once, also in the middle of a reading; a full reading follows it.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from node_agent.config import Config
from node_agent.inventory import GPURecord
from node_agent.probes.nvml_child import START_SECONDS, Child, Hung
from node_agent.probes.nvml_wire import (
    Begin,
    End,
    Event,
    Failed,
    GPUReading,
    Hang,
    PCIDevice,
    Read,
    Snapshot,
)
from node_agent.probes.pci import PCIBus, with_bus
from node_agent.probes.registry import Surroundings, probe
from node_agent.probes.report import Report
from node_agent.readings.nvml.events import gathered
from node_agent.readings.nvml.trends import Window, extended, trend
from node_agent.release import SECONDS_MAX, MalformedRequest, seconds_asked
from outrider.api.gpunode import GPUNode

_LOG: Final = logging.getLogger(__name__)
_AFTER_FAILURE_SECONDS: Final = 5.0  # between two starts of NVML that fail: each costs a process
_STUCK_MAX: Final = 2  # children that even SIGKILL does not end (state D in the driver); more would only pile up
_EVENT_PAUSE_SECONDS: Final = 0.05  # events of a storm are told together
_READING_PAUSE_SECONDS: Final = 1.0  # between readings that events ask for
_GPUS_MAX: Final = 32  # of a node
_BUS_SECONDS: Final = 60.0  # between two looks at the PCI bus


class NVMLProbe:
    """Reads all GPUs of the node through the child process. ``clock`` gives seconds that never jump."""

    wake: asyncio.Event | None

    def __init__(self, config: Config, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.period_seconds = config.nvml_period_seconds
        self.wake = self._woken = asyncio.Event()
        self._hang_seconds = config.nvml_hang_seconds
        self._retry_seconds = config.nvml_retry_seconds
        self._rescan_seconds = config.nvml_rescan_seconds
        self._expected = config.expected_gpus
        self._inventory: Callable[[], Sequence[GPURecord]] = tuple
        # The watchdog works on each GPU; the runner's own limit only guards against mistakes in it.
        self.timeout_seconds = START_SECONDS + _GPUS_MAX * config.nvml_hang_seconds
        self._child: Child | None = None
        self._stuck: list[Child] = []
        self._hangs: dict[int, tuple[Hang, float]] = {}
        self._failed: Failed | None = None
        self._not_before = float("-inf")
        self._rescan_at = float("inf")
        self._released_until = float("-inf")
        self._events: list[Event] = []
        self._told_at = self._read_at = float("-inf")
        self._reading: asyncio.Task[Report] | None = None
        self._overtaken = False
        self._bus = PCIBus(f"{config.sys_path}/bus/pci/devices")
        self._bus_at = float("-inf")
        self._pci: list[PCIDevice] | None = None
        self._windows: dict[str, Window] = {}

    async def read(self) -> Report:
        """Return a snapshot, or the events that came before it was complete.

        ``blind`` where the child can't be started or ended, or hangs before it reads any GPU.
        """
        while True:
            self._woken.clear()
            if self._released_until > self._clock():
                return await self._let_go()
            if self._events:
                return self._tell()
            if self._reading is None:
                self._reading, self._overtaken = asyncio.create_task(self._look()), False
            if await self._read_or_woken(self._reading):
                return self._done(self._reading)

    async def _read_or_woken(self, reading: asyncio.Task[Report]) -> bool:
        """Wait until the reading is done (True) or something else is to be told first."""
        woken = asyncio.create_task(self._woken.wait())
        try:
            await asyncio.wait({reading, woken}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()
        return reading.done()

    def _done(self, reading: asyncio.Task[Report]) -> Report:
        self._reading, self._read_at = None, self._clock()
        if self._overtaken:
            self._wake_in(_READING_PAUSE_SECONDS)
        return reading.result()

    def _heard(self, event: Event) -> None:
        self._events.append(event)
        self._overtaken = True
        self._wake_in(self._told_at + _EVENT_PAUSE_SECONDS - self._clock())

    def _tell(self) -> Report:
        """Return the events, and see to it that all GPUs are read soon by a reading that begins after them."""
        events, self._events = self._events, []
        self._told_at = self._clock()
        if self._reading is None:
            self._wake_in(self._read_at + _READING_PAUSE_SECONDS - self._told_at)
        return Report(events=gathered(events, time.time()))

    def _wake_in(self, seconds: float) -> None:
        if seconds <= 0:
            self._woken.set()
        else:
            asyncio.get_running_loop().call_later(seconds, self._woken.set)

    def attach(self, around: Surroundings) -> None:
        """Look at the inventory, and follow the requests on the GPUNode."""
        self._inventory = around.inventory
        around.on_gpunode(self._asked)

    def _asked(self, _old: GPUNode | None, new: GPUNode | None) -> None:
        try:
            seconds = seconds_asked(new, time.time())
        except MalformedRequest as error:
            _LOG.warning("NVML is not let go of", extra={"problem": str(error)})
            return
        if seconds > 0 or self._released_until > self._clock():
            self.release(seconds)

    def release(self, seconds: float) -> None:
        """Let go of NVML for so long, so that a GPU can be reset; 0 takes it up again.

        The next report shows that it was done (``Snapshot.released``); longer than ``release.SECONDS_MAX`` is not
        granted.
        """
        seconds = min(seconds, SECONDS_MAX)
        self._released_until = self._clock() + seconds
        self._woken.set()
        if seconds > 0:
            self._wake_in(seconds)

    async def _let_go(self) -> Report:
        await self._break_off()
        if not await self._end() or any(not child.ended for child in self._stuck):
            return Report(blind="NVML could not be let go of: its child process is stuck in the driver")
        self._windows.clear()
        return Report(snapshot=Snapshot(released=max(0.0, self._released_until - self._clock())))

    async def _look(self) -> Report:
        now = self._clock()
        if now < self._not_before:
            return Report(snapshot=Snapshot(failed=self._failed, pci=self._on_bus(now)))
        if now >= self._rescan_at:
            self._rescan_at = float("inf")
            await self._end()
        try:
            return Report(snapshot=self._completed(await self._whole()))
        except Hung as hung:
            await self._end()
            return Report(blind=str(hung))

    async def _whole(self) -> Snapshot:
        """Ask until all GPUs are read or known to hang: one that was only not reached must not look gone."""
        for _ in range(_GPUS_MAX):
            snapshot = await self._ask()
            if snapshot is not None:
                return snapshot
        raise Hung("NVML calls hang on more GPUs than a node can have")

    def _current_hangs(self) -> list[Hang]:
        """GPUs to leave out: for a while, and while a child is stuck in the driver, so that no more pile up."""
        now = self._clock()
        stuck = any(not child.ended for child in self._stuck)
        self._hangs = {index: (hang, until) for index, (hang, until) in self._hangs.items() if until > now or stuck}
        return [hang for hang, _ in self._hangs.values()]

    def _on_bus(self, now: float) -> list[PCIDevice] | None:
        if now - self._bus_at >= _BUS_SECONDS:
            self._bus_at, self._pci = now, self._bus.gpus()
        return self._pci

    async def _ask(self) -> Snapshot | None:
        """Return a reading of all GPUs but those that hang; None where another one was found to hang."""
        snapshot = Snapshot(hangs=self._current_hangs(), failed=self._failed, pci=self._on_bus(self._clock()))
        child = await self._running()
        await child.ask(sorted(self._hangs))
        reading, gpus = -1, list[GPUReading]()
        while True:
            try:
                answer = await child.answer(self._hang_seconds)
            except Hung:
                if reading < 0:
                    raise
                await self._after_hang(reading)
                return None
            match answer:
                case Begin(index):
                    reading = index
                case Read(gpu):
                    gpus.append(gpu)
                case End():
                    return self._after_reading(snapshot, gpus, answer)
                case Failed():
                    return await self._after_failure(snapshot, answer)

    def _after_reading(self, snapshot: Snapshot, gpus: list[GPUReading], end: End) -> Snapshot:
        self._failed = None
        return msgspec.structs.replace(
            snapshot,
            gpus=gpus,
            failed=None,
            driver_version=end.driver_version,
            nvml_version=end.nvml_version,
            events_code=end.events_code,
        )

    async def _after_failure(self, snapshot: Snapshot, failed: Failed) -> Snapshot:
        await self._end()
        self._failed = failed
        self._not_before = self._clock() + min(_AFTER_FAILURE_SECONDS, self._retry_seconds)
        return msgspec.structs.replace(snapshot, failed=failed)

    async def _after_hang(self, index: int) -> None:
        await self._end()
        self._hangs[index] = (Hang(index, self._hang_seconds), self._clock() + self._retry_seconds)

    def _completed(self, snapshot: Snapshot) -> Snapshot:
        """Add what the last minute shows, and plan a new start of NVML where GPUs are missing."""
        now = self._clock()
        gpus = with_bus(snapshot.gpus, self._pci or ())
        self._windows = {gpu.uuid: extended(self._windows.get(gpu.uuid, ()), gpu, now) for gpu in gpus if gpu.uuid}
        listed = len(gpus) + len(snapshot.hangs)
        on_bus = sum(1 for device in self._pci or () if device.driver == "nvidia")
        wanted = max(self._expected, on_bus, len(self._inventory()))
        if snapshot.failed is None and listed < wanted:
            self._rescan_at = min(self._rescan_at, now + self._rescan_seconds)
        trends = {uuid: trend(window) for uuid, window in self._windows.items()}
        return msgspec.structs.replace(snapshot, gpus=gpus, trends=trends)

    async def _running(self) -> Child:
        if self._child is not None and not self._child.ended:
            return self._child
        self._stuck = [child for child in self._stuck if not child.ended]
        if len(self._stuck) >= _STUCK_MAX:
            raise Hung(f"{len(self._stuck)} NVML child processes are stuck in the driver and can't be ended")
        if self._child is not None:
            await self._end()
        self._child = await Child.start(self._heard)
        return self._child

    async def _end(self) -> bool:
        """End the child; one that does not go is remembered as stuck. Return whether none is left."""
        child, self._child = self._child, None
        if child is None or await child.end():
            return True
        self._stuck.append(child)
        return False

    async def _break_off(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def close(self) -> None:
        """End the child process."""
        await self._break_off()
        await self._end()


@probe("nvml")
def _build(config: Config) -> NVMLProbe:
    return NVMLProbe(config)
