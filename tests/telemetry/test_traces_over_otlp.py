"""A real process exports to a real OTLP/HTTP collector: the testbed's."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.telemetry.traces import job_traceparent

UID = "0a1b2c3d-4e5f-4678-9abc-def012345678"


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    out = tmp_path / "traces.jsonl"
    command = [sys.executable, "-m", "testbed.collector", "--listen", address, "--out", str(out)]
    process = subprocess.Popen(command)
    host, port = address.split(":")
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection((host, int(port)), 1).close()
            break
        except OSError:
            assert time.monotonic() < deadline, "the collector did not start"
            time.sleep(0.05)
    yield f"http://{address}", out
    process.terminate()
    process.wait()


def run(program: str, endpoint: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint} | settings
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)


PROGRAM = f"""
from outrider.telemetry import traces
traces.setup("outrider-planner")
with traces.span("planner.plan", traces.job_traceparent({UID!r}), size=3) as outer:
    with traces.span("planner.ungate"):
        pass
try:
    with traces.span("planner.plan", "nonsense"):
        raise RuntimeError("no room")
except RuntimeError:
    pass
"""


def test_spans_reach_the_collector_in_the_jobs_trace(collector: tuple[str, Path]) -> None:
    endpoint, out = collector
    run(PROGRAM, endpoint, OTEL_EXPORTER_OTLP_TIMEOUT="30")
    spans = [json.loads(line) for line in out.read_text().splitlines()]
    inner, outer, lost = (by_name(spans, name) for name in ("planner.ungate", "planner.plan", "planner.plan"))
    lost = next(s for s in spans if s["trace_id"] != outer["trace_id"])
    assert outer["trace_id"] == inner["trace_id"] == UID.replace("-", "")
    assert outer["parent_span_id"] == UID.replace("-", "")[:16]
    assert inner["parent_span_id"] == outer["span_id"]
    assert outer["service"] == "outrider-planner"
    assert int(outer["attributes"]["size"]) == 3
    assert not lost.get("parent_span_id")
    assert "no room" in json.dumps(lost["events"])


def by_name(spans: list[dict[str, object]], name: str) -> dict[str, object]:
    return next(s for s in spans if s["name"] == name)


def test_a_dead_collector_delays_neither_work_nor_exit() -> None:
    program = """
import time
from outrider.telemetry import traces
traces.setup("x")
began = time.monotonic()
for _ in range(500):
    with traces.span("work"):
        pass
print(time.monotonic() - began)
"""
    began = time.monotonic()
    worked = float(run(program, "http://127.0.0.1:1").stdout)
    assert worked < 1.5  # the export alone may take 3
    assert time.monotonic() - began < 12


def test_every_component_derives_the_same_trace_from_a_job() -> None:
    assert job_traceparent(UID) == f"00-{UID.replace('-', '')}-{UID.replace('-', '')[:16]}-01"
    odd = job_traceparent("not a uuid")
    assert odd == job_traceparent("not a uuid") != job_traceparent("another")
    assert len(odd) == 55
