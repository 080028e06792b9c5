"""Filter: which of the offered nodes a pod may use, and why not the others. Pure: asking twice changes nothing."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from outrider.api import reasons
from outrider.api.core import Pod, Toleration
from outrider.workloads import GPU, gang_of, requests_of
from scheduler_plugin.constraints import untolerated
from scheduler_plugin.members import managed
from scheduler_plugin.nodes import NodeView
from scheduler_plugin.snapshot import Plan, Snapshot

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
        return _sorted(_gang_refusals(ask, names, snapshot, now))
    return _sorted(_refusals(ask, names, snapshot, now))


def _sorted(refusals: Iterable[tuple[str, str]]) -> Decision:
    decision = Decision([], {}, {})
    for name, reason in refusals:
        if not reason:
            decision.allowed.append(name)
        elif reason in _UNRESOLVABLE:
            decision.unresolvable[name] = reason
        else:
            decision.failed[name] = reason
    return decision


def _refusals(ask: Ask, names: Sequence[str], snapshot: Snapshot, now: float) -> Iterable[tuple[str, str]]:
    nodes = snapshot.nodes
    for name in names:
        view = nodes.get(name)
        yield name, reasons.NODE_NOT_SEEN if view is None else (view.refusal(now) or _no_room(ask, view))


def _no_room(ask: Ask, view: NodeView) -> str:
    held = view.held_gpus and view.held_for_others(ask.job_uid, GPU)
    if ask.gpus <= view.free_gpus - held:
        return ""
    return reasons.NODE_NO_GPU if ask.gpus > view.free_gpus else reasons.NODE_RESERVED


def _gang_refusals(ask: Ask, names: Sequence[str], snapshot: Snapshot, now: float) -> Iterable[tuple[str, str]]:
    plan = snapshot.plan_of(ask.job_uid)
    if plan is None or ask.pod_uid not in plan.ranks:
        return [(name, reasons.GANG_NOT_PLANNED) for name in names]
    target = target_of(plan, ask, snapshot.nodes, now)
    view = snapshot.nodes.get(target)
    refusal = reasons.NODE_NOT_SEEN if view is None else (view.refusal(now) or _no_room(ask, view))
    return [(name, refusal if name == target else reasons.NODE_NOT_PLANNED) for name in names]


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


def usable(view: NodeView | None, tolerations: Sequence[Toleration], now: float) -> bool:
    """Return whether a planned pod can still start on the node: there, healthy, and with no taint against it."""
    if view is None or view.refusal(now):
        return False
    return untolerated(view.taints, tolerations, cordoned=view.cordoned) is None
