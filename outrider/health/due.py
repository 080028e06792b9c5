"""When time alone may change a judgement, so that nobody needs to judge again every moment. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final

from outrider.health.catalogue import Catalogue
from outrider.health.findings import Evidence

LONGEST_SECONDS: Final = 10.0
"""Judging a quiet node costs 0.1 ms, so this costs nothing; it bounds the lag of rules that are not named here."""
_HALF_LIFE_SHARE: Final = 1 / 150  # a weight of 1 loses 0.46 points of the score in it: less than what is shown
_SHORTEST_SECONDS: Final = 0.05


def due_seconds(findings: Iterable[Evidence], now: float, catalogue: Catalogue) -> float:
    """Return how long after ``now`` the judgement should be made anew, where nothing else happens before.

    A verdict that settles is due to the moment; a score that recovers is shown within one point of what it is.
    """
    moments = (moment for evidence in findings for moment in _moments(evidence, now, catalogue))
    return max(_SHORTEST_SECONDS, min(moments, default=LONGEST_SECONDS))


def _moments(evidence: Evidence, now: float, catalogue: Catalogue) -> Iterator[float]:
    row = catalogue.of(evidence.code)
    for seen in (evidence.first_seen, evidence.last_seen):
        if 0 < (settles := seen + row.settle_seconds - now) < LONGEST_SECONDS:
            yield settles
    if row.half_life_seconds is not None:
        yield min(LONGEST_SECONDS, row.half_life_seconds * _HALF_LIFE_SHARE)
