import msgspec
import pytest
from fleet import ENFORCE, NOW, Fleet, replace

from outrider.api.gpunode import GPU, Verdict
from outrider.api.remediation import (
    ActionMode,
    AffectedJob,
    Phase,
    Remediation,
    RemediationSpec,
    StepName,
    StepState,
)
from outrider.api.times import rfc3339
from remediation.config import Budget, Config
from remediation.decisions import AddTaint, Evict, RequestCheckpoint
from remediation.episodes import base_name, nonsense, opening


def sick_fleet(config: Config = ENFORCE) -> tuple[Fleet, str]:
    """Four nodes, a job of three ranks that report, and xid/79 under rank 1."""
    fleet = Fleet(config).add_nodes("n0", "n1", "n2", "n3").add_job("train", "n0", "n1", "n2")
    fleet.train(90)
    fleet.judge("n1")
    episode = fleet.open("n1")
    assert episode is not None
    return fleet, episode.metadata.name


def steps(episode: Remediation) -> dict[str, str]:
    return {str(step.name): str(step.state) for step in episode.status.steps}


def tainted(fleet: Fleet, name: str) -> None:
    fleet.run(name)
    fleet.wait(fleet.config.taint_wait_seconds)
    fleet.run(name)


def test_an_episode_climbs_every_rung_with_its_proof():
    fleet, name = sick_fleet()
    assert steps(fleet.run(name)) == {"isolate": "Running"}
    tainted(fleet, name)
    assert fleet.nodes["n1"].spec.taints[0].value == "xid-79"
    requests = [action for action in fleet.acted if isinstance(action, RequestCheckpoint)]
    assert {action.uid for action in requests} == {"p1", "p2", "p3"}
    fleet.answer_requests(step=100)
    fleet.run(name)
    assert fleet.evicted() == {("p2", "n1")}
    fleet.place("n3")
    fleet.run(name)
    fleet.train(101)
    episode = fleet.run(name)
    assert steps(episode) == {"isolate": "Done", "checkpoint": "Done", "move": "Done", "resume": "Done"}
    assert all(step.proof for step in episode.status.steps)
    assert episode.status.phase is Phase.ISOLATED
    job = episode.status.jobs[0]
    assert (job.checkpoint_step, job.resumed_step, job.reports_steps) == (100, 101, True)
    assert fleet.nodes["n1"].spec.taints


def test_the_agent_gets_its_time_before_the_controller_taints():
    fleet, name = sick_fleet()
    fleet.run(name)
    assert fleet.acted == []
    fleet.wait(fleet.config.taint_wait_seconds)
    assert any(isinstance(action, AddTaint) for action in fleet.look(name).actions)


def test_a_requested_checkpoint_has_the_time_that_the_policy_grants_and_no_more():
    fleet, name = sick_fleet()
    tainted(fleet, name)
    deadline = fleet.deadline(name)
    assert deadline == pytest.approx(fleet.now + 60, abs=1)
    fleet.wait(59)
    assert steps(fleet.run(name))["checkpoint"] == "Running"
    assert fleet.evicted() == set()
    fleet.wait(2)
    episode = fleet.run(name)
    assert steps(episode)["checkpoint"] == "Expired"
    assert "0 of 3 ranks answered" in episode.status.steps[1].proof
    assert fleet.evicted() == {("p2", "n1")}


def test_one_rank_that_did_not_answer_is_waited_for():
    fleet, name = sick_fleet()
    tainted(fleet, name)
    fleet.answer_requests()
    fleet.report(fleet.world.pod_by_uid("p3"), 100)
    episode = fleet.run(name)
    assert steps(episode)["checkpoint"] == "Running"
    assert "2 of 3 ranks answered" in episode.status.message


def test_when_all_answered_and_none_saved_more_waiting_is_no_use():
    fleet, name = sick_fleet()
    tainted(fleet, name)
    for uid in ("p1", "p2", "p3"):
        fleet.report(fleet.world.pod_by_uid(uid), 100, name, "no-writer", 80)
    episode = fleet.run(name)
    assert steps(episode)["checkpoint"] == "Skipped"
    assert "last checkpoint known is step 80" in episode.status.steps[1].proof


