"""How a report changes what the agent knows, and what that means. Pure: (memory, report, now) in, memory out."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from node_agent.inventory import GPURecord, Matched, match
from node_agent.memory import Holder, Memory
from node_agent.probes.nvml_wire import Snapshot
from node_agent.probes.report import KernelPosition, Report, address_id
from node_agent.readings.nvml import RELEASED, SOURCE, judge_snapshot
from node_agent.readings.nvml import events as nvml_events
from node_agent.readings.nvml.events import heard
from outrider.api.gpunode import SubjectKind
from outrider.health import offenders, recurrence, start
from outrider.health.catalogue import XID_PREFIX, Catalogue, Clears
from outrider.health.clearing import (
    after_absence,
    after_boot,
    after_reading,
    after_reset,
    after_switch_off,
    after_time,
)
from outrider.health.findings import NIC_OWNER, Evidence, Key, bounded, merge, renamed, seen
from outrider.health.judge import Judgement, judge
from outrider.health.kernel.records import DRILL

_GPU_WATCHERS: Final = ("nvml", "kernel-log")  # probes without which nobody sees the GPUs' faults
_NIC_WATCHER: Final = "nics"
_EVENTS: Final = ("kernel-log", nvml_events.SOURCE)  # sources that tell what happened, not what is
_CONCLUDED: Final = (recurrence.SOURCE, offenders.SOURCE, start.SOURCE)  # sources of what the agent concludes itself
_MONITOR: Final = "monitor:"  # source of what is said about a probe itself; its name follows
_NICS_MAX: Final = 64
_LOG_IS_BLIND: Final[Key] = ("monitor/blind", SubjectKind.NODE, "kernel-log")
_UNUSABLE: Final = frozenset({"kernel/init-failed", "kernel/reset-required"})
_ADDRESSES_MAX: Final = 256  # PCI addresses remembered; no node has more GPUs and ports of network adapters


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What judging needs beside the memory."""

    catalogue: Catalogue
    clear_dwell_seconds: float
    expected_gpus: int


def resumed(memory: Memory, probes: Collection[str], rules: Rules) -> Memory:
    """Return a saved memory as it holds now that these probes are at work: nobody else's states can clear any more."""
    sources = {*_CONCLUDED}.union(*({name, f"{_MONITOR}{name}"} for name in probes))
    kept = after_switch_off(_by_key(memory.findings), rules.catalogue, sources)
    return msgspec.structs.replace(memory, findings=list(kept.values()))


def absorb(
    memory: Memory,
    name: str,
    report: Report,
    now: float,
    rules: Rules,
    jobs: Mapping[str, str] = {},
) -> Memory:
    """Return the memory after the report of the probe ``name``.

    ``jobs`` maps the UID of each pod that runs on the node to the UID of its job.
    """
    if report.position is not None:
        memory = _at(memory, report.position, now, rules.catalogue)
    if report.holders is not None:
        memory = msgspec.structs.replace(memory, holders=_holders(memory.holders, report.holders, now))
    fresh = _fresh(memory, report, jobs)
    memory = _positioned(memory, report)
    findings = merge(_by_key(memory.findings), fresh)
    memory, findings = _after_states(memory, findings, name, report, now, rules)
    findings = _after_blindness(findings, name, report.blind, now, rules)
    findings = merge({}, renamed(after_time(findings, rules.catalogue, now).values(), memory.addresses))
    events = [_of_job(event, memory.holders, jobs) for event in report.events]
    findings = heard(findings, events, log_is_blind=_LOG_IS_BLIND in findings)
    findings = after_reset(findings, rules.catalogue)
    memory = _accused(memory, [*fresh, *events], findings, now, rules.catalogue)
    findings = _after_memory(memory, findings, now, rules)
    return msgspec.structs.replace(
        memory,
        findings=list(bounded(findings, rules.catalogue).values()),
        diagnostic=report.diagnostic or memory.diagnostic,
    )


def conclude(memory: Memory, now: float, rules: Rules) -> Judgement:
    """Return what the memory's findings mean at ``now``."""
    names = {record.uuid: f"GPU {record.index} ({record.uuid})" for record in memory.inventory}
    return judge(memory.findings, names, now, rules.catalogue, nics=memory.nics, low=memory.low)


def noted(memory: Memory, judgement: Judgement, now: float) -> Memory:
    """Return the memory with what the judgement adds to it: which scores are low, which boards failed hard."""
    boards = offenders.remembered(memory.offenders, _hard(memory, judgement), now)
    if boards == memory.offenders and judgement.low == memory.low:
        return memory
    return msgspec.structs.replace(memory, offenders=boards, low=judgement.low)


