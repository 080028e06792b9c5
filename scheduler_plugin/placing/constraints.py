"""What kube-scheduler itself would refuse: taints, cordon, node selector, required node affinity.

The planner applies the same rules, so that it never pins a pod to a node that the scheduler then refuses.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from outrider.api.core import Taint, Toleration

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
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.operator == "Exists":
        return not toleration.key or toleration.key == taint.key
    return toleration.key == taint.key and toleration.value == taint.value


def selects(selector: Mapping[str, str], affinity: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> bool:
    """Return whether the pod's nodeSelector and required node affinity allow the node."""
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    terms = required_terms(affinity)
    return terms is None or any(_term_matches(term, name, labels) for term in terms)


def required_terms(affinity: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the alternatives of the required node affinity, None where the pod has none."""
    if not affinity:
        return None
    required = _mapping(_mapping(affinity.get("nodeAffinity")).get("requiredDuringSchedulingIgnoredDuringExecution"))
    return list(required.get("nodeSelectorTerms") or []) if required else None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _term_matches(term: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> bool:
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False  # the API defines an empty term as matching nothing
    names = {"metadata.name": name}
    return all(_matches(one, labels) for one in expressions) and all(_matches(one, names) for one in fields)


def _matches(requirement: Mapping[str, Any], values: Mapping[str, str]) -> bool:
    test = _OPERATORS.get(requirement.get("operator", ""))
    return test is not None and test(values.get(requirement.get("key", "")), requirement.get("values") or [])


def _compares(value: str | None, bounds: Sequence[str], *, above: bool) -> bool:
    try:
        difference = int(value or "") - int(bounds[0])
    except (ValueError, IndexError):
        return False
    return difference > 0 if above else difference < 0


_OPERATORS: Final[Mapping[str, Callable[[str | None, Sequence[str]], bool]]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: _compares(value, values, above=True),
    "Lt": lambda value, values: _compares(value, values, above=False),
}
