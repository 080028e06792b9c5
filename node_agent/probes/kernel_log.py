"""The kernel log probe: replays since boot, then follows.

Reads the character device /dev/kmsg (a record each read, EPIPE where records were overwritten unread, the event loop
wakes the agent), or a regular file that holds the same records one a line (looked at every few milliseconds).
"""

import asyncio
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

from node_agent.config import Config
from node_agent.metrics import KERNEL_RECORDS
from node_agent.probes.registry import probe
from node_agent.probes.report import KernelPosition, Report, Sighting, address_id
from outrider.api.gpunode import SubjectKind
from outrider.health.findings import Evidence, seen
from outrider.health.kernel.driver_lines import DriverLines, Happening, Naming
from outrider.health.kernel.records import Record, parse

_READ_BYTES: Final = 64 * 1024  # a device record has at most 8 KiB (CONSOLE_EXT_LOG_MAX)
_LINE_MAX: Final = 64 * 1024  # a longer line of a file is garbage
_TURN_RECORDS: Final = 500  # records between two turns of the event loop: some 5 ms
_BOOT_ID_SECONDS: Final = 1.0
_DEVICE_PERIOD_SECONDS: Final = 1.0
_NAME: Final = "kernel-log"


class _Source(Protocol):
    def records(self) -> Iterator[bytes]:
        """Yield what is there to read now."""
        ...

    restarted: bool


class _Device:
    """A kmsg character device, opened non-blocking."""

    restarted = False

    def __init__(self, file: int) -> None:
        self._file = file

    def records(self) -> Iterator[bytes]:
        """See _Source."""
        while True:
            try:
                raw = os.read(self._file, _READ_BYTES)
            except BlockingIOError:
                return
            except BrokenPipeError:  # records were overwritten before we came; the next read goes on after the gap
                KERNEL_RECORDS.labels("lost").inc()
                continue
            if not raw:
                return
            yield raw


class _File:
    """A regular file with one record a line. ``replaces`` says that another file stood there before."""

    def __init__(self, file: int, *, replaces: bool) -> None:
        self._file = file
        self._partial = b""
        self._too_long = False
        self._fresh = replaces
        self.restarted = False

    def records(self) -> Iterator[bytes]:
        """See _Source."""
        cut = os.fstat(self._file).st_size < os.lseek(self._file, 0, os.SEEK_CUR)
        self.restarted, self._fresh = cut or self._fresh, False
        if cut:
            os.lseek(self._file, 0, os.SEEK_SET)
            self._partial = b""
        while chunk := os.read(self._file, _READ_BYTES):
            *lines, self._partial = (self._partial + chunk).split(b"\n")
            yield from self._whole(lines)
            if len(self._partial) > _LINE_MAX:
                self._partial, self._too_long = b"", True

    def _whole(self, lines: list[bytes]) -> Iterator[bytes]:
        for line in lines:
            if self._too_long:
                self._too_long = False
                yield b"too long"
            elif not line.startswith(b" "):  # a line that continues the record before it
                yield line


class KernelLogProbe:
    """Turns the driver's lines into evidence."""

    timeout_seconds = 30.0  # replaying a full 128 MiB ring takes seconds

    def __init__(self, config: Config) -> None:
        self._path, self._boot_id_path = Path(config.kernel_log_path), Path(config.boot_id_path)
        self.wake: asyncio.Event | None = None
        self.period_seconds = config.kernel_log_period_seconds
        self._file: int | None = None
        self._source: _Source | None = None
        self._boot_id, self._boot_id_read = "", float("-inf")
        self._lines = DriverLines()
        self._replaying = True

    async def read(self) -> Report:
        """Return what the log says that it did not say at the last call. Raises OSError where it can't be read."""
        try:
            return await self._read(self._opened(anew=self._rebooted()))
        except OSError:
            self._shut()  # the next call opens it again, whatever is there by then
            raise

    async def _read(self, source: _Source) -> Report:
        sightings: list[Sighting] = []
        addresses: dict[str, str] = {}
        last = -1
        for count, record in enumerate(_kernel_records(source), 1):
            last = record.sequence
            said = self._lines.read(record.message)
            if isinstance(said, Naming):
                addresses[address_id(said.address)] = said.uuid
            elif said is not None:
                sightings.append(Sighting(record.sequence, self._evidence(record, said)))
            if count % _TURN_RECORDS == 0:
                await asyncio.sleep(0)
        self._replaying = False
        position = KernelPosition(self._boot_id, last, source.restarted)
        return Report(sightings=tuple(sightings), addresses=addresses, position=position)

    def _evidence(self, record: Record, said: Happening) -> Evidence:
        gpu = said.uuid or (address_id(said.address) if said.address else "")
        return seen(
            said.code,
            self._time_of(record),
            subject=SubjectKind.GPU if gpu else SubjectKind.NODE,
            subject_id=gpu or said.switch,
            line=record.message,
            source=_NAME,
        )

    def _time_of(self, record: Record) -> float:
        """Now for a line that just came; for a replayed one its own time, never in the future."""
        age_seconds = max(0.0, time.monotonic() - record.uptime_seconds) if self._replaying else 0.0
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

    def _opened(self, *, anew: bool) -> _Source:
        replaced = self._file is not None and not os.path.samestat(os.fstat(self._file), self._path.stat())
        if anew or replaced:
            self._shut()
        if self._source is None:
            self._file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            self._replaying = True
            self._source = self._source_of(self._file, replaces=replaced)
        return self._source

    def _source_of(self, file: int, *, replaces: bool) -> _Source:
        if not stat.S_ISCHR(os.fstat(file).st_mode):
            return _File(file, replaces=replaces)
        self.wake = asyncio.Event()
        self.period_seconds = _DEVICE_PERIOD_SECONDS
        asyncio.get_running_loop().add_reader(file, self.wake.set)
        return _Device(file)

    def _shut(self) -> None:
        file, self._file, self._source = self._file, None, None
        if file is not None:
            asyncio.get_running_loop().remove_reader(file)
            os.close(file)

    async def close(self) -> None:
        """Close the log."""
        self._shut()


def _kernel_records(source: _Source) -> Iterator[Record]:
    for raw in source.records():
        record = parse(raw)
        if record is None:
            KERNEL_RECORDS.labels("garbage").inc()
        elif not record.from_kernel:
            KERNEL_RECORDS.labels("user").inc()
        else:
            KERNEL_RECORDS.labels("kernel").inc()
            yield record


@probe(_NAME)
def _build(config: Config) -> KernelLogProbe:
    return KernelLogProbe(config)
