"""One physical fault, one incident: several codes and probes tell of the same broken part. Pure.

An incident is what the codes of one family (families.py) tell of one GPU, NIC or node, with what follows it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from outrider.api.gpunode import SubjectKind, Verdict
from outrider.health.catalogue import Catalogue
from outrider.health.families import CLEANUP, FOLLOWING, NVLINK, family, family_of
from outrider.health.findings import Evidence, Key
from outrider.health.start import ALL_FAILED, FAILED

JOIN_SECONDS: Final = 60.0  # a polled state follows the line of its fault by a reading or two of its probe
_WIDE: Final = ("sxid/", "fabric/")  # the NVSwitch fabric is one part, whichever GPU or switch tells
_BLINDNESS: Final = "monitor/"


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """One fault. Holds nothing that moves with each reading, so equal incidents mean that nothing is new."""

    lead: str
    """Code that names it: of the gravest verdict, among equals the first seen."""
    members: tuple[str, ...] = ()
    """The other codes, sorted."""
    subject: SubjectKind
    subject_id: str
    verdict: Verdict
    since: float
    """When the first of its evidence was first seen, in seconds since 1970."""


def incidents(
    findings: Sequence[Evidence], verdicts: Mapping[Key, Verdict], catalogue: Catalogue
) -> tuple[Incident, ...]:
    """Return the incidents that the findings tell of, gravest first; what asks for nothing at all is none."""
    groups: dict[tuple[str, str], _Group] = {}
    followers: list[Evidence] = []
    none_started = any(evidence.code == ALL_FAILED for evidence in findings)
    for evidence in findings:
        name = family(evidence)
        if name == FOLLOWING:
            followers.append(evidence)
            continue
        owner = "" if evidence.code.startswith(_WIDE) else evidence.owner
        if none_started and evidence.code == FAILED:
            owner, name = "", family_of(ALL_FAILED)
        groups.setdefault((owner, name), _Group()).add(evidence, catalogue)
    _widen(groups)
    _follow(groups, followers, catalogue)
    led = [(leading(group.findings, verdicts), group) for group in groups.values()]
    told = sorted(
        ((rank(lead, verdicts), _incident(lead, group, verdicts)) for lead, group in led if lead),
        key=lambda ranked: ranked[0],
    )
    return tuple(incident for _, incident in told)


class _Group:
    """Findings of one fault while they are put together."""

    def __init__(self) -> None:
        self.findings: list[Evidence] = []
        self.owners: set[str] = set()
        self.first_seen = math.inf
        self.last_seen = -math.inf
        self.severity = 0
        """Of the gravest row, whatever other evidence makes of it."""

    def add(self, evidence: Evidence, catalogue: Catalogue) -> None:
        self.findings.append(evidence)
        self.owners.add(evidence.owner)
        self.first_seen = min(self.first_seen, evidence.first_seen)
        self.last_seen = max(self.last_seen, evidence.last_seen)
        self.severity = max(self.severity, catalogue.of(evidence.code).verdict.severity)


def _widen(groups: dict[tuple[str, str], _Group]) -> None:
    """Give the fabric's incident the NVLink errors of all GPUs that came with it."""
    fabric = groups.get(("", NVLINK))
    if fabric is None:
        return
    for key in [key for key, group in groups.items() if key[1] == NVLINK and key[0] and near(group, fabric)]:
        joined = groups.pop(key)
        fabric.findings += joined.findings
        fabric.owners |= joined.owners
        fabric.severity = max(fabric.severity, joined.severity)


def _follow(groups: dict[tuple[str, str], _Group], followers: Iterable[Evidence], catalogue: Catalogue) -> None:
    """Put each follower to the gravest fault on its GPU, clean-up else to one on the node; alone it stands for itself.

    The span of a fault is that of its own findings: followers do not stretch it.
    """
    causes = [(key, group) for key, group in groups.items() if not key[1].startswith(_BLINDNESS)]
    alone: dict[tuple[str, str], _Group] = {}
    joined: list[tuple[_Group, Evidence]] = []
    for follower in followers:
        owner, elsewhere = follower.owner, follower.code == CLEANUP
        found = [
            (owner in group.owners, group.severity, -group.first_seen, key)
            for key, group in causes
            if (elsewhere or owner in group.owners) and near(group, follower)
        ]
        if found:
            joined.append((groups[max(found)[3]], follower))
        else:
            alone.setdefault((owner, follower.code), _Group()).add(follower, catalogue)
    for group, follower in joined:
        group.findings.append(follower)
    groups |= alone


class _Span(Protocol):
    @property
    def first_seen(self) -> float: ...
    @property
    def last_seen(self) -> float: ...


def near(one: _Span, other: _Span, seconds: float = JOIN_SECONDS) -> bool:
    """True where the times in which the two were seen overlap or are apart by at most ``seconds``."""
    return one.first_seen - seconds <= other.last_seen and other.first_seen <= one.last_seen + seconds


def leading(findings: Iterable[Evidence], verdicts: Mapping[Key, Verdict]) -> Evidence | None:
    """Return the finding that decides: the gravest, then the first seen, so that more of the same moves nothing.

    None where all say nothing.
    """
    speaking = [evidence for evidence in findings if verdicts[evidence.key] is not Verdict.NONE]
    return min(speaking, key=lambda evidence: rank(evidence, verdicts), default=None)


def rank(evidence: Evidence, verdicts: Mapping[Key, Verdict]) -> tuple[int, float, Key]:
    """Return the evidence's place among others, smallest first: gravest, then first seen."""
    key = evidence.key
    return (-verdicts[key].severity, evidence.first_seen, key)


def _incident(lead: Evidence, group: _Group, verdicts: Mapping[Key, Verdict]) -> Incident:
    return Incident(
        lead=lead.code,
        members=tuple(sorted({one.code for one in group.findings} - {lead.code})),
        subject=lead.subject,
        subject_id=lead.subject_id,
        verdict=verdicts[lead.key],
        since=min(one.first_seen for one in group.findings),
    )
