"""`make bench-agent`: what the node agent costs and how fast it is, as bench/out/agent.json and a table.

The agent runs as the chart installs it, in a pod on one real node of a testbed with 8 simulated GPUs. Its own log says
when it had judged a finding; faults are stamped by the same clock just before they are written.
"""

import argparse
import asyncio
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.agent_node import GPUS, AgentNode
from bench.figures import Figure, against, merged, write
from bench.kernel_lines import lines_per_second
from outrider.api.names import UNHEALTHY_TAINT
from outrider.health.taint import taint_of
from outrider.kube.client import Client, Selector
from outrider.kube.kinds import NODES
from outrider.kube.transport import connect
from testbed import cluster
from testbed.demo import release
from testbed.errors import TestbedError
from testbed.say import step, to_stderr
from testbed.xid_lines import xid_line

OUT = Path(__file__).with_name("out") / "agent.json"
_TESTBED = "bench-agent"
_INJECTIONS = 112
_FIRST_CODE = 20_000  # Xids that no catalogue knows: each is a finding of its own, and none is acted on
_HARD_XID = 95
_XID_EVENT = 0x8
_CRITICAL = (13, 31, 38, 43, 48, 61, 62, 64, 68, 69, 74, 94, 109, 119)  # Xids that NVML reports as events
_IDLE_S, _STORM_S, _FLOOD_S = 120.0, 30.0, 60.0
_TICK_S = 0.02
_SETTLE_S = 12.0  # a reading of NVML: after a boot it tells anew which GPU is in which slot
_WAIT_S = 60.0
_SETTINGS = ("telemetry.otlpEndpoint=", "remediation.mode=observe", "webhook.replicas=1")
_DEFAULTS = ("nodeAgent.clearDwellSeconds=5",)
_MACHINE = f"{os.cpu_count()} CPUs, shared with the whole testbed"
_POLLED: dict[str, tuple[str, int]] = {  # finding: key of the simulated library, value that is a fault
    "remap/pending": ("remap.pending", 1),
    "remap/failure": ("remap.failure", 1),
    "nvlink/inactive": ("nvlink.5.state", 0),
}


def figures(only: Sequence[str], injections: int, soak_minutes: float) -> list[Figure]:
    """Measure on a testbed of its own, which is removed afterwards; ``only`` names parts, none means all.

    A part that fails is said and left out. Raises TestbedError where the testbed does not start.
    """
    cluster.down(_TESTBED)
    try:
        state = cluster.up(_TESTBED, nodes=1, say=to_stderr)
        release.install(state, to_stderr, *_SETTINGS, *_DEFAULTS)
        return _measure(AgentNode(state, injections), only or list(_PARTS), soak_minutes)
    finally:
        cluster.down(_TESTBED)


def _measure(agent: AgentNode, names: Sequence[str], soak_minutes: float) -> list[Figure]:
    found: list[Figure] = []
    time.sleep(_SETTLE_S)
    for name in names:
        with step(to_stderr, name):
            try:
                found += _PARTS[name](agent)
            except (TestbedError, TimeoutError) as error:  # the other parts are worth having
                to_stderr(f"{name}: NOT MEASURED: {error or 'no answer in time'}")
        agent.heal()
        time.sleep(_SETTLE_S)
    if soak_minutes:
        with step(to_stderr, "soak"):
            found += _soak(agent, soak_minutes)
    return found


def _idle(agent: AgentNode) -> list[Figure]:
    time.sleep(30)  # the first readings, and the pages of the start that go back
    before = agent.usage()
    time.sleep(_IDLE_S)
    used = before.percent_until(agent.usage())
    where = f"{GPUS} GPUs, default periods, {_IDLE_S:.0f} s after the start; baseline: target"
    return [
        against("agent_rss_mb", agent.rss_mb(), "MB", 64, f"all its processes; {where}"),
        Figure("agent_pss_mb", round(agent.pss_mb(), 1), "MB", conditions="the same, shared pages counted once"),
        against("agent_cpu_pct_idle", used, "%", 0.2, f"of one core, all its processes; {where}"),
    ]


