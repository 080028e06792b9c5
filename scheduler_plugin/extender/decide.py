"""Filter: which of the offered nodes a pod may use, and why not the others. Pure: asking twice changes nothing."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from outrider.api import reasons
from outrider.api.core import Pod, Toleration
from outrider.workloads import GPU, gang_of, requests_of
from scheduler_plugin.cluster.members import managed
from scheduler_plugin.cluster.nodes import NodeView
from scheduler_plugin.cluster.snapshot import Plan, Snapshot
from scheduler_plugin.placing.room import usable

# Refusals that preempting the pods of a node can't cure: kube-scheduler then leaves the node's pods alone.
_UNRESOLVABLE: Final = frozenset(
    (
        reasons.NODE_UNHEALTHY,
        reasons.NODE_UNKNOWN_HEALTH,
        reasons.NODE_QUARANTINED,
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
        (self.unresolvable if reason in _UNRESOLVABLE else self.failed)[name] = reason


class Ask(msgspec.Struct, frozen=True):
    """What matters of a pod: ``gpus`` in thousandths, its job where the planner places it."""

    gpus: int
    needs_gpu: bool
    tolerations: Sequence[Toleration] = ()
    job_uid: str = ""
    pod_uid: str = ""


def ask_of(pod: Pod) -> Ask:
    """Return what the pod asks for. Raises BadQuantity."""
    gpus = requests_of(pod).get(GPU, 0)
    owner = gang_of(pod) if managed(pod) else None
    needs_gpu = bool(gpus or pod.spec.resource_claims)
    return Ask(gpus, needs_gpu, pod.spec.tolerations, owner.uid if owner else "", pod.metadata.uid)


def decide(pod: Pod, names: Sequence[str], snapshot: Snapshot, now: float) -> Decision:
    """Return the decision on each name at ``now`` (seconds since 1970). Raises BadQuantity.

    A pod that needs no GPU is none of our business. A gang's pod may use the node that its plan says, or the spare
    that stands in for it; any other pod may use healthy nodes, outside what is held for planned gangs.
    """
    ask = ask_of(pod)
    if not ask.needs_gpu:
        return Decision(list(names), {}, {})
    if ask.job_uid:
        return _member(ask, names, snapshot, now)
    return _single(ask, names, snapshot, now)


def _single(ask: Ask, names: Sequence[str], snapshot: Snapshot, now: float) -> Decision:
    nodes, gpus = snapshot.nodes, ask.gpus
    decision = Decision([], {}, {})
    for name in names:
        view = nodes.get(name)
        if view is not None and view.usable_until >= now and gpus <= view.spare_gpus:
            decision.allowed.append(name)
        else:
            decision.refuse(name, _refusal(ask, view, now))
    return decision


def _refusal(ask: Ask, view: NodeView | None, now: float) -> str:
    """Return why the node is refused, empty where it is not."""
    if view is None:
        return reasons.NODE_NOT_SEEN
    if refusal := view.refusal(now):
        return refusal
    if ask.gpus > view.free_gpus:
        return reasons.NODE_NO_GPU
    return reasons.NODE_RESERVED if ask.gpus > view.free_gpus - view.held_for_others(ask.job_uid, GPU) else ""


def _member(ask: Ask, names: Sequence[str], snapshot: Snapshot, now: float) -> Decision:
    plan = snapshot.plan_of(ask.job_uid)
    if plan is None or ask.pod_uid not in plan.ranks:
        return Decision([], {}, dict.fromkeys(names, reasons.GANG_NOT_PLANNED))
    target = target_of(plan, ask, snapshot.nodes, now)
    decision = Decision([], {}, dict.fromkeys((name for name in names if name != target), reasons.NODE_NOT_PLANNED))
    if target in names:
        refusal = _refusal(ask, snapshot.nodes.get(target), now)
        decision.refuse(target, refusal) if refusal else decision.allowed.append(target)
    return decision


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
