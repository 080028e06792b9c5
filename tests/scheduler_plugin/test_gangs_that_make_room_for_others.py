"""Whose turn it is, and whole gangs that leave for one of higher priority."""

import msgspec
import pytest

from outrider.api.core import Pod
from outrider.api.gangplacement import GangPlacementStatus, PlacementState, Reservation, Victim
from outrider.api.gpunode import GPUNode, GPUNodeStatus, RankState
from outrider.api.meta import ObjectMeta
from outrider.api.names import JOB_UID_LABEL
from outrider.api.policy import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from outrider.api.times import rfc3339
from scheduler_plugin.cluster.reservations import reservations, reserved
from scheduler_plugin.cluster.turns import turn
from scheduler_plugin.planner.budgets import guarded
from scheduler_plugin.planner.preempting import Losses, losses_of
from tests.scheduler_plugin.builders import NOW, RULES, gang_pods, make_job, make_placement, make_pod
from tests.scheduler_plugin.steps import step


def test_turns_go_by_repair_patience_priority_and_age() -> None:
    def of(name: str, priority: int, age: float, node: str = "") -> tuple[int, int, float, str]:
        pod = make_pod(name, job=name, age_seconds=age, node=node)
        pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, priority=priority))
        return turn(name, GangPlacementStatus(), [pod], 1000.0, NOW)

    turns = [
        of("young", 0, 10),
        of("old", 0, 20),
        of("urgent", 5, 1),
        of("overdue", 0, 2000),
        of("running", 0, 1, "n0"),
    ]
    assert [name for *_, name in sorted(turns)] == ["running", "overdue", "urgent", "old", "young"]


@pytest.mark.parametrize("text", ["tomorrow", "9999-12-31T00:00:00Z", ""])
def test_a_time_that_no_clock_told_gets_nobody_ahead(text: str) -> None:
    odd = turn("a", GangPlacementStatus(queued_at=text or None), [], 1000.0, NOW)
    assert odd[2] == NOW


def test_what_is_reserved_is_read_back_and_nonsense_holds_nothing() -> None:
    assert reserved(
        GangPlacementStatus(reservations=[Reservation(requests={"a": "many"}, ranks=[0], nodes=["n"])])
    ) == {"n": {}}
    held = [Reservation(requests={"cpu": "500m", "nvidia.com/gpu": "8"}, ranks=[0, 1], nodes=["n", "n"])]
    assert reserved(GangPlacementStatus(reservations=held)) == {"n": {"cpu": 1000, "nvidia.com/gpu": 16000}}
    assert reservations((), {}) == []


def test_a_gang_that_forbids_preemption_displaces_nobody() -> None:
    rules = msgspec.structs.replace(RULES, gang_preemption=True)
    victims = [make_pod(f"low-{rank}", job="low", rank=rank, node=f"n{rank}") for rank in range(4)]
    low = make_placement("low", {rank: f"n{rank}" for rank in range(4)}, state=PlacementState.PLACED)
    low = msgspec.structs.replace(low, status=msgspec.structs.replace(low.status, priority=0))
    objects = [*victims, low, make_job("low", 4), make_job(size=3)]

    def wanting(policy: str) -> list[Pod]:
        return [
            msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, priority=10, preemption_policy=policy))
            for pod in gang_pods("train", 3)
        ]

    assert step(*wanting("PreemptLowerPriority"), *objects, rules=rules).asks_losses
    assert not step(*wanting("Never"), *objects, rules=rules).asks_losses
    assert not step(*wanting("PreemptLowerPriority"), *objects).asks_losses, "it is off unless it is set"
    decided = step(*wanting("PreemptLowerPriority"), *objects, rules=rules, losses=Losses({"uid-low-0": 90.0}))
    assert decided.status is not None
    assert [(one.job_name, one.lost_seconds, len(one.pods)) for one in decided.status.preempting] == [("low", 90.0, 4)]
    assert decided.displace == tuple(decided.status.preempting)
    assert [len(one.nodes) for one in decided.status.reservations] == [3]


