"""Filter: which of the offered nodes a pod may use, and why not the others. Pure: asking twice changes nothing."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from outrider.api import reasons
from outrider.api.core import Pod, Toleration
from outrider.workloads import gang_of, is_gpu, requests_of
from scheduler_plugin.cluster.guests import guest_of
from scheduler_plugin.cluster.members import managed
from scheduler_plugin.cluster.nodes import NodeView
from scheduler_plugin.cluster.snapshot import Plan, Snapshot
from scheduler_plugin.placing.room import usable

# Refusals that preempting the pods of a node can't cure: kube-scheduler then leaves the node's pods alone.
UNRESOLVABLE: Final = frozenset(
    (
        reasons.NODE_UNHEALTHY,
        reasons.NODE_UNKNOWN_HEALTH,
        reasons.NODE_QUARANTINED,
        reasons.NODE_REJECTS,
        reasons.NODE_SPARE,
        reasons.NODE_NOT_PLANNED,
        reasons.GANG_NOT_PLANNED,
    )
)


class Decision(msgspec.Struct, frozen=True):
    """Every offered node is in exactly one of the three."""

    allowed: list[str]
    failed: dict[str, str]
    unresolvable: dict[str, str]

    def refuse(self, name: str, reason: str) -> None:
        """Refuse a node: with or without hope that preemption there would help."""
        (self.unresolvable if reason in UNRESOLVABLE else self.failed)[name] = reason


class Ask(msgspec.Struct, frozen=True):
    """What matters of a pod: ``gpus`` in thousandths by GPU resource, its job where the planner places it.

    ``holder`` is the name under which nodes may already hold room for it.
    """

    gpus: Mapping[str, int]
    needs_gpu: bool
    tolerations: Sequence[Toleration] = ()
    job_uid: str = ""
    pod_uid: str = ""
    priority: int = 0
    flexible: bool = False
    """True where the pod asks for what only kube-scheduler judges: then a spare will do, too."""

    @property
    def holder(self) -> str:
        """The job's UID, or that of a pod on its own."""
        return self.job_uid or self.pod_uid


def ask_of(pod: Pod, snapshot: Snapshot) -> Ask:
    """Return what the pod asks for. Raises BadQuantity.

    Claims of dynamic resource allocation count as GPUs of unknown number: such a pod needs healthy hardware, and the
    scheduler itself counts devices.
    """
    gpus = {name: amount for name, amount in requests_of(pod).items() if is_gpu(name, snapshot.gpu_resources)}
    owner = gang_of(pod) if managed(pod) else None
    needs_gpu = bool(gpus or pod.spec.resource_claims)
    job_uid = owner.uid if owner else ""
    flexible = bool(job_uid and guest_of(pod).unmodelled)
    return Ask(gpus, needs_gpu, pod.spec.tolerations, job_uid, pod.metadata.uid, pod.spec.priority or 0, flexible)


def decide(pod: Pod, names: Sequence[str], snapshot: Snapshot, now: float) -> Decision:
    """Return the decision on each name at ``now`` (seconds since 1970). Raises BadQuantity.

    A pod that needs no GPU is none of our business. A gang's pod may use the node that its plan says, or the spare
    that stands in for it; any other pod may use healthy nodes, outside what is held for planned gangs.
    """
    ask = ask_of(pod, snapshot)
    if not ask.needs_gpu:
        return Decision(list(names), {}, {})
    if ask.job_uid:
        return _member(ask, names, snapshot, now)
    return _single(ask, names, snapshot, now)


def _single(ask: Ask, names: Sequence[str], snapshot: Snapshot, now: float) -> Decision:
    decision = Decision([], {}, {})
    reason_of = _quick(ask, snapshot, now)
    for name in names:
        reason = reason_of(name)
        if reason:
            (decision.unresolvable if reason in UNRESOLVABLE else decision.failed)[name] = reason
        else:
            decision.allowed.append(name)
    return decision


def _quick(ask: Ask, snapshot: Snapshot, now: float) -> Callable[[str], str]:
    """Return a function from a node's name to why it is refused: kube-scheduler may ask about thousands, pod by pod.

    Most pods ask for GPUs of one kind; where that kind decides, nothing else is looked at.
    """
    nodes, spares = snapshot.nodes, snapshot.kept_from(ask.priority)
    kinds = tuple(ask.gpus.items())
    resource, amount = kinds[0] if kinds else ("", 0)

    def reason_of(name: str) -> str:
        view = nodes.get(name)
        if name in spares:
            return reasons.NODE_SPARE
        if view is None or view.usable_until < now or len(kinds) > 1:
            return refusal(ask, view, now)
        if view.gpu_room.get(resource, 0) >= amount:
            return ""
        return reasons.NODE_NO_GPU if view.free.get(resource, 0) < amount else refusal(ask, view, now)

    return reason_of


def refusal(ask: Ask, view: NodeView | None, now: float) -> str:
    """Return why the node is refused, empty where it is not."""
    if view is None:
        return reasons.NODE_NOT_SEEN
    if why := view.refusal(now):
        return why
    if not _covers(view.free, ask):
        return reasons.NODE_NO_GPU
    planned = bool(ask.job_uid)  # gangs that only wait for the node may not keep it from one that has it in its plan
    left = {name: view.free.get(name, 0) - view.held_for_others(ask.holder, name, planned=planned) for name in ask.gpus}
    return "" if _covers(left, ask) else reasons.NODE_RESERVED


def _covers(amounts: Mapping[str, int], ask: Ask) -> bool:
    return all(amounts.get(name, 0) >= amount for name, amount in ask.gpus.items())


def _member(ask: Ask, names: Sequence[str], snapshot: Snapshot, now: float) -> Decision:
    plan = snapshot.plan_of(ask.job_uid)
    if plan is None or ask.pod_uid not in plan.ranks:
        return Decision([], {}, dict.fromkeys(names, reasons.GANG_NOT_PLANNED))
    target = target_of(plan, ask, snapshot.nodes, now)
    if ask.flexible and target not in names:
        target = _alternate(plan, ask, names, snapshot, now) or target
    decision = Decision([], {}, dict.fromkeys((name for name in names if name != target), reasons.NODE_NOT_PLANNED))
    if target in names:
        reason = refusal(ask, snapshot.nodes.get(target), now)
        decision.refuse(target, reason) if reason else decision.allowed.append(target)
    return decision


def _alternate(plan: Plan, ask: Ask, names: Sequence[str], snapshot: Snapshot, now: float) -> str:
    """Return a spare for a pod whose planned node kube-scheduler refused for what the plan knew nothing about."""
    offered, nodes = frozenset(names), snapshot.nodes
    spares = (name for name in plan.placement.status.spares if name in offered)
    return next((name for name in spares if not refusal(ask, nodes.get(name), now)), "")


def target_of(plan: Plan, ask: Ask, nodes: Mapping[str, NodeView], now: float) -> str:
    """Return the node for the pod: the planned one, or its stand-in among the spares once that one is refused.

    The first spare stands in for the first refused node of the plan, the second for the second: two ranks of
    different nodes never share a spare, and the answer does not depend on which names were offered.
    """

    def lost(name: str) -> bool:
        return not usable(nodes.get(name), ask.tolerations, now)

    planned = plan.ranks[ask.pod_uid].node
    if not lost(planned):
        return planned
    status = plan.placement.status
    position = list(dict.fromkeys(rank.node for rank in status.ranks if lost(rank.node))).index(planned)
    spares = [name for name in status.spares if not lost(name)]
    return spares[position] if position < len(spares) else planned
