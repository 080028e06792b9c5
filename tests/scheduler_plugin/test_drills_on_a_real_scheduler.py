"""Failures of the planner, of its lease, of the API server and of its watches: gangs end whole, nothing is doubled."""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from outrider.api.core import Pod
from outrider.api.gangplacement import GangPlacement, PlacementState
from outrider.kube.client import Client, Selector
from outrider.kube.errors import KubeError
from outrider.kube.kinds import GANGPLACEMENTS, JOBS, LEASES, PODS, PYTORCHJOBS
from testbed import processes
from testbed.errors import TestbedError
from testbed.scheduling import Scheduling
from testbed.state import State
from tests.scheduler_plugin.lag import relay
from tests.scheduler_plugin.real import eventually, placement_of, planned, pods_of, submit, submit_pytorchjob

pytestmark = [pytest.mark.slow, pytest.mark.control_plane, pytest.mark.usefixtures("scheduling", "idle_nodes")]

KILLS = int(os.environ.get("DRILL_KILLS", "50"))
SOAK_SECONDS = float(os.environ.get("DRILL_SOAK_SECONDS", "120"))
AWAY_SECONDS = float(os.environ.get("DRILL_AWAY_SECONDS", "60"))
LEASE_SECONDS = 15.0
PATIENCE_SECONDS = 180.0
GPUS = 8  # of a simulated node, and of every pod here
SEED = int(os.environ.get("DRILL_SEED", "1"))


@pytest.fixture
def second(control_plane: State, scheduling: Scheduling, tmp_path: Path) -> Iterator[Scheduling]:
    """A second plugin, which leads while the first does not."""
    del scheduling
    other = Scheduling(control_plane, tmp_path, {"planSeconds": 5}, name="plugin-1")
    other.start()
    yield other
    processes.stop(control_plane, "scheduler-plugin-plugin-1")


