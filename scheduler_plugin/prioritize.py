"""Prioritize: a wish among the nodes that filter allowed, 0 to 10. It carries no correctness."""

from collections.abc import Sequence
from typing import Final

from outrider.api.core import Pod
from scheduler_plugin.decide import Ask, ask_of, target_of
from scheduler_plugin.nodes import NodeView
from scheduler_plugin.snapshot import Snapshot
from scheduler_plugin.wire import HostPriority

HIGHEST: Final = 10  # extender/v1 MaxExtenderPriority
_HEALTH_POINTS: Final = 6  # hardware first: the rest is 1 point for a leaf in use and up to 3 for a node in use
_LEAF_POINTS: Final = 1


def prioritize(pod: Pod, names: Sequence[str], snapshot: Snapshot, now: float) -> list[HostPriority]:
    """Return one score per name, in the order given, at ``now`` (seconds since 1970). Raises BadQuantity.

    A planned pod gets its planned node. Others get healthy nodes that are already in use, under leaves that are, so
    that whole nodes and leaves stay free for gangs. A name that is not known scores 0.
    """
    ask = ask_of(pod)
    plan = snapshot.plan_of(ask.job_uid) if ask.job_uid else None
    if plan is not None and ask.pod_uid in plan.ranks:
        target = target_of(plan, ask, snapshot.nodes, now)
        return [HostPriority(name, HIGHEST if name == target else 0) for name in names]
    return [HostPriority(name, _score(snapshot.nodes.get(name), snapshot, ask, now)) for name in names]


def _score(view: NodeView | None, snapshot: Snapshot, ask: Ask, now: float) -> int:
    if view is None or not ask.needs_gpu or view.refusal(now):
        return 0
    health = _HEALTH_POINTS * view.judgement.score // 100
    leaf = _LEAF_POINTS if snapshot.leaf_gpus.get(view.place.path) else 0
    packing = (HIGHEST - _HEALTH_POINTS - _LEAF_POINTS) * (view.gpus - view.free_gpus) // max(view.gpus, 1)
    return max(0, min(HIGHEST, health + leaf + packing))
