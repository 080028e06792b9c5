"""Steps of elastic and staged gangs, of those whose plan does not bind, and what is told of them."""

import msgspec
import pytest

from outrider.api import reasons
from outrider.api.core import Container, Pod, ResourceRequirements, Toleration
from outrider.api.gangplacement import GangPlacement, GangPlacementStatus, PlacementState, RejectedAlternative
from outrider.api.gpunode import Verdict
from outrider.api.names import INPOD_INIT_CONTAINER
from outrider.api.times import parse_rfc3339, rfc3339
from outrider.workloads import GPU, gang_of
from scheduler_plugin.cluster.reservations import seats
from scheduler_plugin.planner.advance import advance
from scheduler_plugin.planner.case import DID_NOT_BIND
from scheduler_plugin.planner.ledger import Stand, ledger, stands
from scheduler_plugin.planner.retry import pause_seconds
from tests.scheduler_plugin.builders import (
    NOW,
    RULES,
    gang_pods,
    make_gpunode,
    make_job,
    make_placement,
    make_pod,
    make_world,
    pinned_to,
)
from tests.scheduler_plugin.steps import NODES, bound, busy, elastic, replica, staged, step, stored

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
