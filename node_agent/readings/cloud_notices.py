"""Notices of the clouds' metadata services as evidence. Pure.

Forms, by the clouds' own documentation: AWS instance metadata categories events/maintenance/scheduled,
events/recommendations/rebalance and spot/instance-action; Google Compute Engine instance/maintenance-event,
instance/upcoming-maintenance and instance/preempted; Azure Scheduled Events 2020-07-01; OCI instance metadata v2.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from node_agent.probes.report import States
from outrider.health.findings import Evidence, seen

SOURCE: Final = "cloud"
_LOOKS_UNREADABLE: Final = 3  # a metadata service that restarts is no news
_TEXT_MAX: Final = 200
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_GMT: Final = re.compile(r"(\d{1,2}) ([A-Z][a-z]{2}) (\d{4}) (\d{2}:\d{2}:\d{2}) GMT")
_GCP_EVENT: Final = re.compile(r"[A-Z_]{1,60}")
_AWS_LAST: Final = frozenset({"instance-stop", "instance-retirement"})
_AZURE_LAST: Final = frozenset({"Terminate", "Preempt", "Redeploy"})
_OCI_ENDING: Final = frozenset({"TERMINATING", "TERMINATED", "STOPPING"})
_OCI_TIME: Final = "timemaintenance"


class Malformed(ValueError):
    """An answer has another form than documented."""


class Kind(StrEnum):
    """What is going to happen, and the code that it gets."""

    MAINTENANCE = "cloud/maintenance"
    TERMINATION = "cloud/termination"
    REBALANCE = "cloud/rebalance"


class Notice(msgspec.Struct, frozen=True):
    """One announcement. ``at`` is seconds since 1970; None where it is not told, or has begun."""

    kind: Kind
    text: str
    at: float | None = None


def time_of(text: Any) -> float | None:
    """Return seconds since 1970 from ISO 8601 or from the form ``21 Jan 2019 09:00:43 GMT``; None for another."""
    if not isinstance(text, str):
        return None
    try:
        if gmt := _GMT.search(text):
            day, month, year, clock = gmt.groups()
            text = f"{year}-{_MONTHS.index(month) + 1:02}-{day:0>2}T{clock}"
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def aws_events(text: str) -> list[Notice]:
    """Read events/maintenance/scheduled. Raises Malformed."""
    events = _dicts(_json(text))
    return [
        Notice(
            Kind.TERMINATION if str(event.get("Code")) in _AWS_LAST else Kind.MAINTENANCE,
            f"{event.get('Code')}: {event.get('Description')}",
            time_of(event.get("NotBefore")),
        )
        for event in events
        if event.get("State", "active") == "active"
    ]


def aws_spot(text: str) -> list[Notice]:
    """Read spot/instance-action. Raises Malformed."""
    action = _dict(_json(text))
    return [Notice(Kind.TERMINATION, f"spot instance: {action.get('action')}", time_of(action.get("time")))]


def aws_rebalance(text: str) -> list[Notice]:
    """Read events/recommendations/rebalance. Raises Malformed."""
    _dict(_json(text))
    return [Notice(Kind.REBALANCE, "spot instance: rebalance recommended")]


def gcp_event(text: str) -> list[Notice]:
    """Read instance/maintenance-event. Raises Malformed."""
    word = text.strip()
    if not _GCP_EVENT.fullmatch(word):
        raise Malformed(f"maintenance-event: {word[:40]!r}")
    return [] if word == "NONE" else [Notice(Kind.MAINTENANCE, word)]


def gcp_upcoming(text: str) -> list[Notice]:
    """Read instance/upcoming-maintenance as JSON. Raises Malformed."""
    upcoming = _dict(_json(text))
    if not upcoming:
        return []
    about = f"{upcoming.get('type')} maintenance, {upcoming.get('maintenance_status')}"
    return [Notice(Kind.MAINTENANCE, about, time_of(upcoming.get("window_start_time")))]


def gcp_preempted(text: str) -> list[Notice]:
    """Read instance/preempted. Raises Malformed."""
    word = text.strip()
    if word not in ("TRUE", "FALSE"):
        raise Malformed(f"preempted: {word[:40]!r}")
    return [Notice(Kind.TERMINATION, "preempted")] if word == "TRUE" else []


def azure_events(text: str, name: str) -> list[Notice]:
    """Read scheduled events: all those of the machine's group are listed, only its own count. Raises Malformed."""
    events = _dicts(_dict(_json(text)).get("Events"))
    return [
        Notice(
            Kind.TERMINATION if str(event.get("EventType")) in _AZURE_LAST else Kind.MAINTENANCE,
            f"{event.get('EventType')} {event.get('EventStatus')}: {event.get('Description')}",
            time_of(event.get("NotBefore")),
        )
        for event in events
        if name.lower() in _texts(event.get("Resources"))
    ]


def oci_instance(text: str) -> list[Notice]:
    """Read the instance's own document. Raises Malformed."""
    instance = _dict(_json(text))
    due = [(key, time_of(value)) for key, value in instance.items() if key.lower().startswith(_OCI_TIME) and value]
    notices = [Notice(Kind.MAINTENANCE, key, at) for key, at in sorted(due)]
    state = str(instance.get("state", ""))
    return notices + ([Notice(Kind.TERMINATION, f"state {state}")] if state.upper() in _OCI_ENDING else [])


class CloudWatch:
    """Judges answer after answer. A maintenance further ahead than ``notice_seconds`` is only shown."""

    def __init__(self, notice_seconds: float) -> None:
        self._notice_seconds = notice_seconds
        self._failed = 0

    def judge(self, notices: Sequence[Notice], now: float) -> States:
        """Return the notices as states. ``now`` is seconds since 1970."""
        self._failed = 0
        by_code: dict[str, list[Notice]] = {}
        for notice in notices:
            by_code.setdefault(self._code(notice, now), []).append(notice)
        return States(bad=tuple(_told(by_code, now)), readable=frozenset({""}))

    def failed(self, problem: str, now: float) -> States:
        """Return what holds while no notice can be read: those known before, and after three looks that fact."""
        self._failed += 1
        if self._failed < _LOOKS_UNREADABLE:
            return States()
        return States(bad=(seen("cloud/unreadable", now, line=problem, source=SOURCE),))

    def _code(self, notice: Notice, now: float) -> str:
        later = notice.at is not None and notice.at - now > self._notice_seconds
        return "cloud/maintenance-later" if later and notice.kind is not Kind.REBALANCE else notice.kind


def _told(by_code: dict[str, list[Notice]], now: float) -> Iterator[Evidence]:
    for code, notices in sorted(by_code.items()):
        first = min(notices, key=lambda notice: (notice.at is not None, notice.at or 0.0, notice.text))
        more = f", and {len(notices) - 1} more" if len(notices) > 1 else ""
        yield seen(code, now, line=f"{_when(first.at)}: {first.text[:_TEXT_MAX]}{more}", source=SOURCE)


def _when(at: float | None) -> str:
    return "now or soon" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Malformed(f"no JSON: {error}") from error


def _dict(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Malformed("another JSON than documented: no object")
    return value


def _dicts(value: Any) -> Iterable[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise Malformed("another JSON than documented: no list of objects")
    return value


def _texts(value: Any) -> set[str]:
    return {item.lower() for item in value if isinstance(item, str)} if isinstance(value, list) else set()
