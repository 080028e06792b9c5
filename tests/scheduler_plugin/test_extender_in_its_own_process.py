"""The extender's process: what it is told, what it answers, and what happens when either side ends."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from outrider.api import reasons
from outrider.api.gangplacement import PlacementState
from outrider.api.gpunode import Verdict
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.cluster.world import World
from scheduler_plugin.extender.decide import decide
from scheduler_plugin.extender.feed import ExtenderEndedError, Feed
from scheduler_plugin.extender.frames import TO_EXTENDER, Changes, Start, frame
from scheduler_plugin.extender.mirror import Mirror, Sender, Update
from scheduler_plugin.extender.preempt import preempt
from scheduler_plugin.extender.prioritize import prioritize
from scheduler_plugin.extender.wire import MetaPod, MetaVictims
from scheduler_plugin.tls import TLS
from tests.scheduler_plugin.builders import NOW, RULES, gang_pods, make_gpunode, make_node, make_placement, make_pod
from tests.scheduler_plugin.test_world_keeps_its_sums import EVENTS, Thing, deliver, key

NAMES = ["n0", "n1", "stranger"]
ASKING = [make_pod("alone", gpus=1), *gang_pods("train", 2), make_pod("none", gpus=0)]


def answers(snapshot: Snapshot) -> list[object]:
    victims = {name: MetaVictims([MetaPod("uid-train-0"), MetaPod("other")], 0) for name in NAMES}
    return [
        answer
        for pod in ASKING
        for answer in (
            decide(pod, NAMES, snapshot, NOW),
            prioritize(pod, NAMES, snapshot, NOW),
            preempt(pod, victims, snapshot, NOW),
        )
    ]


def over_the_wire(update: Update) -> Update:
    message = TO_EXTENDER.decode(frame(Changes(update))[4:])
    assert isinstance(message, Changes)
    return message.update


@settings(max_examples=200, deadline=None)
@given(EVENTS, st.integers(0, 25))
def test_after_any_history_the_mirror_answers_as_the_world_does(events: list[tuple[Thing, bool]], begun: int) -> None:
    sender, mirror, told = Sender(), Mirror(), False

    def tell(names: Any) -> None:
        if told:
            mirror.apply(over_the_wire(sender.changes(world.snapshot, names)))

    world, there = World(RULES, on_views=tell, clock=lambda: NOW), dict[tuple[str, str], Thing]()
    for number, (thing, deleted) in enumerate(events):
        if number == begun:
            for update in sender.everything(world.snapshot):
                mirror.apply(over_the_wire(update))
            told = True
        old = there.pop(key(thing), None)
        if not deleted:
            there[key(thing)] = thing
        deliver(world, old, None if deleted else thing)
        world.refresh()
        if told:
            assert answers(mirror.snapshot) == answers(world.snapshot)


def test_a_large_cluster_is_told_in_parts() -> None:
    world = World(RULES)
    for index in range(1200):
        world.on_node(None, make_node(f"n{index}"))
    updates = Sender().everything(world.publish())
    assert [len(update.nodes) for update in updates] == [0, 500, 500, 200]


@asynccontextmanager
async def running(world: World, silent_ticks: int = 60, **start: Any) -> AsyncIterator[tuple[Feed, asyncio.Task[None]]]:
    feed = Feed(lambda: world.snapshot, silent_ticks=silent_ticks)
    task = asyncio.create_task(feed.run(Start("127.0.0.1", 0, 0.5, **start)))
    try:
        await until(lambda: feed.port or task.done())
        yield feed, task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, ExtenderEndedError):
            await task


async def until(done: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not done():  # noqa: ASYNC110 - what is waited for happens in another process
            await asyncio.sleep(0.01)


async def refused(feed: Feed, *names: str) -> dict[str, str]:
    pod = msgspec.to_builtins(make_pod("alone", gpus=1))
    body = {"Pod": pod, "Nodes": None, "NodeNames": list(names)}
    url = f"http://127.0.0.1:{feed.port}/filter"
    async with aiohttp.ClientSession() as session, session.post(url, json=body) as response:
        answer = await response.json()
    found: dict[str, str] = answer["FailedNodes"] | answer["FailedAndUnresolvableNodes"]
    return found


async def test_it_knows_nothing_until_the_whole_cluster_is_known_and_then_each_change() -> None:
    def tell(names: Collection[str]) -> None:
        feed.on_views(names)

    world = World(RULES, on_views=tell)
    async with running(world) as (feed, _):
        world.on_node(None, make_node("n0"))
        world.refresh()
        assert await refused(feed, "n0") == {"n0": reasons.NODE_NOT_SEEN}
        feed.begin()
        await until_refused(feed, {})
        world.on_gpunode(None, make_gpunode("n0", verdict=Verdict.REPLACE))
        world.refresh()
        await until_refused(feed, {"n0": reasons.NODE_UNHEALTHY})
        world.on_gpunode(make_gpunode("n0"), None)
        for pod in gang_pods("train", 1):
            world.on_pod(None, pod)
        world.on_placement(None, make_placement("train", {0: "n0"}, state=PlacementState.PLANNED))
        world.refresh()
        await until_refused(feed, {"n0": reasons.NODE_RESERVED})


async def until_refused(feed: Feed, wanted: dict[str, str]) -> None:
    async with asyncio.timeout(20):
        while await refused(feed, "n0") != wanted:  # noqa: ASYNC110 - it happens in another process
            await asyncio.sleep(0.01)


async def test_its_metrics_are_shown_beside_the_plugins() -> None:
    async with running(World(RULES)) as (feed, _):
        registry = CollectorRegistry()
        registry.register(feed)
        await refused(feed, "n0")
        line = b'outrider_extender_request_seconds_count{code="200",verb="filter"} 1.0'
        await until(lambda: line in generate_latest(registry))


async def test_its_end_is_an_error_of_the_plugin() -> None:
    async with running(World(RULES)) as (_, task):
        (child,) = children()
        os.kill(child, signal.SIGKILL)
        with pytest.raises(ExtenderEndedError, match="-9"):
            await task


async def test_one_that_is_stuck_is_ended_and_an_error_of_the_plugin() -> None:
    async with running(World(RULES), silent_ticks=8) as (_, task):
        (child,) = children()
        os.kill(child, signal.SIGSTOP)
        with pytest.raises(ExtenderEndedError, match="stuck: code -9"):
            await task
    assert child not in children()


async def test_it_ends_with_the_plugin_and_leaves_its_port() -> None:
    async with running(World(RULES)) as (feed, task):
        (child,) = children()
        os.kill(child, signal.SIGTERM)  # sent to the whole group: the plugin says when to end
        assert await refused(feed, "n0")
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    assert child not in children()


async def test_a_certificate_of_no_use_is_an_error() -> None:
    async with running(World(RULES), tls=TLS(cert_file="/nowhere", key_file="/nowhere")) as (_, task):
        with pytest.raises(ExtenderEndedError, match="code 1"):
            await task


def children() -> list[int]:
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in found if b"extender.process" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@asynccontextmanager
async def plugin(port: int = 0) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """A process that feeds an extender, and the extender's port."""
    argv = [sys.executable, "-m", "tests.scheduler_plugin.feeding", str(port)]
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(20):
            yield process, int(await process.stdout.readline())
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()  # its extender holds the pipe too, until it has ended


