"""`make bench-scheduling`: how soon gangs and single pods get their nodes, as bench/out/scheduling.json and a table.

Real kube-scheduler, API server and plugin, with simulated nodes, all in one run with the bare scheduler, so that the
ratios hold; the absolute numbers are those of this machine. The planner and the extender alone are measured beside it.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from bench import extender, placement
from bench.figures import Figure, against, merged, write
from bench.load import DEFAULT_SCHEDULER, CpuTime, Load, load, rss_megabytes, standing_still
from outrider.api.names import SCHEDULER_NAME
from outrider.kube.client import Client
from outrider.kube.transport import connect
from testbed import cluster, labels
from testbed.build import program
from testbed.errors import TestbedError
from testbed.say import step, to_stderr
from testbed.scheduling import Scheduling, prepare, running
from testbed.state import State

OUT: Final = Path(__file__).with_name("out") / "scheduling.json"
_TESTBED: Final = "bench-scheduling"
_REST_SECONDS: Final = 3.0  # for the API server and the watches to come to rest
_NEW_NODES_SECONDS: Final = 0.004  # each: what follows the creation of a simulated node goes on after it is Ready
_CRDS: Final = Path(__file__).parent.parent / "charts" / "outrider" / "files" / "crds"
_SPINE: Final = "network.topology.nvidia.com/spine"


class Scale(msgspec.Struct, frozen=True):
    """How much is measured: nodes, pods of the large gang, gangs and their pods, pods for ``refused`` and so on."""

    nodes: int = 5000
    gang: int = 512
    gangs: int = 20
    gang_pods: int = 32
    refused: int = 256
    stream_gangs: int = 30
    stream_pods: int = 16
    singles: int = 2000
    runs: int = 3


QUICK: Final = Scale(nodes=160, gang=32, gangs=3, gang_pods=8, refused=144, stream_gangs=4, singles=40, runs=1)


class Bench:
    """A testbed with both schedulers. ``scale`` says how much is measured."""

    def __init__(self, state: State, client: Client, both: Scheduling, scale: Scale) -> None:
        self.state, self.client, self.both, self.scale = state, client, both, scale
        self.where = f"{scale.nodes} simulated nodes, {os.cpu_count()} CPUs, GOGC={os.environ.get('GOGC', '100')}"
        self._phases = 0

    @asynccontextmanager
    async def phase(self, name: str) -> AsyncIterator[Load]:
        """Yield a namespace on a testbed at rest; say which process used how much CPU time in it."""
        self._phases += 1
        async with load(self.state, self.client, f"{name}-{self._phases}") as pods:
            await asyncio.sleep(_REST_SECONDS)
            cpu = CpuTime(self.state)
            yield pods
            most = [f"{process} {seconds:.1f}" for process, seconds in cpu.used().items() if seconds >= 0.1]
            to_stderr(f"{name}: CPU seconds: {', '.join(most)}")

    async def median(self, once: Callable[[], Awaitable[float]]) -> float:
        """Return the median of some runs."""
        return statistics.median([await once() for _ in range(self.scale.runs)])

    def pids(self, *, bare: bool) -> Sequence[int]:
        """Return the processes that place pods: the default scheduler, or ours with the plugin."""
        return [running(self.state, "kube-scheduler")] if bare else [self.both.scheduler_pid, self.both.pid]


async def _gang(bench: Bench) -> list[Figure]:
    """One large gang: from its last pod created to its last pod bound."""
    size, seconds, spread = bench.scale.gang, [], Load(bench.client, "")
    bare, bare_spread = await _bare_singles(bench, size)
    for _ in range(bench.scale.runs):
        async with bench.phase("gang") as pods:
            await pods.gangs(1, size)
            await pods.until(pods.bound, size)
            seconds.append(pods.seconds_after_creation(pods.bound))
            spread = pods
    where = f"{size} pods x 8 GPUs, {bench.where}, median of {_list(seconds)}"
    return [
        against(
            f"gang_{size}_last_created_to_bound_s",
            statistics.median(seconds),
            "s",
            3.0,
            f"{where}; baseline: target; bare in this run {bare:.2f} s without gangs",
        ),
        against(f"gang_{size}_leaves", sum(spread.domains("leaf")), "leaves", -(-size // 16), "baseline: ideal"),
        against(f"gang_{size}_blocks", sum(spread.domains("core")), "blocks", -(-size // 512), "baseline: ideal"),
        Figure(
            f"bare_{size}_last_created_to_bound_s",
            round(bare, 3),
            "s",
            conditions=f"the default scheduler, no extender, no gangs: {_spread(bare_spread)}",
        ),
    ]


async def _gangs(bench: Bench) -> list[Figure]:
    """Several gangs at once."""
    count, size = bench.scale.gangs, bench.scale.gang_pods
    seconds, leaves = [], []
    bare, bare_spread = await _bare_singles(bench, count * size)
    for _ in range(bench.scale.runs):
        async with bench.phase("gangs") as pods:
            await pods.gangs(count, size)
            await pods.until(pods.bound, count * size)
            seconds.append(pods.seconds_after_creation(pods.bound))
            leaves += pods.domains("leaf")
    name = f"gangs_{count}x{size}"
    where = f"{bench.where}, from the last pod of all created to the last bound, median of {_list(seconds)}"
    bare_words = f"bare in this run {bare:.2f} s without gangs, {_spread(bare_spread)}"
    return [
        against(f"{name}_s", statistics.median(seconds), "s", 4.0, f"{where}; baseline: target; {bare_words}"),
        against(f"{name}_leaves_per_gang", statistics.mean(leaves), "leaves", -(-size // 16), "baseline: ideal"),
    ]


async def _bare_singles(bench: Bench, count: int) -> tuple[float, Load]:
    async with bench.phase("bare") as pods:
        await pods.singles(count, DEFAULT_SCHEDULER)
        await pods.until(pods.bound, count)
        return pods.seconds_after_creation(pods.bound), pods


async def _refused(bench: Bench) -> list[Figure]:
    """A gang that can't fit: until its placement, and each of its pods, says why."""
    size, selector = bench.scale.refused, {_SPINE: labels.simulated("h100", 0)[_SPINE]}
    async with bench.phase("bare-refused") as pods:
        await pods.singles(size, DEFAULT_SCHEDULER, selector=selector)
        room = sum(labels.simulated("h100", index)[_SPINE] == selector[_SPINE] for index in range(bench.scale.nodes))
        await pods.until(pods.refused, size - room)
        bare = pods.seconds_after_creation(pods.refused)
    first, last = [], []
    for _ in range(bench.scale.runs):
        async with bench.phase("refused") as pods:
            await pods.gangs(1, size, selector=selector)
            await pods.until(pods.told, size)
            first.append(min(pods.told.values()) - pods.created)
            last.append(pods.seconds_after_creation(pods.told))
    where = f"gang of {size} x 8 GPUs where {room} nodes match, {bench.where}"
    conditions = f"{where}; until the first pod says why; baseline: target; bare in this run {bare:.2f} s, unexplained"
    return [
        against("unschedulable_verdict_s", statistics.median(first), "s", 1.0, conditions),
        Figure(
            "unschedulable_told_all_s", round(statistics.median(last), 3), "s", conditions="until each pod says why"
        ),
    ]


