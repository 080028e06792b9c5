"""What NVML's events add to the findings. Pure.

The kernel log is the full source of Xids; NVML tells the critical ones a second time, by event. So both are counted
apart within one finding (``Evidence.lines`` and ``Evidence.events``) and the larger number is its count, whichever
came first. While the log can't be read, an event counts beyond what the log had told until then.

The log may know more than the event: xid/149.8 where the event has only xid/149. Then the event's finding gives way.
A recovery action or a lost GPU told by event is a state: it is taken over early, and the reading that follows at once
confirms it or lets it clear.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from node_agent.probes.nvml_wire import Event
from outrider.api.gpunode import SubjectKind
from outrider.health.catalogue import RECOVERY_PREFIX, XID_PREFIX
from outrider.health.findings import Evidence, Findings, Key, merge, seen

SOURCE: Final = "nvml-events"
STATE_SOURCE: Final = "nvml"  # whose readings clear the states
_XID: Final = 0x8  # nvml.h, nvmlEventType*
_UNAVAILABLE: Final = 0x4000
_RECOVERY_ACTION: Final = 0x8000
_TOLD_BY_READING: Final = frozenset({154})  # the recovery action: an event and a field of its own tell its value


def evidence_of(event: Event, now: float) -> Evidence | None:
    """Return what the event says by itself; None where only the reading that it causes can tell."""
    uuid = event.uuid or f"index:{event.index}"
    if event.kind == _XID and event.data not in _TOLD_BY_READING:
        line = f"NVML event: Xid {event.data}"
        told = _gpu(f"{XID_PREFIX}{event.data}", uuid, line, now, SOURCE)
        return msgspec.structs.replace(told, events=1)
    if event.kind == _RECOVERY_ACTION and event.data:
        line = f"NVML event: recovery action {event.data}"
        return _gpu(f"{RECOVERY_PREFIX}{event.data}", uuid, line, now, STATE_SOURCE)
    if event.kind == _UNAVAILABLE:
        return _gpu("gpu/unavailable", uuid, "NVML event: the GPU is unavailable", now, STATE_SOURCE)
    return None


def gathered(events: Iterable[Event], now: float) -> tuple[Evidence, ...]:
    """Return the evidence of events that came together; equal ones as one with their number."""
    told = (evidence_of(event, now) for event in events)
    return tuple(merge({}, (evidence for evidence in told if evidence is not None)).values())


def heard(findings: Findings, events: Iterable[Evidence], *, log_is_blind: bool) -> dict[Key, Evidence]:
    """Return the findings after events; ``log_is_blind``: the kernel log can't tell the same at present."""
    after = dict(findings)
    for evidence in events:
        known = after.get(evidence.key)
        if not evidence.events:
            after.setdefault(evidence.key, evidence)
        elif known is None or not log_is_blind:
            after = merge(after, [evidence])
        else:
            caught_up = msgspec.structs.replace(known, events=max(known.events, known.lines))
            after = merge({**after, known.key: caught_up}, [evidence])
    return _without_echoes(after)


def _without_echoes(findings: Mapping[Key, Evidence]) -> dict[Key, Evidence]:
    return {key: evidence for key, evidence in findings.items() if not _is_echo(evidence, findings)}


def _is_echo(evidence: Evidence, findings: Mapping[Key, Evidence]) -> bool:
    if not evidence.events or evidence.lines:
        return False
    finer = f"{evidence.code}."
    return any(other.code.startswith(finer) and other.owner == evidence.owner for other in findings.values())


def _gpu(code: str, uuid: str, line: str, now: float, source: str) -> Evidence:
    return seen(code, now, subject=SubjectKind.GPU, subject_id=uuid, line=line, source=source)
