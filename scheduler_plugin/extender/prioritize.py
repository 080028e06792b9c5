"""Prioritize: a wish among the nodes that filter allowed, 0 to 10. It carries no correctness."""

from collections.abc import Mapping, Sequence
from typing import Final

from outrider.api.core import Pod
from outrider.topology.domains import Path
from scheduler_plugin.cluster.nodes import NodeView
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
    views = ((name, None if name in snapshot.kept else snapshot.nodes.get(name)) for name in names)
    return [HostPriority(name, _score(view, snapshot.leaf_gpus, now)) for name, view in views]


def _score(view: NodeView | None, leaf_gpus: Mapping[Path, int], now: float) -> int:
    if view is None or view.usable_until < now or view.suspect:
        return 0
    return view.preference + (1 if leaf_gpus.get(view.place.path) else 0)
