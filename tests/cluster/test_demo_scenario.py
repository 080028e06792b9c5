"""A training job loses a GPU, at three moments of its life, and goes on with nobody touching it."""

import json
import time

import pytest

from testbed.demo import own_processes
from testbed.demo.scenario import WORKERS, Scenario

pytestmark = pytest.mark.cluster


def test_a_job_that_loses_a_gpu_mid_training_goes_on_from_its_checkpoint_and_is_traced_throughout(
    run: Scenario,
) -> None:
    uid = run.submit()
    run.train_to(25)
    fault = run.break_gpu(run.worker(1))
    found = run.resumed(fault)

    assert run.complaints(fault, found) == []
    assert found.steps_lost < 10  # the script's own interval between two checkpoints
    assert own_processes.megabytes(run.state)["node_agent"] <= 100
    spans = trace(run, uid)
    assert {"webhook.admit", "planner.plan", "planner.ungate", "agent.verdict", "remediation.resumed"} <= set(spans)
    assert spans["webhook.admit"] < fault.unix < spans["agent.verdict"] < spans["remediation.resumed"]


def test_a_job_submitted_as_a_gpu_fails_never_starts_on_the_sick_node(run: Scenario) -> None:
    run.break_node("gpu-0")
    run.until("gpu-0 is tainted", lambda: run.now.nodes["gpu-0"].taint is not None, 60)
    run.submit()
    run.train_to(5)
    assert {pod.node for pod in run.now.pods.values()} == {"gpu-1", "gpu-2", "gpu-3"}
    assert len(run.pods_seen) == WORKERS


def test_a_job_whose_node_fails_before_it_was_planned_trains_elsewhere(run: Scenario) -> None:
    run.break_node("gpu-0")
    run.submit()
    run.train_to(5, 240)
    run.until("gpu-0 is left", lambda: "gpu-0" not in {pod.node for pod in run.now.pods.values()}, 120)
    at = run.last_step
    run.train_to(at + 5, 240)
    assert {pod.node for pod in run.now.pods.values()} == {"gpu-1", "gpu-2", "gpu-3"}


def test_a_job_whose_node_fails_while_it_starts_trains_elsewhere(run: Scenario) -> None:
    run.submit()
    run.until("all workers are bound", lambda: len([p for p in run.now.pods.values() if p.node]) == WORKERS, 60)
    fault = run.break_gpu(run.worker(1))
    run.until("worker 1 has left", lambda: fault.victim.uid not in run.now.pods, 180)
    run.train_to(15, 240)
    assert run.worker(1).node != fault.node
    assert fault.node not in {pod.node for pod in run.now.pods.values()}
    kept = {uid for uid, pod in fault.before.pods.items() if pod.index != 1}
    assert kept <= set(run.now.pods)
    assert len(run.pods_seen) == WORKERS + 1


def trace(run: Scenario, uid: str) -> dict[str, float]:
    """Start in seconds since 1970 of the first span of each name in the job's trace, as the collector wrote them."""
    time.sleep(3)  # exporters send once a second
    lines = (run.state.folder / "traces.jsonl").read_text().splitlines()
    spans = [span for span in map(json.loads, lines) if span["trace_id"] == uid.replace("-", "")]
    ordered = sorted(spans, key=lambda span: -span["start_unix_nano"])
    return {span["name"]: span["start_unix_nano"] / 1e9 for span in ordered}
