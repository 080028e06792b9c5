"""One gRPC call with one small request and one answer, over HTTP/2 on a Unix socket; messages stay bytes.

Of HTTP/2 (RFC 9113) this needs little: frames out in the open, and headers written without compression. The server's
headers are not read: a call that failed is one that ends without a whole message, which is how gRPC answers errors.
A library for the rest costs 3.6 MB (h2) to 10.7 MB (grpcio) of the memory of an agent that runs on every node.
"""

import asyncio
import struct
from typing import Final

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0x0, 0x1, 0x3, 0x4, 0x6, 0x7, 0x8
_ACK = _END_STREAM = 0x1
_END_HEADERS: Final = 0x4
_PADDED: Final = 0x8
_STREAM: Final = 1  # a client's first
_HEAD: Final = struct.Struct(">BHBBI")  # length in three bytes, type, flags, stream
_HEAD_BYTES: Final = 9
_FRAME_MAX: Final = 16_384  # what a server may send as long as nobody allows more
_SETTING: Final = struct.Struct(">HI")
_TABLE_SIZE, _PUSH, _STREAM_WINDOW = 1, 2, 4  # settings
_FIRST_WINDOW: Final = 65_535  # of the connection
_READ_BYTES: Final = 64 * 1024
_PREFIX: Final = struct.Struct(">BI")  # of a gRPC message: whether it is compressed, and its length


class CallError(Exception):
    """The call brought no answer; the text says why."""


async def call(socket: str, method: str, request: bytes, *, answer_max: int) -> bytes:
    """Return the answer. Raises CallError, and OSError where nobody listens at the socket."""
    reader, writer = await asyncio.open_unix_connection(socket)
    try:
        exchange = _Exchange(answer_max)
        writer.write(exchange.begin(method, request))
        while not exchange.ended:
            await writer.drain()
            writer.write(exchange.receive(await reader.read(_READ_BYTES)))
        return exchange.answer()
    finally:
        writer.close()


class _Exchange:
    """The protocol's state, without I/O."""

    def __init__(self, answer_max: int) -> None:
        self.ended = False
        self._answer_max = answer_max
        self._received = bytearray()
        self._body = bytearray()

    def begin(self, method: str, request: bytes) -> bytes:
        """Return all that the server needs for its answer: room for the longest one too, so no window is ever full."""
        window = self._answer_max + _FIRST_WINDOW
        settings = ((_TABLE_SIZE, 0), (_PUSH, 0), (_STREAM_WINDOW, window))
        headers = {":method": "POST", ":scheme": "http", ":path": method, ":authority": "localhost"}
        headers |= {"content-type": "application/grpc", "te": "trailers", "user-agent": "outrider"}
        return b"".join(
            (
                _PREFACE,
                _frame(_SETTINGS, 0, 0, b"".join(_SETTING.pack(*setting) for setting in settings)),
                _frame(_WINDOW, 0, 0, (window - _FIRST_WINDOW).to_bytes(4, "big")),
                _frame(_HEADERS, _END_HEADERS, _STREAM, b"".join(_literal(*header) for header in headers.items())),
                _frame(_DATA, _END_STREAM, _STREAM, _PREFIX.pack(0, len(request)) + request),
            )
        )

    def receive(self, data: bytes) -> bytes:
        """Take in what the server sent, and return what it must get for it. Raises CallError."""
        if not data:
            raise CallError("the server closed the connection")
        self._received += data
        replies = bytearray()
        while len(self._received) >= _HEAD_BYTES:
            length_high, length_low, kind, flags, stream = _HEAD.unpack_from(self._received)
            length = length_high << 16 | length_low
            if length > _FRAME_MAX:
                raise CallError(f"the server does not speak HTTP/2: a frame of {length} bytes")
            if len(self._received) < _HEAD_BYTES + length:
                break
            payload = bytes(self._received[_HEAD_BYTES : _HEAD_BYTES + length])
            del self._received[: _HEAD_BYTES + length]
            replies += self._take(kind, flags, stream & 0x7FFFFFFF, payload)
        return bytes(replies)

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        if kind in (_SETTINGS, _PING) and not flags & _ACK:
            return _frame(kind, _ACK, 0, payload if kind == _PING else b"")
        if kind == _GOAWAY or (kind == _RESET and stream == _STREAM):
            raise CallError(f"the server broke off with code {int.from_bytes(payload[-4:], 'big')}")
        if stream == _STREAM and kind in (_DATA, _HEADERS):
            self._body += _unpadded(payload, flags) if kind == _DATA else b""
            self.ended = bool(flags & _END_STREAM)
            if len(self._body) > self._answer_max + _PREFIX.size:
                raise CallError(f"the answer has more than {self._answer_max} bytes")
        return b""

    def answer(self) -> bytes:
        """Return the message. Raises CallError where the server sent none, or not one whole one."""
        if not self._body:
            raise CallError("the server refused the call; its own log says why")
        compressed, length = _PREFIX.unpack_from(self._body) if len(self._body) >= _PREFIX.size else (1, 0)
        if compressed or len(self._body) - _PREFIX.size != length:
            raise CallError("the answer is not one plain message")
        return bytes(self._body[_PREFIX.size :])


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return _HEAD.pack(len(payload) >> 16, len(payload) & 0xFFFF, kind, flags, stream) + payload


def _literal(name: str, value: str) -> bytes:
    """Write a header as a literal that no table keeps (RFC 7541, 6.2.2); both parts are shorter than 127 bytes."""
    return b"\0" + b"".join(bytes([len(part)]) + part.encode() for part in (name, value))


def _unpadded(payload: bytes, flags: int) -> bytes:
    if not flags & _PADDED:
        return payload
    return payload[1 : len(payload) - payload[0]] if payload else b""
