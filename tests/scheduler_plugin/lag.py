"""A relay before the API server that tells what changed late: watches lag, everything else is passed on at once."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, ClientTimeout, TCPConnector, web

_LARGEST_BODY = 16 * 1024 * 1024  # bytes; a placement of 512 ranks has some 100 thousand


class Relay:
    """``lag_seconds`` is how late each piece of a watch is passed on."""

    def __init__(self, session: ClientSession, server: str) -> None:
        self._session, self._server = session, server
        self.lag_seconds = 0.0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Pass a request on, and its answer back."""
        headers = {
            name: value
            for name, value in request.headers.items()
            if name.lower() not in ("host", "content-length", "transfer-encoding")
        }
        body = await request.read()
        url = f"{self._server}{request.raw_path}"
        async with self._session.request(request.method, url, headers=headers, data=body or None) as answer:
            watches = request.query.get("watch") in ("true", "1")
            if watches and answer.status == 200:
                return await self._watch(request, answer.headers, answer.content)
            kind = answer.headers.get("Content-Type", "application/json")
            return web.Response(status=answer.status, body=await answer.read(), headers={"Content-Type": kind})

    async def _watch(self, request: web.Request, headers: Any, content: Any) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": headers.get("Content-Type", "application/json")})
        await response.prepare(request)
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def read() -> None:
            async for piece in content.iter_any():
                pieces.put_nowait((loop.time() + self.lag_seconds, piece))
            pieces.put_nowait((loop.time() + self.lag_seconds, b""))

        reading = asyncio.create_task(read())
        try:
            while True:
                due, piece = await pieces.get()
                await asyncio.sleep(max(due - loop.time(), 0.0))
                if not piece:
                    break
                await response.write(piece)
        except ConnectionError:
            pass
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        return response


@asynccontextmanager
async def relay(kubeconfig: Path, copy: Path) -> AsyncIterator[Relay]:
    """Yield a relay to the kubeconfig's API server, and write ``copy``, by which a client uses it."""
    config = _read(kubeconfig)
    connector, timeout = TCPConnector(ssl=_tls(config, copy), limit=0), ClientTimeout(total=None)
    async with ClientSession(connector=connector, timeout=timeout) as session:
        laid = Relay(session, config["clusters"][0]["cluster"]["server"])
        application = web.Application(client_max_size=_LARGEST_BODY)
        application.router.add_route("*", "/{path:.*}", laid.handle)
        # Watches of a client that is gone would wait for ever for their next piece.
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        _write(config, copy, f"http://127.0.0.1:{runner.addresses[0][1]}")
        try:
            yield laid
        finally:
            await runner.cleanup()


def _read(kubeconfig: Path) -> Any:
    return json.loads(kubeconfig.read_text())


def _tls(config: Any, copy: Path) -> ssl.SSLContext:
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    files = {
        ".crt": user["client-certificate-data"],
        ".key": user["client-key-data"],
        ".ca": cluster["certificate-authority-data"],
    }
    for suffix, data in files.items():
        copy.with_suffix(suffix).write_bytes(base64.b64decode(data))
    tls = ssl.create_default_context(cafile=str(copy.with_suffix(".ca")))
    tls.load_cert_chain(copy.with_suffix(".crt"), copy.with_suffix(".key"))
    return tls


def _write(config: Any, copy: Path, server: str) -> None:
    config["clusters"][0]["cluster"] = {"server": server}
    config["users"][0]["user"] = {}
    copy.write_text(json.dumps(config))
