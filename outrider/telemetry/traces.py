"""Traces: one per job incident. The context travels as a W3C traceparent in a pod annotation, never by HTTP headers."""

import hashlib
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_TIMEOUT: Final = "OTEL_EXPORTER_OTLP_TIMEOUT"  # seconds
_SCHEDULE_DELAY_MILLIS: Final = 1000
_QUEUE_SPANS: Final = 2048  # exported in one request, so that a shutdown waits for one time limit only
_EXPORT_TIMEOUT_SECONDS: Final = 3.0  # bounds what a dead collector may add to the shutdown
_PROPAGATOR: Final = TraceContextTextMapPropagator()


def setup(service: str) -> None:
    """Export spans by OTLP over HTTP to OTEL_EXPORTER_OTLP_ENDPOINT; without it spans cost nothing and go nowhere.

    A background thread exports in batches, so no caller ever waits for the collector; what does not fit is dropped.
    """
    if not os.environ.get(_ENDPOINT):
        return
    # Some 6 MB that only those pay who want traces.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({SERVICE_NAME: service}))
    exporter = OTLPSpanExporter(timeout=float(os.environ.get(_TIMEOUT, _EXPORT_TIMEOUT_SECONDS)))
    processor = BatchSpanProcessor(
        exporter,
        schedule_delay_millis=_SCHEDULE_DELAY_MILLIS,
        max_queue_size=_QUEUE_SPANS,
        max_export_batch_size=_QUEUE_SPANS,
    )
    provider.add_span_processor(processor)
    trace.set_tracer_provider(provider)


@contextmanager
def span(name: str, traceparent: str = "", **attributes: str | int | float | bool) -> Iterator[trace.Span]:
    """Run the block in a span: child of ``traceparent`` where that is valid, else of the current span, else a root.

    An exception that leaves the block is recorded on the span and goes on.
    """
    parent = _PROPAGATOR.extract({"traceparent": traceparent}) if traceparent else None
    tracer = trace.get_tracer("outrider")
    with tracer.start_as_current_span(name, context=parent, attributes=attributes) as started:
        yield started


def record_span(
    name: str, traceparent: str, start_ns: int, end_ns: int, **attributes: str | int | float | bool
) -> None:
    """Record a span that is over already, child of ``traceparent``; times in nanoseconds since 1970.

    For work that outlives a process: its times are kept in a custom resource, and the span is made at its end.
    """
    parent = _PROPAGATOR.extract({"traceparent": traceparent})
    tracer = trace.get_tracer("outrider")
    tracer.start_span(name, context=parent, start_time=start_ns, attributes=attributes).end(end_time=end_ns)


def job_traceparent(uid: str) -> str:
    """Return the trace context of the job with this UID: the same in every component, with no state shared.

    The UID's 128 bits are the trace ID, its first half the ID of the (never exported) parent span.
    """
    trace_id = _hex(uid)
    return f"00-{trace_id}-{trace_id[:16]}-01"


def _hex(uid: str) -> str:
    try:
        return uuid.UUID(uid).hex
    except ValueError:  # not every owner's UID is a UUID: any stable 128 bits will do
        return hashlib.sha256(uid.encode()).hexdigest()[:32]
