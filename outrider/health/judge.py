"""From evidence to a verdict.

Order of belief: the driver's own recovery action, then the detail of a message (NVLink5 fields, the registers of Xid
74), then the code table, then "unknown", which is recorded and never acted on. Silence makes a subject Unknown: that
lowers its score and stops new work, and is never a hard verdict.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from outrider.api.gpunode import Health, SubjectKind, Verdict
from outrider.health.catalogue import RECOVERY_PREFIX, XID_PREFIX, XID_RECOVERY_PREFIX, Catalogue
from outrider.health.findings import NIC_OWNER, Evidence, Key
from outrider.health.incidents import JOIN_SECONDS, Incident, incidents, leading
from outrider.health.kernel.devices import ADDRESS_PREFIX
from outrider.health.score import Shares, network, points, remaining, shares, together

DEGRADED_BELOW: Final = 80  # a score that asks for attention although no verdict does
WELL_FROM: Final = 85  # the score at which that ends: a score that wavers around one limit must not flap
COMPANION_SECONDS: Final = 10.0  # codes of one memory error are logged within milliseconds; storms take seconds
NODE: Final = ""  # owner of what is about the node itself
_MEMBERS_TOLD: Final = 4


class Opinion(msgspec.Struct, frozen=True, kw_only=True):
    """What the evidence says about one subject."""

    health: Health
    score: int
    verdict: Verdict
    reason: str = ""
    """Code of the finding that decided; empty where nothing speaks against the subject."""
    low: bool = False
    """The score fell below DEGRADED_BELOW and has not come back to WELL_FROM yet."""


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What the evidence says about the node, each GPU and NIC, and each finding."""

    node: Opinion
    gpus: dict[str, Opinion]
    nics: dict[str, Opinion] = {}
    """By name."""
    incidents: tuple[Incident, ...] = ()
    """Gravest first: the lead of the first decides about the node."""
    message: str
    verdicts: dict[Key, Verdict]

    @property
    def low(self) -> list[str]:
        """Owners with a low score, sorted: ``judge`` wants to know them the next time."""
        nics = {f"{NIC_OWNER}{name}": opinion for name, opinion in self.nics.items()}
        return sorted(owner for owner, opinion in {NODE: self.node, **self.gpus, **nics}.items() if opinion.low)


def judge(
    findings: Iterable[Evidence],
    gpus: Mapping[str, str],
    now: float,
    catalogue: Catalogue,
    *,
    nics: Collection[str] = (),
    low: Collection[str] = (),
) -> Judgement:
    """Return the judgement at ``now`` (seconds since 1970).

    ``gpus`` maps each known GPU's UUID to the name that people use for it, ``nics`` has the names of all known NICs,
    ``low`` the owners whose score was low before (Judgement.low): they need a better one to be well again.
    """
    everything = sorted(findings, key=lambda evidence: evidence.key)
    groups = _by_owner(everything, gpus, nics)
    verdicts = {key: one for group in groups.values() for key, one in _verdicts(group, now, catalogue).items()}
    parts = {owner: shares(group, catalogue, now) for owner, group in groups.items()}
    opinions = _opinions(groups, parts, verdicts, catalogue, low)
    told = incidents(everything, verdicts, catalogue)
    node_share = _node_share(parts, len(nics))
    return Judgement(
        node=_opinion(everything, verdicts, points(node_share), _is_blind(everything, catalogue), NODE in low),
        gpus={owner: one for owner, one in opinions.items() if _is_gpu(owner)},
        nics={owner.removeprefix(NIC_OWNER): one for owner, one in opinions.items() if _is_nic(owner)},
        incidents=told,
        message=_message(leading(everything, verdicts), told, verdicts, gpus, catalogue),
        verdicts=verdicts,
    )


