"""Logs as JSON lines on stderr: one line, one decision; keys are stable so that they can be queried."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

from opentelemetry import trace

# What logging itself puts on a record; everything else came through extra=.
_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JSONFormatter(logging.Formatter):
    """Writes ts, level, component, logger, msg, trace_id inside a span, and what the caller gave as ``extra=``."""

    def __init__(self, component: str) -> None:
        super().__init__()
        self._component = component

    def format(self, record: logging.LogRecord) -> str:
        """Return one line without a line break; values that JSON can't hold are written as text."""
        line = self._head(record) | {key: value for key, value in vars(record).items() if key not in _OWN}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)  # ASCII: a kernel line with broken UTF-8 must not break the log

    def _head(self, record: logging.LogRecord) -> dict[str, object]:
        head: dict[str, object] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "component": self._component,
            "logger": record.name,
            "msg": record.getMessage(),
        }
        context = trace.get_current_span().get_span_context()
        return head | {"trace_id": format(context.trace_id, "032x")} if context.is_valid else head


def setup(component: str, level: str = "INFO") -> None:
    """Send every log record of the process to stderr as JSON. ``level`` is a name such as DEBUG."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JSONFormatter(component))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
