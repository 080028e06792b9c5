"""The page of events, which is written by hand."""

import re
from pathlib import Path

from outrider.api import reasons

PAGE = Path(__file__).parents[2] / "docs/reference/events.md"


def test_every_event_stands_on_the_page() -> None:
    section = Path(reasons.__file__).read_text().partition("# Events\n")[2].partition("\n\n")[0]
    named = set(re.findall(r': Final = "(\w+)"', section))
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    listed = {word for row in rows for word in re.findall(r"[A-Za-z]+", row.split("|")[1])}
    assert named
    assert named <= listed
