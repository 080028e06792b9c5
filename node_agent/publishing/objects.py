"""What the node's objects should say, given what the agent knows. Pure: values in, values and patches out."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from node_agent.memory import Memory
from node_agent.publishing.devices import QUARANTINED
from outrider.api.core import Node, StatusCondition
from outrider.api.gpunode import (
    FABRIC_MAX,
    FINDINGS_MAX,
    GPU,
    INCIDENTS_MAX,
    MEMBERS_MAX,
    NIC,
    NICS_MAX,
    OFFENDERS_MAX,
    RANKS_MAX,
    Finding,
    GPUNode,
    GPUNodeSpec,
    GPUNodeStatus,
    Health,
    Incident,
    Mode,
    Offender,
    RankState,
    Verdict,
)
from outrider.api.meta import MESSAGE_MAX, Condition
from outrider.api.names import GPU_CONDITION, UNHEALTHY_TAINT
from outrider.api.reasons import DEGRADED, HEALTHY, MONITOR_BLIND, UNHEALTHY
from outrider.api.times import rfc3339
from outrider.health.judge import Judgement, Opinion
from outrider.health.taint import EFFECT

_REASONS: Final = {
    Health.HEALTHY: ("True", HEALTHY),
    Health.DEGRADED: ("True", DEGRADED),  # running work is fine, so no repair by others may hang on it
    Health.UNHEALTHY: ("False", UNHEALTHY),
    Health.UNKNOWN: ("Unknown", MONITOR_BLIND),
}

JSON = dict[str, Any]


def status_of(
    memory: Memory,
    judgement: Judgement,
    ranks: Sequence[RankState],
    existing: GPUNode,
    now: float,
    pods: Mapping[str, str] = {},
) -> GPUNodeStatus:
    """Return the status of the node's GPUNode; ``existing`` gives the times of transitions that did not change.

    ``pods`` maps the UIDs of the node's pods to namespace/name.
    """
    node = judgement.node
    return GPUNodeStatus(
        health=node.health,
        score=node.score,
        verdict=node.verdict,
        reason=node.reason,
        message=judgement.message[:MESSAGE_MAX],
        gpus=_gpus(memory, judgement, pods),
        nics=_nics(judgement),
        findings=_findings(memory, judgement),
        incidents=_incidents(judgement),
        offenders=_offenders(memory, now),
        ranks=list(ranks)[:RANKS_MAX],
        diagnostic=memory.diagnostic,
        boot_id=memory.boot_id,
        driver_version=memory.driver_version,
        observed_at=rfc3339(now),
        conditions=[_condition(judgement, existing, now)],
    )


def _gpus(memory: Memory, judgement: Judgement, pods: Mapping[str, str]) -> list[GPU]:
    unknown = Opinion(health=Health.UNKNOWN, score=0, verdict=Verdict.NONE)
    rows = ((record, judgement.gpus.get(record.uuid, unknown)) for record in memory.inventory)
    return [
        GPU(
            index=record.index,
            uuid=record.uuid,
            serial=record.serial,
            pci_address=record.pci_address,
            model=record.model,
            health=opinion.health,
            score=opinion.score,
            verdict=opinion.verdict,
            recovery_action=record.recovery_action,
            links_active=record.links_active,
            links_total=record.links_total,
            fabric=record.fabric[:FABRIC_MAX],
            held_by=pods.get(memory.holders[record.uuid].pod, "") if record.uuid in memory.holders else "",
        )
        for record, opinion in rows
    ]


def _nics(judgement: Judgement) -> list[NIC]:
    rows = [
        NIC(name=name, health=opinion.health, score=opinion.score, verdict=opinion.verdict)
        for name, opinion in sorted(judgement.nics.items())
    ]
    return sorted(sorted(rows, key=lambda nic: nic.score)[:NICS_MAX], key=lambda nic: nic.name)


def _incidents(judgement: Judgement) -> list[Incident]:
    return [
        Incident(
            lead=incident.lead,
            members=list(incident.members[:MEMBERS_MAX]),
            subject=incident.subject,
            subject_id=incident.subject_id,
            verdict=incident.verdict,
            since=rfc3339(incident.since),
        )
        for incident in judgement.incidents[:INCIDENTS_MAX]
    ]


def _offenders(memory: Memory, now: float) -> list[Offender]:
    boards = sorted(memory.offenders, key=lambda board: (-len(board.recent(now)), board.serial))
    return [
        Offender(
            serial=board.serial,
            episodes=len(board.recent(now)),
            last=rfc3339(board.episodes[-1]),
            reason=board.reason,
        )
        for board in boards[:OFFENDERS_MAX]
        if board.recent(now)
    ]


def _findings(memory: Memory, judgement: Judgement) -> list[Finding]:
    gravest = sorted(
        memory.findings,
        key=lambda evidence: (judgement.verdicts[evidence.key].severity, evidence.last_seen, evidence.key),
        reverse=True,
    )
    return [
        Finding(
            code=evidence.code,
            subject=evidence.subject,
            subject_id=evidence.subject_id,
            first_seen=rfc3339(evidence.first_seen),
            last_seen=rfc3339(evidence.last_seen),
            count=evidence.count,
            distinct=evidence.distinct,
            evidence=evidence.line,
            unit=evidence.unit,
            verdict=judgement.verdicts[evidence.key],
            decided_by=judgement.deciders.get(evidence.key, ""),
        )
        for evidence in gravest[:FINDINGS_MAX]
    ]


def _condition(judgement: Judgement, existing: GPUNode, now: float) -> Condition:
    status, reason = _REASONS[judgement.node.health]
    before = next((one for one in existing.status.conditions if one.type == GPU_CONDITION), None)
    since = before.last_transition_time if before and before.status == status else rfc3339(now)
    return Condition(
        type=GPU_CONDITION,
        status=status,
        reason=reason,
        message=judgement.message[:MESSAGE_MAX],
        last_transition_time=since,
        observed_generation=existing.metadata.generation,
    )


def status_body(existing: GPUNode, status: GPUNodeStatus) -> JSON:
    """Return the PUT body, conditional on the version that was read; a score of 0 is spelled out, since it is shown."""
    body: JSON = msgspec.to_builtins(msgspec.structs.replace(existing, status=status))
    body["status"]["score"] = status.score
    for gpu, written in zip(status.gpus, body["status"].get("gpus", []), strict=True):
        written |= {"score": gpu.score, "index": gpu.index}
    for nic, written in zip(status.nics, body["status"].get("nics", []), strict=True):
        written["score"] = nic.score
    return body


def tells_the_same(one: GPUNodeStatus, other: GPUNodeStatus) -> bool:
    """True where nothing but times of observation, steps of ranks, and counts by less than double, differs."""
    return _essence(one) == _essence(other)


def _essence(status: GPUNodeStatus) -> GPUNodeStatus:
    findings = [
        msgspec.structs.replace(
            finding,
            last_seen="",
            evidence="",
            unit="",
            count=finding.count.bit_length(),
            distinct=finding.distinct.bit_length(),
        )
        for finding in status.findings
    ]
    ranks = [
        msgspec.structs.replace(rank, step=0, checkpoint_step=-1, step_seconds=0.0, observed_at="")
        for rank in status.ranks
    ]
    findings.sort(key=lambda finding: (finding.code, finding.subject, finding.subject_id))
    return msgspec.structs.replace(status, findings=findings, ranks=ranks, observed_at=None)


def taint_words(wanted: str | None, spec: GPUNodeSpec, message: str) -> str:
    """Return what users are told about a change of the taint: a person's wish, with its reason, before the hardware."""
    mode = f"GPUNode spec.mode is {spec.mode}" + (f" ({spec.reason})" if spec.reason else "")
    if wanted:
        why = f"{mode}; Auto ends it. " if wanted == QUARANTINED else ""
        return f"no new GPU work ({UNHEALTHY_TAINT}={wanted}): {why}{message}"
    why = f"{mode}, so nothing acts on the evidence. " if spec.mode is Mode.PAUSED else ""
    return f"taint {UNHEALTHY_TAINT} lifted: {why}{message}"


