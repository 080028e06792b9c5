"""Events that come at once, NVML let go of and taken up again, GPUs that come back: the probe over time."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from node_agent.config import Config
from node_agent.probes import registry
from node_agent.probes.gpus import NVMLProbe
from node_agent.probes.registry import Surroundings
from node_agent.release import SECONDS_MAX, MalformedRequest, seconds_asked
from outrider.api.gpunode import GPUNode, Health
from outrider.api.meta import ObjectMeta
from outrider.api.names import RELEASE_ANNOTATION
from outrider.api.times import rfc3339
from outrider.health.catalogue import load
from testbed import nvml
from tests.node_agent.nvml_scene import NOW, Scene

XID, DOUBLE_BIT, RECOVERY, UNAVAILABLE = 0x8, 0x2, 0x8000, 0x4000


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    return nvml.install(tmp_path, "h100", seed="node")


@pytest.fixture
async def scene(state):
    scene = Scene(state, nvml_rescan_seconds=60)
    assert (await scene.read()).node.health is Health.HEALTHY
    yield scene
    await scene.probe.close()


class Running:
    """The probe under the agent's own runner; keeps what it reports, with the time."""

    def __init__(self, probe: NVMLProbe) -> None:
        self.reports: list[tuple[float, registry.Report]] = []
        self.grew = asyncio.Condition()
        self.task = asyncio.create_task(registry.run("nvml", probe, self._take))

    def _take(self, _name: str, report: registry.Report) -> None:
        self.reports.append((time.monotonic(), report))

    async def until(self, holds, seconds: float = 20.0):
        """Return time and report of the first one for which ``holds`` is true."""
        async with asyncio.timeout(seconds):
            while True:
                for at, report in self.reports:
                    if holds(report):
                        return at, report
                await asyncio.sleep(0.002)

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@pytest.fixture
async def running(state):  # noqa: ARG001 - the library must be there first
    running = Running(NVMLProbe(Config(nvml_hang_seconds=2.0)))
    await running.until(lambda report: report.snapshot is not None)
    yield running
    await running.end()


def told(code: str):
    return lambda report: any(evidence.code == code for evidence in report.events)


def gpus_read(report) -> bool:
    return report.snapshot is not None and len(report.snapshot.gpus) == 8


async def test_an_event_is_told_at_once_on_its_gpu_and_a_full_reading_follows(running, state):
    running.reports.clear()
    began = time.monotonic()
    state.add_event(3, XID, 79)
    at, report = await running.until(told("xid/79"))
    (evidence,) = report.events
    assert (evidence.subject_id, evidence.count, evidence.events) == (state.get(3, "uuid"), 1, 1)
    assert at - began < 1.0  # milliseconds; the bound leaves room for a busy machine
    at, _ = await running.until(gpus_read)
    assert at - began < 5.0


async def test_events_that_only_a_reading_explains_cause_one(running, state):
    running.reports.clear()
    state.set_gpu(3, {"ecc.volatile.uncorrected": 1})
    state.add_event(3, DOUBLE_BIT, 0)
    _, report = await running.until(gpus_read)
    assert [gpu.ecc_uncorrected for gpu in report.snapshot.gpus][2:4] == [0, 1]


async def test_an_event_comes_through_while_another_gpu_hangs(running, state):
    running.reports.clear()
    state.set_gpu(6, {"call.GetPowerUsage.hang": 1})
    state.add_event(5, XID, 31)  # causes a reading, which hangs
    await running.until(told("xid/31"))
    await asyncio.sleep(0.3)
    began = time.monotonic()
    state.add_event(2, XID, 48)
    at, _ = await running.until(told("xid/48"))
    assert at - began < 1.0
    _, report = await running.until(lambda report: bool(report.snapshot and report.snapshot.hangs))
    assert sorted(gpu.index for gpu in report.snapshot.gpus) == [0, 1, 2, 3, 4, 5, 7]


