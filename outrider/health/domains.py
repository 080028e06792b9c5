"""Common cause: faults of many nodes at once that one part they share explains. Pure.

A *shared cause* is a kind of trouble that a shared part can bring (causes.py). Evidence:

witness  a code of the cause itself, such as xid/145 or nic/port-down
echo     xid/45, a channel torn down because something else failed first. A fault of an NVLink switch is echoed on all
         nodes of its NVLink domain; but a job that dies of anything is echoed on all nodes of the job. So echoes
         never make a domain suspect: they only widen what witnesses show, and only where they stay in the domain.

A domain is *struck* where, within WINDOW_SECONDS, at least NODES_MIN of its nodes and SHARE_MIN of them newly showed
witnesses of one cause, LIFT_MIN times the share of the nodes outside. With 6.5 failures in 1,000 node-days (published
for a cluster of 16,000 GPUs) three of four nodes meet so by chance once in 1e14 windows. A wider domain is suspected in
place of a narrower one only where what the narrower one leaves unexplained is itself enough to be struck.

    score = round(100 * product over causes of (1 - weight * hit / nodes of the domain))
    hit   = nodes with a witness, plus ECHO_SHARE for each node with only an echo (beside a witness, where a switch
            can be the cause); 0 below NODES_MIN nodes
    weight = 1, for silence 0.5

The score says how much of the domain is in trouble now, however it began; more evidence never raises it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from outrider.api.gpunode import Finding, GPUNodeStatus
from outrider.health.causes import SharedCause, is_advice, shared_cause, times_of
from outrider.health.score import points
from outrider.health.testimony import Places, Sighting, Sightings, Statuses, Testimony, domains_with
from outrider.topology import CLUSTER_LEVEL, NVLINK_LEVEL, RACK_LEVEL, Domain

WINDOW_SECONDS: Final = 120.0  # agents poll NICs and links every few seconds, and a fault spreads with the traffic
NODES_MIN: Final = 3  # two nodes in trouble are a coincidence, or the two ends of one cable
SHARE_MIN: Final = 0.5
LIFT_MIN: Final = 2.0  # a domain in which things are as bad as everywhere else is not the cause
ECHOES_INSIDE_MIN: Final = 0.8  # echoes beyond the domain are those of a job, not of its switch
ECHO_SHARE: Final = 0.2
GATHER_SECONDS: Final = 10.0  # several nodes in trouble at once: time for the others to tell
SKEW_SECONDS: Final = 5.0  # clocks of nodes may differ so much
_ECHO_LEVELS: Final = frozenset({NVLINK_LEVEL, RACK_LEVEL})
_WEIGHTS: Final = {SharedCause.SILENCE: 0.5}
_FIRST_CHOICE: Final = {SharedCause.FABRIC: (NVLINK_LEVEL, RACK_LEVEL), SharedCause.POWER: (RACK_LEVEL,)}
_LAST_CHOICE: Final = (RACK_LEVEL, NVLINK_LEVEL, CLUSTER_LEVEL)  # for NICs the network's own levels come first


class Suspect(msgspec.Struct, frozen=True, kw_only=True):
    """A domain that explains trouble of its nodes. Times are seconds since 1970."""

    domain: Domain
    cause: SharedCause
    since: float
    nodes: tuple[str, ...]
    """Nodes in trouble since then, sorted; those that joined after the window too."""
    members: int
    """All nodes of the domain."""
    codes: tuple[str, ...]
    culprits: tuple[str, ...] = ()
    """Nodes that name the guilty part themselves, such as one that reported its switch's SXid."""
    score: int = 100

    @property
    def hardware(self) -> bool:
        """True where something may be broken; silence alone says nothing of hardware."""
        return self.cause is not SharedCause.SILENCE

    def explains(self, node: str, status: GPUNodeStatus) -> bool:
        """Tell whether all that is hard against the node comes from this cause: it needs no episode of its own then.

        The driver's advice on what to do goes with the trouble that it is about. A culprit's evidence is its own, and
        so is what is of another kind or of an earlier time.
        """
        if not self.hardware or node not in self.nodes or node in self.culprits:
            return False
        hard = [finding for finding in status.findings if finding.verdict.hard]
        witnessed = any(self._covers(finding) for finding in status.findings)
        return bool(hard) and witnessed and all(self._covers(one) or self._follows(one) for one in hard)

    def _covers(self, finding: Finding) -> bool:
        return shared_cause(finding.code) is self.cause and self._since_then(finding)

    def _follows(self, finding: Finding) -> bool:
        return is_advice(finding.code) and self._since_then(finding)

    def _since_then(self, finding: Finding) -> bool:
        return any(at >= self.since for at in times_of(finding))


