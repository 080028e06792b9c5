"""How the demo tells what happened, and when it calls it a success."""

import pytest

from testbed.demo import story
from testbed.demo.view import EpisodeView, NodeView, PodView, StepLine, View, parse_lines

FAULT = 100.0


def line(step: int, unix: float, resumed_from: int = 0, loss: float | None = None) -> StepLine:
    return StepLine(step, 1 / step if loss is None else loss, resumed_from, unix)


def pod(index: int, uid: str = "", **changes: object) -> PodView:
    fields = {
        "name": f"train-{index}", "uid": uid or f"uid-{index}", "index": index, "node": f"gpu-{index}",
        "phase": "Running", "gated": False, "ready": True, "restarts": 0, "ending": False, "checkpoint_request": "",
    }  # fmt: skip
    return PodView(**(fields | changes))  # type: ignore[arg-type]  # fields by name, as the struct checks them


def view(*pods: PodView) -> View:
    return View(pods={p.uid: p for p in pods})


BEFORE = [line(step, 90 + step / 10) for step in range(1, 48)]
AFTER = [line(step, 120 + step, 40) for step in range(41, 60)]


def test_steps_done_again_are_the_steps_lost() -> None:
    found = story.curve(BEFORE + AFTER, 94.0)
    assert found
    assert (found.resumed_from, found.first.step, found.steps_lost) == (40, 41, 7)
    assert story.continues(found) == ""


def test_nothing_has_resumed_while_the_old_ranks_still_print_after_the_fault() -> None:
    assert story.curve(BEFORE, 92.0) is None
    assert story.curve([], 92.0) is None


def test_a_resumption_before_the_fault_does_not_count() -> None:
    assert story.curve(BEFORE + AFTER, 170.0) is None


def test_a_job_that_starts_from_scratch_lost_all_its_steps() -> None:
    found = story.curve(BEFORE + [line(step, 120 + step) for step in range(1, 60)], 94.7)
    assert found
    assert found.steps_lost == 47


@pytest.mark.parametrize(
    ("after", "complaint"),
    [
        ([line(s, 120 + s, 40, loss=5.0) for s in range(41, 60)], "step 41 had loss"),
        ([line(41, 161, 40), *(line(s, 120 + s, 40, loss=0.9) for s in range(42, 60))], "step 42 had loss"),
    ],
)
def test_a_loss_curve_that_jumps_is_no_continuation(after: list[StepLine], complaint: str) -> None:
    found = story.curve(BEFORE + after, 94.0)
    assert found
    assert complaint in story.continues(found)


def test_a_jump_is_seen_even_where_no_step_was_repeated() -> None:
    found = story.curve(BEFORE + [line(s, 120 + s, 47, loss=9.0) for s in range(48, 60)], 94.7)
    assert found
    assert found.steps_lost == 0
    assert "mean loss was" in story.continues(found)


def test_workers_that_kept_pod_and_containers_are_untouched() -> None:
    before = view(pod(0), pod(1), pod(2))
    after = view(pod(0), pod(1, uid="new", node="gpu-3"), pod(2))
    assert story.untouched(before, after, pod(1)) == ""


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        (pod(2, uid="other"), "worker 2 lost its pod train-2"),
        (pod(2, restarts=1), "worker 2 (train-2) restarted 1 times"),
    ],
)
def test_a_worker_that_was_replaced_or_restarted_was_touched(other: PodView, complaint: str) -> None:
    assert complaint in story.untouched(view(pod(0), pod(1), pod(2)), view(pod(0), other), pod(1))


def test_each_change_is_told_once_with_place_and_proof() -> None:
    healthy = NodeView(100, "none", "", "", None, 8)
    sick = NodeView(0, "reboot", "xid/79", "GPU 3 fell off the bus", "xid-79", 7)
    episode = EpisodeView("gpu-1", "Open", {"isolate": ("Done", "taint is on gpu-1")}, -1)
    before = View(nodes={"gpu-1": healthy}, pods={"uid-1": pod(1)})
    asked = pod(1, checkpoint_request="{}", ending=True)
    after = View(nodes={"gpu-1": sick}, pods={"uid-1": asked}, episodes={"r": episode})
    moments = {moment.phase: moment.text for moment in story.happened(before, after)}
    assert moments == {
        "seen": "gpu-1: fault seen: xid/79: GPU 3 fell off the bus (verdict reboot)",
        "scored": "gpu-1: score 100 -> 0",
        "tainted": "gpu-1: tainted outrider.dev/unhealthy=xid-79:NoSchedule",
        "opened": "remediation r opened for gpu-1",
        "isolate Done": "isolate: Done (taint is on gpu-1)",
        "checkpoint asked": "checkpoint asked of train-1",
        "evicted": "worker 1: pod train-1 leaves gpu-1",
    }
    assert list(story.happened(after, after)) == []


def test_other_output_between_the_scripts_lines_is_passed_over() -> None:
    log = 'warning: x\n{"step": 3, "loss": 0.5, "rank": 0, "resumed_from": 0, "unix": 1.5}\n{"step": "x"}\n[1, 2]\n{"st'
    assert parse_lines(log) == [StepLine(3, 0.5, 0, 1.5)]