def _hard(memory: Memory, judgement: Judgement) -> dict[str, str]:
    """Return the boards in a hard state by serial, each with the code that its incident goes by; drills aside."""
    if not any(opinion.verdict.hard for opinion in judgement.gpus.values()):
        return {}
    serials = _serials(memory.inventory)
    codes: dict[str, set[str]] = {}
    for evidence in memory.findings:
        own = evidence.code == offenders.LEMON or evidence.line.startswith(DRILL)
        if judgement.verdicts[evidence.key].hard and evidence.owner in serials and not own:
            codes.setdefault(serials[evidence.owner], set()).add(evidence.code)
    leads = [incident.lead for incident in judgement.incidents]  # gravest first
    return {serial: next((lead for lead in leads if lead in hard), min(hard)) for serial, hard in codes.items()}


def _serials(inventory: Iterable[GPURecord]) -> dict[str, str]:
    return {record.uuid: record.serial or record.uuid for record in inventory}


def _at(memory: Memory, position: KernelPosition, now: float, catalogue: Catalogue) -> Memory:
    """Forget what a reboot repaired, and where the log before it ended."""
    if position.boot_id == memory.boot_id:
        return msgspec.structs.replace(memory, sequence=-1) if position.restarted else memory
    if not memory.boot_id:
        return msgspec.structs.replace(memory, boot_id=position.boot_id, sequence=-1)
    kept = after_boot(_by_key(memory.findings), catalogue, _EVENTS).values()
    return msgspec.structs.replace(
        memory,
        boot_id=position.boot_id,
        sequence=-1,
        findings=list(_by_key(_doubted(known, now, catalogue) for known in kept).values()),
        offenders=offenders.after_boot(memory.offenders),
        holders={},
        addresses={},  # a slot may have another board now: until somebody tells, its address is all that is known
    )


def _doubted(known: Evidence, now: float, catalogue: Catalogue) -> Evidence:
    """Take a state read before the reboot as not known: nobody acts on it, and nothing new goes there yet."""
    concluded = known.source in _CONCLUDED or known.source.startswith(_MONITOR)
    if concluded or catalogue.of(known.code).clears is not Clears.RECOVERY:
        return known
    line = f"not read since the reboot; {known.code} before it"
    code = _blindness(known.source)
    return seen(code, now, subject=known.subject, subject_id=known.subject_id, line=line, source=known.source)


def _blindness(probe: str) -> str:
    return "monitor/blind" if probe in (*_GPU_WATCHERS, _NIC_WATCHER) else "monitor/optional-blind"


def _fresh(memory: Memory, report: Report, jobs: Mapping[str, str]) -> list[Evidence]:
    """Return what happened since the last record that was taken in, with names and jobs as far as they are known."""
    new = [_counted(sighting.evidence) for sighting in report.sightings if sighting.sequence > memory.sequence]
    named = renamed(new, {**memory.addresses, **report.addresses})
    return [_of_job(evidence, memory.holders, jobs) for evidence in named]


def _counted(evidence: Evidence) -> Evidence:
    """Mark what NVML may tell by event too, so that it counts once."""
    if not evidence.code.startswith(XID_PREFIX):
        return evidence
    return msgspec.structs.replace(evidence, lines=evidence.count)


def _of_job(evidence: Evidence, holders: Mapping[str, Holder], jobs: Mapping[str, str]) -> Evidence:
    """Return the evidence with the job that had the GPU at the time, where that is sure.

    A pod that runs no more is not in ``jobs``: what its GPU does now may be the next one's.
    """
    holder = holders.get(evidence.owner)
    job = jobs.get(holder.pod, "") if holder else ""
    if holder is None or not job or evidence.first_seen < holder.since:
        return evidence
    return msgspec.structs.replace(evidence, job=job)


def _holders(known: Mapping[str, Holder], held: Mapping[str, str], now: float) -> dict[str, Holder]:
    before = {uuid: known.get(uuid) for uuid in held}
    same = {uuid: holder for uuid, holder in before.items() if holder and holder.pod == held[uuid]}
    return {uuid: same.get(uuid) or Holder(pod=pod, since=now) for uuid, pod in held.items()}


def _accused(
    memory: Memory, fresh: Iterable[Evidence], findings: Mapping[Key, Evidence], now: float, catalogue: Catalogue
) -> Memory:
    real = (evidence for evidence in fresh if not evidence.line.startswith(DRILL))
    told = [recurrence.told(evidence, findings.values(), catalogue) for evidence in real]
    accusations = recurrence.remembered(memory.accusations, [one for one in told if one], now)
    return msgspec.structs.replace(memory, accusations=accusations)


def _after_memory(memory: Memory, findings: Mapping[Key, Evidence], now: float, rules: Rules) -> dict[Key, Evidence]:
    """Return the findings with those that the agent's own memory gives rise to, which end with their cause."""
    concluded = (
        (recurrence.SOURCE, recurrence.suspects(memory.accusations, now)),
        (offenders.SOURCE, offenders.repeated(memory.offenders, _serials(memory.inventory), now)),
        (start.SOURCE, start.all_failed(findings.values(), len(memory.inventory))),
    )
    after = dict(findings)
    for source, bad in concluded:
        owners = {known.owner for known in after.values() if known.source == source}
        after = after_reading(after, source, bad, owners, now, rules.clear_dwell_seconds)
    return after