def test_a_job_that_reports_nothing_is_waited_for_shortly_and_proven_by_running():
    fleet = Fleet().add_nodes("n0", "n1", "n2").add_job("plain", "n0", "n1")
    fleet.judge("n1")
    name = fleet.open("n1").metadata.name
    fleet.run(name)
    tainted(fleet, name)
    assert fleet.evicted() == set()
    fleet.wait(fleet.config.no_report_wait_seconds)
    episode = fleet.run(name)
    assert "no rank reports to Outrider" in episode.status.steps[1].proof
    assert fleet.evicted() == {("p2", "n1")}
    fleet.place("n2")
    episode = fleet.run(name)
    assert episode.status.phase is Phase.ISOLATED
    assert "its ranks report no steps" in episode.status.message


@pytest.mark.parametrize("mode", [ActionMode.OBSERVE, ActionMode.DRY_RUN])
def test_observe_and_dry_run_record_the_episode_and_do_nothing(mode):
    fleet, name = sick_fleet(Config(mode=mode))
    for _ in range(5):
        fleet.wait(30)
        episode = fleet.run(name)
    assert fleet.acted == []
    assert episode.status.mode is mode
    assert "then evict team/train-1-p2" in episode.status.message


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if not verdict.hard])
def test_a_mild_verdict_opens_nothing(verdict):
    fleet = Fleet().add_nodes("n0").add_job("train", "n0")
    fleet.judge("n0", verdict)
    assert fleet.open("n0") is None


def test_a_stale_or_blind_report_opens_nothing():
    fleet = Fleet().add_nodes("n0", "n1").add_job("train", "n0", "n1")
    fleet.judge("n0")
    fleet.judge("n1")
    fleet.blind("n1")
    fleet.wait(fleet.config.evidence_fresh_seconds + 1, "n0", "n1")
    assert fleet.open("n0") is None
    assert fleet.open("n1") is None


def test_an_agent_that_falls_silent_holds_the_move_until_it_reports_again():
    fleet, name = sick_fleet()
    tainted(fleet, name)
    fleet.wait(120, "n1")
    episode = fleet.run(name)
    assert fleet.evicted() == set()
    assert "silent since" in episode.status.message
    fleet.wait(1)
    fleet.run(name)
    assert fleet.evicted() == {("p2", "n1")}


def test_evidence_that_goes_away_before_the_move_resolves_the_episode():
    fleet, name = sick_fleet()
    tainted(fleet, name)
    fleet.judge("n1", Verdict.NONE, "")
    episode = fleet.run(name)
    assert episode.status.phase is Phase.RESOLVED
    assert fleet.evicted() == set()


def test_a_paused_node_is_left_alone_and_the_message_says_how_to_go_on():
    fleet, name = sick_fleet()
    fleet.pause("n1")
    fleet.wait(60)
    episode = fleet.run(name)
    assert fleet.acted == []
    assert "maintenance" in episode.status.message
    assert "spec.mode to Auto" in episode.status.message


def test_a_person_can_cancel_and_the_same_cause_stays_cancelled():
    fleet, name = sick_fleet()
    fleet.run(name)
    episode = fleet.episodes[name]
    fleet.episodes[name] = replace(episode, spec=replace(episode.spec, cancel=True))
    assert fleet.run(name).status.phase is Phase.CANCELLED
    assert fleet.open("n1") is None


def test_a_sick_node_without_training_ends_isolated_at_once():
    fleet = Fleet().add_nodes("n0")
    fleet.judge("n0")
    name = fleet.open("n0").metadata.name
    fleet.run(name)
    tainted(fleet, name)
    episode = fleet.episodes[name]
    assert episode.status.phase is Phase.ISOLATED
    assert [step.name for step in episode.status.steps] == [StepName.ISOLATE]
    assert fleet.open("n0") is None


def test_several_faults_on_one_node_are_one_episode():
    fleet, name = sick_fleet()
    fleet.run(name)
    fleet.judge("n1", Verdict.REBOOT, "xid/48")
    assert fleet.open("n1") is None
    assert list(fleet.episodes) == [name]


def test_two_sick_nodes_of_one_job_share_one_request():
    fleet, first = sick_fleet()
    fleet.judge("n2")
    second = fleet.open("n2").metadata.name
    for name in (first, second):
        fleet.run(name)
    fleet.wait(5)
    for name in (first, second):
        fleet.run(name)
    values = {action.value for action in fleet.acted if isinstance(action, RequestCheckpoint)}
    assert len(values) == 1
    fleet.answer_requests()
    for name in (first, second):
        fleet.run(name)
    assert fleet.evicted() == {("p2", "n1"), ("p3", "n2")}
    assert len({action.value for action in fleet.acted if isinstance(action, RequestCheckpoint)}) == 1
    assert fleet.episodes[second].status.jobs[0].checkpoint_request == first


