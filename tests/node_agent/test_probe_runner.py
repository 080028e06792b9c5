import asyncio

import pytest

from node_agent.config import Config
from node_agent.probes import all as every_probe
from node_agent.probes import registry
from node_agent.probes.registry import NoData
from node_agent.probes.report import Report
from outrider.config import ConfigError


class Probe:
    """A probe that does as its function says at each reading."""

    def __init__(self, act, wake=None):
        self.period_seconds, self.timeout_seconds, self.wake = 1.0, 5.0, wake
        self.act = act
        self.closed = False

    async def read(self) -> Report:
        return await self.act()

    async def close(self) -> None:
        self.closed = True


async def hang() -> Report:
    await asyncio.Event().wait()
    raise AssertionError


async def fail() -> Report:
    raise OSError("no such device")


async def nothing() -> Report:
    raise NoData("no NVLink here")


async def work() -> Report:
    return Report()


async def watched(seconds: float, **probes: Probe) -> list[tuple[str, str]]:
    said: list[tuple[str, str]] = []
    tasks = [
        asyncio.create_task(registry.run(name, probe, lambda name, report: said.append((name, report.blind))))
        for name, probe in probes.items()
    ]
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert all(probe.closed for probe in probes.values())
    return said


@pytest.mark.looptime
async def test_a_probe_that_hangs_or_fails_is_blind_and_hides_no_other():
    said = await watched(5.5, hung=Probe(hang), broken=Probe(fail), good=Probe(work))
    assert ("hung", "no answer within 5 s") in said
    assert ("broken", "OSError: no such device") in said
    assert said.count(("good", "")) == 2  # nothing to say is said every five seconds


@pytest.mark.looptime
async def test_a_probe_without_data_is_not_blind():
    assert await watched(0.5, idle=Probe(nothing)) == [("idle", "")]


@pytest.mark.looptime
async def test_a_probe_that_wakes_is_read_before_its_period_is_over():
    wake = asyncio.Event()
    readings: list[float] = []

    async def note() -> Report:
        readings.append(asyncio.get_running_loop().time())
        return Report()

    asyncio.get_running_loop().call_later(0.25, wake.set)
    await watched(0.5, woken=Probe(note, wake))
    assert readings == pytest.approx([0, 0.25], abs=0.01)


def test_probes_are_built_by_name_and_can_be_switched_off():
    assert every_probe
    everything = set(registry.build(Config()))
    assert {"nvml", "kernel-log"} <= everything
    assert set(registry.build(Config(disabled_probes=["nvml"]))) == everything - {"nvml"}


def test_a_name_is_registered_once():
    with pytest.raises(ValueError, match="nvml"):
        registry.probe("nvml")(lambda config: Probe(work))  # noqa: ARG005 - the form of a factory


@pytest.mark.looptime
async def test_a_source_that_is_not_there_is_looked_for_twice_a_minute():
    looks: list[float] = []

    async def look() -> Report:
        looks.append(asyncio.get_running_loop().time())
        raise NoData("no RDMA devices")

    await watched(65, nics=Probe(look))
    assert [round(at - looks[0]) for at in looks] == [0, 30, 60]


@pytest.mark.looptime
async def test_a_probe_that_sees_again_says_so_at_once():
    answers = iter([fail, work, work])

    async def act() -> Report:
        return await next(answers)()

    said = await watched(2.5, turning=Probe(act))
    assert said == [("turning", "OSError: no such device"), ("turning", "")]


@pytest.mark.parametrize("names", [["nvlm"], ["nvml", "kernel-logs"]])
def test_a_probe_that_is_no_probe_can_not_be_switched_off(names):
    with pytest.raises(ConfigError, match=f"disabledProbes: {names[-1]}: no such probe; there are .*kernel-log"):
        registry.build(Config(disabled_probes=names))
