import msgspec
import pytest
from scenes import NOW, picture, placement, pod, unscheduled
from test_status_and_why import changed, held, printed

from outrider.api.core import Pod
from outrider.api.gangplacement import PlacementState, Reservation, Victim
from outrider.api.why import NodeState, StateCount, WaitReason, Why
from outrider.cli.picture import Picture
from outrider.cli.tables import job_lines
from outrider.cli.targets import target_of, uids_of
from outrider.cli.why_job import explain_job

replace = msgspec.structs.replace
WHY = Why(reason=WaitReason.NO_ROOM, pods=2, gpus_per_pod=8, states=[StateCount(state=NodeState.UNHEALTHY, nodes=1)])


def text_of(scene: Picture) -> str:
    return printed(job_lines(explain_job("job-1", "team", "train", scene)))


def waiting_gang() -> Picture:
    plan = placement(PlacementState.WAITING, "needs 2 nodes with 8 free GPUs; 1 unhealthy (xid/79)")
    plan = replace(plan, status=replace(plan.status, ranks=[], domain="", why=WHY))
    return Picture(now=NOW, placements=[plan], pods=[held(pod(0, "a")), held(pod(1, "b"))])


def test_a_waiting_gang_is_told_what_it_needs_in_words_and_as_data() -> None:
    text = text_of(waiting_gang())
    for words in (
        "Job team/train is Waiting",
        "all of its 2 pods were admitted by Outrider",
        "2 pods held by the scheduling gate outrider.dev/gang",
        "gang of 2 is Waiting. needs 2 nodes with 8 free GPUs; 1 unhealthy (xid/79)",
        "Next: kubectl describe gangplacement -n team job-train",
    ):
        assert words in text
    assert explain_job("job-1", "team", "train", waiting_gang()).why == WHY


def test_what_a_waiting_gang_holds_who_makes_room_and_when_it_is_tried_again_is_told() -> None:
    scene = waiting_gang()
    (plan,) = scene.placements
    status = replace(
        plan.status,
        queued_at="2027-01-15T08:00:00Z",
        reservations=[Reservation(ranks=[0, 1], nodes=["n1", "n2"])],
        preempting=[Victim(job_kind="Job", job_name="low", job_uid="u", namespace="team")],
        attempts=2,
        retry_at="2027-01-15T08:00:20Z",
    )
    text = text_of(changed(scene, placements=[replace(plan, status=status)]))
    assert "holds room on 2 nodes (n1 and n2), waiting since 2027-01-15T08:00:00Z" in text
    assert "Job team/low makes room for it" in text
    assert "2 plans in a row did not bind; it is planned again at 2027-01-15T08:00:20Z" in text


def test_a_running_gang_shows_where_each_pod_is_and_how_far() -> None:
    text = text_of(picture())
    assert "on gpu-1 (train-1-old): Unhealthy, verdict replace. GPU 3 fell off the bus" in text
    assert "train-1-old on gpu-1 because of xid/79. waiting for a checkpoint" in text
    assert "1 rank at step 100, last checkpoint at step 95" in text
    assert "Next: kubectl describe gpunode gpu-1" in text


def test_a_healthy_gang_asks_for_nothing() -> None:
    scene = changed(picture(), pods=[pod(0, "a", "gpu-0")], episodes=[])
    text = text_of(scene)
    assert "runs on 1 node, none of them with a hard verdict" in text
    assert "Next: nothing" in text


def test_the_schedulers_refusals_are_counted() -> None:
    pods = [refused(pod(rank, uid), "0/4 nodes are available") for rank, uid in enumerate("ab")]
    assert "2 pods: 0/4 nodes are available" in text_of(Picture(now=NOW, pods=pods, placements=[placement()]))


def refused(subject: Pod, words: str) -> Pod:
    return replace(subject, status=replace(subject.status, conditions=unscheduled(words)))


def test_a_gang_without_plan_or_pods_points_to_who_should_act() -> None:
    assert "Next: outrider check: is the planner running?" in text_of(Picture(now=NOW, pods=[held(pod(0, "a"))]))
    assert "no pod of it exists" in text_of(Picture(now=NOW, placements=[placement()]))


def test_pods_that_passed_no_webhook_are_named() -> None:
    scene = Picture(now=NOW, pods=[pod(0, "a", "gpu-0", annotations={})])
    assert "1 of 1 pod did not pass Outrider's webhook: train-0-a" in text_of(scene)


def test_a_job_is_found_by_its_name_its_kind_or_one_of_its_pods() -> None:
    scene = picture()
    for text in ("train", "job/train", "jobs/train", "Job/train", "train-0-a"):
        assert uids_of(target_of(text), "team", scene.pods, scene.placements) == ["job-1"], text
    for text in ("pytorchjob/train", "other", "pod/train"):
        assert uids_of(target_of(text), "team", scene.pods, scene.placements) == [], text
    assert uids_of(target_of("train"), "elsewhere", scene.pods, scene.placements) == []


@pytest.mark.parametrize("text", ["", "/", "a/", "/b", "a/b/c"])
def test_a_name_that_can_be_none_is_refused_with_how_to_write_it(text: str) -> None:
    with pytest.raises(ValueError, match="write NAME or KIND/NAME"):
        target_of(text)
