"""Filter hears of the end of a pod some milliseconds after kube-scheduler, which would not ask again for minutes."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer

from outrider.api import reasons
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.extender.server import Extender
from tests.scheduler_plugin.builders import NOW, gang_pods, make_node, make_placement, make_pod, make_snapshot

POD = json.loads(msgspec.json.encode(make_pod("alone", gpus=8)))
FULL = [make_node("n0"), make_pod("before", gpus=8, node="n0", phase="Running")]
FREE = make_snapshot(make_node("n0"))
LAG_SECONDS = 0.2


class Case:
    """An extender, and the snapshot that it has."""

    def __init__(self) -> None:
        self.snapshot: Snapshot = make_snapshot(*FULL)
        self.extender = Extender(lambda: self.snapshot, clock=lambda: NOW, lag_seconds=LAG_SECONDS)

    def tell(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.extender.on_news()

    def tell_soon(self, snapshot: Snapshot) -> None:
        asyncio.get_running_loop().call_later(0.04, self.tell, snapshot)


Http = TestClient[Any, Any]


@pytest.fixture
def case() -> Case:
    return Case()


@pytest.fixture
async def http(case: Case) -> AsyncIterator[Http]:
    async with TestClient(TestServer(case.extender.application())) as client:
        yield client


async def answer(http: Http, names: Sequence[str] = ("n0",)) -> tuple[list[str], dict[str, str], float]:
    """Return what filter allows, what it refuses, and the seconds that it took."""
    started = asyncio.get_running_loop().time()
    response = await http.post("/filter", json={"Pod": POD, "NodeNames": names})
    found = await response.json()
    took_seconds = asyncio.get_running_loop().time() - started
    return found["NodeNames"], found["FailedNodes"] | found["FailedAndUnresolvableNodes"], took_seconds


@pytest.mark.parametrize("before", [make_snapshot(*FULL), make_snapshot()])
async def test_a_node_that_just_became_free_or_was_made_is_allowed_once_we_hear_of_it(
    case: Case, http: Http, before: Snapshot
) -> None:
    case.tell(before)
    asyncio.get_running_loop().call_later(0.01, case.tell, before)  # news of something else
    case.tell_soon(FREE)
    assert (await answer(http))[0] == ["n0"]


async def test_a_node_that_stays_full_is_refused_after_a_moment_and_then_at_once(http: Http) -> None:
    allowed, refused, took_seconds = await answer(http)
    assert (allowed, refused) == ([], {"n0": reasons.NODE_NO_GPU})
    assert took_seconds >= LAG_SECONDS
    assert (await answer(http))[2] < LAG_SECONDS


async def test_nothing_is_waited_for_while_another_node_will_do(case: Case, http: Http) -> None:
    case.tell(make_snapshot(*FULL, make_node("n1")))
    allowed, _, took_seconds = await answer(http, ["n0", "n1"])
    assert allowed == ["n1"]
    assert took_seconds < LAG_SECONDS


async def test_nothing_is_waited_for_where_we_know_better(case: Case, http: Http) -> None:
    case.tell(make_snapshot(make_node("n0"), *gang_pods("train", 1), make_placement("train", {0: "n0"})))
    _, refused, took_seconds = await answer(http)
    assert refused == {"n0": reasons.NODE_RESERVED}
    assert took_seconds < LAG_SECONDS
