"""A TCP relay on loopback between a client and the API server, which a test can cut."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


class Cable:
    """Passes bytes on, until it is cut; new connections work at once again."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._writers: set[asyncio.StreamWriter] = set()
        self._relays: set[asyncio.Task[None]] = set()
        self.connections = 0
        self.refuse = False  # true: new connections end at once

    def cut(self) -> None:
        """Break every open connection without a goodbye."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a new connection."""
        if self.refuse:
            writer.transport.abort()
            return
        self.connections += 1
        relay = asyncio.create_task(self._relay(reader, writer))
        self._relays.add(relay)
        relay.add_done_callback(self._relays.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        self._writers |= {writer, far_writer}
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))

    async def unplug(self) -> None:
        """Break every connection, those too that are just being made, and wait until they are gone."""
        while self._relays:
            self.cut()
            await asyncio.wait(self._relays, timeout=0.1)
        await asyncio.sleep(0)  # an aborted transport closes its socket in the next turn of the loop


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def cable(kubeconfig: Path, copy: Path) -> AsyncIterator[Cable]:
    """Yield a cable to the kubeconfig's API server, and write ``copy``, by which a client uses the cable."""
    target = urlsplit(_server(json.loads(_read(kubeconfig)))["server"])
    laid = Cable(target.hostname or "", target.port or 443)
    server = await asyncio.start_server(laid.accept, "127.0.0.1", 0)
    _write_redirected(kubeconfig, copy, server.sockets[0].getsockname()[1])
    try:
        yield laid
    finally:
        server.close()
        await laid.unplug()
        await server.wait_closed()


def _read(path: Path) -> bytes:
    return path.read_bytes()


def _server(config: dict[str, Any]) -> dict[str, str]:
    settings: dict[str, str] = config["clusters"][0]["cluster"]
    return settings


def _write_redirected(kubeconfig: Path, copy: Path, port: int) -> None:
    config = json.loads(_read(kubeconfig))
    _server(config)["server"] = f"https://127.0.0.1:{port}"
    copy.write_text(json.dumps(config))
