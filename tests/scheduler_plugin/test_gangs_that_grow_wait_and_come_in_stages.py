"""Steps of elastic and staged gangs, of those whose plan does not bind, and of those that displace others."""

import msgspec
import pytest

from outrider.api import reasons
from outrider.api.core import Container, Pod, PodStatus, PodTemplate, ResourceRequirements, Toleration
from outrider.api.gangplacement import (
    GangPlacement,
    GangPlacementStatus,
    PlacementState,
    RejectedAlternative,
    Reservation,
    Victim,
)
from outrider.api.gpunode import GPUNode, GPUNodeStatus, RankState, Verdict
from outrider.api.kubeflow import ElasticPolicy, MPIJob, PyTorchJob, ReplicaSpec, TrainingJobSpec
from outrider.api.meta import ObjectMeta, OwnerReference
from outrider.api.names import INPOD_INIT_CONTAINER, JOB_UID_LABEL
from outrider.api.policy import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from outrider.api.times import parse_rfc3339, rfc3339
from outrider.workloads import GPU, gang_of
from scheduler_plugin.cluster.reservations import reservations, reserved, seats
from scheduler_plugin.cluster.turns import turn
from scheduler_plugin.planner.advance import Advance, advance
from scheduler_plugin.planner.budgets import guarded
from scheduler_plugin.planner.case import DID_NOT_BIND
from scheduler_plugin.planner.deliver import placement_with
from scheduler_plugin.planner.ledger import Stand, ledger, stands
from scheduler_plugin.planner.preempting import Losses, losses_of
from scheduler_plugin.planner.retry import pause_seconds
from scheduler_plugin.rules import Rules
from tests.scheduler_plugin.builders import (
    NOW,
    RULES,
    gang_pods,
    make_gpunode,
    make_job,
    make_node,
    make_placement,
    make_pod,
    make_world,
    pinned_to,
)

NODES = [make_node(f"n{number}") for number in range(4)]
TEMPLATE = PodTemplate(spec=make_pod("template").spec)


def replica(kind: str, role: str, index: int, **kwargs: object) -> Pod:
    """Return a pod as training-operator makes it, or as mpi-operator does."""
    pod = make_pod(f"train-{role}-{index}", **kwargs)
    mpi = {"operator-name": "mpi-operator", "job-name": "train", "job-role": role, "replica-index": str(index)}
    ours = {"replica-type": role, "replica-index": str(index)}
    labels = {f"training.kubeflow.org/{name}": value for name, value in (mpi if kind == "MPIJob" else ours).items()}
    owner = OwnerReference(api_version="kubeflow.org/v1", kind=kind, name="train", uid="train", controller=True)
    gates = make_pod("gated", job="any").spec.scheduling_gates if not pod.spec.node_name else []
    return msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(pod.metadata, labels=pod.metadata.labels | labels, owner_references=[owner]),
        spec=msgspec.structs.replace(pod.spec, scheduling_gates=gates),
    )


def elastic(workers: int = 4, least: int = 2) -> PyTorchJob:
    roles = {"Worker": ReplicaSpec(replicas=workers, template=TEMPLATE)}
    spec = TrainingJobSpec(pytorch_replica_specs=roles, elastic_policy=ElasticPolicy(min_replicas=least))
    return PyTorchJob(metadata=ObjectMeta(name="train", namespace="ml", uid="train"), spec=spec)


def staged(workers: int = 2) -> MPIJob:
    roles = {
        "Launcher": ReplicaSpec(replicas=1, template=TEMPLATE),
        "Worker": ReplicaSpec(replicas=workers, template=TEMPLATE),
    }
    spec = TrainingJobSpec(mpi_replica_specs=roles, launcher_creation_policy="WaitForWorkersReady")
    return MPIJob(metadata=ObjectMeta(name="train", namespace="ml", uid="train"), spec=spec)


def step(*objects: object, owner: object = None, rules: Rules = RULES, now: float = NOW, **kwargs: object) -> Advance:
    """Return the next step of the gang "train" in a world of these objects."""
    world = make_world(*NODES, *[one for one in objects if not isinstance(one, PyTorchJob | MPIJob)], rules=rules)
    if owner is not None:
        world.on_job(None, owner)
    uid = next(
        gang.uid for one in objects if isinstance(one, Pod) and "train" in one.metadata.name if (gang := gang_of(one))
    )
    gang = world.gang(uid)
    assert gang is not None
    return advance(gang, world.publish(), rules, now, **kwargs)


def stored(advanced: Advance, pods: list[Pod], owner: object) -> GangPlacement:
    """Return the placement as it is after the step."""
    assert advanced.status is not None
    world = make_world(*pods)
    world.on_job(None, owner)
    gang = world.gang(gang_of(pods[0]).uid)
    wanted = placement_with(gang, advanced.size, advanced.status)
    return msgspec.structs.replace(wanted, metadata=msgspec.structs.replace(wanted.metadata, uid="placement"))


