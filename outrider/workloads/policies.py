"""Which TrainingPolicy holds for a pod, and whether a policy makes sense."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from outrider.api.core import Pod
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


def policy_of(
    policies: Iterable[TrainingPolicy], namespace: str, pods: Sequence[Pod]
) -> tuple[TrainingPolicySpec, str]:
    """Return the policy of a gang, and in plain words how its pods disagree on it (empty: they do not).

    The policy that most of the pods come under holds for all; of equally many the one that the first pod comes under.
    """
    known = list(policies)
    if not any(policy.spec.selector for policy in known):
        return policy_for(known, namespace, {}), ""
    specs = [policy_for(known, namespace, pod.metadata.labels) for pod in pods]
    counts = Counter(msgspec.json.encode(spec) for spec in specs)
    if len(counts) < 2:
        return (specs[0] if specs else TrainingPolicySpec()), ""
    chosen = max(counts, key=counts.__getitem__)
    spec = msgspec.json.decode(chosen, type=TrainingPolicySpec)
    note = f"its pods come under different TrainingPolicies; that of {counts[chosen]} of {len(specs)} holds for all"
    return spec, note


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