def _lines(agent: AgentNode) -> list[Figure]:
    """Each line is of a new code, so that each is a new finding."""
    began, written = time.time(), dict[tuple[str, str], float]()
    for number in range(agent.injections):
        gpu = number % GPUS
        line = xid_line(agent.driver.bus_id(gpu), _FIRST_CODE + number, "bench")
        written[f"xid/{_FIRST_CODE + number}", agent.uuid(gpu)] = time.time()
        agent.say(line)
        time.sleep(random.uniform(0.1, 0.3))
    delays = _delays(agent, began, written)
    where = f"{len(delays)} Xid lines, one at a time, from the write to the judged finding; baseline: target"
    return [
        against("kernel_line_to_finding_p99_ms", _percentile(delays, 99) * 1e3, "ms", 50, where),
        Figure("kernel_line_to_finding_p50_ms", round(_percentile(delays, 50) * 1e3, 1), "ms", conditions=where),
    ]


def _events(agent: AgentNode) -> list[Figure]:
    began, written = time.time(), dict[tuple[str, str], float]()
    for code in _CRITICAL:
        for gpu in range(GPUS):
            written[f"xid/{code}", agent.uuid(gpu)] = time.time()
            agent.driver.state.add_event(gpu, _XID_EVENT, code)
            time.sleep(random.uniform(0.1, 0.3))
    delays = _delays(agent, began, written)
    where = f"{len(delays)} NVML events, one at a time, no kernel line; baseline: target"
    return [against("nvml_event_to_finding_p99_ms", _percentile(delays, 99) * 1e3, "ms", 100, where)]


