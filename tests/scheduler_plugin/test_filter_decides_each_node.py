import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.api import reasons
from outrider.api.core import Container, NamedReference, Pod, PodStatus, ResourceRequirements, Taint
from outrider.api.gangplacement import PlacementState
from outrider.api.gpunode import Health, Mode, Verdict
from outrider.api.names import IGNORE_LABEL, UNHEALTHY_TAINT
from scheduler_plugin.extender.decide import Decision, decide
from scheduler_plugin.rules import Rules
from tests.scheduler_plugin.builders import (
    NOW,
    RULES,
    gang_pods,
    make_gpunode,
    make_node,
    make_placement,
    make_pod,
    make_snapshot,
)

SINGLE = make_pod("alone", gpus=1)


def why(decision: Decision, name: str) -> str:
    return decision.failed.get(name) or decision.unresolvable.get(name) or ""


@pytest.mark.parametrize("verdict", [Verdict.NO_NEW_WORK, Verdict.RESET, Verdict.REBOOT, Verdict.REPLACE])
def test_hardware_with_such_a_verdict_gets_no_work_and_no_preemption(verdict: Verdict) -> None:
    snapshot = make_snapshot(make_node("n0"), make_gpunode("n0", verdict=verdict))
    assert decide(SINGLE, ["n0"], snapshot, NOW) == Decision([], {}, {"n0": reasons.NODE_UNHEALTHY})


@pytest.mark.parametrize("verdict", [Verdict.NONE, Verdict.WATCH, Verdict.RESTART_APP])
def test_hardware_with_a_mild_verdict_gets_work(verdict: Verdict) -> None:
    snapshot = make_snapshot(make_node("n0"), make_gpunode("n0", verdict=verdict, score=60))
    assert decide(SINGLE, ["n0"], snapshot, NOW).allowed == ["n0"]


def test_a_node_that_its_agent_stopped_observing_is_unknown() -> None:
    snapshot = make_snapshot(make_node("n0"), make_gpunode("n0", age_seconds=RULES.stale_seconds - 1))
    assert decide(SINGLE, ["n0"], snapshot, NOW).allowed == ["n0"]
    assert decide(SINGLE, ["n0"], snapshot, NOW + 2).unresolvable == {"n0": reasons.NODE_UNKNOWN_HEALTH}


def test_a_blind_agent_is_unknown_health() -> None:
    snapshot = make_snapshot(make_node("n0"), make_gpunode("n0", health=Health.UNKNOWN))
    assert why(decide(SINGLE, ["n0"], snapshot, NOW), "n0") == reasons.NODE_UNKNOWN_HEALTH


def test_a_node_without_agent_is_allowed_unless_the_policy_requires_one() -> None:
    node = make_node("n0")
    assert decide(SINGLE, ["n0"], make_snapshot(node), NOW).allowed == ["n0"]
    strict = make_snapshot(node, rules=Rules(RULES.levels, require_gpu_node=True))
    assert why(decide(SINGLE, ["n0"], strict, NOW), "n0") == reasons.NODE_UNKNOWN_HEALTH


def test_our_taint_counts_even_where_the_gpunode_is_gone() -> None:
    snapshot = make_snapshot(make_node("n0", taints=[Taint(key=UNHEALTHY_TAINT, value="xid-79")]))
    assert why(decide(SINGLE, ["n0"], snapshot, NOW), "n0") == reasons.NODE_UNHEALTHY


def test_quarantine_refuses_healthy_hardware_and_pause_accepts_sick_hardware() -> None:
    snapshot = make_snapshot(
        make_node("n0"),
        make_node("n1"),
        make_gpunode("n0", mode=Mode.QUARANTINED),
        make_gpunode("n1", mode=Mode.PAUSED, verdict=Verdict.RESET),
    )
    decision = decide(SINGLE, ["n0", "n1"], snapshot, NOW)
    assert decision == Decision(["n1"], {}, {"n0": reasons.NODE_QUARANTINED})


def test_a_name_that_we_have_not_seen_is_refused_for_now() -> None:
    assert decide(SINGLE, ["new"], make_snapshot(), NOW) == Decision([], {"new": reasons.NODE_NOT_SEEN}, {})


