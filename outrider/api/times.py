"""Times on the wire: RFC 3339 in UTC, as Kubernetes writes them."""

from datetime import UTC, datetime


def rfc3339(unix: float) -> str:
    """Return seconds since 1970 as RFC 3339 with microseconds, the precision of Kubernetes' MicroTime."""
    return datetime.fromtimestamp(unix, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse_rfc3339(text: str) -> float:
    """Return seconds since 1970. Raises ValueError for text that is no RFC 3339 time, or that lacks its zone."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone: write it as 2026-01-31T12:00:00Z")
    return time.timestamp()