async def whole(client: Client, namespace: str, name: str, size: int) -> list[Pod]:
    """Return a gang's pods once all are bound, however long what happened to it takes."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                pods = await pods_of(client, namespace, name)
            except KubeError:
                pods = []
            if len(pods) == size and all(pod.spec.node_name for pod in pods):
                return pods
            await asyncio.sleep(0.2)


async def check(client: Client, namespace: str) -> None:
    """Nothing is doubled: no node has more pods than GPUs for them, and no two plans name one node for one GPU."""
    pods = {pod.metadata.uid: pod for pod in (await client.list(PODS, Selector(namespace))).items}
    running = [pod for pod in pods.values() if not pod.finished and not pod.metadata.deletion_timestamp]
    bound = Counter(pod.spec.node_name for pod in running if pod.spec.node_name)
    assert not [node for node, count in bound.items() if count > 1], bound
    placements = (await client.list(GANGPLACEMENTS, Selector(namespace))).items
    meant = Counter(
        rank.node
        for placement in placements
        if placement.status.state is not PlacementState.WAITING
        for rank in placement.status.ranks
        if (pod := pods.get(rank.pod_uid)) and not pod.finished and not pod.metadata.deletion_timestamp
    )
    assert not [node for node, count in meant.items() if count > 1], meant


async def settled(client: Client, namespace: str, name: str) -> GangPlacement:
    """Return a placement once it says that all is bound, where the pods really are."""

    async def there() -> GangPlacement | None:
        placement = await placement_of(client, namespace, name)
        return placement if placement and placement.status.state is PlacementState.PLACED else None

    placement = await eventually(there)
    here = {pod.metadata.uid: pod for pod in (await client.list(PODS, Selector(namespace))).items}
    for rank in placement.status.ranks:
        if rank.pod_uid in here and here[rank.pod_uid].spec.node_name:
            assert here[rank.pod_uid].spec.node_name == rank.node
    return placement


async def test_a_planner_killed_at_any_moment_between_plan_and_last_patch_leaves_its_gang_whole(
    client: Client, namespace: str, scheduling: Scheduling
) -> None:
    moments = random.Random(SEED)  # noqa: S311 - moments of a test
    halfway = 0
    for number in range(KILLS):
        name = f"train{number}"
        await submit(client, namespace, name, 16)
        written = await planned(client, namespace, f"job-{name}")
        await asyncio.sleep(moments.uniform(0.0, 0.15))
        scheduling.kill()
        pods = await pods_of(client, namespace, name)
        halfway += 0 < sum(bool(pod.spec.scheduling_gates) for pod in pods) < 16
        scheduling.start()
        await whole(client, namespace, name, 16)
        await check(client, namespace)
        final = await settled(client, namespace, f"job-{name}")
        assert {rank.pod_uid for rank in final.status.ranks} == {rank.pod_uid for rank in written.status.ranks}
        await client.delete(JOBS, name, namespace)

        async def gone(job: str = name) -> bool:
            return not await pods_of(client, namespace, job)

        await eventually(gone)
    print(f"{KILLS} kills, {halfway} of them with some gates lifted and some not")
    assert halfway or KILLS < 10, "no kill came between two patches"


@pytest.mark.parametrize("stop", [Scheduling.pause, Scheduling.hang])
async def test_a_leader_stopped_beyond_its_lease_doubles_nothing_when_it_wakes(
    client: Client, namespace: str, scheduling: Scheduling, second: Scheduling, stop: Callable[[Scheduling], None]
) -> None:
    async def holder() -> str:
        return (await client.get(LEASES, "outrider-planner", "outrider-system")).spec.holder_identity

    names = [f"train{number}" for number in range(4)]
    before = await eventually(holder)
    leader = scheduling if before == "plugin-0" else second
    await submit_pytorchjob(client, namespace, names[0], 7)
    await planned(client, namespace, f"pytorchjob-{names[0]}")
    stop(leader)
    try:
        for name in names[1:]:
            await submit_pytorchjob(client, namespace, name, 7)
        for name in names:
            await whole(client, namespace, name, 8)
        assert await holder() not in ("", before)
        await check(client, namespace)
        placements = {name: await settled(client, namespace, f"pytorchjob-{name}") for name in names}
    finally:
        leader.resume()
    await asyncio.sleep(5.0)
    await asyncio.to_thread(revive, leader)
    await check(client, namespace)
    for name in names:
        again = await settled(client, namespace, f"pytorchjob-{name}")
        assert again.status.ranks == placements[name].status.ranks
        assert again.status.revision == placements[name].status.revision
    assert await holder() not in ("", before)


def revive(plugin: Scheduling) -> None:
    """Start the plugin again if it ended itself after its long sleep, as the kubelet would."""
    try:
        assert plugin.pid
    except TestbedError:
        plugin.start()


@asynccontextmanager
async def away(control_plane: State, seconds: float) -> AsyncIterator[None]:
    """The API server hangs for that long, however long the body takes."""
    pid = processes.find(control_plane, "kube-apiserver")
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
        await asyncio.sleep(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_an_api_server_that_is_away_for_a_minute_leaves_gangs_whole(
    client: Client, namespace: str, control_plane: State
) -> None:
    for name, workers in (("train0", 15), ("train1", 15), ("train2", 7)):
        await submit_pytorchjob(client, namespace, name, workers)
    await planned(client, namespace, "pytorchjob-train0")
    async with away(control_plane, AWAY_SECONDS):
        pass
    for name, size in (("train0", 16), ("train1", 16), ("train2", 8)):
        await whole(client, namespace, name, size)
        await settled(client, namespace, f"pytorchjob-{name}")
    await check(client, namespace)


async def test_watches_that_lag_ten_seconds_behind_leave_gangs_whole(
    client: Client, namespace: str, control_plane: State, scheduling: Scheduling, tmp_path: Path
) -> None:
    copy = tmp_path / "lagging"
    async with relay(control_plane.folder / "kubeconfig", copy) as laid:
        late = Scheduling(control_plane, tmp_path, {"planSeconds": 5}, name="plugin-late", kubeconfig=copy)
        scheduling.kill()
        try:
            await asyncio.to_thread(late.start)
            laid.lag_seconds = 10.0
            for number in range(4):
                await submit_pytorchjob(client, namespace, f"train{number}", 7)
                await asyncio.sleep(2.0)
            for number in range(4):
                await whole(client, namespace, f"train{number}", 8)
            await check(client, namespace)
        finally:
            await asyncio.to_thread(processes.stop, control_plane, "scheduler-plugin-plugin-late")
            await asyncio.to_thread(scheduling.start)
    for number in range(4):
        await settled(client, namespace, f"pytorchjob-train{number}")
    await check(client, namespace)


async def test_after_random_kills_of_planner_scheduler_and_api_server_nothing_stays_reserved(
    client: Client, namespace: str, control_plane: State, scheduling: Scheduling
) -> None:
    draw = random.Random(SEED)  # noqa: S311 - what happens in a test
    end = asyncio.get_running_loop().time() + SOAK_SECONDS
    alive: dict[str, int] = {}
    number = 0
    while asyncio.get_running_loop().time() < end:
        number += 1
        name, size = f"train{number}", draw.choice((1, 2, 4, 8, 16))
        await submit_pytorchjob(client, namespace, name, size - 1)
        alive[name] = size
        await asyncio.sleep(draw.uniform(0.0, 2.0))
        what = draw.choice(("planner", "scheduler", "api", "nothing", "end", "end"))
        if what == "end" and alive:
            await end_of(client, namespace, draw.choice(sorted(alive)), alive)
        await disturb(what, scheduling, control_plane, draw)
    while alive:  # each is whole in the end, though some only once others have ended
        name = await eventually(lambda: first_whole(client, namespace, alive))
        await check(client, namespace)
        await end_of(client, namespace, name, alive)

    async def clean() -> bool:
        return not (await client.list(GANGPLACEMENTS, Selector(namespace))).items

    await eventually(clean)
    await submit(client, namespace, "last", 48)  # all nodes at once: what is still held anywhere would keep it waiting
    await whole(client, namespace, "last", 48)
    print(f"{number} gangs in {SOAK_SECONDS:.0f} s")


async def disturb(what: str, scheduling: Scheduling, control_plane: State, draw: random.Random) -> None:
    """Kill one of the parts, which comes back at once, or stop the API server for a few seconds."""
    if what == "planner":
        scheduling.kill()
        await asyncio.to_thread(scheduling.start)
    elif what == "scheduler":
        scheduling.kill_scheduler()
        scheduling.start_scheduler()
    elif what == "api":
        async with away(control_plane, draw.uniform(0.5, 5.0)):
            pass


async def first_whole(client: Client, namespace: str, alive: dict[str, int]) -> str:
    """Return the name of a gang whose pods are all bound, empty while there is none."""
    for name, size in alive.items():
        pods = await pods_of(client, namespace, name)
        if len(pods) == size and all(pod.spec.node_name for pod in pods):
            return name
    return ""


async def end_of(client: Client, namespace: str, name: str, alive: dict[str, int]) -> None:
    """Delete a job, as when it is done."""
    del alive[name]
    await client.delete(PYTORCHJOBS, name, namespace)
