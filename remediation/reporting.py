"""Tells people and traces about changes of an episode: events, spans, metrics. Never stops the controller."""

from outrider.api.core import Pod
from outrider.api.remediation import Phase, Remediation, RemediationStatus
from outrider.kube.events import EventRecorder
from outrider.kube.kinds import NODES, PODS, REMEDIATIONS
from outrider.telemetry.traces import record_span
from outrider.workloads import job_uid_of
from remediation.episodes import known_rank
from remediation.metrics import EPISODES, STEP_SECONDS
from remediation.notices import Notice, StepSpan, Subject, notices, spans
from remediation.world import World


class Reporter:
    """Writes events on the node, the pods and the episode, and one span for each rung in each job's trace."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder

    async def report(self, before: RemediationStatus, after: Remediation, world: World) -> None:
        """Tell what changed between two recorded states."""
        for span in spans(before, after):
            record_span(span.name, span.traceparent, span.start_ns, span.end_ns, **span.attributes)
            _measure(span)
        if after.status.phase is not before.phase and after.status.phase is not Phase.OPEN:
            EPISODES.labels(str(after.status.phase)).inc()
        for notice in notices(before, after, _pods(after, world)):
            await self._emit(notice, after, world)

    async def _emit(self, notice: Notice, episode: Remediation, world: World) -> None:
        told = {"reason": notice.reason, "message": notice.message}
        if notice.subject is Subject.EPISODE:
            await self._recorder.emit(episode, REMEDIATIONS, **told, warning=notice.warning)
        elif notice.subject is Subject.NODE and (node := world.nodes.get(notice.key)):
            await self._recorder.emit(node, NODES, **told, warning=notice.warning)
        elif notice.subject is Subject.POD and (pod := world.pods.get(notice.key)):
            await self._recorder.emit(pod, PODS, **told, warning=notice.warning)


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
