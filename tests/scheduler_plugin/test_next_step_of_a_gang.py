import msgspec
import pytest

from outrider.api.core import Job, JobSpec, NamedReference, Pod, Taint
from outrider.api.gangplacement import GangPlacement, PlacementState
from outrider.api.gpunode import Verdict
from outrider.api.names import RETRY_ANNOTATION
from outrider.api.times import rfc3339
from scheduler_plugin.planner.advance import Advance, advance
from scheduler_plugin.planner.case import DID_NOT_BIND
from tests.scheduler_plugin.builders import (
    NOW,
    RULES,
    gang_pods,
    make_gang,
    make_gpunode,
    make_job,
    make_node,
    make_placement,
    make_pod,
    make_snapshot,
    make_world,
    pinned_to,
)

NODES = [make_node(f"n{number}") for number in range(4)]


def step(
    pods: list[Pod], *objects: object, placement: GangPlacement | None = None, job: Job | None = None, now: float = NOW
) -> Advance:
    known = [*NODES, *pods, *objects, *([placement] if placement else []), job or make_job(size=3)]
    world = make_world(*known)
    gang = world.gang("job-train")
    assert gang is not None
    return advance(gang, world.snapshot, RULES, now)


def ranks(advanced: Advance) -> dict[int, str]:
    assert advanced.status is not None
    return {rank.rank: rank.node for rank in advanced.status.ranks}


def released(advanced: Advance) -> dict[str, tuple[str, ...]]:
    return {pod.metadata.name: nodes for pod, nodes in advanced.release}


def test_a_complete_gang_is_planned_and_released_with_its_spare() -> None:
    advanced = step(gang_pods("train", 3))
    assert advanced.outcome == "planned"
    assert ranks(advanced) == {0: "n0", 1: "n1", 2: "n2"}
    assert released(advanced) == {"train-0": ("n0", "n3"), "train-1": ("n1", "n3"), "train-2": ("n2", "n3")}
    assert advanced.status is not None
    assert (advanced.status.state, advanced.status.revision) == (PlacementState.PLANNED, 1)
    assert "spare: n3" in advanced.message


def test_an_incomplete_gang_waits_and_says_so_once_its_pods_should_be_there() -> None:
    early = step(gang_pods("train", 2, age_seconds=1))
    assert (early.outcome, early.waiting, early.status) == ("waiting", (), None)
    late = step(gang_pods("train", 2, age_seconds=30))
    assert len(late.waiting) == 2
    assert late.message == "2 of 3 pods exist; the gang is placed once all do"


def test_finished_and_leaving_pods_are_no_members() -> None:
    pods = gang_pods("train", 3)
    leaving = msgspec.structs.replace(
        pods[2], metadata=msgspec.structs.replace(pods[2].metadata, deletion_timestamp="2027-01-01T00:00:00Z")
    )
    assert step([*pods[:2], leaving]).outcome == "waiting"


def test_a_gang_that_does_not_fit_waits_whole_and_holds_the_nodes_it_will_get() -> None:
    busy = [make_pod(f"busy{number}", node=f"n{number}") for number in range(2)]
    advanced = step(gang_pods("train", 3), *busy)
    assert (advanced.outcome, advanced.release) == ("waiting", ())
    assert advanced.status is not None
    assert (advanced.status.state, advanced.status.ranks) == (PlacementState.WAITING, [])
    assert advanced.message == "needs 3 nodes with 8 free GPUs; 2 healthy and free, 2 in use"
    assert advanced.status.message == f"{advanced.message}; 3 nodes held for it, 2 of them empty"
    assert [(one.ranks, one.nodes) for one in advanced.status.reservations] == [([0, 1, 2], ["n0", "n2", "n3"])]
    assert len(advanced.waiting) == 3


