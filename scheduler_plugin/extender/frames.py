"""Messages between the plugin's two processes, over a pair of sockets: a length of four bytes, then msgpack."""

import asyncio
import struct
from typing import Any, Final

import msgspec

from scheduler_plugin.extender.mirror import Update
from scheduler_plugin.tls import TLS

_LENGTH: Final = struct.Struct(">I")


class Start(msgspec.Struct, frozen=True, tag="start"):
    """First message to the extender: where to serve and how."""

    host: str
    port: int
    deadline_seconds: float
    log_level: str = "INFO"
    tls: TLS | None = None


class Changes(msgspec.Struct, frozen=True, tag="changes"):
    """What is new in the cluster."""

    update: Update


class Here(msgspec.Struct, frozen=True, tag="here"):
    """Nothing is new, and the plugin is there; sent each second."""


class Serving(msgspec.Struct, frozen=True, tag="serving"):
    """The extender's answer to Start: its port."""

    port: int


class Metrics(msgspec.Struct, frozen=True, tag="metrics"):
    """The extender's metrics, as Prometheus reads them; sent again and again."""

    text: str


ToExtender = Start | Changes | Here
FromExtender = Serving | Metrics

TO_EXTENDER: Final = msgspec.msgpack.Decoder[ToExtender](ToExtender)
FROM_EXTENDER: Final = msgspec.msgpack.Decoder[FromExtender](FromExtender)
_MOST: Final = 2**63 - 1
_ENCODER: Final = msgspec.msgpack.Encoder()


def frame(message: ToExtender | FromExtender) -> bytes:
    """Return a message as it goes over the socket."""
    try:
        body = _ENCODER.encode(message)
    except OverflowError:  # sums of amounts that nobody can have; see _writable
        body = _ENCODER.encode(_writable(msgspec.to_builtins(message)))
    return _LENGTH.pack(len(body)) + body


def _writable(value: Any) -> Any:
    """Return what msgpack can write: it has no integers of more than 64 bits."""
    if isinstance(value, dict):
        return {key: _writable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_writable(inner) for inner in value]
    return max(-_MOST, min(_MOST, value)) if isinstance(value, int) and not isinstance(value, bool) else value


async def receive(reader: asyncio.StreamReader, decoder: msgspec.msgpack.Decoder[Any]) -> Any:
    """Return the next message. Raises EOFError once the other side is gone."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return decoder.decode(await reader.readexactly(length))