def test_a_refused_eviction_is_tried_until_its_time_is_over_and_then_a_person_is_asked():
    fleet, name = sick_fleet()
    fleet.protected.add("p2")
    tainted(fleet, name)
    fleet.answer_requests()
    fleet.run(name)
    fleet.wait(fleet.config.move_timeout_seconds)
    count = len([action for action in fleet.acted if isinstance(action, Evict)])
    assert count > 0
    episode = fleet.run(name)
    assert steps(episode)["move"] == "Expired"
    assert "kubectl delete pod -n team train-1-p2" in episode.status.steps[2].proof
    fleet.wait(10)
    fleet.run(name)
    assert len([action for action in fleet.acted if isinstance(action, Evict)]) == count


def test_a_pod_on_a_dead_node_is_explained_not_forced():
    fleet, name = sick_fleet()
    fleet.protected.add("p2")
    tainted(fleet, name)
    fleet.answer_requests()
    fleet.nodes["n1"] = replace(fleet.nodes["n1"], status=type(fleet.nodes["n1"].status)())
    episode = fleet.run(name)
    assert "is not Ready, so the old pod stays Terminating" in episode.status.message


def test_the_breaker_holds_new_episodes_and_lets_running_ones_finish():
    fleet = Fleet(Config(mode=ActionMode.ENFORCE, budget=Budget(max_nodes=1)))
    fleet.add_nodes("n0", "n1", "n2").add_job("a", "n0").add_job("b", "n1")
    fleet.judge("n0")
    fleet.judge("n1")
    first, second = (fleet.open(name).metadata.name for name in ("n0", "n1"))
    fleet.run(first)
    assert "1 of at most 1 nodes are under remediation (n0)" in fleet.run(second).status.message
    fleet.wait(4)
    fleet.run(first)
    fleet.wait(6)
    fleet.run(first)
    fleet.place("n2")
    assert fleet.run(first).status.phase is Phase.ISOLATED
    assert fleet.run(second).status.steps


def test_the_breaker_does_not_hold_a_second_node_of_a_job_that_is_being_moved_anyway():
    fleet, first = sick_fleet(Config(mode=ActionMode.ENFORCE, budget=Budget(max_nodes=1)))
    fleet.run(first)
    fleet.judge("n2")
    second = fleet.open("n2").metadata.name
    assert fleet.run(second).status.steps


def test_a_pod_that_died_by_itself_is_followed_to_its_new_place():
    fleet, name = sick_fleet()
    fleet.run(name)
    fleet._evict("team/train-1-p2")
    tainted(fleet, name)
    fleet.place("n3")
    fleet.run(name)
    fleet.train(3)
    episode = fleet.run(name)
    assert fleet.evicted() == set()
    assert "ended by themselves" in episode.status.steps[1].proof
    assert episode.status.jobs[0].resumed_step == 3


def test_a_step_equal_to_the_checkpoint_is_no_proof_of_training():
    fleet, name = sick_fleet()
    tainted(fleet, name)
    fleet.answer_requests(step=100)
    fleet.run(name)
    fleet.place("n3")
    fleet.run(name)
    fleet.train(100)
    assert steps(fleet.run(name))["resume"] == "Running"


def test_new_training_on_an_isolated_node_gets_a_new_episode_of_another_name():
    fleet = Fleet().add_nodes("n0")
    fleet.judge("n0")
    first = fleet.open("n0").metadata.name
    fleet.run(first)
    tainted(fleet, first)
    fleet.add_job("stubborn", "n0")
    assert fleet.open("n0").metadata.name == f"{first}-2"


def test_the_name_follows_from_node_boot_and_cause():
    _, name = sick_fleet()
    again, same = sick_fleet()
    assert name == same
    again.episodes.clear()
    again.judge("n1", Verdict.REBOOT, "xid/48")
    assert again.open("n1").metadata.name != name


def handmade(name: str, **changes: object) -> Remediation:
    fleet, right = sick_fleet()
    fleet.run(right)
    episode = fleet.episodes[right]
    return replace(episode, metadata=replace(episode.metadata, name=name or right), **changes)


