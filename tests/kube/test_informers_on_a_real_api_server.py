import asyncio
import contextlib
import logging
import time
from pathlib import Path

import aiohttp
import pytest
from prometheus_client import REGISTRY

from outrider.api.core import Pod
from outrider.api.gangplacement import GangPlacement
from outrider.api.meta import ObjectMeta, Resource
from outrider.kube.client import Client, PatchType, Selector
from outrider.kube.errors import Gone, TooManyRequests
from outrider.kube.informer import Informer
from outrider.kube.kinds import GANGPLACEMENTS, Kind
from outrider.kube.transport import connect
from testbed.state import State
from tests.kube.api_server import kill, restart
from tests.kube.cable import cable
from tests.kube.test_requests_to_a_real_api_server import gang
from tests.kube.waiting import running, until

pytestmark = pytest.mark.control_plane


class NumericNotes(Resource, frozen=True, kw_only=True):
    """A ConfigMap as a newer struct would read it: data must be whole numbers."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, int] = {}


async def label(client: Client, name: str, namespace: str, value: str) -> None:
    await client.patch(GANGPLACEMENTS, name, {"metadata": {"labels": {"v": value}}}, PatchType.MERGE, namespace)


async def test_a_copy_follows_what_happens_and_tells_its_subscribers(client: Client, namespace: str) -> None:
    await client.create(GANGPLACEMENTS, gang("before"), namespace)
    informer = Informer(client, GANGPLACEMENTS, Selector(namespace))
    seen: list[tuple[str, str]] = []
    informer.subscribe(lambda old, new: seen.append(change(old, new)))
    async with running(informer.run()):
        await informer.synced.wait()
        assert list(informer.items) == [f"{namespace}/before"]
        await client.create(GANGPLACEMENTS, gang("after"), namespace)
        await until(lambda: informer.get(f"{namespace}/after"))
        await label(client, "after", namespace, "1")
        await until(lambda: informer.items[f"{namespace}/after"].metadata.labels == {"v": "1"})
        await client.delete(GANGPLACEMENTS, "before", namespace)
        await until(lambda: f"{namespace}/before" not in informer.items)
    assert seen == [("added", "before"), ("added", "after"), ("changed", "after"), ("deleted", "before")]
    late: list[tuple[str, str]] = []
    informer.subscribe(lambda old, new: late.append(change(old, new)))
    assert late == [("added", "after")]


def change(old: GangPlacement | None, new: GangPlacement | None) -> tuple[str, str]:
    if old is None:
        assert new is not None
        return "added", new.metadata.name
    return ("deleted" if new is None else "changed"), old.metadata.name


async def test_a_selector_holds_for_the_list_and_the_watch(client: Client, namespace: str) -> None:
    informer = Informer(client, GANGPLACEMENTS, Selector(namespace, labels="v=yes"))
    async with running(informer.run()):
        await informer.synced.wait()
        for name in ("a", "b"):
            await client.create(GANGPLACEMENTS, gang(name), namespace)
        await label(client, "a", namespace, "yes")
        await until(lambda: list(informer.items) == [f"{namespace}/a"])
        await label(client, "a", namespace, "no")
        await until(lambda: not informer.items)


async def test_an_object_that_stops_decoding_is_dropped_and_named_and_may_come_back(
    client: Client, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    def notes(value: str) -> dict[str, object]:
        return {"metadata": {"name": "n"}, "data": {"count": value}}

    numbers = Kind(NumericNotes, "configmaps")
    plain = Kind(Pod, "configmaps")  # any struct without data reads it
    await client.create(plain, {"metadata": {"name": "other"}}, namespace)
    informer = Informer(client, numbers, Selector(namespace, fields="metadata.name!=kube-root-ca.crt"))
    async with running(informer.run()):
        await informer.synced.wait()
        assert list(informer.items) == [f"{namespace}/other"]
        with caplog.at_level(logging.WARNING):
            await client.create(plain, notes("many"), namespace)
            await until(lambda: informer.invalid)
        assert "$.data[...]" in informer.invalid[f"{namespace}/n"]
        assert caplog.records[0].__dict__["object"] == f"{namespace}/n"
        await client.patch(plain, "other", {"data": {"count": "some"}}, PatchType.MERGE, namespace)
        await until(lambda: not informer.items)
        await client.patch(plain, "other", {"data": None}, PatchType.MERGE, namespace)
        await until(lambda: list(informer.items) == [f"{namespace}/other"])
        assert list(informer.invalid) == [f"{namespace}/n"]
    again = Informer(client, numbers, Selector(namespace, fields="metadata.name!=kube-root-ca.crt"))
    async with running(again.run()):
        await again.synced.wait()
        assert (list(again.items), list(again.invalid)) == ([f"{namespace}/other"], [f"{namespace}/n"])


async def test_an_expired_version_is_gone_and_the_copy_lists_again(
    client: Client, namespace: str, control_plane: State
) -> None:
    page = await client.list(GANGPLACEMENTS, Selector(namespace))
    informer = Informer(client, GANGPLACEMENTS, Selector(namespace))
    task = asyncio.create_task(informer.run())
    await informer.synced.wait()
    await client.create(GANGPLACEMENTS, gang("kept"), namespace)
    await client.create(GANGPLACEMENTS, gang("deleted-while-away"), namespace)
    await until(lambda: len(informer.items) == 2)
    task.cancel()
    await asyncio.wait([task])
    await client.delete(GANGPLACEMENTS, "deleted-while-away", namespace)
    await client.create(GANGPLACEMENTS, gang("made-while-away"), namespace)
    await compact(control_plane)
    await asyncio.to_thread(restart, control_plane)  # its watch cache still knows what etcd has forgotten
    with pytest.raises(Gone):
        await until_gone(client, page.resource_version, namespace)
    async with running(informer.run()):
        await until(lambda: set(informer.items) == {f"{namespace}/kept", f"{namespace}/made-while-away"})


async def until_gone(client: Client, version: str, namespace: str) -> None:
    async with asyncio.timeout(15):
        while True:
            with contextlib.suppress(TooManyRequests):  # "storage is (re)initializing"
                async for event in client.watch(GANGPLACEMENTS, version, Selector(namespace)):
                    pytest.fail(f"history was not lost: {event}")
            await asyncio.sleep(0.1)


async def compact(state: State) -> None:
    """Make etcd forget its history, through its JSON gateway."""
    url = f"http://127.0.0.1:{state.plan.port('etcd')}/v3/kv"
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{url}/range", json={"key": "AA=="}) as answer:
            revision = (await answer.json())["header"]["revision"]
        async with session.post(f"{url}/compaction", json={"revision": revision, "physical": True}) as answer:
            assert answer.status == 200, await answer.text()


def lists_made() -> float:
    return REGISTRY.get_sample_value("outrider_kube_lists_total", {"resource": "gangplacements"}) or 0.0


async def test_a_broken_stream_resumes_where_it_was_without_listing_again(
    client: Client, namespace: str, kubeconfig: Path, tmp_path: Path
) -> None:
    async with cable(kubeconfig, tmp_path / "config") as line, connect("t", kubeconfig=tmp_path / "config") as remote:
        informer = Informer(remote, GANGPLACEMENTS, Selector(namespace))
        async with running(informer.run()):
            await informer.synced.wait()
            listed = lists_made()
            for number in range(3):
                line.cut()
                await client.create(GANGPLACEMENTS, gang(f"g{number}"), namespace)
                await until(lambda number=number: len(informer.items) == number + 1)
        assert lists_made() == listed
        assert line.connections >= 4


async def test_while_the_api_server_is_away_the_copy_stays_and_says_how_old_it_is(
    client: Client, namespace: str, control_plane: State
) -> None:
    informer = Informer(client, GANGPLACEMENTS, Selector(namespace))
    await client.create(GANGPLACEMENTS, gang("one"), namespace)
    async with running(informer.run()):
        await until(lambda: informer.items)
        assert informer.staleness_seconds < 5
        await asyncio.to_thread(kill, control_plane)
        began = time.monotonic()
        await asyncio.sleep(3)
        assert informer.staleness_seconds >= time.monotonic() - began
        assert len(informer.items) == 1
        await asyncio.to_thread(restart, control_plane)
        await client.create(GANGPLACEMENTS, gang("two"), namespace)
        await until(lambda: len(informer.items) == 2)
        assert informer.staleness_seconds < 5
