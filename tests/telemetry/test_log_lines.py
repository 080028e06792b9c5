import ast
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import trace

from outrider.telemetry import logs


@pytest.fixture
def formatter() -> logs.JSONFormatter:
    return logs.JSONFormatter("planner")


def record(message: str, *arguments: object, **extra: object) -> logging.LogRecord:
    made = logging.getLogger("outrider.x").makeRecord("outrider.x", logging.WARNING, "f", 1, message, arguments, None)
    vars(made).update(extra)
    return made


def test_a_line_is_one_json_object_with_stable_keys(formatter: logs.JSONFormatter) -> None:
    text = formatter.format(record("moved %s\nto %s", "a", "b", node="n1", gpu=3))
    assert "\n" not in text
    line = json.loads(text)
    assert line.pop("ts").endswith("Z")
    assert line == {
        "level": "warning",
        "component": "planner",
        "logger": "outrider.x",
        "msg": "moved a\nto b",
        "node": "n1",
        "gpu": 3,
    }


def test_a_value_that_json_can_not_hold_is_written_as_text(formatter: logs.JSONFormatter) -> None:
    line = json.loads(formatter.format(record("x", thing=ValueError("odd"), bad="\udcff")))
    assert line["thing"] == "odd"
    assert line["bad"] == "\udcff"


def test_an_exception_keeps_its_traceback(formatter: logs.JSONFormatter) -> None:
    failed = record("x")
    error = RuntimeError("the cause")
    failed.exc_info = (RuntimeError, error, None)
    assert "RuntimeError: the cause" in json.loads(formatter.format(failed))["exception"]


def test_a_line_inside_a_span_carries_the_trace(formatter: logs.JSONFormatter) -> None:
    context = trace.SpanContext(0xABC, 0xDEF, is_remote=True)
    with trace.use_span(trace.NonRecordingSpan(context)):
        line = json.loads(formatter.format(record("x")))
    assert line["trace_id"] == f"{0xABC:032x}"
    assert "trace_id" not in json.loads(formatter.format(record("x")))


ROOT = Path(__file__).parents[2]
OURS = ("outrider", "node_agent", "scheduler_plugin", "webhook", "remediation")


def keys_of_log_lines() -> Iterator[tuple[str, str]]:
    """Yield file and key of everything that our code adds to a log line."""
    for file in (file for part in OURS for file in (ROOT / part).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            given = isinstance(node, ast.keyword) and node.arg == "extra"
            prepared = isinstance(node, ast.Assign) and "details" in map(ast.unparse, node.targets)
            dicts = (one for one in ast.walk(node) if isinstance(one, ast.Dict)) if given or prepared else ()
            for key in (key for one in dicts for key in one.keys if isinstance(key, ast.Constant)):
                yield file.name, str(key.value)


def test_no_log_line_uses_a_key_that_logging_keeps_for_itself() -> None:
    """Such a line raises KeyError in the place of being written."""
    found = list(keys_of_log_lines())
    assert len(found) > 50
    taken = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "ts", "level", "logger", "component"}
    assert [(file, key) for file, key in found if key in taken] == []
