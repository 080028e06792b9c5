"""From evidence to a verdict.

Order of belief: the driver's own recovery action, then the code table, then "unknown", which is recorded and never
acted on. Silence makes a subject Unknown: that lowers its score and stops new work, and is never a hard verdict.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from outrider.api.gpunode import Health, Verdict
from outrider.health.catalogue import XID_PREFIX, XID_RECOVERY_PREFIX, Catalogue
from outrider.health.findings import Evidence, Key
from outrider.health.score import points, remaining

DEGRADED_BELOW: Final = 80  # a score that asks for attention although no verdict does
COMPANION_SECONDS: Final = 10.0  # codes of one memory error are logged within milliseconds; storms take seconds


class Opinion(msgspec.Struct, frozen=True, kw_only=True):
    """What the evidence says about one subject."""

    health: Health
    score: int
    verdict: Verdict
    reason: str = ""
    """Code of the finding that decided; empty where nothing speaks against the subject."""


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What the evidence says about the node, each GPU, and each finding."""

    node: Opinion
    gpus: dict[str, Opinion]
    message: str
    verdicts: dict[Key, Verdict]


def judge(findings: Iterable[Evidence], gpus: Mapping[str, str], now: float, catalogue: Catalogue) -> Judgement:
    """Return the judgement at ``now``. ``gpus`` maps each known GPU's UUID to the name that people use for it."""
    everything = sorted(findings, key=lambda evidence: evidence.key)
    groups = _by_subject(everything, gpus)
    verdicts = {
        evidence.key: _verdict(evidence, group, now, catalogue) for group in groups.values() for evidence in group
    }
    own = groups.pop("")
    blind = _is_blind(own, catalogue)
    opinions = {
        uuid: _opinion(group, verdicts, points(remaining(group, catalogue, now)), blind, catalogue)
        for uuid, group in groups.items()
    }
    lowest = min((remaining(group, catalogue, now) for group in groups.values()), default=1.0)
    score = points(lowest * remaining(own, catalogue, now))
    node = _opinion(everything, verdicts, score, blind, catalogue)
    decider = _decider(everything, verdicts)
    message = (
        _message(decider, verdicts[decider.key], gpus, catalogue)
        if decider
        else f"{len(gpus)} GPUs, nothing known against them"
    )
    return Judgement(node=node, gpus=opinions, message=message, verdicts=verdicts)


def _by_subject(findings: Sequence[Evidence], gpus: Mapping[str, str]) -> dict[str, list[Evidence]]:
    groups: dict[str, list[Evidence]] = {"": [], **{uuid: [] for uuid in gpus}}
    for evidence in findings:
        groups.setdefault(evidence.owner, []).append(evidence)
    return groups


def _verdict(evidence: Evidence, group: Sequence[Evidence], now: float, catalogue: Catalogue) -> Verdict:
    row = catalogue.of(evidence.code)
    if evidence.code.startswith(XID_RECOVERY_PREFIX):
        return row.verdict if evidence is _latest_advice(group) else Verdict.NONE
    if evidence.code.startswith(XID_PREFIX) and _firmly_advised(group, catalogue):
        return Verdict.WATCH
    if any(_accompanies(other, evidence) for other in group if other.code in row.decided_by):
        return Verdict.WATCH
    if now - evidence.first_seen < row.settle_seconds:
        return Verdict.NO_NEW_WORK
    return row.verdict


def _latest_advice(group: Sequence[Evidence]) -> Evidence | None:
    """The Xid 154 line that holds now: each one takes the place of those before it."""
    spoken = [evidence for evidence in group if evidence.code.startswith(XID_RECOVERY_PREFIX)]
    return max(spoken, key=lambda evidence: (evidence.last_seen, evidence.code), default=None)


def _firmly_advised(group: Sequence[Evidence], catalogue: Catalogue) -> bool:
    latest = _latest_advice(group)
    return any(
        catalogue.of(evidence.code).firm
        for evidence in group
        if evidence is latest or not evidence.code.startswith(XID_RECOVERY_PREFIX)
    )


def _accompanies(other: Evidence, evidence: Evidence) -> bool:
    return (
        other.first_seen - COMPANION_SECONDS <= evidence.last_seen
        and evidence.first_seen <= other.last_seen + COMPANION_SECONDS
    )


def _is_blind(findings: Iterable[Evidence], catalogue: Catalogue) -> bool:
    return any(catalogue.of(evidence.code).blind for evidence in findings)


def _decider(findings: Iterable[Evidence], verdicts: Mapping[Key, Verdict]) -> Evidence | None:
    """The finding with the gravest verdict; among equals the first seen, so that more of the same changes no reason.

    None where all say nothing.
    """
    speaking = [evidence for evidence in findings if verdicts[evidence.key] is not Verdict.NONE]
    return min(
        speaking,
        key=lambda evidence: (-verdicts[evidence.key].severity, evidence.first_seen, evidence.key),
        default=None,
    )


def _opinion(
    findings: Sequence[Evidence], verdicts: Mapping[Key, Verdict], score: int, blind: bool, catalogue: Catalogue
) -> Opinion:
    decider = _decider(findings, verdicts)
    verdict = verdicts[decider.key] if decider else Verdict.NONE
    health = _health(verdict, score, blind or _is_blind(findings, catalogue))
    return Opinion(health=health, score=score, verdict=verdict, reason=decider.code if decider else "")


def _health(verdict: Verdict, score: int, blind: bool) -> Health:
    if verdict.hard:
        return Health.UNHEALTHY
    if blind:
        return Health.UNKNOWN
    return Health.DEGRADED if verdict is Verdict.NO_NEW_WORK or score < DEGRADED_BELOW else Health.HEALTHY


def _message(decider: Evidence, verdict: Verdict, gpus: Mapping[str, str], catalogue: Catalogue) -> str:
    row = catalogue.of(decider.code)
    subject = gpus.get(decider.owner, decider.owner)
    where = f"{subject}: " if subject else ""
    softened = verdict is Verdict.WATCH and row.verdict.hard  # other evidence says that this is less than it looks
    advice = "nothing now: what was seen with it is milder, or decides" if softened else row.advice
    return f"{where}{row.meaning} ({decider.code}). Next: {advice}."