def test_a_verdict_that_is_on_record_is_not_written_again() -> None:
    busy = [make_pod(f"busy{number}", node=f"n{number}") for number in range(2)]
    pods = gang_pods("train", 3)
    first = step(pods, *busy)
    assert first.status is not None
    waiting = msgspec.structs.replace(make_placement("train", {}), status=first.status)
    assert step(pods, *busy, placement=waiting).status is None


def test_a_planner_that_died_before_the_last_patch_is_continued() -> None:
    pods = gang_pods("train", 3)
    pods[0] = make_pod("train-0", job="train", rank=0, gated=False)
    advanced = step(pods, placement=make_placement("train", {0: "n0", 1: "n1", 2: "n2"}, spares=["n3"]))
    assert advanced.status is None
    assert released(advanced) == {"train-1": ("n1", "n3"), "train-2": ("n2", "n3")}


def test_a_gang_that_was_never_released_is_planned_anew_when_a_node_is_lost() -> None:
    sick = make_gpunode("n1", verdict=Verdict.REPLACE)
    advanced = step(gang_pods("train", 3), sick, placement=make_placement("train", {0: "n0", 1: "n1", 2: "n2"}))
    assert set(ranks(advanced).values()) == {"n0", "n2", "n3"}
    assert advanced.status is not None
    assert advanced.status.revision == 2


def running(*nodes: str) -> list[Pod]:
    return [make_pod(f"train-{rank}", job="train", rank=rank, node=node) for rank, node in enumerate(nodes)]


def test_a_bound_gang_is_placed_where_it_really_runs() -> None:
    advanced = step(running("n0", "n1", "n3"), placement=make_placement("train", {0: "n0", 1: "n1", 2: "n2"}))
    assert ranks(advanced) == {0: "n0", 1: "n1", 2: "n3"}
    assert advanced.status is not None
    assert (advanced.status.state, advanced.status.expires_at) == (PlacementState.PLACED, None)


def test_a_placed_gang_needs_nothing() -> None:
    pods = running("n0", "n1", "n2")
    first = step(pods, placement=make_placement("train", {0: "n0", 1: "n1", 2: "n2"}))
    assert first.status is not None
    placement = msgspec.structs.replace(make_placement("train", {}), status=first.status)
    assert step(pods, placement=placement) == Advance("settled", 3)


def test_a_replacement_pod_gets_the_spare_and_the_others_stay() -> None:
    placement = make_placement("train", {0: "n0", 1: "n1", 2: "n2"}, spares=["n3"], state=PlacementState.PLACED)
    new = make_pod("train-1-b", job="train", rank=1)
    sick = make_gpunode("n1", verdict=Verdict.REPLACE)
    survivors = [pod for pod in running("n0", "n1", "n2") if pod.metadata.name != "train-1"]
    advanced = step([*survivors, new], sick, placement=placement)
    assert ranks(advanced) == {0: "n0", 1: "n3", 2: "n2"}
    assert [(rank.rank, rank.pod, rank.node) for rank in advanced.moved] == [(1, "train-1-b", "n3")]
    assert released(advanced) == {"train-1-b": ("n3",)}


def test_a_replacement_returns_to_its_own_node_while_that_is_healthy() -> None:
    placement = make_placement("train", {0: "n0", 1: "n1", 2: "n2"}, spares=["n3"], state=PlacementState.PLACED)
    survivors = [pod for pod in running("n0", "n1", "n2") if pod.metadata.name != "train-1"]
    advanced = step([*survivors, make_pod("train-1-b", job="train", rank=1)], placement=placement)
    assert ranks(advanced)[1] == "n1"


