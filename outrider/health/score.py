"""Scores, 0 (do not use) to 100 (nothing known against it).

    GPU    = round(100 * min(F, product over families of f))
    f      = least of (1 - w) ** (1 + log2(count)) among the findings of one family (families.py): one physical fault
             counts once, however many codes and probes tell of it
    F      = least of the same among codes that only follow: the driver's advice, the clean-up after a fault
    w      = weight of the code in the catalogue, halved every half_life_seconds since it was last seen
             (only for codes that clear by time; states and damage weigh in full until they are cleared)
    NIC    = the same over the NIC's findings
    node   = lowest of its GPUs, each with the findings about the node itself put to its own, times the share of the
             network that is left: 1 - (sum over NICs of 1 - share of the NIC) / number of NICs

A least and a product of numbers from 0 to 1 never rise when a finding is added, counts higher or is seen later, so more
evidence never raises a score; neither depends on an order, so the order of arrival never matters.
"""

import math
from collections.abc import Iterable, Mapping

from outrider.health.catalogue import Catalogue, Fault
from outrider.health.families import FOLLOWING, family
from outrider.health.findings import Evidence

Shares = Mapping[str, float]
"""What each family leaves of the score, 0 to 1."""


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


def shares(findings: Iterable[Evidence], catalogue: Catalogue, now: float) -> dict[str, float]:
    """Return what each family of faults among the findings leaves."""
    least: dict[str, float] = {}
    for evidence in findings:
        name = family(evidence)
        least[name] = min(least.get(name, 1.0), factor(evidence, catalogue.of(evidence.code), now))
    return least


def together(one: Shares, other: Shares) -> Shares:
    """Return the shares of two subjects as those of one."""
    if not one or not other:
        return one or other
    return {name: min(one.get(name, 1.0), other.get(name, 1.0)) for name in {*one, *other}}


def remaining(parts: Shares) -> float:
    """Return what all families together leave, 0 to 1."""
    product = math.prod(share for name, share in sorted(parts.items()) if name != FOLLOWING)
    return min(product, parts.get(FOLLOWING, 1.0))


def network(nics: Iterable[Shares], number: int) -> float:
    """Return the share of the network that is left. ``nics`` has those with findings, ``number`` is that of all."""
    lost = math.fsum(1.0 - remaining(one) for one in nics)
    return max(0.0, 1.0 - lost / max(1, number))


def points(share: float) -> int:
    """Return a share as a score."""
    return round(100 * share)
