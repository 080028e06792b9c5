"""What the findings of all nodes say about shared causes: who saw what, and when. Pure."""

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from outrider.api.gpunode import GPUNodeStatus, Health
from outrider.api.times import parse_rfc3339
from outrider.health.causes import SILENT_AGENT, SharedCause, is_echo, names_switch, shared_cause, times_of
from outrider.topology import Domain

Places = Mapping[str, Sequence[Domain]]
Statuses = Mapping[str, GPUNodeStatus]


class Sighting(NamedTuple):
    """Something seen on a node at a time, in seconds since 1970."""

    at: float
    node: str
    code: str


class Sightings:
    """Sightings of one cause (or of echoes) by node; a node whose evidence has no readable time has none."""

    def __init__(self) -> None:
        self.by_node: defaultdict[str, list[Sighting]] = defaultdict(list)

    def add(self, node: str, code: str, times: Iterable[float]) -> None:
        """Take in a code that a node showed at these times."""
        self.by_node[node] += [Sighting(at, node, code) for at in times]

    @cached_property
    def ordered(self) -> list[Sighting]:
        """All of them by time; asked for only once all are added."""
        return sorted(seen for rows in self.by_node.values() for seen in rows)

    def within(self, start: float, end: float = math.inf) -> list[Sighting]:
        """Return those from ``start`` to ``end``, both included, by time."""
        first = bisect_left(self.ordered, start, key=_at)
        return self.ordered[first : bisect_right(self.ordered, end, key=_at)]


def _at(sighting: Sighting) -> float:
    return sighting.at


class Testimony:
    """Everything seen, sorted by cause, and who belongs to what."""

    def __init__(self, statuses: Statuses, places: Places, now: float, stale_seconds: float) -> None:
        """Read all findings; an agent not heard for ``stale_seconds`` counts as silent."""
        self.members: defaultdict[Domain, set[str]] = defaultdict(set)
        self.sightings: defaultdict[SharedCause, Sightings] = defaultdict(Sightings)
        self.echoes = Sightings()
        self.accusers: set[str] = set()  # nodes that call their own switch broken
        self.nodes = len(statuses)
        for node, status in statuses.items():
            for domain in places.get(node, ()):
                self.members[domain].add(node)
            self._read(node, status)
            if (since := _silent_since(status, now, stale_seconds)) is not None:
                self.sightings[SharedCause.SILENCE].add(node, SILENT_AGENT, [since])

    def _read(self, node: str, status: GPUNodeStatus) -> None:
        for finding in status.findings:
            cause = shared_cause(finding.code)
            if names_switch(finding):
                self.accusers.add(node)
            if cause is not None:
                self.sightings[cause].add(node, finding.code, times_of(finding))
            elif is_echo(finding.code):
                self.echoes.add(node, finding.code, times_of(finding))


def _silent_since(status: GPUNodeStatus, now: float, stale_seconds: float) -> float | None:
    """Return since when the agent says nothing useful; None for one that speaks, or that never spoke yet."""
    try:
        observed = parse_rfc3339(status.observed_at or "")
    except ValueError:
        return None
    if now - observed > stale_seconds:
        return observed
    told = any(shared_cause(finding.code) is SharedCause.SILENCE for finding in status.findings)
    return observed if status.health is Health.UNKNOWN and not told else None


def domains_with(nodes: Iterable[str], places: Places) -> dict[Domain, set[str]]:
    """Return the domains of the nodes, each with those of them that it holds."""
    found: defaultdict[Domain, set[str]] = defaultdict(set)
    for node in nodes:
        for domain in places.get(node, ()):
            found[domain].add(node)
    return found
