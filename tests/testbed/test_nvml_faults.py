"""The library fails, changes, blocks and forgets as NVIDIA's does in the field."""

import os
import subprocess
import sys
import threading
import time
from ctypes import byref, c_uint, sizeof
from pathlib import Path
from typing import Any

import pynvml as n
import pytest

from testbed import nvml
from testbed.errors import TestbedError
from testbed.nvml.state import NvmlState
from tests.testbed.nvml_node import code_of, installed, shut_down

XID = n.nvmlEventTypeXidCriticalError


def handle(index: int) -> Any:
    return n.nvmlDeviceGetHandleByIndex(index)


def init_code() -> int:
    return code_of(n.nvmlInit)


def restart() -> None:
    shut_down()
    n.nvmlInit()


def test_any_value_changes_while_an_agent_reads(node: NvmlState) -> None:
    gpu = handle(3)
    node.set_gpu(3, {"remap.failure": 1, "temperature.gpu": 91, "nvlink.5.state": 0, "nvlink.2.replay": 7})
    assert n.nvmlDeviceGetRemappedRows(gpu) == (0, 0, 0, 1)
    assert n.nvmlDeviceGetTemperature(gpu, 0) == 91
    assert [n.nvmlDeviceGetNvLinkState(gpu, link) for link in (4, 5)] == [1, 0]
    assert n.nvmlDeviceGetNvLinkVersion(gpu, 5) == 0
    assert n.nvmlDeviceGetNvLinkErrorCounter(gpu, 2, 0) == 7
    assert n.nvmlDeviceGetFieldValues(gpu, [52])[0].value.ullVal == 7
    assert n.nvmlDeviceGetTemperature(handle(2), 0) == 32
    node.set_gpu(3, {"temperature.gpu": None})
    assert n.nvmlDeviceGetTemperature(gpu, 0) == 32


def test_changes_of_the_same_length_in_quick_succession_are_all_seen(node: NvmlState) -> None:
    gpu = handle(0)
    for celsius in range(30, 80):
        node.set_gpu(0, {"temperature.gpu": celsius})
        assert n.nvmlDeviceGetTemperature(gpu, 0) == celsius


@pytest.mark.parametrize("code", [15, 16, 999, 4, 1234])
def test_a_lost_gpu_answers_its_code_and_leaves_the_others_alone(node: NvmlState, code: int) -> None:
    gpu = handle(3)
    node.set_gpu(3, {"call.all.error": code})
    assert n.nvmlDeviceGetCount() == 8
    assert code_of(n.nvmlDeviceGetRemappedRows, gpu) == code
    assert code_of(n.nvmlDeviceGetHandleByIndex, 3) == code
    assert n.nvmlDeviceGetRemappedRows(handle(4)) == (0, 0, 0, 0)


def test_one_call_fails_alone_or_stays_readable_alone(node: NvmlState) -> None:
    gpu = handle(0)
    node.set_gpu(0, {"call.GetTemperature.error": 999})
    assert code_of(n.nvmlDeviceGetTemperature, gpu, 0) == 999
    assert n.nvmlDeviceGetName(gpu)
    node.set_gpu(0, {"call.GetTemperature.error": None, "call.all.error": 999, "call.GetName.error": 0})
    assert code_of(n.nvmlDeviceGetTemperature, gpu, 0) == 999
    assert n.nvmlDeviceGetName(gpu)


@pytest.mark.parametrize("code", [9, 18, 999, 28, 12])
def test_init_fails_with_any_code(node: NvmlState, code: int) -> None:
    shut_down()
    node.change({"init.error": code})
    assert init_code() == code
    assert code_of(n.nvmlDeviceGetCount) == n.NVML_ERROR_UNINITIALIZED
    node.change({"init.error": None})
    assert init_code() == 0


def test_a_node_without_state_has_no_driver(node: NvmlState) -> None:
    shut_down()
    node.path.unlink()
    assert init_code() == n.NVML_ERROR_DRIVER_NOT_LOADED


def test_a_dropped_gpu_is_gone_at_the_next_init_and_indices_close_up(node: NvmlState) -> None:
    after = n.nvmlDeviceGetUUID(handle(4))
    node.set_gpu(3, {"dropped_at_init": 1})
    assert n.nvmlDeviceGetCount() == 8
    restart()
    assert n.nvmlDeviceGetCount() == 7
    assert n.nvmlDeviceGetUUID(handle(3)) == after
    assert n.nvmlDeviceGetMinorNumber(handle(3)) == 4
    assert n.nvmlDeviceGetIndex(handle(3)) == 3


def test_a_hung_call_returns_when_the_fault_is_cleared(node: NvmlState) -> None:
    gpu = handle(1)
    node.set_gpu(1, {"call.GetPowerUsage.hang": 1})
    done = threading.Event()

    def call() -> None:
        n.nvmlDeviceGetPowerUsage(gpu)
        done.set()

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    assert not done.wait(0.2)
    assert n.nvmlDeviceGetPowerUsage(handle(2)) == 100_000
    node.set_gpu(1, {"call.GetPowerUsage.hang": None})
    assert done.wait(5)
    thread.join()


