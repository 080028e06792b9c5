"""One gRPC call with one request and one answer, over HTTP/2 on a Unix socket; messages stay bytes."""

import asyncio
from typing import Final
from urllib.parse import unquote

import h2.config
import h2.connection
import h2.events
import h2.exceptions

_STREAM: Final = 1  # a client's first
_READ_BYTES: Final = 64 * 1024
_PREFIX_BYTES: Final = 5  # of a gRPC message: one flag, four bytes of length
_OK: Final = "0"


class CallError(Exception):
    """The call brought no answer; the text says why, in the server's words where it gave some."""


async def call(socket: str, method: str, request: bytes, *, answer_max: int) -> bytes:
    """Return the answer. Raises CallError, and OSError where nobody listens at the socket."""
    reader, writer = await asyncio.open_unix_connection(socket)
    try:
        exchange = _Exchange(method, request, answer_max)
        while not exchange.ended:
            writer.write(exchange.to_send())
            await writer.drain()
            exchange.receive(await reader.read(_READ_BYTES))
        return exchange.answer()
    except h2.exceptions.ProtocolError as error:
        raise CallError(f"no HTTP/2: {error}") from error
    finally:
        writer.close()


class _Exchange:
    """The protocol's state, without I/O."""

    def __init__(self, method: str, request: bytes, answer_max: int) -> None:
        self.ended = False
        self._body = bytearray()
        self._answer_max = answer_max
        self._headers: dict[str, str] = {}
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
        self._h2.initiate_connection()
        head = {":method": "POST", ":scheme": "http", ":path": method, ":authority": "localhost"}
        head |= {"content-type": "application/grpc", "te": "trailers", "user-agent": "outrider"}
        self._h2.send_headers(_STREAM, list(head.items()))
        self._h2.send_data(_STREAM, b"\0" + len(request).to_bytes(4, "big") + request, end_stream=True)

    def to_send(self) -> bytes:
        """Return what the server must get now."""
        return self._h2.data_to_send()

    def receive(self, data: bytes) -> None:
        """Take in what the server sent. Raises CallError, ProtocolError."""
        if not data:
            raise CallError("the server closed the connection")
        for event in self._h2.receive_data(data):
            self._take(event)

    def _take(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.ResponseReceived(headers=headers) | h2.events.TrailersReceived(headers=headers):
                self._headers |= {str(name): str(value) for name, value in headers or ()}
            case h2.events.DataReceived():
                self._body += event.data or b""
                if len(self._body) > self._answer_max:
                    raise CallError(f"the answer has more than {self._answer_max} bytes")
                self._h2.acknowledge_received_data(event.flow_controlled_length or 0, _STREAM)
            case h2.events.StreamEnded():
                self.ended = True
            case h2.events.StreamReset() | h2.events.ConnectionTerminated():
                raise CallError(f"the server broke off with code {event.error_code}")

    def answer(self) -> bytes:
        """Return the message. Raises CallError where the server sent a status instead, or not one whole message."""
        status = self._headers.get("grpc-status", f"HTTP {self._headers.get(':status')}")
        if status != _OK:
            words = unquote(self._headers.get("grpc-message", ""))  # percent-encoded, says the gRPC protocol
            raise CallError(f"status {status}: {words}".rstrip(": "))
        length = int.from_bytes(self._body[1:_PREFIX_BYTES], "big")
        if len(self._body) < _PREFIX_BYTES or self._body[0] or len(self._body) - _PREFIX_BYTES != length:
            raise CallError("the answer is not one plain message")
        return bytes(self._body[_PREFIX_BYTES:])
