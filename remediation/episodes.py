"""When an episode opens, how it is named, whom it affects, and whether a person bent it out of shape. Pure."""

import hashlib
import re
from collections.abc import Iterable
from itertools import count, groupby
from typing import Final

import msgspec

from outrider.api.core import Pod
from outrider.api.meta import Condition, ObjectMeta
from outrider.api.names import TRACEPARENT_ANNOTATION
from outrider.api.reasons import ACCEPTED, INVALID_SPEC, REMEDIATION_STARTED
from outrider.api.remediation import (
    ActionMode,
    AffectedJob,
    Phase,
    Remediation,
    RemediationSpec,
    RemediationStatus,
    StepName,
    StepState,
)
from outrider.api.times import parse_rfc3339, rfc3339
from outrider.api.trainingpolicy import GRACE_MAX_SECONDS
from outrider.workloads import gang_of, job_uid_of, rank_of
from remediation.common_cause import waits
from remediation.world import Belief, World

NAME_LENGTH: Final = 128  # the name is also the id of the checkpoint request, which is bounded so
UNKNOWN_RANK: Final = -1
LADDER: Final = tuple(StepName)
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9]+")


def base_name(spec: RemediationSpec) -> str:
    """Return the name of the first episode of this cause in this boot of this node: the same in every replica.

    Of a domain: the first of this cause in the domain; its last labels are in the name, for people to know it by.
    """
    subject = f"{spec.domain.level}/{spec.domain.name}" if spec.domain else spec.node
    digest = hashlib.sha256(f"{subject}\n{spec.boot_id}\n{spec.cause}".encode()).hexdigest()[:8]
    shown = _slug(f"{spec.domain.level}-{spec.domain.name.rpartition('/')[2]}") if spec.domain else spec.node
    return f"{shown[: NAME_LENGTH - 16].rstrip('.-')}-{digest}"


def _slug(text: str) -> str:
    """Return a text as a part of an object's name: what may not be in it becomes a dash."""
    return _NOT_IN_NAMES.sub("-", text.lower()).strip("-")


def opening(node: str, world: World, now: float, fresh_seconds: float) -> Remediation | None:
    """Return the episode to open on the node, or None.

    One episode at a time on a node, whatever the number of faults. A cancelled cause stays cancelled for this boot;
    an isolated node gets a new episode only for training pods that came after it. A node whose trouble is put down to
    what it shares with others gets none.
    """
    if world.evidence(node, now, fresh_seconds).belief is not Belief.SICK or waits(node, world):
        return None
    status = world.gpu_nodes[node].status
    spec = RemediationSpec(node=node, cause=status.reason or "unnamed", boot_id=status.boot_id)
    if _handled(spec, world):
        return None
    return Remediation(metadata=ObjectMeta(name=free_name(spec, world)), spec=spec)


def _handled(spec: RemediationSpec, world: World) -> bool:
    same_boot = [old for old in world.episodes(spec.node) if old.spec.boot_id == spec.boot_id]
    if any(old.status.phase is Phase.OPEN and accepted(old) for old in world.episodes(spec.node)):
        return True
    if any(old.status.phase is Phase.CANCELLED and old.spec.cause == spec.cause for old in same_boot):
        return True
    isolated = [old for old in same_boot if old.status.phase is Phase.ISOLATED]
    seen = {uid for old in isolated for job in old.status.jobs for uid in job.pod_uids}
    return bool(isolated) and all(pod.metadata.uid in seen for pod in world.gang_pods(spec.node))


def free_name(spec: RemediationSpec, world: World) -> str:
    """Return the first name for an episode of this cause that no earlier one has."""
    base = base_name(spec)
    names = (base if number == 1 else f"{base}-{number}" for number in count(1))
    return next(name for name in names if name not in world.remediations)


def affected_jobs(node: str, world: World) -> list[AffectedJob]:
    """Return the jobs with live pods on the node, each with those pods."""
    pods = sorted(world.gang_pods(node), key=lambda pod: (pod.metadata.namespace, job_uid_of(pod), pod.metadata.name))
    groups = groupby(pods, key=lambda pod: (pod.metadata.namespace, job_uid_of(pod)))
    return [_job(uid, list(members)) for (_, uid), members in groups]


def _job(uid: str, pods: list[Pod]) -> AffectedJob:
    first = pods[0]
    return AffectedJob(
        namespace=first.metadata.namespace,
        name=job_name(first),
        uid=uid,
        pods=[pod.metadata.name for pod in pods],
        pod_uids=[pod.metadata.uid for pod in pods],
        ranks=[known_rank(pod) for pod in pods],
        traceparent=first.metadata.annotations.get(TRACEPARENT_ANNOTATION, ""),
    )


def job_name(pod: Pod) -> str:
    """Return the name of the job that the pod's gang is of, as people know it: the JobSet, not one of its Jobs."""
    gang, owner = gang_of(pod), pod.metadata.controller()
    return gang.name if gang else owner.name if owner else ""