@pytest.mark.parametrize(
    ("mine", "priority", "owned", "budget"),
    [
        pytest.param(10, 10, True, False, id="as urgent as the other"),
        pytest.param(10, 11, True, False, id="more urgent than the other"),
        pytest.param(10, None, True, False, id="of a priority that nobody recorded"),
        pytest.param(10, 0, False, False, id="made by hand, so that nothing makes its pods again"),
        pytest.param(10, 0, True, True, id="under a disruption budget"),
    ],
)
def test_a_gang_is_not_displaced_if_it_is(mine: int, priority: int | None, *, owned: bool, budget: bool) -> None:
    rules = msgspec.structs.replace(RULES, gang_preemption=True)
    low = make_placement("low", {rank: f"n{rank}" for rank in range(4)}, state=PlacementState.PLACED)
    low = msgspec.structs.replace(
        low,
        spec=msgspec.structs.replace(low.spec, owned=owned),
        status=msgspec.structs.replace(low.status, priority=priority),
    )
    running = [make_pod(f"low-{rank}", job="low", rank=rank, node=f"n{rank}") for rank in range(4)]
    pods = [
        msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, priority=mine))
        for pod in gang_pods("train", 3)
    ]
    losses = Losses(guarded=frozenset({"job-low"}) if budget else frozenset())
    waits = step(*pods, *running, low, make_job("low", 4), make_job(size=3), rules=rules, losses=losses)
    assert (waits.outcome, waits.displace) == ("waiting", ())
    assert waits.status is not None
    assert waits.status.preempting == []


def test_a_budget_guards_gangs_unless_it_lets_all_of_their_pods_go() -> None:
    def budget(allowed: int, namespace: str = "ml", selector: dict[str, object] | None = None) -> PodDisruptionBudget:
        return PodDisruptionBudget(
            metadata=ObjectMeta(name="budget", namespace=namespace),
            spec=PodDisruptionBudgetSpec(selector=selector),
            status=PodDisruptionBudgetStatus(disruptions_allowed=allowed),
        )

    pods = gang_pods("small", 2) + gang_pods("large", 4)
    both = {"job-small", "job-large"}
    assert guarded([budget(5, selector={})], pods) == both, "either could go, and nobody knows that the other stays"
    assert guarded([budget(6, selector={})], pods) == frozenset()
    assert guarded([budget(0)], pods) == frozenset(), "no selector takes none"
    assert guarded([budget(0, namespace="other", selector={})], pods) == frozenset()
    ours = {"matchLabels": {JOB_UID_LABEL: "job-small"}}
    assert guarded([budget(1, selector=ours)], pods) == {"job-small"}


def test_a_decided_preemption_goes_on_under_the_next_leader_until_the_victims_are_gone() -> None:
    rules = msgspec.structs.replace(RULES, gang_preemption=True)
    victims = [make_pod(f"low-{rank}", job="low", rank=rank, node=f"n{rank}") for rank in range(4)]
    low = make_placement("low", {rank: f"n{rank}" for rank in range(4)}, state=PlacementState.PLACED)
    low = msgspec.structs.replace(low, status=msgspec.structs.replace(low.status, priority=0))
    pods = [
        msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, priority=10))
        for pod in gang_pods("train", 3)
    ]
    objects = [low, make_job("low", 4), make_job(size=3)]
    decided = step(*pods, *victims, *objects, rules=rules, losses=Losses())
    assert decided.status is not None
    written = msgspec.structs.replace(make_placement("train", {}), status=decided.status)
    for left in (3, 1):
        after_kill = step(*pods, *victims[:left], *objects, written, rules=rules)
        assert [one.job_name for one in after_kill.displace] == ["low"]
    assert after_kill.outcome == "planned"
    assert after_kill.status is not None
    assert [one.job_name for one in after_kill.status.preempting] == ["low"], "whole gangs go, even once there is room"
    free = step(*pods, *objects, written, rules=rules)
    assert free.outcome == "planned"
    assert free.status is not None
    assert (free.status.preempting, free.status.reservations) == ([], [])


