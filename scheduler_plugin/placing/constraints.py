"""What kube-scheduler itself would refuse of one node: taints, cordon, node selector, required node affinity.

The planner applies the same rules, so that it never pins a pod to a node that the scheduler then refuses. Volumes are
in ``cluster.volumes``, what other pods refuse in ``placing.peers``.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from outrider.api.core import Taint, Toleration
from scheduler_plugin.cluster.selectors import any_term_matches, listed, mapping

_BLOCKING: Final = ("NoSchedule", "NoExecute")  # PreferNoSchedule only lowers a score
_CORDON: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def untolerated(taints: Sequence[Taint], tolerations: Sequence[Toleration], *, cordoned: bool = False) -> Taint | None:
    """Return the first taint that keeps the pod away, or None. A cordon counts as the taint that mirrors it."""
    if not taints and not cordoned:
        return None
    every = (*taints, _CORDON) if cordoned else taints
    blocking = (taint for taint in every if taint.effect in _BLOCKING)
    return next((taint for taint in blocking if not any(_tolerates(one, taint) for one in tolerations)), None)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether a toleration covers a taint; comparing operators are off in kube-scheduler unless switched on."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def selects(selector: Mapping[str, str], affinity: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> bool:
    """Return whether the pod's nodeSelector and required node affinity allow the node."""
    if selector and any(labels.get(key) != value for key, value in selector.items()):
        return False
    terms = required_terms(affinity)
    return terms is None or any_term_matches(terms, name, labels)


def required_terms(affinity: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the alternatives of the required node affinity, None where the pod has none."""
    if not affinity:
        return None
    required = mapping(mapping(affinity.get("nodeAffinity")).get("requiredDuringSchedulingIgnoredDuringExecution"))
    return list(listed(required.get("nodeSelectorTerms"))) if required else None