def test_a_delayed_call_takes_its_time(node: NvmlState) -> None:
    gpu = handle(1)
    node.set_gpu(1, {"call.GetPowerUsage.delay_ms": 60})
    begin = time.monotonic()
    n.nvmlDeviceGetPowerUsage(gpu)
    assert time.monotonic() - begin >= 0.06


def test_a_hung_init_returns_when_the_fault_is_cleared(node: NvmlState) -> None:
    shut_down()
    node.change({"init.hang": 1})
    thread = threading.Thread(target=n.nvmlInit, daemon=True)
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()
    node.change({"init.hang": None})
    thread.join(5)
    assert not thread.is_alive()
    assert n.nvmlDeviceGetCount() == 8


def test_the_last_shutdown_voids_handles_and_a_new_init_refuses_old_ones(node: NvmlState) -> None:
    gpu = handle(0)
    n.nvmlInit()
    n.nvmlShutdown()
    assert n.nvmlDeviceGetName(gpu)
    n.nvmlShutdown()
    assert code_of(n.nvmlDeviceGetName, gpu) == n.NVML_ERROR_UNINITIALIZED
    assert code_of(n.nvmlShutdown) == n.NVML_ERROR_UNINITIALIZED
    n.nvmlInit()
    assert code_of(n.nvmlDeviceGetName, gpu) == n.NVML_ERROR_INVALID_ARGUMENT
    assert node.gpu_count() == n.nvmlDeviceGetCount()


@pytest.mark.usefixtures("node")
def test_handles_of_nothing_are_refused() -> None:
    null = n.c_nvmlDevice_t()
    assert code_of(n.nvmlDeviceGetName, null) == n.NVML_ERROR_INVALID_ARGUMENT
    assert code_of(n.nvmlDeviceGetHandleByIndex, 8) == n.NVML_ERROR_INVALID_ARGUMENT
    assert code_of(n.nvmlDeviceGetNvLinkState, handle(0), 18) == n.NVML_ERROR_INVALID_ARGUMENT


@pytest.mark.usefixtures("node")
def test_unknown_struct_versions_are_refused_and_nothing_is_written() -> None:
    gpu = handle(0)
    for version in (0, 0x2000024 + 1, 0x4000040):
        info = n.c_nvmlGpuFabricInfo_v3_t()
        info.version = version
        assert code_of(n.nvmlDeviceGetGpuFabricInfoV, gpu, byref(info)) == n.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
        assert (info.state, info.version) == (0, version)
    status = n.c_nvmlEccSramErrorStatus_v1_t()
    status.version = 0x2000068
    assert code_of(n.nvmlDeviceGetSramEccErrorStatus, gpu, byref(status)) == 25
    assert code_of(n.nvmlDeviceGetMemoryInfo, gpu, 0x3000028) == 25


@pytest.mark.usefixtures("tray")
def test_a_v2_fabric_struct_is_not_written_beyond_its_end() -> None:
    class Guarded(n.Structure):  # type: ignore[misc]  # pynvml has no types
        _fields_ = [("info", n.c_nvmlGpuFabricInfo_v2_t), ("guard", c_uint)]

    guarded = Guarded(guard=0xA5A5A5A5)
    guarded.info.version = n.nvmlGpuFabricInfo_v2
    n.nvmlDeviceGetGpuFabricInfoV(handle(0), byref(guarded.info))
    assert sizeof(guarded.info) == 36
    assert (guarded.info.healthMask, guarded.guard) == (0x1AA, 0xA5A5A5A5)


def test_fabric_status_is_apart_from_its_state(node: NvmlState) -> None:
    node.change({"gpu.fabric.state": 3, "gpu.fabric.status": 999})
    node.set_gpu(2, {"fabric.state": 1})
    found = []
    for index in (0, 2):
        info = n.c_nvmlGpuFabricInfo_v3_t()
        n.nvmlDeviceGetGpuFabricInfoV(handle(index), byref(info))
        found.append((info.state, info.status))
    assert found == [(3, 999), (1, 999)]


def test_field_values_are_answered_entry_by_entry(node: NvmlState) -> None:
    node.set_gpu(0, {"field.230.error": 3, "field.165.4": 0, "field.165.4.type": 1, "field.400": 12})
    values = n.nvmlDeviceGetFieldValues(handle(0), [230, (165, 4), (165, 5), 400, (165, 18), 999])
    assert [v.nvmlReturn for v in values] == [3, 0, 0, 0, 2, 3]
    assert [v.value.uiVal for v in values[1:4]] == [0, 1, 12]


def test_ecc_that_is_off_counts_nothing(node: NvmlState) -> None:
    node.set_gpu(0, {"ecc.mode": "0 1"})
    assert code_of(n.nvmlDeviceGetTotalEccErrors, handle(0), 0, 0) == n.NVML_ERROR_NOT_SUPPORTED
    assert n.nvmlDeviceGetEccMode(handle(0)) == [0, 1]