def test_a_gang_that_is_being_displaced_is_not_planned_until_its_last_pod_is_gone() -> None:
    victims = [make_pod("train-0", job="train", rank=0, node="n0"), make_pod("train-1-b", job="train", rank=1)]
    low = make_placement("train", {0: "n0", 1: "n1"}, state=PlacementState.PLACED)
    victim = Victim(
        job_kind="Job", job_name="train", job_uid="job-train", namespace="ml", pod_uids=["uid-train-0", "uid-train-1"]
    )
    urgent = make_placement("urgent", {}, state=PlacementState.WAITING)
    urgent = msgspec.structs.replace(urgent, status=msgspec.structs.replace(urgent.status, preempting=[victim]))
    advanced = step(*victims, low, urgent, make_job(size=2))
    assert (advanced.outcome, advanced.release, advanced.status) == ("waiting", (), None)
    assert advanced.message.startswith("makes room for Job ml/urgent")
    assert step(victims[1], make_pod("train-0-b", job="train", rank=0), low, urgent, make_job(size=2)).release


def test_what_preemption_costs_is_told_by_the_ranks() -> None:
    ranks = [
        RankState(pod_uid="a", rank=0, step=110, checkpoint_step=100, step_seconds=2.0, observed_at=rfc3339(NOW)),
        RankState(pod_uid="a", rank=1, step=120, checkpoint_step=100, step_seconds=2.0, observed_at=rfc3339(NOW)),
        RankState(pod_uid="b", rank=2, step=30, step_seconds=1.0, observed_at=rfc3339(NOW)),
        RankState(pod_uid="c", rank=3, step=5, checkpoint_step=9, step_seconds=1.0, observed_at=rfc3339(NOW)),
    ]
    node = GPUNode(metadata=ObjectMeta(name="n0"), status=GPUNodeStatus(ranks=ranks))
    assert losses_of([node]) == {"a": 40.0, "b": 30.0, "c": 0.0}


def victims_of(size: int, others: dict[str, tuple[int, list[str], float]]) -> list[str]:
    """Return who leaves for a gang of that size; ``others`` have priority, nodes and lost seconds by name."""
    rules = msgspec.structs.replace(RULES, gang_preemption=True)
    objects: list[object] = [make_job(size=size)]
    seconds: dict[str, float] = {}
    for name, (priority, nodes, lost) in others.items():
        placement = make_placement(name, dict(enumerate(nodes)), state=PlacementState.PLACED)
        status = msgspec.structs.replace(placement.status, priority=priority)
        objects += [msgspec.structs.replace(placement, status=status), make_job(name, len(nodes))]
        objects += [make_pod(f"{name}-{rank}", job=name, rank=rank, node=node) for rank, node in enumerate(nodes)]
        seconds |= {f"uid-{name}-{rank}": lost for rank in range(len(nodes))}
    pods = [
        msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, priority=10))
        for pod in gang_pods("train", size)
    ]
    return [one.job_name for one in step(*pods, *objects, rules=rules, losses=Losses(seconds)).displace]


def test_lower_priority_leaves_first_whatever_it_loses_and_then_who_loses_least() -> None:
    dear, cheap = ["n0", "n1"], ["n2", "n3"]
    assert victims_of(2, {"a": (5, cheap, 1.0), "b": (0, dear, 900.0)}) == ["b"]
    assert victims_of(2, {"a": (5, dear, 900.0), "b": (5, cheap, 1.0)}) == ["b"]


def test_a_gang_whose_end_turns_out_to_be_needless_stays() -> None:
    others = {"small": (0, ["n0"], 1.0), "large": (1, ["n1", "n2"], 1.0), "peer": (10, ["n3"], 1.0)}
    assert victims_of(2, others) == ["large"]