def busy(*nodes: str) -> list[Pod]:
    return [make_pod(f"busy-{node}", node=node) for node in nodes]


def bound(pod: Pod, node: str, phase: str = "Running") -> Pod:
    spec = msgspec.structs.replace(pod.spec, node_name=node, scheduling_gates=[])
    return msgspec.structs.replace(pod, spec=spec, status=PodStatus(phase=phase))


# Elastic gangs


def test_an_elastic_gang_starts_with_the_pods_that_fit_and_the_others_wait() -> None:
    pods = [replica("PyTorchJob", "worker", index) for index in range(4)]
    advanced = step(*pods, *busy("n3"), owner=elastic())
    assert advanced.outcome == "planned"
    assert {pod.metadata.name for pod, _ in advanced.release} == {f"train-worker-{index}" for index in range(3)}
    assert [pod.metadata.name for pod in advanced.waiting] == ["train-worker-3"]


def test_an_elastic_gang_below_its_least_waits_whole_and_holds_only_what_it_needs() -> None:
    pods = [replica("PyTorchJob", "worker", index) for index in range(4)]
    advanced = step(*pods, *busy("n1", "n2", "n3"), owner=elastic())
    assert (advanced.outcome, advanced.release) == ("waiting", ())
    assert advanced.status is not None
    assert [len(one.nodes) for one in advanced.status.reservations] == [2]


def test_a_plan_of_an_elastic_gang_is_kept_while_the_rest_waits_and_grows_in_one_go_once_there_is_room() -> None:
    pods = [replica("PyTorchJob", "worker", index) for index in range(4)]
    first = step(*pods, *busy("n2", "n3"), owner=elastic())
    placement = stored(first, pods, elastic())
    again = step(*pods, *busy("n2", "n3"), placement, owner=elastic())
    assert again.status is None or again.status.revision == 1
    assert len(again.release) == 2, "a planner that died before it lifted the gates goes on"
    running = [bound(pods[rank.rank], rank.node) for rank in placement.status.ranks]
    grown = step(*running, *pods[2:], placement, owner=elastic())
    assert (grown.moved, grown.foretold) == ((), False), "nothing was replaced, and the gang's new size is told"
    assert len(grown.release) == 2
    assert grown.status is not None
    assert {rank.node for rank in grown.status.ranks} == {"n0", "n1", "n2", "n3"}


# Stages


def test_a_staged_gang_is_planned_with_seats_for_pods_to_come_and_releases_those_that_are_there() -> None:
    workers = [replica("MPIJob", "worker", index) for index in range(2)]
    advanced = step(*workers, owner=staged())
    assert advanced.outcome == "planned"
    assert len(advanced.release) == 2
    assert advanced.status is not None
    assert [len(one.ranks) for one in advanced.status.reservations] == [1]
    assert len({*(rank.node for rank in advanced.status.ranks), *advanced.status.reservations[0].nodes}) == 3
    assert "1 seat for pods to come" in advanced.message


def test_a_staged_gang_starts_nothing_where_its_later_stages_have_no_room() -> None:
    workers = [replica("MPIJob", "worker", index) for index in range(2)]
    advanced = step(*workers, *busy("n2", "n3"), owner=staged())
    assert (advanced.outcome, advanced.release) == ("waiting", ())


def test_the_seat_of_a_later_stage_is_held_against_others_and_taken_by_its_pod() -> None:
    workers = [replica("MPIJob", "worker", index) for index in range(2)]
    placement = stored(step(*workers, owner=staged()), workers, staged())
    running = [bound(worker, rank.node) for worker, rank in zip(workers, placement.status.ranks, strict=True)]
    settled = step(*running, placement, owner=staged())
    assert settled.status is not None
    assert settled.status.state is PlacementState.PLANNED
    seat = settled.status.reservations[0].nodes[0]
    world = make_world(*NODES, *running, msgspec.structs.replace(placement, status=settled.status))
    assert gang_of(workers[0]).uid in world.publish().nodes[seat].holds
    launcher = replica("MPIJob", "launcher", 0)
    kept = msgspec.structs.replace(placement, status=settled.status)
    joined = step(*running, launcher, kept, owner=staged())
    assert joined.status is not None
    assert {rank.pod: rank.node for rank in joined.status.ranks}[launcher.metadata.name] == seat
    assert (joined.moved, joined.foretold) == ((), True), "it was told already, and nothing was replaced"
    assert joined.status.reservations == []


