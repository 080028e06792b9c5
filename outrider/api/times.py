"""Times on the wire: RFC 3339 in UTC, as Kubernetes writes them."""

from datetime import UTC, datetime


def rfc3339(unix: float) -> str:
    """Return seconds since 1970 as RFC 3339 with microseconds, the precision of Kubernetes' MicroTime."""
    return datetime.fromtimestamp(unix, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse_rfc3339(text: str) -> float:
    """Return seconds since 1970.

    Raises ValueError for text that is no RFC 3339 time, that lacks its zone, or whose zone takes it out of the years
    1 to 9999: what was read can always be written again.
    """
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone: write it as 2026-01-31T12:00:00Z")
    try:
        return time.astimezone(UTC).timestamp()
    except OverflowError:
        raise ValueError(f"{text!r} is in no year from 1 to 9999 UTC") from None
