"""`make bench-demo`: figures of the demo's scenario, as bench/out/demo.json and a table."""

import json
import os
import sys
import time
from pathlib import Path

import msgspec

from testbed import cluster
from testbed.demo import demo, own_processes, summary
from testbed.demo.scenario import Scenario
from testbed.errors import TestbedError
from testbed.say import to_stderr

OUT = Path(__file__).with_name("out") / "demo.json"
_BENCH = "bench"


class Figure(msgspec.Struct, frozen=True):
    """One measured value; ``ratio`` is value / baseline where there is something to compare with."""

    name: str
    value: float
    unit: str
    baseline: float | None = None
    ratio: float | None = None
    conditions: str = ""


def against(name: str, value: float, unit: str, baseline: float, conditions: str) -> Figure:
    """Return a figure with its ratio to a target or to a measured baseline."""
    return Figure(name, round(value, 3), unit, baseline, round(value / baseline, 3) if baseline else None, conditions)


def testbed_figures() -> list[Figure]:
    """Seconds of a warm start, measured on a testbed of their own."""
    cluster.down(_BENCH)
    try:
        began = time.monotonic()
        cluster.up(_BENCH)
        control_plane = time.monotonic() - began
        began = time.monotonic()
        cluster.up(_BENCH, nodes=demo.NODES)
        nodes = time.monotonic() - began
    finally:
        cluster.down(_BENCH)
    warm = f"warm cache, {os.cpu_count()} CPUs; baseline: target"
    return [
        against("testbed_control_plane_s", control_plane, "s", 5, warm),
        against("testbed_four_nodes_s", nodes, "s", 25, f"{warm}; control plane up"),
    ]


def scenario_figures(name: str) -> list[Figure]:
    """Run the demo's scenario once and measure it, and the memory of every component while it ran."""
    state = demo.prepare(name)
    run = Scenario(state)
    try:
        uid = run.submit()
        run.train_to(demo.WARM_STEPS)
        fault = run.break_gpu(run.worker(demo.VICTIM))
        found = run.resumed(fault)
        result = summary.figures(fault, found, run.moments, len(run.pods_seen), uid)
        memory = own_processes.megabytes(state)
    finally:
        run.close()
    conditions = f"4 real nodes, 3 workers, {os.cpu_count()} CPUs, warm"
    return [
        against("fault_to_step_s", result.fault_to_step_s, "s", 30, f"{conditions}; baseline: target"),
        Figure("steps_lost", result.steps_lost, "steps", conditions=f"{conditions}; checkpoint every 20 steps"),
        against("pods_touched", result.pods_touched, "pods", 1, f"{conditions}; baseline: the worker on the sick node"),
        *(
            against(f"rss_mb_{component}", value, "MB", 100, f"{conditions}; baseline: the agent's budget")
            for component, value in sorted(memory.items())
        ),
    ]


def write(figures: list[Figure]) -> None:
    """Write the figures, keeping those of other benches that are in the file already, and print all as a table."""
    OUT.parent.mkdir(exist_ok=True)
    old = msgspec.json.decode(OUT.read_bytes(), type=list[Figure]) if OUT.exists() else []
    new = {figure.name for figure in figures}
    merged = [figure for figure in old if figure.name not in new] + figures
    OUT.write_text(json.dumps(msgspec.to_builtins(merged), indent=1) + "\n")
    print(f"{'name':32} {'value':>10} {'unit':8} {'baseline':>9} {'ratio':>7}  conditions")
    for f in merged:
        print(f"{f.name:32} {f.value:>10} {f.unit:8} {_dash(f.baseline):>9} {_dash(f.ratio):>7}  {f.conditions}")


def _dash(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def main() -> int:
    """Measure everything; the exit code is 1 where the scenario failed."""
    try:
        write([*testbed_figures(), *scenario_figures(demo.NAME)])
    except TestbedError as error:
        print(error, file=sys.stderr)
        return 1
    to_stderr(f"written to {OUT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
