"""How soon the extender answers while the cluster changes and gangs are planned, and what the plugin's memory is.

A real API server with simulated nodes and pods bound to them, the plugin as a process of its own, kube-scheduler's
requests from a second process over loopback. A gang of 512 waits for want of room all the while, so that the planner
thread works on it at each change.
"""

import argparse
import asyncio
import gc
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from bench.figures import Figure, against, write
from bench.load import Load, pod, rss_megabytes
from outrider.api.core import Node, NodeStatus
from outrider.api.gpunode import GPUNode, GPUNodeStatus, Health
from outrider.api.meta import ObjectMeta
from outrider.api.names import SCHEDULER_NAME
from outrider.api.times import rfc3339
from outrider.kube.client import Client
from outrider.kube.kinds import GPUNODES, PODS
from outrider.kube.transport import connect
from outrider.topology import levels_from
from outrider.workloads import GPU
from scheduler_plugin.cluster.world import World
from scheduler_plugin.rules import Rules
from testbed import cluster, control_plane, labels
from testbed.build import program
from testbed.say import step, to_stderr
from testbed.scheduling import Scheduling, prepare
from testbed.state import State

OUT: Final = Path(__file__).with_name("out") / "extender.json"
_TESTBED: Final = "bench-extender"
_NAMESPACE: Final = "bench"
_CRDS: Final = Path(__file__).parent.parent / "charts" / "outrider" / "files" / "crds"
_RATE: Final = 100.0  # requests a second, filter and prioritize in turns, as kube-scheduler asks
_EVENTS: Final = 50.0  # changes of a node's health a second: 5,000 agents that each write every 100 seconds
_AT_ONCE: Final = 32
_GANG: Final = 512
_P99_MS: Final = 10.0
_RSS_MB: Final = 300.0
_COALESCED: Final = 10  # node events per refresh: 500 a second at 20 ms


class Latencies(msgspec.Struct, frozen=True):
    """Milliseconds of each answer, by verb, and how many were no answer."""

    filter: list[float]
    prioritize: list[float]
    failed: int = 0


def figures(seconds: float = 300.0, nodes: int = 5000, pods: int = 20000) -> list[Figure]:
    """Measure on a testbed of its own, which is removed afterwards. Raises TestbedError, TimeoutError."""
    cluster.down(_TESTBED)
    try:
        with step(to_stderr, f"{nodes} simulated nodes", "Ready"):
            state = cluster.up(_TESTBED, kwok_nodes=nodes)
        with tempfile.TemporaryDirectory() as folder:
            found = asyncio.run(_measure(state, Path(folder), seconds, nodes, pods))
    finally:
        cluster.down(_TESTBED)
    return [*found, update_figure(nodes)]


async def _measure(state: State, folder: Path, seconds: float, nodes: int, pods: int) -> list[Figure]:
    kubeconfig = state.folder / "kubeconfig"
    install = [program("kubectl"), f"--kubeconfig={kubeconfig}", "apply", "--server-side", "-f", _CRDS]
    await (await asyncio.create_subprocess_exec(*map(str, install), stdout=asyncio.subprocess.DEVNULL)).wait()
    prepare(state)
    plugin = Scheduling(state, folder, {})
    with closing(control_plane.admin(state)) as api:
        api.ensure("/api/v1/namespaces", {"metadata": {"name": _NAMESPACE}})
    async with connect("outrider-bench", kubeconfig=kubeconfig) as client:
        with step(to_stderr, f"{pods} pods and health of {nodes} nodes", "there"):
            await _each(nodes, lambda index: _healthy(client, index))
            await _each(pods, lambda index: _bound(client, index, nodes))
        plugin.start()
        started_mb = _megabytes(plugin.pid)
        await Load(client, _NAMESPACE).gangs(1, _GANG)
        try:
            flow = asyncio.create_task(_flow(client, nodes))
            with step(to_stderr, f"{_RATE:g} requests a second for {seconds:g} s", "measured"):
                latencies = await _ask(plugin.extender_url, seconds, nodes)
            flow.cancel()
            megabytes = _megabytes(plugin.pid)
        finally:
            plugin.stop()
    return _figures(latencies, seconds, f"{nodes} names, {pods} pods, {os.cpu_count()} CPUs", started_mb, megabytes)


def _figures(latencies: Latencies, seconds: float, where: str, started_mb: float, megabytes: float) -> list[Figure]:
    load = f"{where}, {_RATE:g} requests/s for {seconds:g} s, {_EVENTS:g} node events/s, a gang of {_GANG} waiting"
    found = []
    for verb, times in (("filter", latencies.filter), ("prioritize", latencies.prioritize)):
        cuts = statistics.quantiles(times, n=1000)
        said = f"{load}; p50 {cuts[499]:.2f}, p99.9 {cuts[998]:.2f}, max {max(times):.2f}, {latencies.failed} failed"
        found.append(against(f"{verb}_p99_ms", cuts[989], "ms", _P99_MS, f"{said}; baseline: target"))
    memory = f"{where}; {started_mb:.0f} MB before the load; baseline: target"
    return [*found, against("scheduler_rss_mb", megabytes, "MB", _RSS_MB, memory)]