async def _singles(bench: Bench) -> list[Figure]:
    """Single pods of one GPU, bare and with the extender."""
    count = bench.scale.singles

    async def pace(scheduler: str) -> float:
        return await _pace(
            bench, count, scheduler == DEFAULT_SCHEDULER, lambda on: on.singles(count, scheduler, gpus=1)
        )

    bare = await bench.median(lambda: pace(DEFAULT_SCHEDULER))
    ours = await bench.median(lambda: pace(SCHEDULER_NAME))
    where = f"{count} pods x 1 GPU, {bench.where}: {ours:.0f} against {bare:.0f} pods/s"
    return [against("single_gpu_ratio_to_bare", ours / bare, "x", 0.7, f"{where}; baseline: target")]


async def _stream(bench: Bench) -> list[Figure]:
    """Whole nodes: bare, with Outrider unpinned, in planned and pinned gangs."""
    gangs, size = bench.scale.stream_gangs, bench.scale.stream_pods
    count = gangs * size
    bare = await bench.median(lambda: _pace(bench, count, True, lambda on: on.singles(count, DEFAULT_SCHEDULER)))
    unpinned = await bench.median(lambda: _pace(bench, count, False, lambda on: on.singles(count, SCHEDULER_NAME)))
    pinned = await bench.median(lambda: _pace(bench, count, False, lambda on: on.gangs(gangs, size)))
    where = f"{count} pods x 8 GPUs, {bench.where}, first to last bound"
    planned = f"{gangs} gangs of {size}, planned and pinned, the planner's own writes counted"
    return [
        Figure("pods_per_s_bare", round(bare, 1), "pods/s", conditions=f"{where}; the default scheduler, no extender"),
        against("pods_per_s_unpinned", unpinned, "pods/s", bare, f"{where}; single pods; baseline: bare"),
        against("pods_per_s_pinned", pinned, "pods/s", bare, f"{where}; {planned}; baseline: bare"),
        Figure("pinned_ratio_to_bare", round(pinned / bare, 3), "x", conditions=f"{where}; {planned}"),
    ]


