"""The page of events, which is written by hand."""

import re
from pathlib import Path

from outrider.api import reasons

PAGE = Path(__file__).parents[2] / "docs/reference/events.md"
ELSEWHERE = {"Healthy", "Degraded", "Unhealthy", "MonitorBlind"}  # reasons of the node condition


def test_every_event_stands_on_the_page() -> None:
    named = {value for name, value in vars(reasons).items() if name.isupper() and re.fullmatch(r"[A-Za-z]+", value)}
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    listed = {word for row in rows for word in re.findall(r"[A-Za-z]+", row.split("|")[1])}
    assert named - ELSEWHERE <= listed
