"""The extender's process: ``python -m scheduler_plugin.extender.process FD``, started by the plugin (feed.py).

It answers kube-scheduler from its mirror whatever the plugin does, and ends with the plugin.
"""

import asyncio
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from aiohttp import web
from prometheus_client import generate_latest

from outrider.telemetry import logs, traces
from scheduler_plugin.extender import frames
from scheduler_plugin.extender.metrics import REGISTRY, SILENCES
from scheduler_plugin.extender.mirror import Mirror
from scheduler_plugin.extender.server import Extender
from scheduler_plugin.extender.silence import TICK_SECONDS, Silence

_LOG: Final = logging.getLogger(__name__)
_KEEP_ALIVE_SECONDS: Final = 3600.0  # Go's clients give up an idle connection after 90 (net/http, DefaultTransport)
_SILENT_TICKS: Final = 5
_LAG_SECONDS: Final = 0.2  # a change is here some 20 to 60 ms after kube-scheduler has it
_LARGEST_BACKLOG_BYTES: Final = 1 << 20  # of the socket's reader: what is beyond waits in the plugin
_BINDS: Final = 50  # tries for the port, 100 ms each: a killed plugin's extender may still be on its way out


async def serve(connection: socket.socket) -> None:
    """Serve until the plugin is gone. Raises OSError where the port is taken or a certificate is of no use."""
    reader, writer = await asyncio.open_connection(sock=connection, limit=_LARGEST_BACKLOG_BYTES)
    start = await frames.receive(reader, frames.TO_EXTENDER)
    logs.setup("scheduler", start.log_level)
    traces.setup("outrider-scheduler")
    mirror, silence = Mirror(), Silence(_SILENT_TICKS)
    extender = Extender(
        lambda: mirror.snapshot,
        deadline_seconds=start.deadline_seconds,
        deserted=lambda: silence.over,
        lag_seconds=_LAG_SECONDS,
    )
    # Whoever closes an idle connection first must be the client: Go does not repeat a POST that a server cut off.
    runner = web.AppRunner(
        extender.application(), access_log=None, keepalive_timeout=_KEEP_ALIVE_SECONDS, auto_decompress=False
    )
    await runner.setup()
    try:
        context = start.tls.context() if start.tls else None
        await _bind(lambda: web.TCPSite(runner, start.host or None, start.port, ssl_context=context))
        writer.write(frames.frame(frames.Serving(runner.addresses[0][1])))
        async with asyncio.TaskGroup() as group:
            background = [group.create_task(_tick(writer, silence))]
            if start.tls and context:
                background.append(group.create_task(start.tls.renew(context)))
            await _follow(reader, mirror, silence, extender.on_news)
            for task in background:
                task.cancel()
    finally:
        await runner.cleanup()


async def _bind(site: Callable[[], web.TCPSite]) -> None:
    """Start a site, waiting for a port that is just being given up."""
    for left in reversed(range(_BINDS)):
        try:
            await site().start()
        except OSError:
            if not left:
                raise
            await asyncio.sleep(0.1)
        else:
            return


async def _follow(reader: asyncio.StreamReader, mirror: Mirror, silence: Silence, on_news: Callable[[], None]) -> None:
    with suppress(EOFError, ConnectionError):
        whole = 0
        while True:
            message = await frames.receive(reader, frames.TO_EXTENDER)
            if silence.heard():
                _LOG.warning("the plugin's main process is heard again: requests are answered")
            if isinstance(message, frames.Changes):
                mirror.apply(message.update)
                on_news()
                whole += len(message.update.nodes)
            if whole > 1000:
                gc.freeze()  # what is known of the cluster stays: no need to look it through again and again
                whole = 0
            await asyncio.sleep(0)  # many changes may be there to read: kube-scheduler comes in between


async def _tick(writer: asyncio.StreamWriter, silence: Silence) -> None:
    """Tell the metrics, and notice when the plugin says nothing any more: what we know is getting old then."""
    while True:
        if not writer.transport.get_write_buffer_size():  # else nobody reads: it would pile up
            writer.write(frames.frame(frames.Metrics(generate_latest(REGISTRY).decode())))
        await asyncio.sleep(TICK_SECONDS)
        if silence.tick():
            SILENCES.inc()
            _LOG.error("the plugin's main process is silent: requests get HTTP 503 until it is heard again")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to both; the plugin says when to end
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    asyncio.run(serve(socket.socket(fileno=int(sys.argv[1]))))