async def status(port: int) -> int:
    """Return the status of filter; 0 where nobody answers."""
    body = {"Pod": {}, "NodeNames": ["n0"]}
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"http://127.0.0.1:{port}/filter", json=body) as response,
        ):
            return response.status
    except aiohttp.ClientError:
        return 0


async def until_status(port: int, wanted: int) -> None:
    while await status(port) != wanted:  # noqa: ASYNC110 - it happens in another process
        await asyncio.sleep(0.1)


async def test_while_the_plugin_is_stuck_nothing_is_answered_from_old_data() -> None:
    async with plugin() as (process, port):
        await until_status(port, 200)
        process.send_signal(signal.SIGSTOP)
        await until_status(port, 503)
        process.send_signal(signal.SIGCONT)
        await until_status(port, 200)


async def test_the_extender_of_a_killed_plugin_ends_at_once_whatever_is_open_and_the_next_one_gets_its_port() -> None:
    async with plugin() as (process, port):
        open_ones = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
        for number, (_, writer) in enumerate(open_ones):
            writer.write(
                [b"", b"POST /fil", b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"][number % 3]
            )
        process.kill()
        await until_status(port, 0)
        async with plugin(port) as (_, again):
            assert again == port
            await until_status(port, 200)
        for _, writer in open_ones:
            writer.close()
