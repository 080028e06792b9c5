"""The plugin's side of the extender's process: starts it, tells it what changes, passes its metrics on."""

import asyncio
import socket
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.extender import frames
from scheduler_plugin.extender.mirror import Sender, Update
from scheduler_plugin.extender.silence import TICK_SECONDS, Silence

_MODULE: Final = "scheduler_plugin.extender.process"
_GRACE_SECONDS: Final = 5.0
_SILENT_TICKS: Final = 60  # it tells its metrics each second: one that does not is stuck
_MOST_BYTES: Final = 64 * 1024 * 1024  # told and not read: one so far behind is stuck


class ExtenderEndedError(RuntimeError):
    """The extender's process ended, or is stuck: the plugin can't go on without it."""


class Feed(Collector):
    """One extender process. Nothing is told before ``begin``; ``port`` is 0 until it serves."""

    def __init__(self, snapshot: Callable[[], Snapshot], *, silent_ticks: int = _SILENT_TICKS) -> None:
        self.port = 0
        self._silence = Silence(silent_ticks)
        self._snapshot, self._sender = snapshot, Sender()
        self._writer: asyncio.StreamWriter | None = None
        self._begun = False
        self._metrics = ""

    async def run(self, start: frames.Start) -> None:
        """Run the process until cancelled. Raises ExtenderEndedError."""
        ours, theirs = socket.socketpair()
        with theirs:
            argv = [sys.executable, "-m", _MODULE, str(theirs.fileno())]
            process = await asyncio.create_subprocess_exec(*argv, pass_fds=[theirs.fileno()])
        reader, writer = await asyncio.open_connection(sock=ours)
        beat = asyncio.create_task(self._beat(writer))
        try:
            writer.write(frames.frame(start))
            self._writer = writer
            self._tell_everything()
            while True:
                self._take(await frames.receive(reader, frames.FROM_EXTENDER))
        except (EOFError, ConnectionError) as error:
            code = await _ended(process, writer)
            raise ExtenderEndedError(f"the extender's process ended, or was stuck: code {code}") from error
        finally:
            beat.cancel()
            self._writer, self.port = None, 0
            await _ended(process, writer)

    def begin(self) -> None:
        """Tell all that is known, and from now on each change."""
        self._begun = True
        self._tell_everything()

    def on_views(self, names: Collection[str]) -> None:
        """Tell what changed."""
        if self._begun and self._writer is not None:
            for update in self._sender.updates(self._snapshot(), names):
                self._write(update)
            if self._writer.transport.get_write_buffer_size() > _MOST_BYTES:
                self._writer.transport.abort()  # ``run`` then says that it ended

    def collect(self) -> Iterator[Metric]:
        """Yield the extender's metrics as they were a second ago."""
        return iter(text_string_to_metric_families(self._metrics))

    def _tell_everything(self) -> None:
        if self._begun and self._writer is not None:
            for update in self._sender.everything(self._snapshot()):
                self._write(update)

    def _write(self, update: Update) -> None:
        if self._writer is not None:
            self._writer.write(frames.frame(frames.Changes(update)))

    async def _beat(self, writer: asyncio.StreamWriter) -> None:
        """Say that the plugin is there, and notice when the extender is not."""
        while not self._silence.tick():
            writer.write(frames.frame(frames.Here()))
            await asyncio.sleep(TICK_SECONDS)
        writer.transport.abort()  # ``run`` then says that it ended

    def _take(self, message: frames.FromExtender) -> None:
        self._silence.heard()
        match message:
            case frames.Serving():
                self.port = message.port
            case frames.Metrics():
                self._metrics = message.text


async def _ended(process: asyncio.subprocess.Process, writer: asyncio.StreamWriter) -> int:
    """Return the process's exit code: it ends when its socket closes; a stuck one is killed."""
    writer.close()
    try:
        async with asyncio.timeout(_GRACE_SECONDS):
            return await process.wait()
    except TimeoutError:
        process.kill()
        return await process.wait()