async def test_a_storm_of_events_is_told_together_and_counted_exactly(running, state):
    running.reports.clear()
    for _ in range(50):
        state.add_event(3, XID, 95)

    def counted(_report) -> bool:
        return sum(evidence.count for _, report in running.reports for evidence in report.events) == 50

    await running.until(counted)
    await asyncio.sleep(0.5)
    assert counted(None)
    assert sum(1 for _, report in running.reports if report.events) <= 25
    assert sum(1 for _, report in running.reports if report.snapshot) <= 4


@pytest.mark.parametrize("supported", [None, 0, 0x10])
async def test_a_board_without_events_is_no_fault(state, supported):
    state.change({"gpu.events.supported": supported})
    scene = Scene(state)
    try:
        await scene.read()
        assert (await scene.read()).node.health is Health.HEALTHY
        assert scene.codes() == {}
    finally:
        await scene.probe.close()


async def test_waiting_that_fails_is_told_backs_off_and_heals(scene):
    scene.state.change({"call.EventSetWait.error": 15})
    async with asyncio.timeout(20):
        while "nvml/events" not in scene.codes():
            await asyncio.sleep(0.1)
            await scene.read()
    assert (await scene.read()).node.health is Health.HEALTHY
    used = cpu_seconds(scene)
    await asyncio.sleep(0.5)
    assert cpu_seconds(scene) - used < 0.2  # an error that lasts does not spin
    scene.state.change({"call.EventSetWait.error": None})
    async with asyncio.timeout(20):
        while "nvml/events" in scene.codes():
            await asyncio.sleep(0.1)
            await scene.read()