class Outlook(msgspec.Struct, frozen=True):
    """What the evidence of all nodes says about the domains."""

    suspects: tuple[Suspect, ...] = ()
    scores: Mapping[Domain, int] = {}
    """Only domains below 100."""
    gathering: frozenset[str] = frozenset()
    """Nodes that failed a moment ago together with a neighbour: whether the cause is shared will soon be clear."""

    def suspect_of(self, node: str, status: GPUNodeStatus) -> Suspect | None:
        """Return the suspect that explains what is hard against the node."""
        return next((suspect for suspect in self.suspects if suspect.explains(node, status)), None)


def judge_domains(statuses: Statuses, places: Places, now: float, stale_seconds: float) -> Outlook:
    """Return what the nodes' evidence says about the domains that they share, at ``now`` (seconds since 1970).

    ``places`` names each node's domains; an agent not heard for ``stale_seconds`` counts as silent.
    """
    testimony = Testimony(statuses, places, now, stale_seconds)
    scores = _scores(testimony, places)
    struck = [suspect for cause in SharedCause for suspect in _of_cause(cause, testimony, places)]
    suspects = [
        msgspec.structs.replace(suspect, score=scores.get(suspect.domain, 100))
        for suspect in sorted(struck, key=lambda one: (one.domain, one.cause))
    ]
    return Outlook(tuple(suspects), scores, _gathering(testimony, places, now))


def _of_cause(cause: SharedCause, testimony: Testimony, places: Places) -> list[Suspect]:
    trouble = testimony.sightings.get(cause)
    if trouble is None:
        return []
    inside = domains_with(trouble.by_node, places)
    struck = (_struck(domain, nodes, cause, testimony) for domain, nodes in inside.items())
    return _narrowed([suspect for suspect in struck if suspect], testimony)


def _struck(domain: Domain, nodes: Collection[str], cause: SharedCause, testimony: Testimony) -> Suspect | None:
    """Return the domain as a suspect of the cause, None where too little points to it."""
    trouble = testimony.sightings[cause]
    members = testimony.members[domain]
    start = _densest(seen for node in nodes for seen in trouble.by_node[node])
    everywhere = trouble.within(start - SKEW_SECONDS, start + WINDOW_SECONDS)
    seen = [sighting for sighting in everywhere if sighting.node in members]
    if cause is SharedCause.FABRIC:
        seen += _echoes(domain, seen, start, testimony)
    hit = {sighting.node for sighting in seen}
    outside = {sighting.node for sighting in everywhere} - members
    elsewhere = len(outside) / max(1, testimony.nodes - len(members))
    if not _enough(hit, members) or _share(hit, members) < LIFT_MIN * elsewhere:
        return None
    later = trouble.within(start + WINDOW_SECONDS)
    seen = sorted([*seen, *(one for one in later if one.node in members)])
    return _suspect(domain, cause, seen, len(members), testimony.accusers)


def _suspect(
    domain: Domain, cause: SharedCause, seen: Sequence[Sighting], members: int, accusers: Collection[str]
) -> Suspect:
    nodes = {sighting.node for sighting in seen}
    return Suspect(
        domain=domain,
        cause=cause,
        since=seen[0].at,
        nodes=tuple(sorted(nodes)),
        members=members,
        codes=tuple(sorted({sighting.code for sighting in seen})),
        culprits=_culprits(nodes, accusers) if cause is SharedCause.FABRIC else (),
    )


def _enough(hit: Collection[str], members: Collection[str]) -> bool:
    return len(hit) >= NODES_MIN and _share(hit, members) >= SHARE_MIN


def _share(hit: Collection[str], members: Collection[str]) -> float:
    return len(hit) / max(1, len(members))


def _densest(sightings: Iterable[Sighting]) -> float:
    """Return the start of the window with sightings on the most nodes; of equal ones the first."""
    ordered = sorted(sightings)
    counts: defaultdict[str, int] = defaultdict(int)
    best, best_count, first = 0.0, 0, 0
    for last in ordered:
        counts[last.node] += 1
        while last.at - ordered[first].at > WINDOW_SECONDS:
            node = ordered[first].node
            counts[node] -= 1
            if counts[node] == 0:
                del counts[node]
            first += 1
        if len(counts) > best_count:
            best, best_count = ordered[first].at, len(counts)
    return best


