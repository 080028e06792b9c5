"""What is published before every probe has spoken: what is grave, and nothing that looks like a recovery."""

import time
from pathlib import Path

from node_agent.agent import Agent
from node_agent.judging import Rules
from node_agent.probes.report import Report, Sighting
from node_agent.state import Store
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
    evidence = seen("xid/79", time.time() - 60, source="kernel-log")
    starting.take("kernel-log", Report(sightings=(Sighting(1, evidence),)))
    known = starting.known()
    assert known is not None
    assert (known.judgement.node.reason, known.complete) == ("xid/79", False)