def handmade_status(**changes: object) -> Remediation:
    episode = handmade("")
    return replace(episode, status=replace(episode.status, **changes))


STEP = handmade("").status.steps[0]
BAD_JOB = AffectedJob(namespace="team", name="train", uid="u", pods=["a"], pod_uids=[], ranks=[])
NONSENSE = {
    "a name that does not follow": handmade("mine"),
    "another node": handmade("", spec=replace(handmade("").spec, node="n0")),
    "rungs out of order": handmade_status(steps=[replace(STEP, name=StepName.MOVE)]),
    "a time that is none": handmade_status(steps=[replace(STEP, started_at="noon")]),
    "lists of different length": handmade_status(jobs=[BAD_JOB]),
}


@pytest.mark.parametrize("episode", NONSENSE.values(), ids=NONSENSE.keys())
def test_nonsense_is_reported_in_the_conditions_and_ignored(episode):
    fleet, _ = sick_fleet()
    fleet.episodes = {episode.metadata.name: episode}
    fleet.wait(100)
    fleet.run(episode.metadata.name)
    condition = fleet.episodes[episode.metadata.name].status.conditions[0]
    assert (condition.type, condition.status, condition.reason) == ("Accepted", "False", "InvalidSpec")
    assert "Delete it" in condition.message
    assert fleet.acted == []


def test_a_handmade_episode_does_not_keep_the_real_one_from_opening():
    fleet, name = sick_fleet()
    fleet.episodes = {"mine": handmade("mine")}
    fleet.run("mine")
    assert fleet.open("n1").metadata.name == name


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": [STEP, replace(STEP, name=StepName.CHECKPOINT, finished_at="noon")]},
        {"steps": [STEP, replace(STEP, name=StepName.CHECKPOINT)], "checkpoint_deadline": "2026-01-01t00:00:00z"},
        {"steps": [STEP, replace(STEP, name=StepName.CHECKPOINT)], "checkpoint_deadline": "9999-12-31T00:00:00Z"},
    ],
    ids=["step", "deadline", "far"],
)
def test_nonsense_elsewhere_neither_stops_nor_holds_nor_leads_an_episode(changes):
    fleet, name = sick_fleet(replace(ENFORCE, budget=Budget(max_nodes=1, max_percent=100)))
    job = AffectedJob(namespace="team", name="train", uid="uid-train", checkpoint_request="bent")
    bent = handmade_status(jobs=[job], checkpoint_request="bent", **changes)
    fleet.episodes["bent"] = replace(
        bent, metadata=replace(bent.metadata, name="bent"), spec=replace(bent.spec, node="n2")
    )
    for _ in range(3):
        fleet.run(name)
        fleet.wait(5)
    requests = [action for action in fleet.acted if isinstance(action, RequestCheckpoint)]
    assert {_request_id(action) for action in requests} == {name}


def test_a_deadline_beyond_any_policy_is_nonsense():
    fleet, name = sick_fleet()
    fleet.run(name)
    fleet.wait(5)
    fleet.run(name)
    episode = fleet.episodes[name]
    assert nonsense(episode) == ""
    far = replace(episode, status=replace(episode.status, checkpoint_deadline="2099-01-01T00:00:00Z"))
    assert "checkpointDeadline" in nonsense(far)


def test_a_report_from_the_future_opens_nothing():
    fleet, _ = sick_fleet()
    fleet.episodes.clear()
    fleet.now -= fleet.config.evidence_fresh_seconds + 1
    assert fleet.open("n1") is None


@pytest.mark.parametrize("cut", [".", "-"])
def test_the_name_of_an_episode_is_a_name_wherever_a_long_node_name_is_cut(cut):
    name = base_name(RemediationSpec(node="n" * 111 + cut + "example", cause="xid/79"))
    assert name.startswith("n" * 111 + "-")
    assert cut + "-" not in name


def test_a_ladder_started_again_anywhere_takes_the_same_actions():
    """Kill the controller between recording and acting at look k, for every k: the actions are the same set."""

    def climb(crash_at: int) -> set[str]:
        fleet, name = sick_fleet()
        for look in range(40):
            fleet.wait(0.5)
            fleet.look(name, crash=look == crash_at)
            fleet.answer_requests()
            fleet.place("n3")
            if any(step.name is StepName.RESUME for step in fleet.episodes[name].status.steps):
                fleet.train(101)
        assert fleet.episodes[name].status.phase is Phase.ISOLATED
        return {f"{type(action).__name__} {getattr(action, 'uid', '')} {_request_id(action)}" for action in fleet.acted}

    undisturbed = climb(crash_at=-1)
    assert all(climb(crash_at=look) == undisturbed for look in range(30))


