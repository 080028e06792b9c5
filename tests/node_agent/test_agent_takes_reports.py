"""What the agent publishes before every probe has spoken, and how soon it judges."""

import asyncio
import time
from pathlib import Path

import pytest

from node_agent.agent import Agent
from node_agent.judging import Rules
from node_agent.probes.report import Report, Sighting
from node_agent.state import Store
from outrider.api.gpunode import SubjectKind
from outrider.health.catalogue import load
from outrider.health.findings import seen

RULES = Rules(catalogue=load(), clear_dwell_seconds=30, expected_gpus=0)
PROBES = {"kernel-log": 60.0, "nvml": 60.0}


def agent(folder: Path) -> Agent:
    return Agent(Store(folder), RULES, PROBES, lambda _force: None)


async def test_nothing_is_published_while_a_probe_is_silent_and_nothing_is_grave(tmp_path: Path) -> None:
    starting = agent(tmp_path)
    starting.take("kernel-log", Report())
    assert starting.known() is None
    starting.take("nvml", Report())
    known = starting.known()
    assert known is not None
    assert known.complete


async def test_what_is_grave_does_not_wait_for_a_probe_that_hangs(tmp_path: Path) -> None:
    starting = agent(tmp_path)
    gpu = {"subject": SubjectKind.GPU, "subject_id": "GPU-1"}
    evidence = seen("xid/79", time.time() - 60, **gpu, source="kernel-log")
    starting.take("kernel-log", Report(sightings=(Sighting(1, evidence),)))
    known = starting.known()
    assert known is not None
    assert (known.judgement.node.reason, known.complete) == ("xid/79", False)


@pytest.mark.looptime
async def test_more_of_the_same_is_judged_a_moment_later_and_something_new_at_once(tmp_path: Path) -> None:
    working = agent(tmp_path)
    working.take("nvml", Report())
    now = time.time() - 60

    def seen_again(sequence: int, code: str) -> int:
        evidence = seen(code, now, source="kernel-log")
        working.take("kernel-log", Report(sightings=(Sighting(sequence, evidence),)))
        known = working.known()
        assert known is not None
        return known.judgement.node.score

    judging = asyncio.create_task(working.judge_on())
    first = seen_again(1, "xid/13")
    again = [seen_again(sequence, "xid/13") for sequence in range(2, 200)]
    assert again == [first] * 198
    assert [evidence.count for evidence in working.memory.findings] == [199]
    await asyncio.sleep(0.3)
    known = working.known()
    assert known is not None
    assert known.judgement.node.score < first
    assert seen_again(200, "xid/79") < known.judgement.node.score
    judging.cancel()