def _by_owner(findings: Sequence[Evidence], gpus: Iterable[str], nics: Iterable[str]) -> dict[str, list[Evidence]]:
    groups: dict[str, list[Evidence]] = {NODE: [], **{uuid: [] for uuid in gpus}}
    groups |= {f"{NIC_OWNER}{name}": [] for name in nics}
    for evidence in findings:
        groups.setdefault(evidence.owner, []).append(evidence)
    return groups


def _opinions(
    groups: Mapping[str, Sequence[Evidence]],
    parts: Mapping[str, Shares],
    verdicts: Mapping[Key, Verdict],
    catalogue: Catalogue,
    low: Collection[str],
) -> dict[str, Opinion]:
    """Return what the evidence on each owner says about it alone."""
    blind = {owner for owner, group in groups.items() if _is_blind(group, catalogue)}
    return {
        owner: _opinion(group, verdicts, points(remaining(parts[owner])), bool(blind & _watchers(owner)), owner in low)
        for owner, group in groups.items()
    }


def _is_blind(group: Iterable[Evidence], catalogue: Catalogue) -> bool:
    return any(catalogue.of(evidence.code).blind for evidence in group)


def _is_nic(owner: str) -> bool:
    return owner.startswith(NIC_OWNER) and owner != NIC_OWNER  # the bare prefix: about all of them


def _is_gpu(owner: str) -> bool:
    return owner != NODE and not owner.startswith(NIC_OWNER)


def _watchers(owner: str) -> set[str]:
    """Whose blindness hides a fault of the owner: a NIC is seen by the probe of NICs, all else by those of the node."""
    return {owner, NIC_OWNER if _is_nic(owner) else NODE}


def _node_share(parts: Mapping[str, Shares], nics: int) -> float:
    own = together(parts[NODE], parts.get(NIC_OWNER, {}))
    gpus = [remaining(together(own, share)) for owner, share in parts.items() if _is_gpu(owner)]
    return min(gpus, default=remaining(own)) * network([parts[owner] for owner in parts if _is_nic(owner)], nics)


def _verdicts(group: Sequence[Evidence], now: float, catalogue: Catalogue) -> dict[Key, Verdict]:
    """Return the verdict of each finding on one owner."""
    advice = _advice(group, catalogue)
    by_code: dict[str, list[Evidence]] = {}
    for evidence in group:
        by_code.setdefault(evidence.code, []).append(evidence)
    detailed = {evidence.code.partition(".")[0] for evidence in group if _is_detail(evidence.code)}

    def verdict(evidence: Evidence) -> Verdict:
        row = catalogue.of(evidence.code)
        if evidence.code.startswith(XID_RECOVERY_PREFIX):
            return row.verdict if evidence is advice.latest else Verdict.NONE
        if evidence.code.startswith(XID_PREFIX) and advice.decides(evidence):
            return Verdict.WATCH
        others = [other for code in row.decided_by for other in by_code.get(code, ())]
        if evidence.code in detailed:
            others += [other for other in group if _details(other, evidence)]
        began, ended = (_beside(others, moment) for moment in (evidence.first_seen, evidence.last_seen))
        if began and ended:
            return Verdict.WATCH
        alone_since = evidence.last_seen if began else evidence.first_seen
        return Verdict.NO_NEW_WORK if now - alone_since < row.settle_seconds else row.verdict

    return {evidence.key: verdict(evidence) for evidence in group}


class _Advice(msgspec.Struct, frozen=True):
    """What the driver wants done with one GPU."""

    latest: Evidence | None
    """The Xid 154 line that holds now: each one takes the place of those before it."""
    firm: list[Evidence]
    """Advice that replaces the table's verdicts."""

    def decides(self, evidence: Evidence) -> bool:
        """True where the driver knew of the evidence when it gave its advice: not of what came later."""
        return any(evidence.last_seen <= one.last_seen + JOIN_SECONDS for one in self.firm)