def _positioned(memory: Memory, report: Report) -> Memory:
    sequence = max(memory.sequence, report.position.sequence if report.position else -1)
    addresses = memory.addresses
    if report.addresses:
        addresses = dict(list({**addresses, **report.addresses}.items())[-_ADDRESSES_MAX:])
    return msgspec.structs.replace(memory, sequence=sequence, addresses=addresses)


def _after_states(
    memory: Memory, findings: dict[Key, Evidence], name: str, report: Report, now: float, rules: Rules
) -> tuple[Memory, dict[Key, Evidence]]:
    dwell_seconds = rules.clear_dwell_seconds
    if report.snapshot is not None:
        return _after_snapshot(memory, findings, report.snapshot, now, rules)
    if report.blind and report.states is None:
        return memory, after_reading(findings, name, [], set(), now, dwell_seconds)
    named: set[str] = set()
    if report.states is not None:
        bad, readable = report.states.bad, report.states.readable
        findings = after_reading(findings, name, bad, readable, now, dwell_seconds)
        memory = _with_nics(memory, readable, findings)
        named = {*readable, *(evidence.owner for evidence in bad)}
    if not report.blind and report.position is None:
        findings = after_absence(findings, name, named, rules.catalogue, now)
    return memory, findings


def _with_nics(memory: Memory, readable: Collection[str], findings: Mapping[Key, Evidence]) -> Memory:
    """Return the memory with the NICs that were read now and those that their probe calls ill: a lost one counts."""
    read = {owner for owner in readable if owner.startswith(NIC_OWNER)}
    ill = {known.owner for known in findings.values() if known.source == _NIC_WATCHER}
    names = {owner.removeprefix(NIC_OWNER) for owner in read | ill if owner.startswith(NIC_OWNER)} - {""}
    return msgspec.structs.replace(memory, nics=sorted(names)[:_NICS_MAX]) if read else memory


def _after_snapshot(
    memory: Memory, findings: Mapping[Key, Evidence], snapshot: Snapshot, now: float, rules: Rules
) -> tuple[Memory, dict[Key, Evidence]]:
    matched = match(snapshot, memory.inventory, rules.expected_gpus)
    readings = judge_snapshot(snapshot, matched, rules.expected_gpus, now)
    memory = msgspec.structs.replace(
        memory,
        inventory=sorted(matched.records.values(), key=lambda record: (record.index, record.uuid)),
        addresses=memory.addresses | _addresses(matched.records.values() if snapshot.read else ()),
        driver_version=snapshot.driver_version or memory.driver_version,
    )
    dwell_seconds = rules.clear_dwell_seconds
    kept = {
        key: known
        for key, known in findings.items()
        if _concerns(known, snapshot, matched) and not _disproved(known, readings.readable, now, dwell_seconds)
    }
    after = after_reading(kept, SOURCE, readings.bad, readings.readable, now, dwell_seconds)
    return memory, merge(after, readings.happened)


def _disproved(known: Evidence, readable: Collection[str], now: float, dwell_seconds: float) -> bool:
    """True for a GPU of which the log told that it can't be used, and which NVML reads well a while later."""
    return known.code in _UNUSABLE and known.owner in readable and now - known.last_seen >= dwell_seconds


def _addresses(records: Iterable[GPURecord]) -> dict[str, str]:
    return {address_id(record.pci_address): record.uuid for record in records if record.pci_address}


def _concerns(known: Evidence, snapshot: Snapshot, matched: Matched) -> bool:
    """False for states of GPUs that are no more, and for a pause that is over: it needs no dwell."""
    if known.source != SOURCE or not snapshot.read:
        return True
    places = {address_id(device.address) for device in matched.unlisted}
    present = {*matched.records, *matched.read, *matched.hung, *places, ""}
    return known.owner in present and known.code != RELEASED


def _after_blindness(
    findings: Mapping[Key, Evidence], name: str, blind: str, now: float, rules: Rules
) -> dict[Key, Evidence]:
    source = f"{_MONITOR}{name}"
    nics = name == _NIC_WATCHER
    subject, subject_id = (SubjectKind.NIC, "") if nics else (SubjectKind.NODE, name)
    line = f"probe {name}: {blind}"
    told = seen(_blindness(name), now, subject=subject, subject_id=subject_id, line=line, source=source)
    return after_reading(findings, source, [told] if blind else [], {told.owner}, now, rules.clear_dwell_seconds)


def _by_key(findings: Iterable[Evidence]) -> dict[Key, Evidence]:
    return {evidence.key: evidence for evidence in findings}