def _request_id(action: object) -> str:
    return msgspec.json.decode(action.value)["id"] if isinstance(action, RequestCheckpoint) else ""


def test_opening_needs_a_gpu_node():
    assert opening("ghost", Fleet().world, NOW, 60) is None


def test_a_deadline_is_written_once():
    fleet, name = sick_fleet()
    tainted(fleet, name)
    deadline = fleet.episodes[name].status.checkpoint_deadline
    fleet.wait(10)
    fleet.run(name)
    assert fleet.episodes[name].status.checkpoint_deadline == deadline
    assert deadline != rfc3339(fleet.now)
    assert steps(fleet.episodes[name])["checkpoint"] == StepState.RUNNING


def isolate_gpus(fleet: Fleet, *holders: str, sick: int = 1, name: str = "n1") -> None:
    """Let the agent keep the first GPUs apart; ``holders`` are the pods on GPU 0, 1, ..."""
    gpus = [
        GPU(
            index=index,
            uuid=f"GPU-{index}",
            verdict=Verdict.REPLACE if index < sick else Verdict.NONE,
            isolated=index < sick,
            held_by=holder,
        )
        for index, holder in enumerate(holders)
    ]
    fleet._status(name, gpus=gpus)


def test_where_the_sick_gpu_is_isolated_the_node_gets_no_taint_and_others_there_go_on():
    fleet = Fleet().add_nodes("n0", "n1", "n2").add_job("train", "n0", "n1").add_job("other", "n1")
    fleet.train(90)
    fleet.judge("n1")
    isolate_gpus(fleet, "team/train-1-p2", "team/other-0-p3")
    name = fleet.open("n1").metadata.name
    assert "DeviceTaintRules keep new pods off GPU 0 of n1" in fleet.run(name).status.steps[0].proof
    fleet.wait(60)
    fleet.answer_requests()
    fleet.run(name)
    assert fleet.evicted() == {("p2", "n1")}
    assert not any(isinstance(action, AddTaint) for action in fleet.acted)
    assert {action.uid for action in fleet.acted if isinstance(action, RequestCheckpoint)} == {"p1", "p2"}


def test_a_rank_may_train_on_in_a_healthy_gpu_of_the_same_node():
    fleet = Fleet().add_nodes("n0", "n1").add_job("train", "n0", "n1")
    fleet.train(90)
    fleet.judge("n1")
    isolate_gpus(fleet, "team/train-1-p2", "")
    name = fleet.open("n1").metadata.name
    fleet.run(name)
    fleet.answer_requests()
    fleet.run(name)
    fleet.place("n1")
    isolate_gpus(fleet, "", "team/train-1-p3")
    fleet.run(name)
    fleet.train(101)
    episode = fleet.run(name)
    assert steps(episode) == {"isolate": "Done", "checkpoint": "Done", "move": "Done", "resume": "Done"}
    assert "its GPUs stay isolated until its agent finds it healthy" in episode.status.message
    assert fleet.open("n1") is None


@pytest.mark.parametrize("holders", [("", ""), ("team/train-1-p2", "")])
def test_where_nobody_knows_who_holds_the_gpu_or_the_node_is_sick_too_all_its_pods_move(holders):
    fleet = Fleet().add_nodes("n0", "n1").add_job("train", "n0", "n1").add_job("other", "n1")
    fleet.judge("n1")
    isolate_gpus(fleet, *holders)
    if holders[0]:
        fleet.find("n1", "kernel/uvm-fatal", Verdict.REBOOT)
    assert fleet.world.gang_pods("n1") == [fleet.pods["team/other-0-p3"], fleet.pods["team/train-1-p2"]]


def test_gpus_that_are_not_all_isolated_leave_the_node_to_its_taint():
    fleet, name = sick_fleet()
    isolate_gpus(fleet, "team/train-1-p2", "", sick=2)
    gpus = fleet.gpu_nodes["n1"].status.gpus
    fleet._status("n1", gpus=[gpus[0], replace(gpus[1], isolated=False)])
    tainted(fleet, name)
    assert fleet.nodes["n1"].spec.taints