def cpu_seconds(scene: Scene) -> float:
    fields = Path(f"/proc/{scene.probe._child.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def test_nvml_is_let_go_of_and_taken_up_again(scene):
    scene.state.set_gpu(3, {"recovery.action": 1})
    await scene.read()
    pid = scene.probe._child.pid
    scene.probe.release(60)
    judgement = await scene.read()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert scene.codes() == {"recovery/1": scene.uuid(3), "nvml/released": ""}  # nothing is forgotten meanwhile
    assert judgement.node.health is Health.UNHEALTHY
    scene.state.set_gpu(3, {"recovery.action": None})
    await scene.read(seconds=61)
    assert scene.codes() == {"recovery/1": scene.uuid(3)}  # the pause is over at once, the state after its dwell
    assert (await scene.read(times=4)).node.health is Health.HEALTHY


async def test_a_pause_is_no_blindness_and_ends_when_it_is_taken_back(scene):
    scene.probe.release(60)
    assert (await scene.read()).node.health is Health.HEALTHY
    assert scene.codes() == {"nvml/released": ""}
    scene.probe.release(0)
    await scene.read()
    assert scene.codes() == {}
    assert len(scene.memory.inventory) == 8


async def test_a_release_breaks_off_a_reading_that_hangs(scene):
    scene.state.set_gpu(3, {"call.all.hang": 1})
    reading = asyncio.create_task(scene.read())
    await asyncio.sleep(0.3)
    scene.probe.release(60)
    await asyncio.wait_for(reading, 5)
    assert "nvml/released" in scene.codes()


async def test_the_gpunode_asks_for_a_release_and_takes_it_back(scene):
    followers = []
    scene.probe.attach(Surroundings(catalogue=load, on_gpunode=followers.append))
    (changed,) = followers
    changed(None, gpunode(rfc3339(time.time() + 60)))
    await scene.read()
    assert scene.codes() == {"nvml/released": ""}
    changed(None, gpunode("soon"))
    changed(None, gpunode())
    await scene.read()
    assert scene.codes() == {}


def gpunode(until: str = "") -> GPUNode:
    return GPUNode(metadata=ObjectMeta(name="n", annotations={RELEASE_ANNOTATION: until} if until else {}))


@pytest.mark.parametrize(
    ("until", "seconds"),
    [("", 0), (rfc3339(NOW + 30), 30), (rfc3339(NOW - 30), 0), (rfc3339(NOW + 86400), SECONDS_MAX)],
)
def test_a_request_is_bounded(until, seconds):
    assert seconds_asked(gpunode(until), NOW) == pytest.approx(seconds)
    assert seconds_asked(None, NOW) == 0


@pytest.mark.parametrize("until", ["soon", "2026-01-31T12:00:00", "99999999999999999"])
def test_a_request_that_is_no_time_is_refused_in_words(until):
    with pytest.raises(MalformedRequest, match=RELEASE_ANNOTATION):
        seconds_asked(gpunode(until), NOW)


async def test_a_gpu_that_comes_back_after_a_new_start_of_the_driver_is_listed_again(scene):
    scene.probe.attach(Surroundings(catalogue=load, inventory=lambda: scene.memory.inventory))
    await scene.probe.close()
    scene.state.set_gpu(3, {"dropped_at_init": 1})
    await scene.read()
    assert scene.codes() == {"gpu/missing": scene.uuid(3)}
    scene.state.set_gpu(3, {"dropped_at_init": None})
    assert (await scene.until_healthy()).node.health is Health.HEALTHY


async def test_two_gpus_that_hang_hide_no_other(scene):
    scene.probe._hang_seconds = 0.6
    for gpu in (2, 5):
        scene.state.set_gpu(gpu, {"call.GetTemperature.hang": 1})
    judgement = await scene.read()
    blind = {evidence.subject_id for evidence in scene.memory.findings if evidence.code == "monitor/blind"}
    assert blind == {scene.uuid(2), scene.uuid(5)}
    assert {evidence.code for evidence in scene.memory.findings} == {"monitor/blind"}
    healthy = [uuid for uuid, opinion in judgement.gpus.items() if opinion.health is Health.HEALTHY]
    assert len(healthy) == 6


async def test_a_value_of_an_unknown_kind_or_struct_breaks_nothing(scene):
    scene.state.set_gpu(3, {"field.230": 1, "field.230.type": 77, "call.GetGpuFabricInfo.error": 25})
    assert (await scene.read()).node.health is Health.HEALTHY


async def test_a_call_that_times_out_once_is_asked_again(scene):
    scene.state.set_gpu(3, {"call.GetPowerUsage.error": 10})
    await scene.read()
    assert scene.codes() == {"gpu/unreadable": scene.uuid(3)}


@pytest.mark.parametrize(
    ("code", "finding"),
    [(9, "no-driver"), (18, "mismatch"), (17, "no-access"), (28, "no-gpu"), (999, "init"), (4321, "init")],
)
async def test_a_start_that_fails_is_named_keeps_what_is_known_and_heals_by_itself(scene, code, finding):
    await scene.probe.close()
    scene.state.change({"init.error": code})
    judgement = await scene.read()
    assert scene.codes() == {f"nvml/{finding}": ""}
    assert (judgement.node.health, judgement.node.verdict.hard) == (Health.UNKNOWN, False)
    assert len(scene.memory.inventory) == 8
    scene.state.change({"init.error": None})
    assert (await scene.until_healthy()).node.health is Health.HEALTHY


async def test_errors_before_a_reboot_are_found_after_it(scene):
    scene.state.set_gpu(3, {"ecc.aggregate.uncorrected": 2})
    await scene.read()
    assert scene.codes() == {"ecc/uncorrected-before": scene.uuid(3)}
    await scene.read(times=8)
    assert scene.codes() == {"ecc/uncorrected-before": scene.uuid(3)}  # it happened: no good reading takes it back


@pytest.mark.parametrize("profile", ["a100", "h100", "h200", "b200", "gb200"])
@pytest.mark.parametrize("work", [{}, {"utilization": "99 70", "clock.event_reasons": 4, "performance_state": 0}])
async def test_a_healthy_board_of_any_kind_idle_or_busy_has_no_finding(tmp_path, monkeypatch, profile, work):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    state = nvml.install(tmp_path, profile, seed="node")
    state.change({f"gpu.{key}": value for key, value in work.items()})
    if work:
        state.change({"gpu.clock.sm": state.get(0, "clock.max.sm"), "gpu.processes": "4711:1000"})
    scene = Scene(state)
    try:
        judgement = await scene.read(times=4)
    finally:
        await scene.probe.close()
    assert (judgement.node.health, judgement.node.score, scene.codes()) == (Health.HEALTHY, 100, {})
    assert all(record.links_active == record.links_total >= 12 for record in scene.memory.inventory)
