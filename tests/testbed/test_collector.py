"""The trace collector takes what OTLP exporters send, and answers garbage with 400."""

import gzip
import io
from collections.abc import AsyncIterator

import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.util.types import AttributeValue

from testbed.collector import Span, make_app


class Collector:
    def __init__(self) -> None:
        self.out = io.BytesIO()
        self.server = TestServer(make_app(self.out))
        self.client = TestClient(self.server)

    async def post(self, body: bytes, **headers: str) -> int:
        answer = await self.client.post("/v1/traces", data=io.BytesIO(body), headers=headers)
        return answer.status

    def spans(self) -> list[Span]:
        return [msgspec.json.decode(line, type=Span) for line in self.out.getvalue().splitlines()]


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    made = Collector()
    await made.server.start_server(auto_decompress=False)
    yield made
    await made.client.close()


def exported() -> bytes:
    """What an exporter sends for a span with a child."""
    memory = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource.create({"service.name": "planner"}))
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracer = provider.get_tracer("t")
    attributes: dict[str, AttributeValue] = {"gang": "a/b", "ranks": 3, "ok": True, "nodes": ["x", "y"]}
    with tracer.start_as_current_span("planner.plan", attributes=attributes) as span:
        span.add_event("refused", {"reason": "full"})
        with tracer.start_as_current_span("planner.ungate"):
            pass
    provider.shutdown()
    return bytes(encode_spans(memory.get_finished_spans()).SerializeToString())


def without_ids() -> bytes:
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.add(name="nameless")
    return bytes(request.SerializeToString())


async def test_each_span_becomes_a_line_with_its_parent_service_attributes_and_events(collector: Collector) -> None:
    assert await collector.post(exported()) == 200
    child, parent = sorted(collector.spans(), key=lambda span: span.name, reverse=True)
    assert (parent.name, parent.service, parent.parent_span_id) == ("planner.plan", "planner", "")
    assert parent.attributes == {"gang": "a/b", "ranks": 3, "ok": True, "nodes": ["x", "y"]}
    assert [(e.name, e.attributes) for e in parent.events] == [("refused", {"reason": "full"})]
    assert (child.trace_id, child.parent_span_id) == (parent.trace_id, parent.span_id)
    assert len(parent.trace_id) == 32
    assert len(parent.span_id) == 16
    assert parent.start_unix_nano <= child.start_unix_nano <= child.end_unix_nano <= parent.end_unix_nano


async def test_gzip_is_unpacked(collector: Collector) -> None:
    assert await collector.post(gzip.compress(exported()), **{"Content-Encoding": "gzip"}) == 200
    assert len(collector.spans()) == 2


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b"garbage", ""),
        (exported()[:-3], ""),
        (b"{}", ""),
        (b"\0" * (17 << 20), ""),
        (b"no gzip", "gzip"),
        (gzip.compress(exported())[:-9], "gzip"),
        (gzip.compress(bytes(20 << 20)), "gzip"),
        (exported(), "br"),
        (without_ids(), ""),
    ],
)
async def test_garbage_is_answered_with_400_and_leaves_no_line(
    collector: Collector, body: bytes, encoding: str
) -> None:
    assert await collector.post(body, **({"Content-Encoding": encoding} if encoding else {})) == 400
    assert collector.spans() == []
    assert await collector.post(exported()) == 200