def _megabytes(pid: int) -> float:
    """Return the resident memory of the plugin: its own and that of the extender's process."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(rss_megabytes(int(one)) for one in [str(pid), *children])


async def _each(count: int, work: Any) -> None:
    turns = asyncio.Semaphore(_AT_ONCE)

    async def one(index: int) -> None:
        async with turns:
            await work(index)

    await asyncio.gather(*map(one, range(count)))


async def _healthy(client: Client, index: int) -> None:
    there = await client.create(GPUNODES, _health(index, 100))
    await _say_health(client, there, index, 100)


async def _say_health(client: Client, there: GPUNode, index: int, score: int) -> GPUNode:
    body = _health(index, score)
    body["metadata"]["resourceVersion"] = there.metadata.resource_version
    return await client.replace(GPUNODES, there.metadata.name, body, subresource="status")


def _health(index: int, score: int) -> dict[str, Any]:
    gpus = [{"index": gpu, "uuid": f"GPU-{index}-{gpu}", "health": "Healthy", "score": score} for gpu in range(8)]
    status = {"health": "Healthy", "score": score, "observedAt": rfc3339(time.time()), "gpus": gpus}
    meta = {"name": f"kwok-{index:04d}"}
    return {"apiVersion": GPUNODES.api_version, "kind": "GPUNode", "metadata": meta, "status": status}


async def _bound(client: Client, index: int, nodes: int) -> None:
    """Create one of the pods that are there already: every fourth has half of its node's GPUs."""
    body = pod(f"there-{index}", _NAMESPACE, SCHEDULER_NAME, 4, {})
    body["spec"]["nodeName"] = f"kwok-{index % nodes:04d}"
    if index >= nodes:
        body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    await client.create(PODS, body, _NAMESPACE)


async def _flow(client: Client, nodes: int) -> None:
    """Change the health of one node after the other: a score that falls and rises makes the waiting gang be planned."""
    known = {one.metadata.name: one for one in (await client.list(GPUNODES)).items}
    for turn in range(1, 1_000_000):
        index = turn % nodes
        name = f"kwok-{index:04d}"
        known[name] = await _say_health(client, known[name], index, 100 - turn % 2 * 20)
        await asyncio.sleep(1 / _EVENTS)


async def _ask(url: str, seconds: float, nodes: int) -> Latencies:
    argv = [sys.executable, "-m", "bench.extender", "--ask", url, "--seconds", str(seconds), "--nodes", str(nodes)]
    process = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE)
    answer, _ = await process.communicate()
    return msgspec.json.decode(answer, type=Latencies)


async def asked(url: str, seconds: float, nodes: int) -> Latencies:
    """Ask at a steady pace, on a connection that is kept; a late answer delays no request after it."""
    gc.disable()  # a pause of this process is none of the extender's
    body = msgspec.json.encode(
        {
            "Pod": pod("asked", _NAMESPACE, SCHEDULER_NAME, 4, {}),
            "Nodes": None,
            "NodeNames": [f"kwok-{index:04d}" for index in range(nodes)],
        }
    )
    times: dict[str, list[float]] = {"filter": [], "prioritize": []}
    failed = 0
    async with aiohttp.ClientSession(headers={"Content-Type": "application/json"}) as session:

        async def one(verb: str) -> None:
            nonlocal failed
            began = time.perf_counter()
            async with session.post(f"{url}/{verb}", data=body) as response:
                answer = await response.read()
            times[verb].append((time.perf_counter() - began) * 1000)
            failed += response.status != 200 or not answer

        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(int(seconds * _RATE)):
                await asyncio.sleep(max(0.0, began + number / _RATE - time.monotonic()))
                group.create_task(one("prioritize" if number % 2 else "filter"))
    return Latencies(times["filter"], times["prioritize"], failed)


def update_figure(nodes: int) -> Figure:
    """Return what one event of a node costs the snapshot, kept by nobody, in microseconds."""
    world = World(Rules(levels_from("nvidia")))
    for index in range(nodes):
        world.on_node(None, _node(index))
    world.refresh()
    scores = [[_report(index, score) for index in range(nodes)] for score in (100, 80)]
    began = time.thread_time()  # of this thread alone, whatever else the machine does
    for number, report in enumerate(one for turn in scores for one in turn):
        world.on_gpunode(None, report)
        if number % _COALESCED == 0:
            world.refresh()
    micros = (time.thread_time() - began) / (2 * nodes) * 1e6
    where = f"{nodes} nodes, {_COALESCED} events per refresh, without reading them from JSON"
    return Figure("snapshot_update_us", round(micros, 1), "us", conditions=where)


def _node(index: int) -> Node:
    meta = ObjectMeta(name=f"kwok-{index:04d}", uid=str(index), labels=labels.simulated("h100", index))
    return Node(metadata=meta, status=NodeStatus(allocatable={GPU: "8", "cpu": "192", "memory": "2Ti", "pods": "110"}))


def _report(index: int, score: int) -> GPUNode:
    status = GPUNodeStatus(health=Health.HEALTHY, score=score, observed_at=rfc3339(time.time()))
    return GPUNode(metadata=ObjectMeta(name=f"kwok-{index:04d}", resource_version=str(score)), status=status)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print; with --ask be the second process."""
    parser = argparse.ArgumentParser(prog="python -m bench.extender", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="how long to ask (default 300)")
    parser.add_argument("--nodes", type=int, default=5000, help="simulated nodes (default 5000)")
    parser.add_argument("--pods", type=int, default=20000, help="pods that are bound to them (default 20000)")
    parser.add_argument("--ask", metavar="URL", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.ask:
        latencies = asyncio.run(asked(arguments.ask, arguments.seconds, arguments.nodes))
        sys.stdout.buffer.write(msgspec.json.encode(latencies))
        return
    write(figures(arguments.seconds, arguments.nodes, arguments.pods), OUT)


if __name__ == "__main__":
    main()