def test_pods_bound_by_any_scheduler_count() -> None:
    other = make_pod("other", gpus=7, node="n0", phase="Running")
    done = make_pod("done", gpus=8, node="n0", phase="Succeeded")
    snapshot = make_snapshot(make_node("n0"), other, done)
    assert decide(SINGLE, ["n0"], snapshot, NOW).allowed == ["n0"]
    assert decide(make_pod("two", gpus=2), ["n0"], snapshot, NOW).failed == {"n0": reasons.NODE_NO_GPU}


def test_what_is_held_for_a_planned_gang_is_not_given_away() -> None:
    placement = make_placement("train", {0: "n0"})
    snapshot = make_snapshot(make_node("n0"), *gang_pods("train", 1), placement)
    assert decide(SINGLE, ["n0"], snapshot, NOW).failed == {"n0": reasons.NODE_RESERVED}


def test_a_planned_pod_that_is_bound_counts_once() -> None:
    bound = gang_pods("train", 1, gpus=4, node="n0")
    snapshot = make_snapshot(make_node("n0"), *bound, make_placement("train", {0: "n0"}))
    assert decide(make_pod("four", gpus=4), ["n0"], snapshot, NOW).allowed == ["n0"]


def test_a_hold_ends_with_its_pod() -> None:
    snapshot = make_snapshot(make_node("n0"), make_placement("train", {0: "n0"}))
    assert decide(SINGLE, ["n0"], snapshot, NOW).allowed == ["n0"]


def test_a_pod_without_gpus_is_none_of_our_business() -> None:
    snapshot = make_snapshot(make_node("n0"), make_gpunode("n0", verdict=Verdict.REPLACE))
    assert decide(make_pod("cpu", gpus=0), ["n0", "new"], snapshot, NOW).allowed == ["n0", "new"]


def test_an_unplanned_gang_member_waits_everywhere() -> None:
    pod = make_pod("train-0", job="train", rank=0)
    waiting = make_placement("train", {0: "n0"}, state=PlacementState.WAITING)
    for snapshot in (make_snapshot(make_node("n0")), make_snapshot(make_node("n0"), waiting)):
        assert decide(pod, ["n0"], snapshot, NOW).unresolvable == {"n0": reasons.GANG_NOT_PLANNED}


def test_a_member_that_was_freed_by_hand_waits_for_no_plan_and_still_keeps_off_sick_nodes() -> None:
    pod = make_pod("train-0", job="train", rank=0, gated=False)
    labels = pod.metadata.labels | {IGNORE_LABEL: "true"}
    freed = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels=labels))
    snapshot = make_snapshot(make_node("n0"), make_node("n1"), make_gpunode("n1", verdict=Verdict.RESET), freed)
    decision = decide(freed, ["n0", "n1"], snapshot, NOW)
    assert (decision.allowed, decision.unresolvable) == (["n0"], {"n1": reasons.NODE_UNHEALTHY})


def test_a_planned_member_may_use_its_node_only() -> None:
    pods = gang_pods("train", 2)
    snapshot = make_snapshot(
        *(make_node(f"n{index}") for index in range(3)),
        *pods,
        make_placement("train", {0: "n0", 1: "n1"}, spares=["n2"]),
    )
    decision = decide(pods[1], ["n0", "n1", "n2"], snapshot, NOW)
    assert decision.allowed == ["n1"]
    assert decision.unresolvable == dict.fromkeys(["n0", "n2"], reasons.NODE_NOT_PLANNED)


def test_each_lost_node_has_its_own_spare() -> None:
    pods = gang_pods("train", 3)
    snapshot = make_snapshot(
        *(make_node(f"n{index}") for index in range(5)),
        make_gpunode("n0", verdict=Verdict.REPLACE),
        make_gpunode("n2", verdict=Verdict.RESET),
        *pods,
        make_placement("train", {0: "n0", 1: "n1", 2: "n2"}, spares=["n3", "n4"]),
    )
    names = [f"n{index}" for index in range(5)]
    assert [decide(pod, names, snapshot, NOW).allowed for pod in pods] == [["n3"], ["n1"], ["n4"]]