def merged(recorded: list[AffectedJob], current: list[AffectedJob]) -> list[AffectedJob]:
    """Return the recorded jobs with the pods that joined since, then the jobs that are new.

    A pod that ended by itself stays recorded: its rank, too, must be seen training again.
    """
    fresh = {job.uid: job for job in current}
    known = [_joined(job, fresh.pop(job.uid, job)) for job in recorded]
    return known + list(fresh.values())


def _joined(job: AffectedJob, current: AffectedJob) -> AffectedJob:
    rows = list(zip(job.pods, job.pod_uids, job.ranks, strict=True))
    rows += [row for row in zip(current.pods, current.pod_uids, current.ranks, strict=True) if row not in rows]
    return msgspec.structs.replace(
        job, pods=[row[0] for row in rows], pod_uids=[row[1] for row in rows], ranks=[row[2] for row in rows]
    )


def known_rank(pod: Pod) -> int:
    """Return the pod's rank in its job, -1 where its controller numbers no pods."""
    rank = rank_of(pod)
    return UNKNOWN_RANK if rank is None else rank


def started(episode: Remediation, world: World, mode: ActionMode, now: float) -> Remediation:
    """Return the episode with its first status: whom it affects, and that it was understood."""
    jobs = affected_jobs(episode.spec.node, world)
    status = msgspec.structs.replace(
        episode.status,
        mode=mode,
        jobs=jobs,
        message=f"{episode.spec.cause} on {episode.spec.node} affects {names(jobs) or 'no training job'}",
        conditions=[
            condition(episode, ACCEPTED, "True", REMEDIATION_STARTED, "the cause was read from the GPUNode", now)
        ],
    )
    return msgspec.structs.replace(episode, status=status)


def names(jobs: Iterable[AffectedJob]) -> str:
    """Return the jobs as users write them, in one line."""
    return ", ".join(job.key for job in jobs)


def accepted(episode: Remediation) -> bool:
    """True unless the episode was found to be nonsense; a new one counts as accepted."""
    return not any(entry.type == ACCEPTED and entry.status == "False" for entry in episode.status.conditions)


def begun(episode: Remediation) -> bool:
    """True once the controller has written the episode's first status."""
    return any(entry.type == ACCEPTED for entry in episode.status.conditions)


def sound(episode: Remediation) -> bool:
    """True for an episode that other episodes may go by."""
    return accepted(episode) and not nonsense(episode)


def nonsense(episode: Remediation) -> str:
    """Return what is wrong with an episode that no controller can have written, empty where nothing is."""
    name, base = episode.metadata.name, base_name(episode.spec)
    if name != base and not name.removeprefix(f"{base}-").isdigit():
        return "its name does not follow from its spec (node or domain, bootId, cause): it was made or changed by hand"
    rungs = [step.name for step in episode.status.steps]
    if rungs != list(LADDER[: len(rungs)]) or (rungs and episode.spec.domain):
        return f"status.steps is no beginning of {', '.join(LADDER)}, or not empty although it is about a domain"
    if any(step.state is StepState.RUNNING for step in episode.status.steps[:-1]):
        return "status.steps has a running step before its last"
    if not all(_is_time(time) for step in episode.status.steps for time in (step.started_at, step.finished_at)):
        return "status.steps: startedAt or finishedAt is no RFC 3339 time"
    if wrong := _wrong_deadline(episode.status):
        return wrong
    return next((wrong for job in episode.status.jobs if (wrong := _wrong(job))), "")


def _is_time(text: str | None) -> bool:
    try:
        return text is None or parse_rfc3339(text) >= 0
    except ValueError:
        return False


def _wrong_deadline(status: RemediationStatus) -> str:
    if not _is_time(status.checkpoint_deadline):
        return "status.checkpointDeadline is no RFC 3339 time"
    began = next((step.started_at for step in status.steps if step.name is StepName.CHECKPOINT), None)
    if status.checkpoint_deadline is None or began is None:
        return ""
    # Twice what a policy may grant: the deadline of another episode, and another leader's clock, may come in between.
    far = parse_rfc3339(status.checkpoint_deadline) - parse_rfc3339(began) > 2 * GRACE_MAX_SECONDS
    return "status.checkpointDeadline is later than any policy allows" if far else ""


def _wrong(job: AffectedJob) -> str:
    if len({len(job.pods), len(job.pod_uids), len(job.ranks)}) != 1:
        return f"status.jobs: pods, podUids and ranks of {job.key} differ in length"
    return "" if job.uid and job.namespace else "status.jobs: a job lacks its uid or namespace"


def refused(episode: Remediation, wrong: str, now: float) -> Remediation:
    """Return the episode with the condition that says why it is ignored; nothing else in it changes."""
    message = f"ignored: {wrong}. Delete it; the controller opens a new one where the evidence asks for it."
    conditions = [condition(episode, ACCEPTED, "False", INVALID_SPEC, message, now)]
    return msgspec.structs.replace(episode, status=msgspec.structs.replace(episode.status, conditions=conditions))


def condition(episode: Remediation, kind: str, value: str, reason: str, message: str, now: float) -> Condition:
    """Return a condition of the episode as seen now."""
    return Condition(
        type=kind,
        status=value,
        reason=reason,
        message=message,
        last_transition_time=rfc3339(now),
        observed_generation=episode.metadata.generation,
    )
