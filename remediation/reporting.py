"""Tells people and traces about changes of an episode: events, spans, metrics. Never stops the controller."""

from typing import Final

from cachetools import TTLCache

from outrider.api import reasons
from outrider.api.core import Pod
from outrider.api.remediation import Phase, Remediation, RemediationStatus
from outrider.health.causes import SharedCause
from outrider.health.crashes import Crash, crashes
from outrider.health.domains import WINDOW_SECONDS, Outlook, Suspect
from outrider.kube.events import EventRecorder
from outrider.kube.kinds import NODES, PODS, REMEDIATIONS
from outrider.telemetry.traces import record_span
from outrider.workloads import job_uid_of
from remediation.common_cause import explanation
from remediation.episodes import job_name, known_rank
from remediation.metrics import CRASHES, DOMAIN_SCORE, EPISODES, STEP_SECONDS, SUSPECT_DOMAINS
from remediation.notices import Notice, StepSpan, Subject, notices, spans
from remediation.world import World

_CRASHES_REMEMBERED: Final = 1024  # jobs, so that one crash is told once


class Reporter:
    """Writes events on the node, the pods and the episode, and one span for each rung in each job's trace."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._crashed: TTLCache[str, None] = TTLCache(_CRASHES_REMEMBERED, 2 * WINDOW_SECONDS)

    async def report(self, before: RemediationStatus, after: Remediation, world: World) -> None:
        """Tell what changed between two recorded states."""
        for span in spans(before, after):
            record_span(span.name, span.traceparent, span.start_ns, span.end_ns, **span.attributes)
            _measure(span)
        if after.status.phase is not before.phase and after.status.phase is not Phase.OPEN:
            EPISODES.labels(str(after.status.phase)).inc()
        for notice in notices(before, after, _pods(after, world)):
            await self._emit(notice, after, world)

    async def explained(self, node: str, suspect: Suspect, world: World) -> None:
        """Tell a sick node why it gets no episode of its own."""
        if (found := world.nodes.get(node)) is not None:
            message = explanation(node, suspect)
            await self._recorder.emit(found, NODES, reason=reasons.COMMON_CAUSE, message=message, warning=True)

    async def domains(self, world: World, now: float) -> None:
        """Show the scores of the domains, and tell of programs that failed on all nodes of their job at once."""
        _show(world.outlook)
        pods = _pods_by_job(world)
        statuses = {name: gpu_node.status for name, gpu_node in world.gpu_nodes.items()}
        jobs = {job: {pod.spec.node_name for pod in members} for job, members in pods.items()}
        for crash in crashes(statuses, jobs, now):
            if crash.job not in self._crashed:
                self._crashed[crash.job] = None
                CRASHES.inc()
                await self._crash(crash, pods[crash.job][0])

    async def _crash(self, crash: Crash, pod: Pod) -> None:
        """One event, on the job's first pod: a word on each of a thousand pods would say nothing more."""
        message = (
            f"{', '.join(crash.codes)} on {len(crash.nodes)} nodes of {crash.job} at once: its program failed, "
            f"nothing speaks against the hardware. Next: kubectl logs -n {pod.metadata.namespace} {pod.metadata.name}"
        )
        await self._recorder.emit(pod, PODS, reason=reasons.APPLICATION_CRASHED, message=message, warning=True)

    async def _emit(self, notice: Notice, episode: Remediation, world: World) -> None:
        told = {"reason": notice.reason, "message": notice.message}
        if notice.subject is Subject.EPISODE:
            await self._recorder.emit(episode, REMEDIATIONS, **told, warning=notice.warning)
        elif notice.subject is Subject.NODE and (node := world.nodes.get(notice.key)):
            await self._recorder.emit(node, NODES, **told, warning=notice.warning)
        elif notice.subject is Subject.POD and (pod := world.pods.get(notice.key)):
            await self._recorder.emit(pod, PODS, **told, warning=notice.warning)


def _show(outlook: Outlook) -> None:
    DOMAIN_SCORE.clear()
    for domain, score in outlook.scores.items():
        DOMAIN_SCORE.labels(domain.level, domain.name).set(score)
    for cause in SharedCause:
        SUSPECT_DOMAINS.labels(str(cause)).set(sum(suspect.cause is cause for suspect in outlook.suspects))


def _pods_by_job(world: World) -> dict[str, list[Pod]]:
    """Return the bound pods of each job in order of name, ended ones too: a program that failed may be gone already."""
    jobs: dict[str, list[Pod]] = {}
    for key in sorted(world.pods):
        pod = world.pods[key]
        owner = pod.metadata.controller()
        if job_uid_of(pod) and owner and pod.spec.node_name:
            jobs.setdefault(f"{pod.metadata.namespace}/{job_name(pod)}", []).append(pod)
    return jobs


def _measure(span: StepSpan) -> None:
    step = span.name.removeprefix("remediation.")
    STEP_SECONDS.labels(step, str(span.attributes["outrider.state"])).observe((span.end_ns - span.start_ns) / 1e9)


def _pods(episode: Remediation, world: World) -> tuple[str, ...]:
    """Return the moved pods and their successors: pods that stay where they are need no event."""
    ranks = {(job.uid, rank) for job in episode.status.jobs for rank in job.ranks}
    uids = {uid for job in episode.status.jobs for uid in job.pod_uids}
    return tuple(sorted(key for key, pod in world.pods.items() if pod.metadata.uid in uids or _rank(pod) in ranks))


def _rank(pod: Pod) -> tuple[str, int]:
    return job_uid_of(pod), known_rank(pod)
