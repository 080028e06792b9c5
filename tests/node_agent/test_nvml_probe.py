"""The agent's NVML reader against the simulated library, loaded as NVIDIA's is."""

import asyncio
import os
import signal
import subprocess

import pytest

from node_agent.config import Config
from node_agent.inventory import match
from node_agent.probes.gpus import NVMLProbe
from node_agent.readings.nvml import judge_snapshot
from testbed import nvml

HANG = 0.6


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))  # where the child process finds the library
    return nvml.install(tmp_path, "h100", seed="node")


@pytest.fixture
async def probe(state):  # noqa: ARG001 - the library must be there first
    probe = NVMLProbe(Config(nvml_retry_seconds=0.5))
    await probe.read()  # starts the child, which takes a second on a busy machine
    probe._hang_seconds = HANG  # a machine that is slow to start Python must not look like a hang
    yield probe
    await probe.close()


async def findings(probe: NVMLProbe, known=(), expected=0):
    report = await probe.read()
    assert not report.blind
    matched = match(report.snapshot, known, expected)
    readings = judge_snapshot(report.snapshot, matched, expected, 0.0)
    return {(evidence.code, evidence.subject_id): evidence.line for evidence in readings.bad}, readings, matched


async def inventory(probe: NVMLProbe):
    return list((await findings(probe))[2].records.values())


async def test_a_healthy_node_has_eight_gpus_and_no_findings(probe):
    bad, readings, matched = await findings(probe)
    assert bad == {}
    assert len(readings.readable) == 9
    assert [record.pci_address for record in matched.records.values()][:2] == ["00000000:19:00", "00000000:3b:00"]
    assert {record.links_best for record in matched.records.values()} == {18}


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"recovery.action": 2}, "recovery/2"),
        ({"recovery.action": 9}, "recovery/9"),
        ({"remap.failure": 1}, "remap/failure"),
        ({"remap.pending": 1}, "remap/pending"),
        ({"ecc.volatile.uncorrected": 3}, "ecc/uncorrected"),
        ({"nvlink.3.state": 0}, "nvlink/inactive"),
        ({"call.GetPowerUsage.error": 15}, "gpu/lost"),
        ({"call.GetPowerUsage.error": 16}, "gpu/reset-required"),
        ({"call.GetPowerUsage.error": 999}, "gpu/unreadable"),
    ],
)
async def test_a_state_of_one_gpu_is_a_finding_on_that_gpu_alone(probe, state, values, code):
    state.set_gpu(4, values)
    bad, _, _ = await findings(probe)
    assert list(bad) == [(code, state.get(4, "uuid"))]


@pytest.mark.parametrize("error", [3, 13])
async def test_a_value_that_the_board_lacks_is_no_fault(probe, state, error):
    state.set_gpu(4, {f"call.{call}.error": error for call in ("GetPowerUsage", "GetRemappedRows", "GetFieldValues")})
    assert (await findings(probe))[0] == {}


@pytest.mark.parametrize(("error", "code"), [(15, "gpu/lost"), (999, "gpu/unreadable")])
async def test_a_gpu_off_the_bus_is_named_by_its_uuid_and_the_others_are_read(probe, state, error, code):
    known = await inventory(probe)
    state.set_gpu(3, {"call.all.error": error})
    bad, readings, matched = await findings(probe, known)
    assert list(bad) == [(code, state.get(3, "uuid"))]
    assert len(readings.readable) == 8
    assert len(matched.records) == 8


async def test_a_gpu_that_is_no_longer_listed_is_missing_by_its_uuid(probe, state):
    known = await inventory(probe)
    await probe.close()
    state.set_gpu(3, {"dropped_at_init": 1})
    bad, _, matched = await findings(probe, known)
    assert list(bad) == [("gpu/missing", state.get(3, "uuid"))]
    assert len(matched.records) == 8


async def test_fewer_gpus_than_configured_are_a_finding_without_an_inventory(probe):
    assert list((await findings(probe, expected=9))[0]) == [("gpu/count", "")]


async def test_a_failed_start_of_nvml_is_its_own_finding_and_heals_by_itself(probe, state):
    await probe.close()
    state.change({"init.error": 18})
    bad, readings, _ = await findings(probe)
    assert list(bad) == [("nvml/mismatch", "")]
    assert "18" in bad["nvml/mismatch", ""]
    assert readings.readable == set()
    assert list((await findings(probe))[0]) == [("nvml/mismatch", "")]
    state.change({"init.error": None})
    await asyncio.sleep(0.5)  # the pause after a failure, which the fixture made short
    assert (await findings(probe))[0] == {}


async def test_a_library_that_is_not_there_is_a_finding(probe, tmp_path):
    await probe.close()
    (tmp_path / nvml.LIBRARY).unlink()
    assert list((await findings(probe))[0]) == [("nvml/no-driver", "")]


async def test_a_gpu_whose_calls_hang_is_named_and_hides_no_other(probe, state):
    known = await inventory(probe)
    child = probe._child
    state.set_gpu(3, {"call.all.hang": 1})
    bad, readings, _ = await findings(probe, known)
    assert list(bad) == [("monitor/blind", state.get(3, "uuid"))]
    assert child.ended
    probe._hangs = {index: (hang, float("inf")) for index, (hang, _) in probe._hangs.items()}
    bad, readings, _ = await findings(probe, known)
    assert list(bad) == [("monitor/blind", state.get(3, "uuid"))]
    assert len(readings.readable) == 8


async def test_a_hang_of_the_whole_library_makes_the_probe_blind_until_it_ends(probe, state):
    state.change({"call.all.hang": 1})
    report = await probe.read()
    assert "0.6 s" in report.blind
    state.change({"call.all.hang": None})
    assert (await findings(probe))[0] == {}


async def test_a_child_that_is_killed_is_replaced(probe):
    os.kill(probe._child.pid, signal.SIGKILL)
    await probe._child._process.wait()
    assert (await findings(probe))[0] == {}


async def test_an_older_driver_without_fabric_and_field_values_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    nvml.install(tmp_path, "h100", seed="n", omit=("nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetFieldValues"))
    probe = NVMLProbe(Config())
    try:
        bad, readings, _ = await findings(probe)
    finally:
        await probe.close()
    assert bad == {}
    assert len(readings.readable) == 9


SMALLEST = ("InitWithFlags", "Shutdown", "ErrorString", "SystemGetDriverVersion", "DeviceGetCount_v2")
SMALLEST += ("DeviceGetHandleByIndex_v2", "DeviceGetUUID", "DeviceGetPciInfo_v3", "DeviceGetName")


def exported() -> set[str]:
    symbols = subprocess.run(["nm", "-D", "--defined-only", nvml.build()], capture_output=True, text=True, check=True)
    return {line.split()[-1] for line in symbols.stdout.splitlines()}


async def test_the_oldest_driver_that_can_name_its_gpus_is_read(tmp_path, monkeypatch):
    needed = {f"nvml{name}" for name in SMALLEST}
    assert needed < exported()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    nvml.install(tmp_path, "h100", seed="n", omit=tuple(sorted(exported() - needed)))
    probe = NVMLProbe(Config())
    try:
        bad, readings, matched = await findings(probe)
    finally:
        await probe.close()
    assert bad == {}
    assert (len(readings.readable), len(matched.records)) == (9, 8)
