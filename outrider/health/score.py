"""Scores, 0 (do not use) to 100 (nothing known against it).

    score = round(100 * product over findings of (1 - w) ** (1 + log2(count)))
    w     = weight of the code in the catalogue, halved every half_life_seconds since it was last seen
            (only for codes that clear by time; states and damage weigh in full until they are cleared)
    node  = lowest score of its GPUs, times the same product over the findings about the node itself

Every factor lies between 0 and 1, so more evidence, a higher count or a later sighting never raises a score; the
product is taken in the order of the keys, so the order of arrival never matters.
"""

import math
from collections.abc import Iterable

from outrider.health.catalogue import Catalogue, Fault
from outrider.health.findings import Evidence


def weight_left(evidence: Evidence, row: Fault, now: float) -> float:
    """Return the share of the score that the evidence takes at ``now`` for one occurrence, 0 to 1."""
    if row.half_life_seconds is None:
        return row.weight
    age_seconds = max(0.0, now - evidence.last_seen)
    return row.weight * math.pow(0.5, age_seconds / row.half_life_seconds)


def factor(evidence: Evidence, row: Fault, now: float) -> float:
    """Return what the evidence leaves of the score, 0 to 1."""
    left = 1.0 - weight_left(evidence, row, now)
    return math.pow(left, 1.0 + math.log2(max(1, evidence.count)))


def remaining(findings: Iterable[Evidence], catalogue: Catalogue, now: float) -> float:
    """Return the product of all factors, 0 to 1."""
    product = 1.0
    for evidence in sorted(findings, key=lambda one: one.key):
        product *= factor(evidence, catalogue.of(evidence.code), now)
    return product


def points(share: float) -> int:
    """Return a share as a score."""
    return round(100 * share)