def test_ranks_and_seats_follow_the_topology_together_whatever_the_webhook_added_to_the_pods_that_are_there() -> None:
    ours = Container(
        name=INPOD_INIT_CONTAINER, resources=ResourceRequirements(requests={"cpu": "1500m", "memory": "64Mi"})
    )
    waits = [Toleration(key="node.kubernetes.io/not-ready", operator="Exists", effect="NoExecute")]
    workers = [replica("MPIJob", "worker", index, tolerations=waits) for index in range(2)]
    admitted = [
        msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, init_containers=[ours])) for one in workers
    ]
    advanced = step(*admitted, owner=staged())
    assert advanced.status is not None
    asked = {"cpu": "1500m", GPU: "8", "memory": str(64 << 20), "pods": "1"}
    assert advanced.status.reservations[0].requests == asked, "the seat is as large as the pod that will come"
    nodes = {rank.rank: rank.node for rank in advanced.status.ranks} | seats(advanced.status)
    assert [nodes[rank] for rank in sorted(nodes)] == ["n0", "n1", "n2"]


def test_a_seat_whose_node_is_lost_moves() -> None:
    workers = [replica("MPIJob", "worker", index) for index in range(2)]
    placement = stored(step(*workers, owner=staged()), workers, staged())
    running = [bound(worker, rank.node) for worker, rank in zip(workers, placement.status.ranks, strict=True)]
    seat = placement.status.reservations[0].nodes[0]
    sick = make_gpunode(seat, verdict=Verdict.REPLACE)
    moved = step(*running, placement, sick, owner=staged())
    assert moved.status is not None
    assert moved.status.reservations[0].nodes[0] not in (seat, *(rank.node for rank in placement.status.ranks))


# Plans that do not bind


def stuck(*, phase: str = "Pending") -> list[Pod]:
    """Two bound pods, and one that its only node refused while no other has room."""
    pods = [make_pod(f"train-{rank}", job="train", rank=rank, node=f"n{rank}", phase=phase) for rank in range(2)]
    return [*pods, make_pod("train-2", job="train", rank=2, gated=False, affinity=pinned_to("n2"), refused=True)]


def test_a_plan_that_does_not_bind_is_given_up_whole_while_nothing_of_the_gang_works() -> None:
    placement = make_placement("train", {0: "n0", 1: "n1", 2: "n2"}, expires_in=-1)
    full = busy("n3")
    advanced = step(*stuck(), *full, placement, make_job())
    assert {pod.metadata.name for pod in advanced.evict} == {"train-0", "train-1", "train-2"}
    assert advanced.status is not None
    assert (advanced.status.state, advanced.status.ranks) == (PlacementState.WAITING, [])
    assert advanced.status.attempts == 1
    assert [one.domain for one in advanced.status.rejected] == ["n2"]
    assert NOW < parse_rfc3339(advanced.status.retry_at or "") <= NOW + RULES.retry_seconds
    assert "released" in advanced.message


def test_a_gang_of_which_a_pod_works_is_never_given_up() -> None:
    placement = make_placement("train", {0: "n0", 1: "n1", 2: "n2"}, expires_in=-1)
    advanced = step(*stuck(phase="Running"), *busy("n3"), placement, make_job())
    assert advanced.evict == ()
    assert advanced.status is not None
    assert advanced.status.state is PlacementState.PLANNED


def given_up(seconds: float) -> GangPlacement:
    status = GangPlacementStatus(
        attempts=1,
        retry_at=rfc3339(NOW + seconds),
        queued_at=rfc3339(NOW - 60),
        rejected=[RejectedAlternative(domain="n2", reason=DID_NOT_BIND)],
    )
    return msgspec.structs.replace(make_placement("train", {}), status=status)


def test_a_gang_that_was_given_up_rests_and_what_is_left_of_its_old_pods_goes() -> None:
    old = make_pod("train-0", job="train", rank=0, node="n0", age_seconds=60)
    new = [make_pod(f"train-{rank}-b", job="train", rank=rank, age_seconds=0) for rank in range(3)]
    advanced = step(old, *new, given_up(3.0), make_job())
    assert advanced.outcome == "waiting"
    assert advanced.evict == (old,)
    assert advanced.again_seconds == pytest.approx(3.0)


def test_after_its_rest_a_gang_goes_to_other_nodes_first_and_to_those_it_tried_if_there_are_no_others() -> None:
    new = gang_pods("train", 3)
    elsewhere = step(*new, given_up(-1.0), make_job())
    assert elsewhere.status is not None
    assert {rank.node for rank in elsewhere.status.ranks} == {"n0", "n1", "n3"}
    anyway = step(*new, *busy("n3"), given_up(-1.0), make_job())
    assert anyway.status is not None
    assert {rank.node for rank in anyway.status.ranks} == {"n0", "n1", "n2"}


