"""Where records of the kernel log come from: the character device, or a regular file that holds the same records.

Both wake the event loop when something can be read, and rest a moment after each wake-up: a chatty log is then read in
batches, at most ``REST_SECONDS`` late, and does not cost a reading for each line.
"""

import asyncio
import os
import stat
from collections.abc import Iterator
from typing import Final, Protocol

from node_agent.probes.file_events import FileEvents

REST_SECONDS: Final = 0.02
_READ_BYTES: Final = 64 * 1024  # a device record has at most 8 KiB (CONSOLE_EXT_LOG_MAX)
_LINE_MAX: Final = 64 * 1024  # a longer line of a file is garbage


class Source(Protocol):
    """An open log."""

    restarted: bool
    """The log was found to have begun anew when records were asked for last."""
    identity: os.stat_result
    """Of the file that is open."""

    @property
    def events(self) -> int | None:
        """File that is readable when there is something to read; None: nobody tells."""
        ...

    def records(self) -> Iterator[bytes]:
        """Yield what is there to read now. Raises OSError."""
        ...

    def close(self) -> None:
        """Let go of the log."""
        ...


class Device:
    """A kmsg character device, opened non-blocking: one record each read."""

    restarted = False

    def __init__(self, file: int) -> None:
        self._file = file
        self.identity = os.fstat(file)

    @property
    def events(self) -> int | None:
        """See Source."""
        return self._file

    def records(self) -> Iterator[bytes]:
        """See Source."""
        while True:
            try:
                raw = os.read(self._file, _READ_BYTES)
            except BlockingIOError:
                return
            except BrokenPipeError:  # records were overwritten before we came; the next read goes on after the gap
                continue
            if not raw:
                return
            yield raw

    def close(self) -> None:
        """See Source."""
        os.close(self._file)


class LogFile:
    """A regular file with one record a line. ``replaces`` says that another file stood there before."""

    def __init__(self, file: int, *, replaces: bool) -> None:
        self._file = file
        self._partial = b""
        self._too_long = False
        self._fresh = replaces
        self.restarted = False
        self.identity = os.fstat(file)
        try:
            self._changes: FileEvents | None = FileEvents(file)
        except OSError:
            self._changes = None

    @property
    def events(self) -> int | None:
        """See Source."""
        return self._changes.descriptor if self._changes is not None else None

    def records(self) -> Iterator[bytes]:
        """See Source."""
        if self._changes is not None:
            self._changes.clear()
        cut = os.fstat(self._file).st_size < os.lseek(self._file, 0, os.SEEK_CUR)
        self.restarted, self._fresh = cut or self._fresh, False
        if cut:
            os.lseek(self._file, 0, os.SEEK_SET)
            self._partial, self._too_long = b"", False
        return self._lines()

    def _lines(self) -> Iterator[bytes]:
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
            elif not line.startswith(b" "):  # a line with properties of the record before it
                yield line

    def close(self) -> None:
        """See Source."""
        if self._changes is not None:
            self._changes.close()
        os.close(self._file)


def opened(path: str, *, replaces: bool) -> Source:
    """Return the log at ``path``, opened. Raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        kind = os.fstat(file).st_mode
        return Device(file) if stat.S_ISCHR(kind) else LogFile(file, replaces=replaces)
    except OSError:
        os.close(file)
        raise


class Wakeups:
    """Sets ``event`` when the source can be read, at most once each ``REST_SECONDS``.

    Raises OSError where the file is of a kind that nobody can wait for.
    """

    def __init__(self, events: int) -> None:
        self.event = asyncio.Event()
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._rest: asyncio.TimerHandle | None = None
        self._loop.add_reader(events, self._came)

    def rest(self) -> None:
        """Listen again after a rest; called after each reading."""
        if self._rest is None:
            self._loop.remove_reader(self._events)
            self._rest = self._loop.call_later(REST_SECONDS, self._listen)

    def _listen(self) -> None:
        self._rest = None
        self._loop.add_reader(self._events, self._came)

    def _came(self) -> None:
        self._loop.remove_reader(self._events)  # it stays readable until it is read
        self.event.set()

    def close(self) -> None:
        """Listen no more."""
        if self._rest is not None:
            self._rest.cancel()
        self._loop.remove_reader(self._events)