def test_a_replacement_without_room_waits_and_the_plan_of_the_others_stays() -> None:
    placement = make_placement("train", {0: "n0", 1: "n1", 2: "n2"}, state=PlacementState.PLACED)
    survivors = running("n0", "n1")
    lost = [make_gpunode(name, verdict=Verdict.REPLACE, reason="xid/79") for name in ("n2", "n3")]
    advanced = step([*survivors, make_pod("train-2-b", job="train", rank=2)], *lost, placement=placement)
    assert advanced.outcome == "waiting"
    assert ranks(advanced) == {0: "n0", 1: "n1", 2: "n2"}
    assert "needs 1 node with 8 free GPUs" in advanced.message
    assert "2 unhealthy (xid/79)" in advanced.message
    assert advanced.status is not None
    assert advanced.status.message == f"2 of 3 ranks have their nodes; the rest waits: {advanced.message}"


def test_a_released_pod_whose_node_is_lost_moves_within_its_pin() -> None:
    pods = [*running("n0", "n1"), make_pod("train-2", job="train", rank=2, gated=False, affinity=pinned_to("n2", "n3"))]
    placement = make_placement("train", {0: "n0", 1: "n1", 2: "n2"}, spares=["n3"])
    advanced = step(pods, make_gpunode("n2", verdict=Verdict.RESET), placement=placement)
    assert ranks(advanced)[2] == "n3"
    assert (advanced.release, advanced.evict) == ((), ())


def test_a_released_pod_pinned_to_lost_nodes_only_is_evicted_if_another_would_take_it() -> None:
    stuck = make_pod("train-2", job="train", rank=2, gated=False, affinity=pinned_to("n2"))
    placement = make_placement("train", {0: "n0", 1: "n1", 2: "n2"})
    pods = [*running("n0", "n1"), stuck]
    assert step(pods, make_gpunode("n2", verdict=Verdict.RESET), placement=placement).evict == (stuck,)
    waiting = make_pod("train-2", job="train", rank=2, affinity=pinned_to("n2"))
    assert (
        step([*running("n0", "n1"), waiting], make_gpunode("n2", verdict=Verdict.RESET), placement=placement).evict
        == ()
    )
    nowhere = [make_gpunode(name, verdict=Verdict.RESET) for name in ("n2", "n3")]
    assert step(pods, *nowhere, placement=placement).evict == ()


def test_a_pod_that_its_node_refused_in_time_moves_and_the_node_is_not_tried_again() -> None:
    refused = make_pod("train-2", job="train", rank=2, gated=False, affinity=pinned_to("n2", "n3"), refused=True)
    placement = make_placement("train", {0: "n0", 1: "n1", 2: "n2"}, spares=["n3"], expires_in=10)
    pods = [*running("n0", "n1"), refused]
    assert step(pods, placement=placement).status is None
    advanced = step(pods, placement=placement, now=NOW + 11)
    assert ranks(advanced)[2] == "n3"
    assert advanced.status is not None
    assert [(one.domain, one.reason) for one in advanced.status.rejected] == [("n2", DID_NOT_BIND)]


def test_a_pod_that_was_put_aside_is_tried_again_once_its_node_has_room_and_once_a_second_at_most() -> None:
    refused = make_pod("train-2", job="train", rank=2, gated=False, affinity=pinned_to("n2"), refused=True)
    untried = make_pod("train-2", job="train", rank=2, gated=False, affinity=pinned_to("n2"))
    placement = make_placement("train", {0: "n0", 1: "n1", 2: "n2"}, expires_in=10)
    assert step([*running("n0", "n1"), refused], placement=placement).retry == (refused,)
    assert step([*running("n0", "n1"), untried], placement=placement).retry == ()
    assert step([*running("n0", "n1"), refused, make_pod("other", node="n2")], placement=placement).retry == ()
    meta = msgspec.structs.replace(refused.metadata, annotations={RETRY_ANNOTATION: rfc3339(NOW)})
    asked = msgspec.structs.replace(refused, metadata=meta)
    assert step([*running("n0", "n1"), asked], placement=placement, now=NOW + 0.9).retry == ()
    assert step([*running("n0", "n1"), asked], placement=placement, now=NOW + 1.1).retry == (asked,)


