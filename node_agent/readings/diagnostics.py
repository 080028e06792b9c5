"""Active diagnostics that were asked for: reading the request, and making evidence of the result. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from node_agent.inventory import GPURecord
from node_agent.probes.programs import Ran
from outrider.api.core import Pod
from outrider.api.gpunode import Diagnostic, DiagnosticRequest, DiagnosticState, GPUNode, SubjectKind
from outrider.api.meta import MESSAGE_MAX
from outrider.api.names import RUN_DIAGNOSTIC_ANNOTATION
from outrider.api.times import rfc3339
from outrider.health.dcgm_diag import NO_RESULT, Complaint, Diagnosis, read_diagnosis
from outrider.health.findings import Evidence, seen
from outrider.workloads.quantities import BadQuantity
from outrider.workloads.resources import gpus_of

SOURCE: Final = "dcgm-diag"
LIMIT_SECONDS: Final = {1: 300.0, 2: 900.0, 3: 3600.0, 4: 10_800.0}
"""By level, well above what DCGM's documentation tells: seconds, 2 minutes, 15 minutes, 1 to 2 hours."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a diagnostic, for users and for judging."""

    diagnostic: Diagnostic
    bad: tuple[Evidence, ...] = ()
    passed: frozenset[str] = frozenset()
    """UUIDs of GPUs that passed, and "" where the run has a result: what an earlier run found there may clear."""


def read_request(gpunode: GPUNode | None) -> DiagnosticRequest | None:
    """Return what is asked for. Raises ValueError, which names the annotation and what is wrong in it."""
    text = gpunode.metadata.annotations.get(RUN_DIAGNOSTIC_ANNOTATION) if gpunode else None
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=DiagnosticRequest)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"{RUN_DIAGNOSTIC_ANNOTATION}: {error}") from error


def refusal(request: DiagnosticRequest, dcgmi_path: str, pods: Iterable[Pod]) -> str:
    """Return why the diagnostic is not run, empty where it may. Above level 1 it takes the GPUs for itself."""
    if not dcgmi_path:
        return "not run: the agent's setting dcgmiPath names no dcgmi program"
    if request.level > 1:
        busy = sorted(pod.key for pod in pods if not pod.finished and _wants_gpus(pod))
        if busy:
            return f"not run: level {request.level} would disturb pod {busy[0]}, which has GPUs; move it off first"
    return ""


def _wants_gpus(pod: Pod) -> bool:
    try:
        return gpus_of(pod) > 0 or bool(pod.spec.resource_claims)
    except BadQuantity:
        return True  # can't be told, so it is left in peace


def running(request: DiagnosticRequest, now: float) -> Diagnostic:
    """Return the status of a diagnostic that starts."""
    return Diagnostic(
        id=request.id, level=request.level, state=DiagnosticState.RUNNING, started_at=rfc3339(now), message="running"
    )


def no_result(diagnostic: Diagnostic, why: str, now: float) -> Result:
    """Return the end of a diagnostic that tells nothing."""
    ended = msgspec.structs.replace(
        diagnostic, state=DiagnosticState.NO_RESULT, finished_at=rfc3339(now), message=why[:MESSAGE_MAX]
    )
    line = f"diagnostic {diagnostic.id}: {why}"
    return Result(diagnostic=ended, bad=(seen(NO_RESULT, now, line=line, source=SOURCE),))


def result(diagnostic: Diagnostic, ran: Ran, inventory: Sequence[GPURecord], now: float) -> Result:
    """Return the end of a diagnostic that was run."""
    diagnosis = read_diagnosis(ran.output)
    problem = ran.problem or diagnosis.problem
    if problem and not diagnosis.failed:
        return no_result(diagnostic, f"dcgmi {problem}" if ran.problem else problem, now)
    if not diagnosis.passed and not diagnosis.failed:
        return no_result(diagnostic, "no test was run on any GPU: all were skipped", now)
    names = _names(diagnosis, inventory)
    bad = _evidence(diagnosis.complaints, names, now)
    state = DiagnosticState.FAILED if diagnosis.failed else DiagnosticState.PASSED
    ended = msgspec.structs.replace(
        diagnostic, state=state, finished_at=rfc3339(now), message=_words(diagnosis, bad)[:MESSAGE_MAX]
    )
    passed = {names[gpu] for gpu in diagnosis.passed if gpu in names}
    return Result(diagnostic=ended, bad=bad, passed=frozenset({"", *passed}))


def _names(diagnosis: Diagnosis, inventory: Sequence[GPURecord]) -> dict[int, str]:
    """Return the UUID of each GPU by DCGM's number: by the serial number where both know it, else as NVML counts."""
    by_serial = {record.serial: record.uuid for record in inventory if record.serial}
    by_index = {record.index: record.uuid for record in inventory}
    serials = {gpu: by_serial[serial] for gpu, serial in diagnosis.serials.items() if serial in by_serial}
    return by_index | serials


def _evidence(complaints: Iterable[Complaint], names: dict[int, str], now: float) -> tuple[Evidence, ...]:
    """Return one finding for each code and GPU, with the words of all tests in it."""
    lines: dict[tuple[str, str], list[str]] = {}
    for complaint in complaints:
        uuid = names.get(complaint.gpu, "") if complaint.gpu is not None else ""
        where = "" if uuid or complaint.gpu is None else f"DCGM's GPU {complaint.gpu}: "
        lines.setdefault((complaint.code, uuid), []).append(f"{where}{complaint.line}")
    return tuple(
        seen(
            code,
            now,
            subject=SubjectKind.GPU if uuid else SubjectKind.NODE,
            subject_id=uuid,
            line="; ".join(dict.fromkeys(words)),
            source=SOURCE,
        )
        for (code, uuid), words in lines.items()
    )


def _words(diagnosis: Diagnosis, bad: Sequence[Evidence]) -> str:
    told = "; ".join(f"{evidence.subject_id or 'node'}: {evidence.line}" for evidence in bad)
    return told or f"{len(diagnosis.passed)} GPUs passed (DCGM {diagnosis.version or 'of unknown version'})"
