from fleet import ENFORCE, Fleet, replace

from outrider.api.remediation import ActionMode, Remediation
from remediation.config import Config
from remediation.notices import Notice, StepSpan, Subject, notices, spans

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def story(config: Config = ENFORCE) -> tuple[list[Notice], list[StepSpan], Remediation]:
    """Run one episode to its end and collect everything told on the way."""
    fleet = Fleet(config).add_nodes("n0", "n1", "n2").add_job("train", "n0", "n1")
    for key, pod in fleet.pods.items():
        annotations = {"outrider.dev/traceparent": TRACE}
        fleet.pods[key] = replace(pod, metadata=replace(pod.metadata, annotations=annotations))
    fleet.train(90)
    fleet.judge("n1")
    name = fleet.open("n1").metadata.name
    told: list[Notice] = []
    traced: list[StepSpan] = []
    for _ in range(40):
        before = fleet.episodes[name].status
        fleet.look(name)
        told += notices(before, fleet.episodes[name], ("team/train-1-p2",))
        traced += spans(before, fleet.episodes[name])
        fleet.answer_requests()
        fleet.place("n2")
        if len(fleet.episodes[name].status.steps) == 4:
            fleet.train(101)
        fleet.wait(0.5)
    return told, traced, fleet.episodes[name]


def test_every_step_is_told_once_on_node_pod_and_episode():
    told, _, episode = story()
    reasons = [notice.reason for notice in told if notice.subject is Subject.EPISODE]
    assert reasons == [
        "RemediationStarted",
        "NodeTainted",
        "CheckpointRequested",
        "CheckpointAcknowledged",
        "RankMoved",
        "TrainingResumed",
        "NodeIsolated",
    ]
    for reason in reasons[:-1]:
        keys = {notice.key for notice in told if notice.reason == reason}
        assert keys == {episode.metadata.name, "n1", "team/train-1-p2"}


def test_each_message_names_the_place_and_what_comes_next():
    told, _, _ = story()
    by_reason = {notice.reason: notice.message for notice in told}
    assert by_reason["NodeTainted"].endswith("Next: ask the ranks of its jobs for a checkpoint.")
    assert "Next: move the pods off the sick node." in by_reason["CheckpointAcknowledged"]
    assert "rank 1 is now pod" in by_reason["RankMoved"]
    assert "n2 trains again at step 101, checkpoint was step 100" in by_reason["TrainingResumed"]
    assert "kubectl describe gpunode n1" in by_reason["NodeIsolated"]


def test_dry_run_says_what_enforce_would_do():
    told, traced, _ = story(Config(mode=ActionMode.DRY_RUN))
    would = [notice for notice in told if notice.reason == "WouldAct"]
    assert {notice.subject for notice in would} == set(Subject)
    assert all("nothing was changed: enforce would" in notice.message for notice in would)
    assert traced == []


def test_observe_tells_the_start_and_nothing_of_acting():
    told, _, _ = story(Config(mode=ActionMode.OBSERVE))
    assert {notice.reason for notice in told} == {"RemediationStarted"}


def test_each_rung_is_one_span_in_the_jobs_trace():
    _, traced, _ = story()
    names = [span.name for span in traced]
    rungs = ["isolate", "checkpoint", "move", "resume", "resumed"]
    assert names == [f"remediation.{rung}" for rung in rungs]
    assert {span.traceparent for span in traced} == {TRACE}
    assert all(span.start_ns <= span.end_ns for span in traced)
    assert traced[-1].attributes["outrider.resumed_step"] == 101


def test_no_change_tells_nothing():
    _, _, episode = story()
    assert notices(episode.status, episode, ()) == []
    assert spans(episode.status, episode) == []
