"""What every long-running component needs around its own work: signals, exit code, probes, metrics page."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from outrider.api.names import RELEASE_NAMESPACE
from outrider.config import ConfigError

_LOG: Final = logging.getLogger(__name__)
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def run(main: Callable[[], Awaitable[None]]) -> NoReturn:
    """Run ``main`` until it returns or a SIGTERM or SIGINT cancels it, then exit the process.

    The exit code is 0 after a return or a signal; 1 after an exception, 2 after a ConfigError, which are logged.
    """
    raise SystemExit(asyncio.run(_supervise(main)))


async def _supervise(main: Callable[[], Awaitable[None]]) -> int:
    task = asyncio.ensure_future(_as_coroutine(main))
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, task.cancel)
    await asyncio.wait([task])
    if task.cancelled():
        return 0
    error = task.exception()
    if isinstance(error, ConfigError):
        _LOG.error("the settings can't be used: %s", error)
        return 2
    if error:
        _LOG.error("stopped by an error", exc_info=error)
        return 1
    return 0


async def _as_coroutine(main: Callable[[], Awaitable[None]]) -> None:
    await main()


def identity() -> str:
    """Return the name this process goes by in leases: POD_NAME, else host and process ID; no other live one has it."""
    return os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}"


def release_namespace() -> str:
    """Return the namespace that this process runs in: POD_NAMESPACE, else the one that the chart suggests."""
    return os.environ.get("POD_NAMESPACE") or RELEASE_NAMESPACE


async def serve_probes(port: int, ready: Callable[[], str | None]) -> None:
    """Serve /healthz, /readyz and /metrics on every address until cancelled.

    ``ready`` returns None, or why the component is not ready: that text is the body of a 503. Raises OSError where the
    port is taken.
    """
    runner = web.AppRunner(probe_application(ready), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, port=port).start()
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def probe_application(ready: Callable[[], str | None]) -> web.Application:
    """Return the application behind serve_probes, for components that serve it beside their own paths."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        reason = ready()
        return web.Response(status=503, text=f"not ready: {reason}\n") if reason else web.Response(text="ok\n")

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    application = web.Application()
    application.router.add_get("/healthz", healthz)
    application.router.add_get("/readyz", readyz)
    application.router.add_get("/metrics", metrics)
    return application
