"""Which TrainingPolicy holds for a pod, and whether a policy makes sense."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from outrider.api.trainingpolicy import TrainingPolicy, TrainingPolicySpec

# apimachinery validation: qualified names, label values, DNS-1123 labels
_NAME: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY: Final = re.compile(rf"([a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_NAME}")
_VALUE: Final = re.compile(rf"({_NAME})?")
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def policy_for(policies: Iterable[TrainingPolicy], namespace: str, labels: Mapping[str, str]) -> TrainingPolicySpec:
    """Return the spec of the policy with the most selector labels that match; then of the lowest name.

    Policies that make no sense are passed over. Where none matches, the defaults hold.
    """
    matching = [policy for policy in policies if _matches(policy.spec, namespace, labels) and not problem(policy.spec)]
    best = min(matching, key=lambda policy: (-len(policy.spec.selector), policy.metadata.name), default=None)
    return best.spec if best else TrainingPolicySpec()


def problem(spec: TrainingPolicySpec) -> str:
    """Return what is wrong with a policy that passed its schema, naming the field; empty if nothing is."""
    return next(_problems(spec), "")


def _matches(spec: TrainingPolicySpec, namespace: str, labels: Mapping[str, str]) -> bool:
    return (not spec.namespaces or namespace in spec.namespaces) and spec.selector.items() <= labels.items()


def _problems(spec: TrainingPolicySpec) -> Iterator[str]:
    for key, value in spec.selector.items():
        if not _KEY.fullmatch(key):
            yield f"spec.selector: {key!r} can't be the name of a label"
        if not _VALUE.fullmatch(value):
            yield f"spec.selector[{key}]: {value!r} can't be the value of a label"
    for namespace in spec.namespaces:
        if not _NAMESPACE.fullmatch(namespace):
            yield f"spec.namespaces: {namespace!r} can't be the name of a namespace"
