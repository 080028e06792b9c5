"""Preempt: kube-scheduler's dry run does not ask filter, so candidates may be nodes that we refuse: drop those."""

from collections.abc import Mapping

from outrider.api.core import Pod
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.extender.decide import Ask, ask_of, target_of
from scheduler_plugin.extender.wire import MetaVictims


def preempt(pod: Pod, candidates: Mapping[str, MetaVictims], snapshot: Snapshot, now: float) -> dict[str, MetaVictims]:
    """Return the candidates that may be preempted at ``now`` (seconds since 1970). Raises BadQuantity.

    Dropped are: nodes with unhealthy hardware or outside the pod's plan, nodes kept as spares or where other gangs hold
    what the victims would free, candidates without a victim (nothing to gain: filter refused them for a reason of
    ours), and those that would kill one rank of a gang and so stop all of it.
    """
    ask = ask_of(pod, snapshot)
    if not ask.needs_gpu:
        return {name: victims for name, victims in candidates.items() if victims.pods}
    plan = snapshot.plan_of(ask.job_uid) if ask.job_uid else None
    target = target_of(plan, ask, snapshot.nodes, now) if plan and ask.pod_uid in plan.ranks else ""
    ranked = snapshot.ranked()
    spares = frozenset[str]() if ask.job_uid else snapshot.kept_from(ask.priority)
    return {
        name: victims
        for name, victims in candidates.items()
        if victims.pods
        and (name == target if ask.job_uid else name not in spares)
        and _allowed(name, ask, snapshot, now)
        and ranked.isdisjoint(victim.uid for victim in victims.pods)
    }


def _allowed(name: str, ask: Ask, snapshot: Snapshot, now: float) -> bool:
    view = snapshot.nodes.get(name)
    if view is None or view.refusal(now):
        return False
    return all(
        amount
        <= view.allocatable.get(resource, 0) - view.held_for_others(ask.holder, resource, planned=bool(ask.job_uid))
        for resource, amount in ask.gpus.items()
    )
