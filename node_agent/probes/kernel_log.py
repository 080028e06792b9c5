"""The kernel log probe: replays since boot, then follows.

What was taken in before a restart (``Surroundings.kernel_position``) is read again for what it teaches, and tells
nothing twice. What equal lines say is merged before it is handed over, so a storm costs little more than its reading.
"""

import asyncio
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from node_agent.config import Config
from node_agent.metrics import KERNEL_RECORDS
from node_agent.probes.kernel_source import Source, Wakeups, opened
from node_agent.probes.registry import Surroundings, probe
from node_agent.probes.report import KernelPosition, Report, Sighting
from outrider.health.kernel.bursts import Bursts
from outrider.health.kernel.reader import KernelReader, worth_reading
from outrider.health.kernel.records import DRILL, MESSAGE_BYTES, Record, parse, text_of
from outrider.health.kernel.words import Happening, Naming, Said

_TURN_RECORDS: Final = 500  # records between two turns of the event loop: some 5 ms
_BOOT_ID_SECONDS: Final = 1.0
_WOKEN_PERIOD_SECONDS: Final = 2.0
_NAME: Final = "kernel-log"


class KernelLogProbe:
    """Turns the kernel's lines into evidence."""

    timeout_seconds = 30.0  # replaying a full 128 MiB ring takes seconds

    def __init__(self, config: Config) -> None:
        self._path, self._boot_id_path = Path(config.kernel_log_path), Path(config.boot_id_path)
        self._allow_drills = config.allow_drills
        self.wake: asyncio.Event | None = None
        self.period_seconds = self._poll_seconds = config.kernel_log_period_seconds
        self._around: Surroundings | None = None
        self._source: Source | None = None
        self._records: Iterator[bytes] | None = None
        self._wakeups: Wakeups | None = None
        self._boot_id, self._boot_id_read = "", float("-inf")
        self._taken = self._last = -1  # numbers of the last record that was told before, and of the last that was read
        self._unfinished, self._unfinished_said = b"", False
        self._reader, self._drills = KernelReader(), KernelReader()
        self._bursts = Bursts(_NAME)
        self._addresses: dict[str, str] = {}
        self._replaying = True

    def attach(self, around: Surroundings) -> None:
        """See registry.Attached."""
        self._around = around

    async def read(self) -> Report:
        """Return what the log says that it did not say at the last call. Raises OSError where it can't be read."""
        try:
            return await self._read(self._opened(anew=self._rebooted()))
        except OSError:
            self._shut()  # the next call opens it again, whatever is there by then
            raise

    async def _read(self, source: Source) -> Report:
        if self._records is None:  # else a reading was cut short, and goes on where it was
            self._records = source.records()
            if source.restarted:
                self._begin(-1)
        if not await self._take_all(self._records):
            return self._interrupted(source)
        self._records = None
        if -1 < self._last < self._taken:  # it ends before what was taken in: another log stands in its place
            return await self._read(self._open(replaces=True))
        self._say_waiting()
        self._replaying = False
        if self._wakeups is not None:
            self._wakeups.rest()
        return self._report(restarted=source.restarted)

    async def _take_all(self, records: Iterator[bytes]) -> bool:
        """Take in the records; return False where it stopped before the end, since too much is to be told."""
        kinds = {"kernel": 0, "user": 0, "garbage": 0}
        try:
            for count, raw in enumerate(records, 1):
                kinds[self._take_in(raw)] += 1
                if self._bursts.full:
                    return False
                if count % _TURN_RECORDS == 0:
                    await asyncio.sleep(0)
        finally:
            for kind, number in kinds.items():
                KERNEL_RECORDS.labels(kind).inc(number)
        return True

    def _interrupted(self, source: Source) -> Report:
        """Tell what was read so far, and read on at once: which of so many kinds is grave is known where they go."""
        self._say_waiting()
        if self.wake is not None:
            self.wake.set()
        return self._report(restarted=source.restarted)

    def _report(self, *, restarted: bool) -> Report:
        sightings = tuple(Sighting(sequence, evidence) for sequence, evidence in self._bursts.take())
        addresses, self._addresses = self._addresses, {}
        position = KernelPosition(self._boot_id, self._last, restarted)
        return Report(sightings=sightings, addresses=addresses, position=position)

    def _take_in(self, raw: bytes) -> str:
        """Take in one record and return its kind."""
        record = parse(raw)
        if record is None:
            return "garbage"
        self._moved_to(record)
        if record.from_kernel:
            self._kernel(record)
            return "kernel"
        if self._allow_drills and record.raw.startswith(DRILL.encode()):
            self._rehearse(record)
        return "user"

    def _kernel(self, record: Record) -> None:
        raw = self._unfinished + record.raw if record.continues else record.raw
        told = record.continues and self._unfinished_said
        if self._reader.overdue(record.uptime_seconds):
            self._say_waiting()
        self._unfinished, self._unfinished_said = raw[:MESSAGE_BYTES], told
        if not told and worth_reading(raw):
            words = self._reader.read(text_of(raw), record.uptime_seconds)
            self._unfinished_said = bool(words)
            self._say(words, self._time_of(record.uptime_seconds), record.sequence)

    def _say_waiting(self) -> None:
        since = self._reader.waiting_since
        if since is not None:
            self._say(self._reader.flush(), self._time_of(since), self._last)

    def _moved_to(self, record: Record) -> None:
        sequence, known = record.sequence, max(self._last, self._taken)
        if self._last <= self._taken < sequence:
            self._reader.flush()  # what waited there for further lines was told before
        self._last = max(self._last, sequence)
        lost = sequence - known - 1
        if known >= 0 and lost > 0:
            KERNEL_RECORDS.labels("lost").inc(lost)
            line = f"{lost} records of the kernel log were overwritten before they could be read"
            self._say(
                [Happening(code="kernel/records-lost", line=line, count=lost)],
                self._time_of(record.uptime_seconds),
                sequence,
            )

    def _say(self, words: Iterable[Said], now: float, sequence: int) -> None:
        for said in words:
            if isinstance(said, Naming):
                self._addresses[said.subject_id] = said.uuid
            elif sequence > self._taken:
                self._bursts.add(said, now, sequence)

    def _rehearse(self, record: Record) -> None:
        """A drill teaches nothing: it tells of a fault, marked as a drill, and no more."""
        rehearsed = record.message.removeprefix(DRILL)
        words = [*self._drills.read(rehearsed, record.uptime_seconds), *self._drills.flush()]
        for said in words:
            if isinstance(said, Happening):
                told = msgspec.structs.replace(said, line=f"{DRILL}{said.line}")
                self._say([told], self._time_of(record.uptime_seconds), record.sequence)

    def _time_of(self, uptime_seconds: float) -> float:
        """Now for a line that just came; for a replayed one its own time, never in the future."""
        age_seconds = max(0.0, time.monotonic() - uptime_seconds) if self._replaying else 0.0
        return time.time() - age_seconds

    def _rebooted(self) -> bool:
        """True where the boot id is another than before. Raises OSError where there is none, which is no reboot."""
        if time.monotonic() - self._boot_id_read < _BOOT_ID_SECONDS:
            return False
        boot_id = self._boot_id_path.read_text("ascii", "replace").strip()
        if not boot_id:
            raise OSError(f"{self._boot_id_path} is empty: it should hold the boot id")
        self._boot_id_read = time.monotonic()
        before, self._boot_id = self._boot_id, boot_id
        return before not in ("", boot_id)

    def _opened(self, *, anew: bool) -> Source:
        if anew:
            self._shut()
            self._last = -1
        replaced = self._source is not None and not os.path.samestat(self._source.identity, self._path.stat())
        if replaced or self._source is None:
            return self._open(replaces=replaced)
        return self._source

    def _open(self, *, replaces: bool) -> Source:
        self._shut()
        self._source = opened(str(self._path), replaces=replaces)
        self._begin(-1 if replaces else max(self._last, self._remembered()))
        self._listen(self._source.events)
        return self._source

    def _remembered(self) -> int:
        """Return the number of the last record of this boot that was taken in before the agent started."""
        known = self._around.kernel_position() if self._around else None
        return known.sequence if known is not None and known.boot_id == self._boot_id else -1

    def _begin(self, taken: int) -> None:
        """Expect the log from its start; of the records up to number ``taken`` nothing is told again."""
        version = self._reader.driver_version or (self._around.driver_version() if self._around else "")
        self._reader = KernelReader(version)
        self._taken, self._last = taken, -1
        self._replaying = True

    def _listen(self, events: int | None) -> None:
        if events is None:
            self.wake, self.period_seconds = None, self._poll_seconds
            return
        self._wakeups = Wakeups(events)
        self.wake, self.period_seconds = self._wakeups.event, _WOKEN_PERIOD_SECONDS

    def _shut(self) -> None:
        if self._wakeups is not None:
            self._wakeups.close()
        if self._source is not None:
            self._source.close()
        self._source, self._records, self._wakeups = None, None, None

    async def close(self) -> None:
        """Close the log."""
        self._shut()


@probe(_NAME)
def _build(config: Config) -> KernelLogProbe:
    return KernelLogProbe(config)