def test_a_value_that_is_no_number_is_an_unknown_error_not_a_zero(node: NvmlState) -> None:
    node.set_gpu(0, {"temperature.gpu": "warm"})
    assert code_of(n.nvmlDeviceGetTemperature, handle(0), 0) == n.NVML_ERROR_UNKNOWN


def test_events_come_once_to_each_set_and_only_after_registration(node: NvmlState) -> None:
    node.add_event(1, XID, 43)
    first, second = n.nvmlEventSetCreate(), n.nvmlEventSetCreate()
    for events in (first, second):
        n.nvmlDeviceRegisterEvents(handle(1), XID, events)
    node.add_event(1, XID, 79)
    node.add_event(1, n.nvmlEventTypeGpuRecoveryAction, 2)  # not asked for
    node.add_event(2, XID, 48)  # GPU not registered
    node.add_event(1, XID, 95)
    for events in (first, second):
        seen = [n.nvmlEventSetWait(events, 0) for _ in range(2)]
        assert [(e.eventType, e.eventData) for e in seen] == [(XID, 79), (XID, 95)]
        assert n.nvmlDeviceGetIndex(seen[0].device) == 1
        assert code_of(n.nvmlEventSetWait, events, 0) == n.NVML_ERROR_TIMEOUT
        n.nvmlEventSetFree(events)
    assert code_of(n.nvmlEventSetWait, first, 0) == n.NVML_ERROR_INVALID_ARGUMENT


def test_a_waiting_set_wakes_at_an_event_and_keeps_its_place_over_a_repair(node: NvmlState) -> None:
    events = n.nvmlEventSetCreate()
    n.nvmlDeviceRegisterEvents(handle(0), XID, events)
    for code in range(70):
        node.add_event(0, XID, 1000 + code)
    while code_of(n.nvmlEventSetWait, events, 0) == 0:
        pass
    node.replace({"gpu.count": 8, "gpu.events.supported": 0xFE0B})
    timer = threading.Timer(0.05, node.add_event, (0, XID, 79))
    timer.start()
    assert n.nvmlEventSetWait(events, 5000).eventData == 79
    timer.join()


def test_a_persistent_error_of_waiting_returns_at_once(node: NvmlState) -> None:
    events = n.nvmlEventSetCreate()
    node.change({"call.EventSetWait.error": 15})
    assert code_of(n.nvmlEventSetWait, events, 60_000) == n.NVML_ERROR_GPU_IS_LOST


def test_readers_see_old_or_new_but_never_half(node: NvmlState) -> None:
    gpu = handle(0)
    ended = threading.Event()

    def write() -> None:
        for round_ in range(300):
            node.set_gpu(0, {"utilization": f"{round_ % 100} {round_ % 100}", "padding": "x" * (round_ % 50)})
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    reads = 0
    while not ended.is_set():
        rates = n.nvmlDeviceGetUtilizationRates(gpu)
        assert rates.gpu == rates.memory
        reads += 1
    writer.join()
    assert reads > 100
    assert n.nvmlDeviceGetUtilizationRates(gpu).gpu == 99


def test_writers_take_turns(node: NvmlState) -> None:
    def add() -> None:
        for _ in range(20):
            node.add_event(0, XID, 13)

    writers = [threading.Thread(target=add) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert node.add_event(0, XID, 13) == 81


def test_a_key_that_cannot_stand_in_the_file_is_refused(node: NvmlState) -> None:
    for key, value in (("a b", "1"), ("", "1"), ("a", "1\n2"), ("a=b", "1")):
        with pytest.raises(TestbedError, match="keys are words joined by dots"):
            node.change({key: value})


_PROBE = """
import pynvml as n
n.nvmlInit()
gpu = n.nvmlDeviceGetHandleByIndex(0)
info = n.c_nvmlGpuFabricInfo_v3_t()
try:
    n.nvmlDeviceGetGpuFabricInfoV(gpu, n.byref(info))
    print("state", info.state)
except n.NVMLError as error:
    print("error", error.value)
print(n.nvmlDeviceGetName(gpu))
"""


@pytest.mark.parametrize(
    ("omit", "says"), [((), "state 3"), (("nvmlDeviceGetGpuFabricInfoV",), f"error {n.NVML_ERROR_FUNCTION_NOT_FOUND}")]
)
def test_an_older_driver_lacks_symbols_and_the_library_finds_its_own_state(
    tmp_path: Path, omit: tuple[str, ...], says: str
) -> None:
    nvml.install(tmp_path, "h100", "gpu-0", omit=omit)
    env = {k: v for k, v in os.environ.items() if k != "SIM_NVML_STATE"} | {"LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", _PROBE], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [says, "NVIDIA H100 80GB HBM3"]


def test_two_nodes_have_their_own_gpus(tmp_path: Path) -> None:
    with installed(tmp_path / "a") as state:
        other = nvml.install(tmp_path / "b", "h100", "gpu-1")
        assert state.get(0, "uuid") != other.get(0, "uuid")
        assert state.get(0, "name") == other.get(0, "name")
