"""Outrider's own parts fail while it saves a job; the API server fails while all is well."""

import os
import signal
import time

import pytest

from testbed import control_plane, processes
from testbed.demo import own_processes
from testbed.demo.release import NAMESPACE
from testbed.demo.scenario import Scenario

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.mark.parametrize("component", own_processes.COMPONENTS)
def test_a_component_killed_while_a_job_is_being_moved_changes_nothing_about_how_it_ends(
    run: Scenario, component: str
) -> None:
    run.submit()
    run.train_to(25)
    fault = run.break_gpu(run.worker(1))
    run.until("the fault is seen", lambda: run.now.nodes[fault.node].taint is not None, 60)
    killed = own_processes.pids(run.state)[component]
    assert killed
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    found = run.resumed(fault, seconds=240)
    assert run.complaints(fault, found) == []
    assert len(set(run.now.episodes) - set(fault.before.episodes)) == 1


def test_an_api_server_that_is_silent_for_half_a_minute_costs_no_pod_and_no_restart(run: Scenario) -> None:
    run.submit()
    run.train_to(15)
    before, ours = run.look(), restarts(run)
    pid = processes.find(run.state, "kube-apiserver")
    assert pid
    os.kill(pid, signal.SIGSTOP)
    time.sleep(30)
    os.kill(pid, signal.SIGCONT)
    at = run.last_step
    run.train_to(at + 80, 120)
    time.sleep(15)  # whatever was going to act on stale knowledge has had the time to
    after = run.look()
    assert set(after.pods) == set(before.pods)
    assert {uid: pod.restarts for uid, pod in after.pods.items()} == dict.fromkeys(before.pods, 0)
    assert [node for node, seen in after.nodes.items() if seen.taint is not None] == []
    assert restarts(run) == ours

    fault = run.break_gpu(run.worker(1))  # and it still does its work
    assert run.complaints(fault, run.resumed(fault)) == []


def restarts(run: Scenario) -> dict[str, int]:
    """Restarts of Outrider's own containers by pod and container; kube-scheduler's excepted, which ends by design
    when it can't renew its lease."""
    api = control_plane.admin(run.state)
    pods = api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
    api.close()
    return {
        f"{pod['metadata']['name']}/{status['name']}": status["restartCount"]
        for pod in pods
        for status in pod["status"].get("containerStatuses", [])
        if status["name"] != "kube-scheduler"
    }
