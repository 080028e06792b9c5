"""A small OTLP/HTTP trace collector: writes every span as one JSON line.

    python -m testbed.collector --listen 127.0.0.1:4318 --out traces.jsonl

Takes `POST /v1/traces` with a protobuf ExportTraceServiceRequest, plain or gzip (OTLP specification 1.x, section
"OTLP/HTTP"). What it cannot read is answered with 400 and a reason; nothing of such a request is written.
"""

import argparse
import asyncio
import signal
import sys
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from aiohttp import web
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # ships no type information
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

PORT = 4318
"""Port that OTLP/HTTP exporters use unless told otherwise."""

_MAX_REQUEST_BYTES = 16 << 20


class Event(msgspec.Struct, frozen=True):
    """Something that happened during a span, at a time in nanoseconds since 1970."""

    name: str
    unix_nano: int
    attributes: dict[str, Any]


class Span(msgspec.Struct, frozen=True):
    """One line of the output; ids in hexadecimal, times in nanoseconds since 1970."""

    trace_id: str
    span_id: str
    parent_span_id: str
    name: str
    service: str
    start_unix_nano: int
    end_unix_nano: int
    attributes: dict[str, Any]
    events: tuple[Event, ...]


def spans(body: bytes) -> list[Span]:
    """Spans of an ExportTraceServiceRequest.

    Raises:
        ValueError: the bytes are no such request, or a span has no valid id; the message says which.
    """
    request = ExportTraceServiceRequest()
    try:
        request.ParseFromString(body)
    except DecodeError as error:
        message = f"not an ExportTraceServiceRequest in protobuf: {error}"
        raise ValueError(message) from error
    return [
        _span(span, str(_attributes(resource.resource.attributes).get("service.name", "")))
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def plain(body: bytes, encoding: str) -> bytes:
    """Body without its Content-Encoding.

    Raises:
        ValueError: the encoding is unknown, the bytes are not of it, or they unpack to more than 16 MiB.
    """
    if encoding in {"", "identity"}:
        return body
    if encoding != "gzip":
        message = f"Content-Encoding {encoding!r}: send gzip or none"
        raise ValueError(message)
    unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        unpacked = unpacker.decompress(body, _MAX_REQUEST_BYTES)
    except zlib.error as error:
        message = f"Content-Encoding gzip: {error}"
        raise ValueError(message) from error
    if not unpacker.eof:
        message = f"Content-Encoding gzip: cut short, or more than {_MAX_REQUEST_BYTES} bytes unpacked"
        raise ValueError(message)
    return unpacked


def _span(span: WireSpan, service: str) -> Span:
    if len(span.trace_id) != 16 or len(span.span_id) != 8:
        message = f"span {span.name!r}: trace_id must have 16 bytes and span_id 8"
        raise ValueError(message)
    return Span(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_span_id=span.parent_span_id.hex(),
        name=span.name,
        service=service,
        start_unix_nano=span.start_time_unix_nano,
        end_unix_nano=span.end_time_unix_nano,
        attributes=_attributes(span.attributes),
        events=tuple(Event(e.name, e.time_unix_nano, _attributes(e.attributes)) for e in span.events),
    )


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    if kind == "kvlist_value":
        return _attributes(value.kvlist_value.values)
    return getattr(value, kind) if kind else None


def lines(found: Iterable[Span]) -> Iterator[bytes]:
    """Each span as one line of JSON."""
    for span in found:
        yield msgspec.json.encode(span) + b"\n"


def make_app(out: BinaryIO) -> web.Application:
    """The collector, appending to `out`, which must be opened unbuffered so that each request is one write.

    Serve it with `auto_decompress=False`: it unpacks by itself, within a limit.
    """

    async def take(request: web.Request) -> web.Response:
        try:
            body = plain(await request.read(), request.headers.get("Content-Encoding", ""))
            found = spans(body)
        except (ValueError, web.HTTPException) as error:
            return web.Response(status=400, text=f"{error}\n")
        out.write(b"".join(lines(found)))
        answer = ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=answer, content_type="application/x-protobuf")

    async def healthy(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    app = web.Application(client_max_size=_MAX_REQUEST_BYTES)
    app.router.add_post("/v1/traces", take)
    app.router.add_get("/healthz", healthy)
    return app


async def serve(address: str, port: int, out: BinaryIO) -> None:
    """Collect until SIGTERM or SIGINT."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    runner = web.AppRunner(make_app(out), auto_decompress=False)
    await runner.setup()
    try:
        await web.TCPSite(runner, address, port).start()
        await ended.wait()
    finally:
        await runner.cleanup()


def main(arguments: list[str] | None = None) -> int:
    """Run the collector from the command line."""
    parser = argparse.ArgumentParser(prog="python -m testbed.collector", description="OTLP/HTTP trace collector")
    parser.add_argument("--listen", default=f"127.0.0.1:{PORT}", metavar="ADDRESS:PORT")
    parser.add_argument("--out", type=Path, required=True, help="file that gets one JSON line a span")
    args = parser.parse_args(arguments)
    address, _, port = args.listen.rpartition(":")
    with args.out.open("ab", buffering=0) as out:
        asyncio.run(serve(address, int(port), out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
