"""Gangs that disruption budgets keep from being displaced whole. Pure."""

from collections.abc import Iterable

from outrider.api.core import Pod
from outrider.api.policy import PodDisruptionBudget
from outrider.workloads import gang_of
from scheduler_plugin.cluster.members import gone
from scheduler_plugin.cluster.selectors import label_selector


def guarded(budgets: Iterable[PodDisruptionBudget], pods: Iterable[Pod]) -> frozenset[str]:
    """Return the UIDs of the gangs under a budget that does not let all pods of all of them go now.

    Else some pods would be evicted and others not: half a gang that works no more and keeps its nodes.
    """
    here = [(pod, gang.uid) for pod in pods if not gone(pod) and (gang := gang_of(pod)) is not None]
    found: set[str] = set()
    for budget in budgets:
        selector = label_selector(budget.spec.selector)
        under = [
            uid
            for pod, uid in here
            if pod.metadata.namespace == budget.metadata.namespace and selector.matches(pod.metadata.labels)
        ]
        if len(under) > budget.status.disruptions_allowed:
            found.update(under)
    return frozenset(found)
