"""Which policy holds, and what its condition says."""

import msgspec
import pytest

from outrider.api.meta import ObjectMeta
from outrider.api.trainingpolicy import Elastic, TrainingPolicy, TrainingPolicySpec, TrainingPolicyStatus
from outrider.workloads import policy_for
from webhook.judging import accepted


def policy(name: str, *, restarts: int = 1, generation: int = 1, **spec: object) -> TrainingPolicy:
    merged = TrainingPolicySpec(elastic=Elastic(max_restarts=restarts), **spec)  # type: ignore[arg-type]
    return TrainingPolicy(metadata=ObjectMeta(name=name, generation=generation), spec=merged)


def chosen(*policies: TrainingPolicy, labels: dict[str, str] | None = None) -> int:
    return policy_for(policies, "team-a", labels or {}).elastic.max_restarts


def test_without_a_policy_the_defaults_hold() -> None:
    assert policy_for([], "team-a", {}) == TrainingPolicySpec()


def test_most_specific_selector_wins_then_the_lowest_name() -> None:
    wide, narrow = policy("a", restarts=1), policy("z", restarts=2, selector={"tier": "gold"})
    assert chosen(wide, narrow, labels={"tier": "gold"}) == 2
    assert chosen(wide, narrow) == 1
    assert chosen(policy("b", restarts=3), policy("a", restarts=4)) == 4


def test_policy_of_another_namespace_does_not_hold() -> None:
    assert chosen(policy("a", restarts=7, namespaces=["team-b"]), policy("b", restarts=8)) == 8


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"selector": {"a b": "c"}}, "spec.selector"),
        ({"selector": {"a": "c d"}}, "spec.selector[a]"),
        ({"namespaces": ["Team_A"]}, "spec.namespaces"),
    ],
)
def test_nonsense_is_reported_with_its_field_and_passed_over(spec: dict[str, object], field: str) -> None:
    wrong = policy("a", restarts=9, **spec)
    condition = accepted(wrong, 0.0)
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "InvalidSpec")
    assert field in condition.message
    assert "ignored until" in condition.message
    assert policy_for([wrong], "Team_A", {"a b": "c", "a": "c d"}) == TrainingPolicySpec()


def test_condition_is_written_once_for_each_generation() -> None:
    fresh = policy("a", generation=2)
    condition = accepted(fresh, 100.0)
    assert condition is not None
    assert (condition.status, condition.observed_generation) == ("True", 2)
    settled = msgspec.structs.replace(fresh, status=TrainingPolicyStatus(conditions=[condition]))
    assert accepted(settled, 200.0) is None
    edited = msgspec.structs.replace(settled, metadata=ObjectMeta(name="a", generation=3))
    again = accepted(edited, 300.0)
    assert again is not None
    assert again.last_transition_time == condition.last_transition_time, "still accepted: no transition"
