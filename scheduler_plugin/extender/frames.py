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


class Serving(msgspec.Struct, frozen=True, tag="serving"):
    """The extender's answer to Start: its port."""

    port: int


class Metrics(msgspec.Struct, frozen=True, tag="metrics"):
    """The extender's metrics, as Prometheus reads them; sent again and again."""

    text: str


ToExtender = Start | Changes
FromExtender = Serving | Metrics

TO_EXTENDER: Final = msgspec.msgpack.Decoder[ToExtender](ToExtender)
FROM_EXTENDER: Final = msgspec.msgpack.Decoder[FromExtender](FromExtender)
_ENCODER: Final = msgspec.msgpack.Encoder()


def frame(message: ToExtender | FromExtender) -> bytes:
    """Return a message as it goes over the socket."""
    body = _ENCODER.encode(message)
    return _LENGTH.pack(len(body)) + body


async def receive(reader: asyncio.StreamReader, decoder: msgspec.msgpack.Decoder[Any]) -> Any:
    """Return the next message. Raises EOFError once the other side is gone."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return decoder.decode(await reader.readexactly(length))
