"""A gRPC server over a Unix socket for one method, speaking real HTTP/2; answers as its function says."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import h2.config
import h2.connection
import h2.events

HEADERS = [(":status", "200"), ("content-type", "application/grpc")]


def framed(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4, "big") + message


class Server:
    """``reply(connection, stream)`` is called at the end of each request; ``asked`` are the paths and bodies seen."""

    def __init__(self, socket: Path) -> None:
        self.socket = str(socket)
        self.reply: Callable[[h2.connection.H2Connection, int], None] = self.message
        self.answer = b""
        self.asked: list[tuple[str, bytes]] = []
        self._left: dict[int, bytes] = {}
        self._serving: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Server":
        self._server = await asyncio.start_unix_server(self._accept, self.socket)
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._server.close()
        await asyncio.gather(*self._serving)
        await self._server.wait_closed()

    def message(self, connection: h2.connection.H2Connection, stream: int) -> None:
        connection.send_headers(stream, HEADERS)
        self._left[stream] = framed(self.answer)

    def failure(self, connection: h2.connection.H2Connection, stream: int) -> None:
        """Trailers only, as gRPC answers an error."""
        trailers = [("grpc-status", "8"), ("grpc-message", "too many requests")]
        connection.send_headers(stream, HEADERS + trailers, end_stream=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.append(asyncio.ensure_future(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        connection.initiate_connection()
        path, body = "", b""
        writer.write(connection.data_to_send())
        while data := await reader.read(65536):
            for event in connection.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    path = dict(event.headers)[":path"]
                elif isinstance(event, h2.events.DataReceived):
                    body += event.data
                elif isinstance(event, h2.events.StreamEnded):
                    self.asked.append((path, body))
                    self.reply(connection, event.stream_id)
            self._send_on(connection)
            writer.write(connection.data_to_send())
        writer.close()

    def _send_on(self, connection: h2.connection.H2Connection) -> None:
        """Send as much of each answer as the client's window takes."""
        for stream in list(self._left):
            while size := min(connection.local_flow_control_window(stream), 16384, len(self._left[stream])):
                connection.send_data(stream, self._left[stream][:size])
                self._left[stream] = self._left[stream][size:]
            if not self._left[stream]:
                connection.send_headers(stream, [("grpc-status", "0")], end_stream=True)
                del self._left[stream]
