"""Tells people what the planner does with a gang: on its pods, and in events of the gang's owner and first pod."""

from collections.abc import Callable, Iterable
from typing import Final

from outrider.api import reasons
from outrider.api.core import Node, Pod
from outrider.api.gangplacement import Victim
from outrider.api.meta import ObjectMeta
from outrider.api.names import WHY_ANNOTATION
from outrider.api.times import rfc3339
from outrider.kube.client import Client
from outrider.kube.events import EventRecorder
from outrider.kube.kinds import NODES, PODS, kind_of
from scheduler_plugin.cluster.members import GangState
from scheduler_plugin.cluster.nodes import NodeView
from scheduler_plugin.metrics import AVOIDED_NODES, REPLACED_RANKS
from scheduler_plugin.planner import deliver
from scheduler_plugin.planner.advance import Advance

_AVOIDED: Final = (
    "nothing new is placed here until {until}: {why}. Look at the logs of the kubelet and of the device plugin on this "
    "node; it is tried again by itself"
)
_REPEAT_SECONDS: Final = 10.0  # a waiting gang is told a new reason no more often


class Teller:
    """Remembers what each gang was told last, so that people hear a thing once. ``clock`` gives seconds since 1970."""

    def __init__(self, client: Client, recorder: EventRecorder, clock: Callable[[], float]) -> None:
        self._client, self._recorder, self._clock = client, recorder, clock
        self._told: dict[str, tuple[str, float]] = {}

    def forget(self, job_uid: str = "") -> None:
        """Forget what a gang was told; without a UID all of them."""
        if job_uid:
            self._told.pop(job_uid, None)
        else:
            self._told.clear()

    async def say_why(self, gang: GangState, step: Advance) -> None:
        """Tell people why the gang waits: once per reason, and no more often than they can read."""
        last, when = self._told.get(gang.job.uid, ("", 0.0))
        now = self._clock()
        if last and now - when < _REPEAT_SECONDS:
            silent = [pod for pod in step.waiting if WHY_ANNOTATION not in pod.metadata.annotations]
            await deliver.tell(self._client, silent, step.message)
            return
        self._told[gang.job.uid] = (step.message, now)
        await deliver.tell(self._client, step.waiting, step.message)
        if last != step.message:
            await self.event(gang, reasons.GANG_WAITING, step.message, step.waiting[:1], warning=True)

    async def say_planned(self, gang: GangState, step: Advance) -> None:
        """Tell people where the gang goes, or where the ranks go that joined it."""
        self.forget(gang.job.uid)
        for rank in step.moved:
            REPLACED_RANKS.inc()
            await self.event(gang, reasons.RANK_REPLACED, f"rank {rank.rank} ({rank.pod}) goes to {rank.node}")
        if not step.moved and not step.foretold:
            await self.event(gang, reasons.GANG_PLANNED, step.message)

    async def say_avoided(self, views: Iterable[NodeView]) -> None:
        """Tell on each node where pods fail as they start that nothing new goes there, and until when."""
        closed = [(view.name, view.closure) for view in views if view.closed(self._clock())]
        AVOIDED_NODES.set(len(closed))
        for name, closure in closed:
            if closure is not None:
                node = Node(metadata=ObjectMeta(name=name, uid=name))  # as the kubelet's own events name it
                message = _AVOIDED.format(until=rfc3339(closure.until), why=closure.why)
                await self._recorder.emit(node, NODES, reason=reasons.NODE_AVOIDED, message=message, warning=True)

    async def say_displaced(self, gang: GangState, victims: Iterable[tuple[Victim, GangState | None]]) -> None:
        """Tell both sides of a preemption: who, for whom, and how much work is lost."""
        by = f"{gang.job.kind} {gang.namespace}/{gang.job.name}"
        for victim, state in victims:
            lost = lost_words(victim)
            whom = f"{victim.job_kind} {victim.namespace}/{victim.job_name}"
            await self.event(gang, reasons.GANG_PREEMPTING, f"evicting {whom} of priority {victim.priority}: {lost}")
            if state is not None:
                said = f"evicted for {by}, which has a higher priority than {victim.priority}: {lost}"
                await self.event(state, reasons.GANG_PREEMPTED, said, state.pods, warning=True)

    async def event(
        self, gang: GangState, reason: str, message: str, pods: Iterable[Pod] = (), *, warning: bool = False
    ) -> None:
        """Write an event of the gang's owner, where it has one, and of the pods."""
        if gang.owner is not None:
            kind = kind_of(gang.owner)
            await self._recorder.emit(gang.owner, kind, reason=reason, message=message, warning=warning)
        for pod in pods:
            await self._recorder.emit(pod, PODS, reason=reason, message=message, warning=warning)


def lost_words(victim: Victim) -> str:
    """Return in words what a preempted gang loses."""
    minutes, hours = victim.lost_seconds / 60, victim.lost_gpu_seconds / 3600
    return f"{minutes:.0f} min of training since its last checkpoint are done again ({hours:.1f} GPU hours)"
