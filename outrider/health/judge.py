"""From evidence to a verdict.

Order of belief: the driver's own recovery action, then the detail of a message (NVLink5 fields, the registers of Xid
74), then the code table, then "unknown", which is recorded and never acted on. Silence makes a subject Unknown: that
lowers its score and stops new work, and is never a hard verdict.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from outrider.api.gpunode import Health, SubjectKind, Verdict
from outrider.health.advice import next_step
from outrider.health.catalogue import RECOVERY_PREFIX, XID_PREFIX, XID_RECOVERY_PREFIX, Catalogue, Clears
from outrider.health.findings import NIC_OWNER, Evidence, Key
from outrider.health.incidents import JOIN_SECONDS, Incident, incidents, leading
from outrider.health.kernel.devices import ADDRESS_PREFIX
from outrider.health.score import Shares, network, points, remaining, shares, together
from outrider.health.start import SOURCE as START

DEGRADED_BELOW: Final = 80  # a score that asks for attention although no verdict does
WELL_FROM: Final = 85  # the score at which that ends: a score that wavers around one limit must not flap
COMPANION_SECONDS: Final = 10.0  # codes of one memory error are logged within milliseconds; storms take seconds
NODE: Final = ""  # owner of what is about the node itself
_MEMBERS_TOLD: Final = 4
_ABOUT_A_GPU: Final = (XID_PREFIX, "kernel/off-bus")


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
    deciders: dict[Key, str] = {}
    """Code that decided about a finding instead of the finding's own row, where one did."""

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
    shared = {evidence.code for evidence in groups[NODE] if evidence.source == START}
    rulings = {key: one for group in groups.values() for key, one in _rulings(group, shared, now, catalogue).items()}
    verdicts = {key: ruling.verdict for key, ruling in rulings.items()}
    deciders = {key: ruling.decided_by for key, ruling in rulings.items() if ruling.decided_by}
    parts = {owner: shares(group, catalogue, now) for owner, group in groups.items()}
    opinions = _opinions(groups, parts, verdicts, catalogue, low)
    told = incidents(everything, verdicts, catalogue)
    node_share = _node_share(parts, len(nics))
    return Judgement(
        node=_opinion(everything, verdicts, points(node_share), _is_blind(everything, catalogue), NODE in low),
        gpus={owner: one for owner, one in opinions.items() if _is_gpu(owner)},
        nics={owner.removeprefix(NIC_OWNER): one for owner, one in opinions.items() if _is_nic(owner)},
        incidents=told,
        message=_message(everything, told, rulings, gpus, catalogue),
        verdicts=verdicts,
        deciders=deciders,
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


class _Ruling(NamedTuple):
    verdict: Verdict
    decided_by: str = ""
    """Code of other evidence that decided."""


def _rulings(
    group: Sequence[Evidence], shared: Collection[str], now: float, catalogue: Catalogue
) -> dict[Key, _Ruling]:
    """Return what holds for each finding on one owner; ``shared`` has the codes of faults that all GPUs share."""
    advice = _advice(group, catalogue)
    by_code: dict[str, list[Evidence]] = {}
    for evidence in group:
        by_code.setdefault(evidence.code, []).append(evidence)
    detailed = {evidence.code.partition(".")[0] for evidence in group if _is_detail(evidence.code)}

    def ruling(evidence: Evidence) -> _Ruling:
        row = catalogue.of(evidence.code)
        if evidence.code.startswith(XID_RECOVERY_PREFIX):
            return _Ruling(row.verdict) if evidence is advice.latest else _Ruling(Verdict.NONE, advice.last_word)
        if evidence.code.startswith(XID_PREFIX) and (decider := advice.decider(evidence)):
            return _Ruling(Verdict.WATCH, decider.code)
        if causes := [code for code in row.decided_by if code in shared]:
            return _Ruling(Verdict.WATCH, causes[0])
        others = [other for code in row.decided_by for other in by_code.get(code, ())]
        if evidence.code in detailed:
            others += [other for other in group if _details(other, evidence)]
        began, ended = (_beside(others, moment) for moment in (evidence.first_seen, evidence.last_seen))
        if began and ended:
            return _Ruling(Verdict.WATCH, ended.code)
        alone_since = evidence.last_seen if began else evidence.first_seen
        until = evidence.last_seen if row.clears is Clears.RECOVERY else now  # a state settles by being seen again
        waits = until - alone_since < row.settle_seconds or (row.verdict.hard and _is_nameless(evidence))
        return _Ruling(Verdict.NO_NEW_WORK if waits else row.verdict)

    rulings = {evidence.key: ruling(evidence) for evidence in group}
    deciders = {code: ruling.decided_by for (code, _, _), ruling in rulings.items() if ruling.decided_by}
    return {key: ruling._replace(decided_by=_last(ruling.decided_by, deciders)) for key, ruling in rulings.items()}


def _is_nameless(evidence: Evidence) -> bool:
    """True for a line about a GPU that names none that can be read: NVML shows which one is lost, if any is."""
    return evidence.subject is SubjectKind.NODE and not evidence.subject_id and evidence.code.startswith(_ABOUT_A_GPU)


def _last(code: str, deciders: Mapping[str, str]) -> str:
    """Return the code at the end of the chain: one that others decide about decides nothing itself."""
    for _ in deciders:
        code = deciders.get(code, code)
    return code


class _Advice(msgspec.Struct, frozen=True):
    """What the driver wants done with one GPU."""

    latest: Evidence | None
    """The Xid 154 line that holds now: each one takes the place of those before it."""
    firm: list[Evidence]
    """Advice that replaces the table's verdicts."""

    @property
    def last_word(self) -> str:
        """Code of the Xid 154 line that holds now."""
        return self.latest.code if self.latest else ""

    def decider(self, evidence: Evidence) -> Evidence | None:
        """Return the advice that the driver gave knowing of the evidence: none for what came later."""
        return next((one for one in self.firm if evidence.last_seen <= one.last_seen + JOIN_SECONDS), None)


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


def _beside(others: Iterable[Evidence], moment: float) -> Evidence | None:
    """Return one of the others that was seen around the moment: what decided about one day does not about another.

    Between its first and its last sighting that is known only of what came again and again without a pause.
    """
    return next((one for one in others if _around(one, moment)), None)


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
    everything: Sequence[Evidence],
    told: Sequence[Incident],
    rulings: Mapping[Key, _Ruling],
    gpus: Mapping[str, str],
    catalogue: Catalogue,
) -> str:
    lead = leading(everything, {key: ruling.verdict for key, ruling in rulings.items()})
    if lead is None:
        return f"{len(gpus)} GPUs, nothing known against them"
    ruling, row = rulings[lead.key], catalogue.of(lead.code)
    same = {one.owner for one in everything if one.code == lead.code and rulings[one.key].verdict is ruling.verdict}
    place = _several(same, gpus) if _is_gpu(lead.owner) and len(same) > 1 else _place(lead, gpus)
    where = f"{place}: " if place else ""
    what = f" {lead.line}." if row.blind and lead.line else ""  # its meaning alone does not tell what is silent
    advice = next_step(lead.code, ruling.verdict, ruling.decided_by, catalogue)
    return f"{where}{row.meaning} ({lead.code}).{what} {_also(told[0].members)}Next: {advice}."


def _several(owners: Collection[str], gpus: Mapping[str, str]) -> str:
    """Return in words on which GPUs a fault is that several have."""
    if gpus and set(owners) >= set(gpus):
        return f"all {len(owners)} GPUs"
    names = [_gpu_name(owner, gpus).partition(" (")[0].removeprefix("GPU ") for owner in owners]
    return f"{len(owners)} GPUs: {', '.join(sorted(names, key=lambda name: (len(name), name)))}"


def _gpu_name(owner: str, gpus: Mapping[str, str]) -> str:
    return gpus.get(owner) or owner.replace(ADDRESS_PREFIX, "at ", 1)


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