def test_a_plan_is_not_blamed_while_kube_scheduler_has_not_tried_it() -> None:
    pods = gang_pods("train", 3, gated=False)
    placement = make_placement("train", {0: "n0", 1: "n1", 2: "n2"}, expires_in=-60)
    assert step(pods, placement=placement).status is None


@pytest.mark.parametrize("time", ["tomorrow", "0000-01-01T00:00:00Z", "9999-12-31T00:00:00Z", None])
def test_a_time_that_no_planner_wrote_counts_as_over(time: str | None) -> None:
    placement = make_placement("train", {0: "n0", 1: "n1", 2: "n2"})
    status = msgspec.structs.replace(placement.status, expires_at=time)
    pods = [*running("n0", "n1"), make_pod("train-2", job="train", rank=2, gated=False, refused=True)]
    assert step(pods, placement=msgspec.structs.replace(placement, status=status)).status is not None


def test_pods_without_a_number_get_ranks_in_the_order_they_were_made() -> None:
    pods = [make_pod(f"train-{name}", job="train", age_seconds=age) for name, age in (("b", 9), ("a", 7), ("c", 8))]
    job = Job(metadata=make_job().metadata, spec=JobSpec(parallelism=3, completion_mode="Indexed"))
    advanced = step(pods, job=job)
    assert advanced.status is not None
    assert [rank.pod for rank in advanced.status.ranks] == ["train-b", "train-c", "train-a"]


def test_two_pods_that_claim_one_rank_are_both_placed() -> None:
    pods = [make_pod(f"train-{name}", job="train", rank=0) for name in "abc"]
    assert sorted(ranks(step(pods))) == [0, 1, 2]


def test_pods_of_a_job_that_stays_unknown_are_placed_one_by_one_and_told_why() -> None:
    pods = gang_pods("train", 2)
    early = [make_pod("train-0", job="train", rank=0, age_seconds=1)]
    snapshot = make_snapshot(*NODES, *pods)
    assert advance(make_gang(None, early), snapshot, RULES, NOW).outcome == "waiting"
    advanced = advance(make_gang(None, pods), snapshot, RULES, NOW)
    assert len(advanced.release) == 2
    assert "not known yet" in advanced.message


def test_a_taint_on_a_planned_node_moves_the_gang() -> None:
    tainted = make_node("n1", taints=[Taint(key="maintenance", effect="NoSchedule")])
    placement = make_placement("train", {0: "n0", 1: "n1", 2: "n2"})
    assert "n1" not in ranks(step(gang_pods("train", 3), tainted, placement=placement)).values()


@pytest.mark.parametrize("released_ranks", [0, 1, 2, 3])
def test_whatever_was_done_before_a_crash_the_gang_ends_on_the_nodes_on_record(released_ranks: int) -> None:
    pods = [
        make_pod(f"train-{rank}", job="train", rank=rank, gated=rank >= released_ranks, affinity=pinned_to(f"n{rank}"))
        for rank in range(3)
    ]
    advanced = step(pods, placement=make_placement("train", {0: "n0", 1: "n1", 2: "n2"}))
    assert advanced.status is None
    assert released(advanced) == {f"train-{rank}": (f"n{rank}",) for rank in range(released_ranks, 3)}


def test_a_gang_that_kueue_has_not_admitted_gets_and_holds_nothing() -> None:
    gate = NamedReference(name="kueue.x-k8s.io/admission")
    pods = [gated_by(pod, gate) if pod.metadata.name == "train-1" else pod for pod in gang_pods("train", 3)]
    waits = step(pods)
    assert (waits.outcome, waits.release, len(waits.waiting)) == ("waiting", (), 3)
    assert waits.message == "Kueue has not admitted 1 of 3 pods (scheduling gate kueue.x-k8s.io/admission)"
    assert waits.status is not None
    assert (waits.status.message, waits.status.reservations) == (waits.message, [])
    assert step(gang_pods("train", 3)).outcome == "planned"


