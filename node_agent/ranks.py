"""The in-pod contract, the node's half: requests from pod annotations into pods, beacons and answers out of them."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from node_agent.config import Config
from node_agent.rank_files import RankFiles, read, write_request
from outrider.api.checkpoint import CheckpointRequest
from outrider.api.core import Pod
from outrider.api.gpunode import RankState
from outrider.api.names import (
    CHECKPOINT_REQUEST_ANNOTATION,
    CHECKPOINT_REQUEST_FILE,
    INPOD_VOLUME,
    TRACEPARENT_ANNOTATION,
)
from outrider.api.times import rfc3339
from outrider.telemetry.traces import job_traceparent, span
from outrider.workloads import job_uid_of

_LOG: Final = logging.getLogger(__name__)


def trace_of(pod: Pod) -> str:
    """Return the trace context of the pod's job, empty where it belongs to none."""
    uid = job_uid_of(pod)
    return pod.metadata.annotations.get(TRACEPARENT_ANNOTATION, "") or (job_traceparent(uid) if uid else "")


def states_of(pod: Pod, files: RankFiles, before: Mapping[int, RankState], now: float) -> dict[int, RankState]:
    """Return what the pod's ranks say, by rank. A state that says nothing new keeps the time it was first read."""
    return {rank: _state(pod, rank, files, before.get(rank), now) for rank in {*files.beacons, *files.answers}}


def _state(pod: Pod, rank: int, files: RankFiles, before: RankState | None, now: float) -> RankState:
    beacon, answer = files.beacons.get(rank), files.answers.get(rank)
    steps = [one.step for one in (beacon, answer) if one]
    checkpoints = [one.checkpoint_step for one in (beacon, answer) if one]
    state = RankState(
        pod_uid=pod.metadata.uid,
        pod_name=pod.metadata.name,
        namespace=pod.metadata.namespace,
        rank=rank,
        step=max(steps),
        checkpoint_step=max(checkpoints),
        step_seconds=round(beacon.step_seconds, 3) if beacon else 0.0,
        acknowledged=answer.id if answer else "",
        acknowledged_state=answer.state if answer else "",
        observed_at=rfc3339(now),
    )
    if before is not None and msgspec.structs.replace(state, observed_at=before.observed_at) == before:
        return before
    return state


def is_urgent(before: Iterable[RankState], after: Iterable[RankState]) -> bool:
    """True where a rank came or went or answered a request: remediation waits for that."""
    return _identity(before) != _identity(after)


def _identity(states: Iterable[RankState]) -> set[tuple[str, int, str, str]]:
    return {(state.pod_uid, state.rank, state.acknowledged, state.acknowledged_state) for state in states}


def has_contract(pod: Pod) -> bool:
    """True where the pod carries the volume of the in-pod contract and may still write to it."""
    return not pod.finished and any(volume.name == INPOD_VOLUME for volume in pod.spec.volumes)


class RankWatcher:
    """Looks at the training pods of the node again and again; sleeps while there is none.

    ``publish`` gets all rank states and whether they are urgent.
    """

    def __init__(
        self, config: Config, pods: Callable[[], Iterable[Pod]], publish: Callable[[list[RankState], bool], None]
    ) -> None:
        self._folder = Path(config.kubelet_pods_dir)
        self._period_seconds = config.rank_period_seconds
        self._publish_seconds = config.rank_publish_seconds
        self._pods = pods
        self._publish = publish
        self._states: dict[str, dict[int, RankState]] = {}
        self._published: list[RankState] = []
        self._published_at = float("-inf")
        self._delivered: dict[str, str] = {}
        self._changed = asyncio.Event()

    def pods_changed(self) -> None:
        """Look again: pods of the node came, went or were annotated."""
        self._changed.set()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self._changed.clear()
            self.look(time.time(), time.monotonic())
            if self._states:
                await asyncio.sleep(self._period_seconds)
            else:
                await self._changed.wait()

    def look(self, now: float, monotonic: float) -> None:
        """Deliver requests and read ranks once."""
        pods = [pod for pod in self._pods() if has_contract(pod)]
        for pod in pods:
            self._deliver(pod, now)
        self._states = {
            pod.metadata.uid: states_of(pod, read(self._of(pod)), self._states.get(pod.metadata.uid, {}), now)
            for pod in pods
        }
        self._delivered = {uid: request for uid, request in self._delivered.items() if uid in self._states}
        states = [state for _, of_pod in sorted(self._states.items()) for _, state in sorted(of_pod.items())]
        urgent = is_urgent(self._published, states)
        due = monotonic - self._published_at >= self._publish_seconds and states != self._published
        if urgent or due:
            self._published, self._published_at = states, monotonic
            self._publish(states, urgent)

    def _of(self, pod: Pod) -> Path:
        return self._folder / pod.metadata.uid / "volumes" / "kubernetes.io~empty-dir" / INPOD_VOLUME

    def _deliver(self, pod: Pod, now: float) -> None:
        """Write the pod's checkpoint request into it, once; one past its deadline would only be answered "expired"."""
        text = pod.metadata.annotations.get(CHECKPOINT_REQUEST_ANNOTATION, "")
        if not text or self._delivered.get(pod.metadata.uid) == text:
            return
        details = {"pod": pod.key, "file": CHECKPOINT_REQUEST_FILE}
        try:
            request = msgspec.json.decode(text, type=CheckpointRequest)
            if request.deadline_unix <= now:
                _LOG.info("checkpoint request is past its deadline, not delivered", extra=details)
            elif write_request(self._of(pod), request):
                with span("agent.checkpoint_request", trace_of(pod), pod=pod.key, request=request.id):
                    _LOG.info("checkpoint request delivered", extra={**details, "request": request.id})
        except (msgspec.DecodeError, RecursionError) as error:
            _LOG.warning("checkpoint request can't be understood", extra={**details, "problem": str(error)})
        except OSError as error:
            _LOG.debug("checkpoint request not delivered yet", extra={**details, "problem": str(error)})
            return
        self._delivered[pod.metadata.uid] = text
