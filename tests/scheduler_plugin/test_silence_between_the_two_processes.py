"""Each of the plugin's two processes notices that the other is stuck, and never takes its own sleep for that."""

import pytest
from aiohttp.test_utils import TestClient, TestServer

from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.extender.server import Extender
from scheduler_plugin.extender.silence import Silence


def test_silence_is_over_after_so_many_ticks_and_says_so_once() -> None:
    silence = Silence(3)
    assert [silence.tick() for _ in range(5)] == [False, False, True, False, False]
    assert silence.over


def test_a_word_now_and_then_is_no_silence() -> None:
    silence = Silence(2)
    for _ in range(10):
        assert not silence.tick()
        assert not silence.heard()
    assert not silence.over


def test_a_word_ends_a_silence_once() -> None:
    silence = Silence(1)
    silence.tick()
    assert [silence.heard(), silence.heard(), silence.over] == [True, False, False]


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
async def test_an_extender_that_nobody_keeps_up_to_date_gives_no_answer(verb: str) -> None:
    silence = Silence(1)
    extender = Extender(Snapshot, deserted=lambda: silence.over)
    body = {"Pod": {}, "NodeNames": ["n0"], "NodeNameToMetaVictims": {"n0": {"Pods": [{"UID": "u"}]}}}
    async with TestClient(TestServer(extender.application())) as http:
        silence.tick()
        response = await http.post(f"/{verb}", json=body)
        assert (response.status, "silent" in await response.text()) == (503, True)
        silence.heard()
        assert (await http.post(f"/{verb}", json=body)).status == 200