def taint_patch(node: Node, wanted: str | None, *, may_remove: bool) -> list[JSON]:
    """Return the JSON patch that gives the node our taint, changes its value or removes it; empty where all is well.

    Every patch tests what it was computed from, so it fails instead of touching a taint of somebody else.
    ``may_remove`` is false while the agent is blind: silence lifts nothing.
    """
    keys = [(taint.key, taint.effect) for taint in node.spec.taints]
    ours = (UNHEALTHY_TAINT, EFFECT)
    if ours not in keys:
        return _adding(node, wanted) if wanted else []
    path = f"/spec/taints/{keys.index(ours)}"
    tests = [_op("test", f"{path}/key", UNHEALTHY_TAINT), _op("test", f"{path}/effect", EFFECT)]
    if wanted is None:
        return [*tests, {"op": "remove", "path": path}] if may_remove else []
    same = node.spec.taints[keys.index(ours)].value == wanted
    return [] if same else [*tests, _op("add", f"{path}/value", wanted)]


def _adding(node: Node, value: str) -> list[JSON]:
    taint = {"key": UNHEALTHY_TAINT, "value": value, "effect": EFFECT}
    if node.spec.taints:  # the API server refuses a second taint of the same key and effect
        return [_op("add", "/spec/taints/-", taint)]
    version = _op("test", "/metadata/resourceVersion", node.metadata.resource_version)
    return [version, _op("add", "/spec/taints", [taint])]


def _op(op: str, path: str, value: object) -> JSON:
    return {"op": op, "path": path, "value": value}


def condition_patch(node: Node, judgement: Judgement, now: float) -> JSON | None:
    """Return the strategic merge patch of the node's status that sets our condition, None where it is as it should be.

    The API server merges conditions by type, so those of others stay as they are.
    """
    status, reason = _REASONS[judgement.node.health]
    message = judgement.message[:MESSAGE_MAX]
    before = next((one for one in node.status.conditions if one.type == GPU_CONDITION), None)
    if before == StatusCondition(type=GPU_CONDITION, status=status, reason=reason, message=message):
        return None
    stamp = rfc3339(now)[:19] + "Z"  # metav1.Time has whole seconds
    condition = {"type": GPU_CONDITION, "status": status, "reason": reason, "message": message}
    times = {"lastHeartbeatTime": stamp}
    if before is None or before.status != status:
        times["lastTransitionTime"] = stamp
    return {"status": {"conditions": [condition | times]}}


def traceparents(annotated: Mapping[str, str]) -> list[str]:
    """Return one trace context for each job: ``annotated`` maps pods to theirs, and pods of a job share the trace."""
    by_trace = {context.split("-")[1]: context for context in annotated.values() if context.count("-") == 3}
    return [by_trace[trace] for trace in sorted(by_trace)]