def test_pauses_grow_to_their_cap_and_differ_from_gang_to_gang() -> None:
    pauses = [pause_seconds("a", attempts, 5.0, 300.0) for attempts in range(1, 12)]
    assert pauses[0] <= 5.0
    assert all(pause <= 300.0 for pause in pauses)
    assert pauses[-1] >= 150.0
    assert len({pause_seconds(uid, 1, 5.0, 300.0) for uid in "abcdef"}) == 6


# Two plans for one GPU


def test_of_two_plans_for_one_gpu_the_later_gang_is_planned_anew() -> None:
    ours = make_placement("train", {0: "n0", 1: "n1"})
    theirs = make_placement("other", {0: "n1", 1: "n2"})
    earlier = msgspec.structs.replace(theirs.status, queued_at=rfc3339(NOW - 100))
    later = msgspec.structs.replace(ours.status, queued_at=rfc3339(NOW - 50))
    pods = [*gang_pods("train", 2), *gang_pods("other", 2)]
    jobs = [make_job(size=2), make_job("other", 2)]
    late = msgspec.structs.replace(ours, status=later)
    advanced = step(*pods, late, msgspec.structs.replace(theirs, status=earlier), *jobs)
    assert advanced.status is not None
    assert {rank.node for rank in advanced.status.ranks} == {"n0", "n3"}
    world = make_world(*NODES, *pods, late, msgspec.structs.replace(theirs, status=earlier), *jobs)
    other = world.gang("job-other")
    assert other is not None
    assert advance(other, world.publish(), RULES, NOW).status is None, "the gang that came first keeps its plan"


# The queue


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


def test_a_budget_guards_gangs_with_more_pods_than_it_lets_go() -> None:
    def budget(allowed: int, namespace: str = "ml", selector: dict[str, object] | None = None) -> PodDisruptionBudget:
        return PodDisruptionBudget(
            metadata=ObjectMeta(name="budget", namespace=namespace),
            spec=PodDisruptionBudgetSpec(selector=selector),
            status=PodDisruptionBudgetStatus(disruptions_allowed=allowed),
        )

    pods = gang_pods("small", 2) + gang_pods("large", 4)
    assert guarded([budget(2, selector={})], pods) == {"job-large"}, "an empty selector takes every pod"
    assert guarded([budget(4, selector={})], pods) == frozenset()
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


# The ledger and what is told


def test_the_ledger_follows_a_pod_from_its_plan_until_it_is_gone() -> None:
    pods = [
        make_pod("train-0", job="train", rank=0),
        make_pod("train-1", job="train", rank=1, gated=False),
        make_pod("train-2", job="train", rank=2, node="n2"),
        make_pod("train-4", job="train", rank=4),
    ]
    placement = make_placement("train", {rank: f"n{rank}" for rank in range(4)})
    world = make_world(*NODES, *pods, placement, make_job(size=5))
    entries = ledger(world.gangs())
    assert {uid: entry.stand for uid, entry in entries.items()} == {
        "uid-train-0": Stand.PLANNED,
        "uid-train-1": Stand.OFFERED,
        "uid-train-2": Stand.BOUND,
        "uid-train-3": Stand.GONE,
        "uid-train-4": Stand.WAITING,
    }
    assert stands(entries.values())[Stand.BOUND] == 1


def test_the_condition_says_planned_or_why_not_and_keeps_its_time() -> None:
    waiting = step(*gang_pods("train", 3), *busy("n0", "n1"), make_job())
    assert waiting.status is not None
    condition = next(one for one in waiting.status.conditions if one.type == reasons.PLANNED)
    assert (condition.status, condition.reason, condition.observed_generation) == ("False", "NoRoom", 1)
    written = msgspec.structs.replace(make_placement("train", {}), status=waiting.status)
    planned = step(*gang_pods("train", 3), written, make_job(), now=NOW + 5)
    assert planned.status is not None
    turned = next(one for one in planned.status.conditions if one.type == reasons.PLANNED)
    assert (turned.status, turned.last_transition_time) == ("True", rfc3339(NOW + 5))


def test_a_gang_whose_pods_are_gone_holds_nothing_at_once() -> None:
    waiting = step(*gang_pods("train", 3), *busy("n0", "n1"), make_job())
    assert waiting.status is not None
    written = msgspec.structs.replace(make_placement("train", {}), status=waiting.status)
    pods = gang_pods("train", 3)
    world = make_world(*NODES, *pods, written, make_job())
    assert any(view.holds for view in world.publish().nodes.values())
    for pod in pods:
        world.on_pod(pod, None)
    assert not any(view.holds for view in world.publish().nodes.values())
    assert [one.spec.job_name for one in world.forsaken()] == ["train"]
