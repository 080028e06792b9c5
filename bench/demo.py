"""`make bench-demo`: figures of the demo's scenario, as bench/out/demo.json and a table."""

import argparse
import os
import sys
import time
from pathlib import Path

from bench import scheduling
from bench.figures import Figure, against, write
from testbed import cluster
from testbed.demo import demo, own_processes, release, summary
from testbed.demo.scenario import Scenario
from testbed.errors import TestbedError
from testbed.say import step, to_stderr
from testbed.state import State

OUT = Path(__file__).with_name("out") / "demo.json"
_TESTBED = "bench"
_MANY_NODES = 1000
_SETTLE_S = 60.0  # for 1,000 new nodes to be Ready and all watches to have seen them
_MACHINE = f"{os.cpu_count()} CPUs"


def demo_figures() -> list[Figure]:
    """Run the scenario on a testbed of its own, which is removed afterwards.

    Raises:
        TestbedError: something did not work; without it there are no figures.
    """
    cluster.build_all(to_stderr)
    cluster.down(_TESTBED)
    try:
        state, start = _start()
        release.install(state, to_stderr)
        return [*start, *_scenario(state), *_many_nodes(state)]
    finally:
        cluster.down(_TESTBED)


def _start() -> tuple[State, list[Figure]]:
    began = time.monotonic()
    cluster.up(_TESTBED)
    control_plane = time.monotonic() - began
    began = time.monotonic()
    state = cluster.up(_TESTBED, nodes=demo.NODES)
    nodes = time.monotonic() - began
    warm = f"warm cache, {_MACHINE}; baseline: target"
    return state, [
        against("testbed_control_plane_s", control_plane, "s", 5, warm),
        against("testbed_four_nodes_s", nodes, "s", 25, f"{warm}; control plane is up"),
    ]


def _scenario(state: State) -> list[Figure]:
    idle = own_processes.megabytes(state)
    run = Scenario(state)
    try:
        with step(to_stderr, "scenario"):
            uid = run.submit()
            run.train_to(demo.WARM_STEPS)
            fault = run.break_gpu(run.worker(demo.VICTIM))
            found = run.resumed(fault)
            problems = run.complaints(fault, found)
    finally:
        run.close()
    if problems:
        raise TestbedError(f"the scenario did not end as promised: {'; '.join(problems)}")
    result = summary.figures(fault, found, run.moments, len(run.pods_seen), uid)
    where = f"{demo.NODES} real nodes, 3 workers, {_MACHINE}, warm"
    return [
        against("fault_to_step_s", result.fault_to_step_s, "s", 30, f"{where}; baseline: target"),
        Figure("steps_lost", result.steps_lost, "steps", conditions=f"{where}; a checkpoint every 10 steps"),
        against("pods_touched", result.pods_touched, "pods", 1, f"{where}; baseline: workers on the sick node"),
        *_memory("rss_mb_{}", idle, f"idle, {demo.NODES} nodes"),
    ]


def _many_nodes(state: State) -> list[Figure]:
    cluster.up(state.name, nodes=demo.NODES, kwok_nodes=_MANY_NODES, say=to_stderr)
    with step(to_stderr, "components see the new nodes"):
        time.sleep(_SETTLE_S)
    return _memory("rss_mb_{}_1000_nodes", own_processes.megabytes(state), f"{_MANY_NODES} simulated nodes more, a job")


def _memory(name: str, megabytes: dict[str, float], where: str) -> list[Figure]:
    words = f"{where}; largest of its processes, shared pages counted; baseline: the agent's budget"
    return [against(name.format(part), value, "MB", 100, words) for part, value in sorted(megabytes.items())]


def main() -> int:
    """Measure everything; the exit code is 1 where the scenario failed."""
    argparse.ArgumentParser(prog="make bench-demo", description=__doc__).parse_args()
    try:
        write([*demo_figures(), *scheduling.figures(["stream"], scheduling.Scale(nodes=_MANY_NODES, runs=1))], OUT)
    except TestbedError as error:
        print(error, file=sys.stderr)
        return 1
    to_stderr(f"written to {OUT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