def test_a_lost_node_without_a_spare_says_what_is_wrong_with_it() -> None:
    pods = gang_pods("train", 1)
    snapshot = make_snapshot(
        make_node("n0"), make_gpunode("n0", verdict=Verdict.REPLACE), *pods, make_placement("train", {0: "n0"})
    )
    assert decide(pods[0], ["n0"], snapshot, NOW).unresolvable == {"n0": reasons.NODE_UNHEALTHY}


def test_a_pod_that_gets_its_gpus_by_a_claim_needs_healthy_hardware() -> None:
    plain = make_pod("claims", gpus=0)
    spec = msgspec.structs.replace(plain.spec, resource_claims=[NamedReference(name="gpus")])
    claiming = msgspec.structs.replace(plain, spec=spec)
    snapshot = make_snapshot(make_node("n0"), make_node("n1"), make_gpunode("n1", verdict=Verdict.REPLACE))
    decision = decide(claiming, ["n0", "n1"], snapshot, NOW)
    assert (decision.allowed, decision.unresolvable) == (["n0"], {"n1": reasons.NODE_UNHEALTHY})


@pytest.mark.parametrize("resource", ["amd.com/gpu", "nvidia.com/mig-3g.40gb", "nvidia.com/gpu.shared"])
def test_gpus_of_any_name_are_counted_each_kind_for_itself(resource: str) -> None:
    def asks(name: str, count: int, node: str = "") -> Pod:
        pod = make_pod(name, gpus=0, node=node)
        main = Container(name="main", resources=ResourceRequirements(limits={resource: str(count)}))
        return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=[main]))

    node = make_node("n0")
    capacity = {**node.status.allocatable, resource: "2"}
    both = msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, allocatable=capacity))
    snapshot = make_snapshot(both, asks("there", 1, "n0"))
    assert decide(asks("fits", 1), ["n0"], snapshot, NOW).allowed == ["n0"]
    assert decide(asks("large", 2), ["n0"], snapshot, NOW).failed == {"n0": reasons.NODE_NO_GPU}
    assert decide(SINGLE, ["n0"], snapshot, NOW).allowed == ["n0"]


def test_a_pod_that_preempts_finds_the_room_that_is_held_for_it_and_nobody_else_does() -> None:
    status = PodStatus(phase="Pending", nominated_node_name="n0")
    nominated = msgspec.structs.replace(make_pod("preempts"), status=status)
    snapshot = make_snapshot(make_node("n0"), nominated)
    assert decide(nominated, ["n0"], snapshot, NOW).allowed == ["n0"]
    assert decide(SINGLE, ["n0"], snapshot, NOW).failed == {"n0": reasons.NODE_RESERVED}


VERDICTS = st.sampled_from(list(Verdict))


@given(
    st.lists(VERDICTS, min_size=1, max_size=6),
    st.lists(st.integers(0, 8), max_size=6),
    st.integers(0, 8),
    st.booleans(),
)
def test_every_offered_node_is_in_exactly_one_answer_and_asking_again_changes_nothing(
    verdicts: list[Verdict], used: list[int], gpus: int, planned: bool
) -> None:
    nodes = [make_node(f"n{index}") for index in range(len(verdicts))]
    health = [make_gpunode(f"n{index}", verdict=verdict) for index, verdict in enumerate(verdicts)]
    bound = [make_pod(f"b{index}", gpus=count, node=f"n{index}") for index, count in enumerate(used)]
    pod = make_pod("train-0", gpus=gpus, job="train" if planned else "", rank=0)
    snapshot = make_snapshot(*nodes, *health, *bound, pod, *([make_placement("train", {0: "n0"})] if planned else []))
    names = [*(node.metadata.name for node in nodes), "stranger"]
    decision = decide(pod, names, snapshot, NOW)
    answered = [*decision.allowed, *decision.failed, *decision.unresolvable]
    assert sorted(answered) == sorted(names)
    assert decide(pod, names, snapshot, NOW) == decision
    for name in names:
        alone = decide(pod, [name], snapshot, NOW)
        assert (alone.allowed == [name]) == (name in decision.allowed)
        assert why(alone, name) == why(decision, name)
