"""Prioritize: a wish among the nodes that filter allowed, 0 to 10. It carries no correctness."""

from collections.abc import Callable, Sequence
from typing import Final

from outrider.api.core import Pod
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.extender.decide import ask_of, target_of
from scheduler_plugin.extender.wire import HostPriority

HIGHEST: Final = 10  # extender/v1 MaxExtenderPriority; the node's own part is at most 9


def prioritize(pod: Pod, names: Sequence[str], snapshot: Snapshot, now: float) -> list[HostPriority]:
    """Return one score per name, in the order given, at ``now`` (seconds since 1970). Raises BadQuantity.

    A planned pod gets its planned node. Others get healthy nodes that are already in use, under leaves that are, so
    that whole nodes and leaves stay free for gangs. A name that is not known scores 0, and so does a spare, and a node
    in a suspect domain: a pod on its own risks little there, and is better off there than nowhere.
    """
    ask = ask_of(pod, snapshot)
    plan = snapshot.plan_of(ask.job_uid) if ask.job_uid else None
    if plan is not None and ask.pod_uid in plan.ranks:
        target = target_of(plan, ask, snapshot.nodes, now)
        return [HostPriority(name, HIGHEST if name == target else 0) for name in names]
    if not ask.needs_gpu:
        return [HostPriority(name, 0) for name in names]
    score_of = _scores(snapshot, now)
    return [HostPriority(name, score_of(name)) for name in names]


def _scores(snapshot: Snapshot, now: float) -> Callable[[str], int]:
    nodes, kept = snapshot.nodes, snapshot.kept
    in_use = {path for path, gpus in snapshot.leaf_gpus.items() if gpus}

    def score_of(name: str) -> int:
        view = nodes.get(name)
        if view is None or view.usable_until < now or view.suspect or name in kept:
            return 0
        return view.preference + (view.place.path in in_use)

    return score_of
