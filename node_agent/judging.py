"""The agent's memory and how a report changes it. Pure: (memory, report, now) in, memory out."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from node_agent.inventory import GPURecord, match
from node_agent.nvml_events import heard
from node_agent.probes.nvml_wire import Snapshot
from node_agent.probes.report import KernelPosition, Report, address_id
from node_agent.readings import SOURCE, judge_snapshot
from outrider.api.gpunode import Diagnostic, SubjectKind, Verdict
from outrider.health.catalogue import XID_PREFIX, Catalogue
from outrider.health.clearing import after_boot, after_reading, after_time
from outrider.health.findings import Evidence, Key, bounded, merge, renamed, seen
from outrider.health.judge import Judgement, judge

_LOG_IS_BLIND: Final[Key] = ("monitor/blind", SubjectKind.NODE, "kernel-log")
_ADDRESSES_MAX: Final = 64  # PCI addresses remembered; no node has more GPUs


class Announced(msgspec.Struct, frozen=True):
    """The last change that users were told of, so that a restart does not tell it again."""

    verdict: Verdict = Verdict.NONE
    reason: str = ""
    gpus: dict[str, str] = {}
    """UUID of each GPU that users know to have a hard verdict, to its reason."""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """All that the agent knows; saved over restarts and reboots."""

    boot_id: str = ""
    sequence: int = -1
    """Last kernel log record of this boot that has been taken in."""
    findings: list[Evidence] = []
    inventory: list[GPURecord] = []
    addresses: dict[str, str] = {}
    """Subject id of a PCI address to UUID."""
    driver_version: str = ""
    announced: Announced = Announced()
    diagnostic: Diagnostic | None = None
    """The last active diagnostic, so that a restart does not run it again."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What judging needs beside the memory."""

    catalogue: Catalogue
    clear_dwell_seconds: float
    expected_gpus: int


def absorb(memory: Memory, name: str, report: Report, now: float, rules: Rules) -> Memory:
    """Return the memory after the report of the probe ``name``."""
    if report.position is not None:
        memory = _at(memory, report.position, now, rules.catalogue)
    findings = merge(_by_key(memory.findings), _new(memory, report))
    memory = _positioned(memory, report)
    if report.snapshot is not None:
        memory, findings = _after_snapshot(memory, findings, report.snapshot, now, rules)
    elif report.states is not None:
        states = report.states
        findings = after_reading(findings, name, states.bad, states.readable, now, rules.clear_dwell_seconds)
    elif report.blind:
        findings = after_reading(findings, name, [], set(), now, rules.clear_dwell_seconds)
    findings = _after_blindness(findings, name, report.blind, now, rules)
    findings = renamed(after_time(findings, rules.catalogue, now), memory.addresses)
    findings = heard(findings, report.events, log_is_blind=_LOG_IS_BLIND in findings)
    return msgspec.structs.replace(
        memory,
        findings=list(bounded(findings, rules.catalogue).values()),
        diagnostic=report.diagnostic or memory.diagnostic,
    )


def conclude(memory: Memory, now: float, rules: Rules) -> Judgement:
    """Return what the memory's findings mean at ``now``."""
    names = {record.uuid: f"GPU {record.index} ({record.uuid})" for record in memory.inventory}
    return judge(memory.findings, names, now, rules.catalogue)


def _at(memory: Memory, position: KernelPosition, now: float, catalogue: Catalogue) -> Memory:
    """Forget what a reboot repaired, and where the log before it ended."""
    if position.boot_id == memory.boot_id:
        return msgspec.structs.replace(memory, sequence=-1) if position.restarted else memory
    kept = _by_key(memory.findings)
    if memory.boot_id:
        kept = _by_key(_doubted(known, now) for known in after_boot(kept, catalogue).values())
    return msgspec.structs.replace(memory, boot_id=position.boot_id, sequence=-1, findings=list(kept.values()))


def _doubted(known: Evidence, now: float) -> Evidence:
    """Take a state that NVML told before the reboot as not known: nobody acts on it, and nothing new goes there yet."""
    if known.source != SOURCE:
        return known
    line = f"not read since the reboot; {known.code} before it"
    return seen("monitor/blind", now, subject=known.subject, subject_id=known.subject_id, line=line, source=SOURCE)


def _new(memory: Memory, report: Report) -> Iterable[Evidence]:
    return (_counted(sighting.evidence) for sighting in report.sightings if sighting.sequence > memory.sequence)


def _counted(evidence: Evidence) -> Evidence:
    """Mark what NVML may tell by event too, so that it counts once."""
    if not evidence.code.startswith(XID_PREFIX):
        return evidence
    return msgspec.structs.replace(evidence, lines=evidence.count)


def _positioned(memory: Memory, report: Report) -> Memory:
    sequence = max(memory.sequence, report.position.sequence if report.position else -1)
    addresses = memory.addresses
    if report.addresses:
        addresses = dict(list({**addresses, **report.addresses}.items())[-_ADDRESSES_MAX:])
    return msgspec.structs.replace(memory, sequence=sequence, addresses=addresses)


def _after_snapshot(
    memory: Memory, findings: Mapping[Key, Evidence], snapshot: Snapshot, now: float, rules: Rules
) -> tuple[Memory, dict[Key, Evidence]]:
    matched = match(snapshot, memory.inventory, rules.expected_gpus)
    readings = judge_snapshot(snapshot, matched, rules.expected_gpus, now)
    memory = msgspec.structs.replace(
        memory,
        inventory=sorted(matched.records.values(), key=lambda record: (record.index, record.uuid)),
        addresses=memory.addresses
        | {address_id(record.pci_address): record.uuid for record in matched.records.values() if record.pci_address},
        driver_version=snapshot.driver_version or memory.driver_version,
    )
    present = {*matched.records, *matched.read, *matched.hung, ""}
    kept = {key: known for key, known in findings.items() if known.source != SOURCE or known.owner in present}
    return memory, after_reading(kept, SOURCE, readings.bad, readings.readable, now, rules.clear_dwell_seconds)


def _after_blindness(
    findings: Mapping[Key, Evidence], name: str, blind: str, now: float, rules: Rules
) -> dict[Key, Evidence]:
    source = f"monitor:{name}"
    bad = [seen("monitor/blind", now, subject_id=name, line=f"probe {name}: {blind}", source=source)] if blind else []
    return after_reading(findings, source, bad, {""}, now, rules.clear_dwell_seconds)


def _by_key(findings: Iterable[Evidence]) -> dict[Key, Evidence]:
    return {evidence.key: evidence for evidence in findings}