def _polled(agent: AgentNode) -> list[Figure]:
    delays: list[float] = []
    for _ in range(-(-agent.injections // (GPUS * len(_POLLED)))):
        began, written = time.time(), dict[tuple[str, str], float]()
        for code, (key, value) in _POLLED.items():
            for gpu in range(GPUS):
                written[code, agent.uuid(gpu)] = time.time()
                agent.driver.state.set_gpu(gpu, {key: value})
                time.sleep(random.uniform(0.2, 1.4))
        delays += _delays(agent, began, written)
        agent.heal()
        time.sleep(20)  # two readings: the states are gone, and what was doubted is seen again
    where = f"{len(delays)} states that NVML shows when it is asked, default period; baseline: target"
    return [against("polled_fault_to_finding_max_s", max(delays), "s", 20, where)]


def _delays(agent: AgentNode, began: float, written: dict[tuple[str, str], float]) -> list[float]:
    """Return the seconds from each fault to its finding. Raises TestbedError for faults that were not found."""
    deadline = time.monotonic() + _WAIT_S
    while True:
        told = {(one.code, one.subject_id): one.at for one in reversed(agent.told(began))}
        missing = written.keys() - told.keys()
        if not missing:
            return [told[key] - at for key, at in written.items()]
        if time.monotonic() > deadline:
            raise TestbedError(f"{len(missing)} of {len(written)} faults were not found, such as {min(missing)}")
        time.sleep(1)


def _taints(agent: AgentNode) -> list[Figure]:
    return asyncio.run(_taint_times(agent))


async def _taint_times(agent: AgentNode) -> list[Figure]:
    async with connect("bench", kubeconfig=agent.state.folder / "kubeconfig") as client:
        delays = []
        for number in range(agent.injections):
            gpu = number % GPUS
            line = xid_line(agent.driver.bus_id(gpu), _HARD_XID, f"bench {number}")
            version = (await client.list(NODES)).resource_version
            at = time.time()
            agent.say(line)
            delays.append(await _tainted(client, agent, version, present=True) - at)
            version = (await client.list(NODES)).resource_version
            agent.heal()
            await _tainted(client, agent, version, present=False)
            await asyncio.sleep(random.uniform(0.3, 0.6))
    where = f"{len(delays)} lines of Xid {_HARD_XID}, seen by a watch of the node ({UNHEALTHY_TAINT}); {_MACHINE}"
    return [
        Figure("fault_line_to_taint_p50_s", round(_percentile(delays, 50), 3), "s", conditions=where),
        against("fault_line_to_taint_p99_s", _percentile(delays, 99), "s", 0.5, f"{where}; baseline: target"),
    ]


async def _tainted(client: Client, agent: AgentNode, version: str, *, present: bool) -> float:
    """Return when the node was seen with our taint, or without it."""
    async with asyncio.timeout(_WAIT_S):
        async for event in client.watch(NODES, version, Selector(fields=f"metadata.name={agent.node.name}")):
            if event.object is not None and (taint_of(event.object) is not None) == present:
                return time.time()
    raise TestbedError("the watch of the node ended")


def _storm(agent: AgentNode) -> list[Figure]:
    before = agent.usage()
    _pour(agent, 1000, _STORM_S)
    used = before.percent_until(agent.usage())
    where = f"of one core, 1,000 Xid lines/s for {_STORM_S:.0f} s, each different; baseline: target"
    return [against("agent_cpu_pct_storm", used, "%", 5, where)]


def _flood(agent: AgentNode) -> list[Figure]:
    memory, before = agent.rss_mb(), agent.usage()
    lines = _pour(agent, 10_000, _FLOOD_S)
    used = before.percent_until(agent.usage())
    at = time.time()
    agent.say(xid_line(agent.driver.bus_id(0), _FIRST_CODE, "after the flood"))
    lag = max(_delays(agent, at - 1, {(f"xid/{_FIRST_CODE}", agent.uuid(0)): at}))
    where = f"{lines / _FLOOD_S:,.0f} Xid lines/s for {_FLOOD_S:.0f} s, each different"
    return [
        Figure("agent_cpu_pct_flood", round(used, 1), "%", conditions=f"of one core, {where}"),
        Figure("agent_rss_mb_flood_growth", round(agent.rss_mb() - memory, 1), "MB", conditions=where),
        Figure("flood_line_to_finding_s", round(lag, 3), "s", conditions=f"a line right behind {where}"),
    ]


def _pour(agent: AgentNode, lines_per_second: int, seconds: float) -> int:
    """Append lines at a rate; returns how many."""
    places = [agent.driver.bus_id(gpu) for gpu in range(GPUS)]
    began, written = time.monotonic(), 0
    while (passed := time.monotonic() - began) < seconds:
        numbers = range(written, int(passed * lines_per_second))
        agent.say(*(xid_line(places[n % GPUS], 31, f"MMU Fault at 0x7f_{n:08x}") for n in numbers))
        written = numbers.stop
        time.sleep(_TICK_S)
    return written


def _parser(_agent: AgentNode) -> list[Figure]:
    where = "records of a mixed log through the probe's own reading, one process"
    return [Figure("kmsg_lines_per_s", round(lines_per_second()), "lines/s", conditions=where)]


def _soak(agent: AgentNode, minutes: float) -> list[Figure]:
    """Faults come and go all the time; memory at the end is compared with memory once all code has run."""
    samples: list[tuple[float, float]] = []
    began, usage = time.monotonic(), agent.usage()
    while (passed := time.monotonic() - began) < minutes * 60:
        gpu = len(samples) % GPUS
        agent.say(xid_line(agent.driver.bus_id(gpu), 31, f"soak {len(samples)}"))
        agent.driver.state.set_gpu(gpu, {"remap.pending": len(samples) % 2})
        samples.append((passed, agent.rss_mb()))
        time.sleep(10)
    first = [mb for at, mb in samples if 0.1 * minutes * 60 <= at < 0.3 * minutes * 60]
    last = [mb for at, mb in samples if at >= 0.8 * minutes * 60]
    growth = statistics.mean(last) - statistics.mean(first)
    used = usage.percent_until(agent.usage())
    where = f"mean of the last fifth against that of the second, {minutes:g} minutes with a fault every 10 s"
    return [
        Figure("agent_rss_mb_soak_growth", round(growth, 2), "MB", conditions=where),
        Figure("agent_cpu_pct_soak", round(used, 3), "%", conditions=f"of one core, {minutes:g} minutes"),
    ]


_PARTS: dict[str, Callable[[AgentNode], list[Figure]]] = {
    "idle": _idle,
    "lines": _lines,
    "events": _events,
    "polled": _polled,
    "taints": _taints,
    "storm": _storm,
    "flood": _flood,
    "parser": _parser,
}


def _percentile(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def main() -> int:
    """Measure; the exit code is 1 where something did not work."""
    parser = argparse.ArgumentParser(prog="make bench-agent", description=__doc__)
    parser.add_argument("--only", nargs="*", choices=list(_PARTS), default=[], help="parts; the others' figures stay")
    parser.add_argument("--injections", type=int, default=_INJECTIONS, help="faults of each kind (default %(default)s)")
    parser.add_argument("--soak-minutes", type=float, default=0, help="also watch memory for so long (30 is usual)")
    arguments = parser.parse_args()
    try:
        found = figures(arguments.only, arguments.injections, arguments.soak_minutes)
        write(merged(found, OUT) if arguments.only else found, OUT)
    except TestbedError as error:
        print(error, file=sys.stderr)
        return 1
    to_stderr(f"written to {OUT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