def test_of_single_pods_only_those_that_kueue_admitted_get_a_node() -> None:
    gate = NamedReference(name="kueue.x-k8s.io/admission")
    pods = gang_pods("train", 3)
    job = Job(metadata=make_job().metadata, spec=JobSpec(parallelism=3))
    assert released(step([gated_by(pods[0], gate), *pods[1:]], job=job)).keys() == {"train-1", "train-2"}
    assert step([gated_by(pod, gate) for pod in pods], job=job).outcome == "waiting"


def gated_by(pod: Pod, gate: NamedReference) -> Pod:
    spec = msgspec.structs.replace(pod.spec, scheduling_gates=[*pod.spec.scheduling_gates, gate])
    return msgspec.structs.replace(pod, spec=spec)


def test_a_new_gang_hears_at_once_that_others_come_first_and_gets_no_node_before_them() -> None:
    world = make_world(*NODES, *gang_pods("train", 2), make_job(size=2))
    gang = world.gang("job-train")
    assert gang is not None
    told = advance(gang, world.publish(), RULES, NOW, ahead=2000)
    assert (told.outcome, told.release, told.again_seconds) == ("waiting", (), 0.0), "its turn comes at once"
    assert told.status is not None
    assert (told.status.state, told.status.reservations) == (PlacementState.WAITING, [])
    assert told.message.startswith("2000 gangs whose turn comes first")
    assert len(told.waiting) == 2
    assert advance(gang, world.publish(), RULES, NOW).outcome == "planned"


def test_what_a_new_gang_lacks_itself_is_said_however_many_are_ahead() -> None:
    world = make_world(*NODES, *gang_pods("train", 1), make_job(size=2))
    gang = world.gang("job-train")
    assert gang is not None
    assert "1 of 2 pods exists" in advance(gang, world.publish(), RULES, NOW, ahead=3).message


def test_a_spare_that_another_took_is_renewed_once_and_a_good_one_stays() -> None:
    bound = [make_pod(f"train-{rank}", job="train", rank=rank, node=f"n{rank}") for rank in range(2)]
    placement = make_placement("train", {0: "n0", 1: "n1"}, spares=["n2"], state=PlacementState.PLACED)
    kept = step(bound, placement=placement, job=make_job(size=2))
    assert kept.status is not None
    assert kept.status.spares == ["n2"]
    other = make_pod("other", node="n2")
    renewed = step(bound, other, placement=placement, job=make_job(size=2))
    assert renewed.status is not None
    assert renewed.status.spares == ["n3"]
    written = msgspec.structs.replace(placement, status=renewed.status)
    assert step(bound, other, placement=written, job=make_job(size=2)).status is None
    without = step(bound, other, make_pod("third", node="n3"), placement=written, job=make_job(size=2))
    assert without.status is not None
    assert without.status.spares == [], "no name is better than one that helps nobody"


def test_single_pods_do_not_go_because_another_of_their_job_does_not_start() -> None:
    job = Job(metadata=make_job().metadata, spec=JobSpec(parallelism=2))
    stuck = make_pod("train-1", job="train", gated=False, affinity=pinned_to("n1"), refused=True)
    pods = [make_pod("train-0", job="train", node="n0"), stuck]
    placement = make_placement("train", {0: "n0", 1: "n1"}, expires_in=-1)
    busy = [make_pod(f"busy-{node}", node=node) for node in ("n1", "n2", "n3")]
    advanced = step(pods, *busy, placement=placement, job=job)
    assert (advanced.outcome, advanced.evict) == ("waiting", ())
    assert advanced.status is not None
    assert advanced.status.retry_at is None, "nothing is given up"
    freed = step(pods, *busy[:2], placement=placement, job=job)
    assert [pod.metadata.name for pod in freed.evict] == ["train-1"], "only what is pinned to a lost node makes way"