async def _pace(bench: Bench, count: int, bare: bool, create: Callable[[Load], Awaitable[None]]) -> float:
    """Return the pods bound a second. What places them stands still until all exist: creation is not measured."""
    async with bench.phase("pace-bare" if bare else "pace") as pods:
        with standing_still(bench.pids(bare=bare)):
            await create(pods)
            await asyncio.sleep(_REST_SECONDS)
        await pods.until(pods.bound, count)
        return pods.pods_per_second()


async def _memory(bench: Bench) -> list[Figure]:
    where = f"plugin with its child, {bench.where}, after the other parts"
    return [Figure("scheduler_rss_mb_after_gangs", round(rss_megabytes(bench.both.pid), 1), "MB", conditions=where)]


_PARTS: dict[str, Callable[[Bench], Awaitable[list[Figure]]]] = {
    "gang": _gang,
    "gangs": _gangs,
    "refused": _refused,
    "singles": _singles,
    "stream": _stream,
    "memory": _memory,
}


_ALONE: dict[str, Callable[[], list[Figure]]] = {"placement": placement.figures, "extender": extender.figures}


def figures(only: Sequence[str], scale: Scale) -> list[Figure]:
    """Measure parts, on testbeds of their own, which are removed afterwards. Raises TestbedError, TimeoutError."""
    found = _on_testbed([name for name in only if name in _PARTS], scale)
    for name in only:
        if name in _ALONE:
            with step(to_stderr, name):
                found += _ALONE[name]()
    return found


def _on_testbed(names: Sequence[str], scale: Scale) -> list[Figure]:
    if not names:
        return []
    cluster.down(_TESTBED)
    try:
        return measure(cluster.up(_TESTBED, kwok_nodes=scale.nodes, say=to_stderr), names, scale)
    finally:
        cluster.down(_TESTBED)


def measure(state: State, names: Sequence[str], scale: Scale) -> list[Figure]:
    """Measure some parts on a testbed that is up. Raises TestbedError, TimeoutError."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure(state, Path(folder), names, scale))


async def _measure(state: State, folder: Path, names: Sequence[str], scale: Scale) -> list[Figure]:
    kubeconfig = state.folder / "kubeconfig"
    install = [program("kubectl"), f"--kubeconfig={kubeconfig}", "apply", "--server-side", "-f", _CRDS]
    await (await asyncio.create_subprocess_exec(*map(str, install), stdout=asyncio.subprocess.DEVNULL)).wait()
    prepare(state)
    both = Scheduling(state, folder, {})
    both.start()
    both.start_scheduler()
    found: list[Figure] = []
    try:
        await asyncio.sleep(_REST_SECONDS + scale.nodes * _NEW_NODES_SECONDS)
        async with connect("outrider-bench", kubeconfig=kubeconfig) as client:
            bench = Bench(state, client, both, scale)
            for name in names:
                with step(to_stderr, name):
                    found += await _PARTS[name](bench)
    finally:
        both.stop()
    return found


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)


def _spread(pods: Load) -> str:
    return f"{sum(pods.domains('leaf'))} leaves, {sum(pods.domains('core'))} blocks"


def main() -> int:
    """Measure; the exit code is 1 where something did not work."""
    parser = argparse.ArgumentParser(prog="make bench-scheduling", description=__doc__)
    parser.add_argument(
        "--only", nargs="*", choices=[*_PARTS, *_ALONE], default=[], help="parts; the others' figures stay"
    )
    parser.add_argument("--quick", action="store_true", help="a few nodes and pods: whether it works, not how fast")
    arguments = parser.parse_args()
    # Elsewhere an API server has cores of its own; here its garbage collection takes them from what is measured.
    os.environ.setdefault("GOGC", "300")
    names = arguments.only or [*_PARTS, *([] if arguments.quick else _ALONE)]
    try:
        found = figures(names, QUICK if arguments.quick else Scale())
        out = OUT.with_name("scheduling-quick.json") if arguments.quick else OUT
        write(merged(found, out) if arguments.only else found, out)
    except (TestbedError, TimeoutError) as error:
        print(error or "no answer in time", file=sys.stderr)
        return 1
    to_stderr(f"written to {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