def _advice(group: Sequence[Evidence], catalogue: Catalogue) -> _Advice:
    spoken = [evidence for evidence in group if evidence.code.startswith(XID_RECOVERY_PREFIX)]
    latest = max(spoken, key=lambda evidence: (evidence.last_seen, evidence.code), default=None)
    standing = [evidence for evidence in group if evidence is latest or evidence.code.startswith(RECOVERY_PREFIX)]
    return _Advice(latest, [evidence for evidence in standing if catalogue.of(evidence.code).firm])


def _is_detail(code: str) -> bool:
    return code.startswith(XID_PREFIX) and "." in code and not code.startswith(XID_RECOVERY_PREFIX)


def _details(other: Evidence, evidence: Evidence) -> bool:
    """True where the other tells the same event in more detail, so that it is believed before the bare code."""
    return other.code.startswith(f"{evidence.code}.") and other.subject_id == evidence.subject_id


def _beside(others: Iterable[Evidence], moment: float) -> bool:
    """True where one of the others was seen around the moment: what decided about one day does not about another.

    Between its first and its last sighting that is known only of what came again and again without a pause.
    """
    return any(_around(one, moment) for one in others)


def _around(one: Evidence, moment: float) -> bool:
    spans = [(one.first_seen, one.last_seen)]
    if one.last_seen - one.first_seen > COMPANION_SECONDS * one.count:
        spans = [(one.first_seen, one.first_seen), (one.last_seen, one.last_seen)]
    return any(first - COMPANION_SECONDS <= moment <= last + COMPANION_SECONDS for first, last in spans)


def _opinion(
    group: Sequence[Evidence], verdicts: Mapping[Key, Verdict], score: int, blind: bool, was_low: bool
) -> Opinion:
    lead = leading(group, verdicts)
    verdict, reason = (verdicts[lead.key], lead.code) if lead else (Verdict.NONE, "")
    low = score < (WELL_FROM if was_low else DEGRADED_BELOW)
    return Opinion(health=_health(verdict, blind, low), score=score, verdict=verdict, reason=reason, low=low)


def _health(verdict: Verdict, blind: bool, low: bool) -> Health:
    if verdict.hard:
        return Health.UNHEALTHY
    if blind:
        return Health.UNKNOWN
    return Health.DEGRADED if verdict is Verdict.NO_NEW_WORK or low else Health.HEALTHY


def _message(
    lead: Evidence | None,
    told: Sequence[Incident],
    verdicts: Mapping[Key, Verdict],
    gpus: Mapping[str, str],
    catalogue: Catalogue,
) -> str:
    if lead is None:
        return f"{len(gpus)} GPUs, nothing known against them"
    row = catalogue.of(lead.code)
    place = _place(lead, gpus)
    where = f"{place}: " if place else ""
    softened = verdicts[lead.key] is Verdict.WATCH and row.verdict.hard  # other evidence says that it is less
    advice = "nothing now: what was seen with it is milder, or decides" if softened else row.advice
    return f"{where}{row.meaning} ({lead.code}). {_also(told[0].members)}Next: {advice}."


def _place(lead: Evidence, gpus: Mapping[str, str]) -> str:
    """Return where the fault is, in words; empty for the node as a whole."""
    unit, _, part = lead.subject_id.partition("/")
    name = gpus.get(lead.owner) or (unit if lead.subject is SubjectKind.NODE else lead.owner)
    if name.startswith(ADDRESS_PREFIX):
        name = f"{'device' if lead.subject is SubjectKind.NODE else 'GPU'} at {name.removeprefix(ADDRESS_PREFIX)}"
    if not part:
        return name
    return f"{name}, {'NVLink' if lead.subject is SubjectKind.LINK else 'port'} {part}"


def _also(members: Sequence[str]) -> str:
    if not members:
        return ""
    more = f" and {len(members) - _MEMBERS_TOLD} more" if len(members) > _MEMBERS_TOLD else ""
    return f"The same fault shows as {', '.join(members[:_MEMBERS_TOLD])}{more}. "