def _echoes(domain: Domain, witnesses: Sequence[Sighting], start: float, testimony: Testimony) -> list[Sighting]:
    """Return the echoes that a switch of the domain explains: beside several witnesses, or the switch's own word."""
    nodes = {seen.node for seen in witnesses}
    strong = bool(nodes & testimony.accusers) or len(nodes) >= NODES_MIN
    if domain.level not in _ECHO_LEVELS or not strong:
        return []
    everywhere = testimony.echoes.within(start - SKEW_SECONDS, start + WINDOW_SECONDS)
    members = testimony.members[domain]
    inside = [seen for seen in everywhere if seen.node in members]
    heard = {seen.node for seen in everywhere}
    return inside if len(heard & members) >= ECHOES_INSIDE_MIN * len(heard) else []


def _culprits(hit: Collection[str], accusers: Collection[str]) -> tuple[str, ...]:
    """Return the few nodes that accuse their switch; where most do, the switch belongs to all and names nobody."""
    few = set(accusers) & set(hit)
    return tuple(sorted(few)) if 2 * len(few) < len(hit) else ()


def _narrowed(struck: Sequence[Suspect], testimony: Testimony) -> list[Suspect]:
    """Return the suspects that are left once each trouble is put down to the narrowest domain that explains it."""
    chosen: list[Suspect] = []
    for wide in sorted(struck, key=_width):
        inner = [one for one in chosen if set(one.nodes) & set(wide.nodes)]
        largest = max(inner, key=lambda one: len(set(one.nodes) & set(wide.nodes)), default=None)
        if largest is not None and not _enough_beyond(wide, largest, testimony):
            continue
        chosen = [one for one in chosen if not set(one.nodes) <= set(wide.nodes)]
        chosen.append(wide)
    return chosen


def _enough_beyond(wide: Suspect, narrow: Suspect, testimony: Testimony) -> bool:
    rest = testimony.members[wide.domain] - testimony.members[narrow.domain]
    return _enough(set(wide.nodes) & rest, rest)


def _width(suspect: Suspect) -> tuple[int, int, int, Domain]:
    """Order from narrow to wide; of equal domains the one whose parts can fail in this way comes first."""
    level = suspect.domain.level
    first = _FIRST_CHOICE.get(suspect.cause, ())
    if level in first:
        fit = first.index(level) - len(first)
    else:
        fit = 1 + _LAST_CHOICE.index(level) if level in _LAST_CHOICE else 0
    return (suspect.members, fit, -suspect.domain.name.count("/"), suspect.domain)


def _scores(testimony: Testimony, places: Places) -> dict[Domain, int]:
    left: defaultdict[Domain, float] = defaultdict(lambda: 1.0)
    for cause in SharedCause:
        trouble = testimony.sightings.get(cause, Sightings())
        for domain, witnesses in domains_with(trouble.by_node, places).items():
            echoes = _echo_nodes(domain, witnesses, testimony) if cause is SharedCause.FABRIC else set()
            if len(witnesses) + len(echoes) < NODES_MIN:
                continue
            hit = len(witnesses) + ECHO_SHARE * len(echoes)
            left[domain] *= 1.0 - _WEIGHTS.get(cause, 1.0) * hit / len(testimony.members[domain])
    scores = {domain: points(share) for domain, share in left.items()}
    return {domain: score for domain, score in sorted(scores.items()) if score < 100}


def _echo_nodes(domain: Domain, witnesses: Collection[str], testimony: Testimony) -> set[str]:
    if domain.level not in _ECHO_LEVELS:
        return set()
    return testimony.members[domain] & set(testimony.echoes.by_node) - set(witnesses)


def _gathering(testimony: Testimony, places: Places, now: float) -> frozenset[str]:
    waiting: set[str] = set()
    for cause in SharedCause:
        if cause is SharedCause.SILENCE or cause not in testimony.sightings:
            continue
        by_node = testimony.sightings[cause].by_node
        # By the first sighting: what keeps being logged must not wait for ever.
        recent = [node for node, rows in by_node.items() if rows and abs(now - min(rows).at) < GATHER_SECONDS]
        for domain, nodes in domains_with(recent, places).items():
            if domain.level != CLUSTER_LEVEL and len(nodes) > 1 and len(testimony.members[domain]) >= NODES_MIN:
                waiting |= nodes
    return frozenset(waiting)
