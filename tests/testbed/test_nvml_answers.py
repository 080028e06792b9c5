"""Every call that an agent uses answers as on a healthy board of the profile."""

import re
from collections.abc import Callable
from ctypes import byref
from pathlib import Path
from typing import Any

import pynvml as n
import pytest

from testbed.errors import TestbedError
from testbed.nvml.profiles import profile_values
from testbed.nvml.state import NvmlState
from tests.testbed.nvml_node import code_of, installed

MIB = 1 << 20
SWITCH = "FFFFFFFF:FF:FF.0"
NOT_SUPPORTED = "not supported"


def fabric(handle: Any) -> tuple[int, int, int, int, int, bytes]:
    info = n.c_nvmlGpuFabricInfo_v3_t()
    n.nvmlDeviceGetGpuFabricInfoV(handle, byref(info))
    return info.state, info.status, info.cliqueId, info.healthMask, info.healthSummary, bytes(info.clusterUuid)


def sram(handle: Any) -> tuple[int, int, int]:
    status = n.c_nvmlEccSramErrorStatus_v1_t()
    n.nvmlDeviceGetSramEccErrorStatus(handle, byref(status))
    return status.aggregateUncSecDed, status.volatileUncParity, status.bThresholdExceeded


def sizes(info: Any) -> tuple[int, ...]:
    return tuple(getattr(info, name) // MIB for name in ("total", "reserved", "used") if hasattr(info, name))


def field(identifier: int, scope: int = 0) -> Callable[[Any], int]:
    def read(handle: Any) -> int:
        (value,) = n.nvmlDeviceGetFieldValues(handle, [(identifier, scope)])
        if value.nvmlReturn:
            raise n.NVMLError(value.nvmlReturn)
        members = {1: "uiVal", 3: "ullVal", 4: "sllVal", 5: "siVal"}
        return int(getattr(value.value, members[value.valueType]))

    return read


def of(call: Callable[..., Any], *arguments: Any) -> Callable[[Any], Any]:
    return lambda handle: call(handle, *arguments)


# What is asked, then what an H100 and a GB200 answer for their first GPU.
CALLS: dict[str, tuple[Callable[[Any], Any], Any, Any]] = {
    "name": (n.nvmlDeviceGetName, "NVIDIA H100 80GB HBM3", "NVIDIA GB200"),
    "part number": (lambda h: bool(n.nvmlDeviceGetBoardPartNumber(h)), True, True),
    "inforom image": (lambda h: bool(n.nvmlDeviceGetInforomImageVersion(h)), True, True),
    "inforom ecc": (of(n.nvmlDeviceGetInforomVersion, 1), "7.16", "7.16"),
    "bus id": (lambda h: n.nvmlDeviceGetPciInfo(h).busId, "00000000:19:00.0", "00000008:01:00.0"),
    "legacy bus id": (lambda h: n.nvmlDeviceGetPciInfo(h).busIdLegacy, "0000:19:00.0", "0008:01:00.0"),
    "device id": (lambda h: n.nvmlDeviceGetPciInfo(h).pciDeviceId, 0x233010DE, 0x294110DE),
    "minor": (n.nvmlDeviceGetMinorNumber, 0, 0),
    "index": (n.nvmlDeviceGetIndex, 0, 0),
    "board id": (n.nvmlDeviceGetBoardId, 0x1900, 0x100),
    "module": (n.nvmlDeviceGetModuleId, 2, 1),
    "memory v1": (lambda h: sizes(n.nvmlDeviceGetMemoryInfo(h)), (81559, 454), (189471, 800)),
    "memory v2": (
        lambda h: sizes(n.nvmlDeviceGetMemoryInfo(h, version=n.nvmlMemory_v2)),
        (81559, 454, 0),
        (189471, 800, 0),
    ),
    "bar1": (lambda h: n.nvmlDeviceGetBAR1MemoryInfo(h).bar1Total // MIB, 131072, 262144),
    "ecc mode": (n.nvmlDeviceGetEccMode, [1, 1], [1, 1]),
    "ecc total": (of(n.nvmlDeviceGetTotalEccErrors, 1, 0), 0, 0),
    "ecc of dram": (of(n.nvmlDeviceGetMemoryErrorCounter, 1, 1, 2), 0, 0),
    "ecc of registers": (of(n.nvmlDeviceGetMemoryErrorCounter, 1, 1, 3), NOT_SUPPORTED, NOT_SUPPORTED),
    "sram": (sram, (0, 0, 0), (0, 0, 0)),
    "remapped rows": (n.nvmlDeviceGetRemappedRows, (0, 0, 0, 0), (0, 0, 0, 0)),
    "remap histogram": (lambda h: n.nvmlDeviceGetRowRemapperHistogram(h).max, 2560, 3072),
    "retired pages": (of(n.nvmlDeviceGetRetiredPages, 0), NOT_SUPPORTED, NOT_SUPPORTED),
    "retired pending": (n.nvmlDeviceGetRetiredPagesPendingStatus, NOT_SUPPORTED, NOT_SUPPORTED),
    "repairs": (n.nvmlDeviceGetRepairStatus, [0, 0], [0, 0]),
    "unrepairable memory": (n.nvmlDeviceGetUnrepairableMemoryFlag_v1, 0, 0),
    "link state": (of(n.nvmlDeviceGetNvLinkState, 17), 1, 1),
    "link version": (of(n.nvmlDeviceGetNvLinkVersion, 17), 6, 7),
    "link replays": (of(n.nvmlDeviceGetNvLinkErrorCounter, 3, 0), 0, NOT_SUPPORTED),
    "link far side": (of(n.nvmlDeviceGetNvLinkRemoteDeviceType, 3), 2, 2),
    "link far place": (lambda h: n.nvmlDeviceGetNvLinkRemotePciInfo(h, 3).busId, SWITCH, SWITCH),
    "fabric": (lambda h: fabric(h)[:5], (3, 0, 0, 0x2, 1), (3, 0, 32766, 0x1AA, 1)),
    "fabric cluster": (lambda h: fabric(h)[5] == bytes(16), True, False),
    "pcie generation": (n.nvmlDeviceGetCurrPcieLinkGeneration, 5, 5),
    "pcie max generation": (n.nvmlDeviceGetMaxPcieLinkGeneration, 5, 5),
    "pcie board generation": (n.nvmlDeviceGetGpuMaxPcieLinkGeneration, 5, 6),
    "pcie width": (n.nvmlDeviceGetCurrPcieLinkWidth, 16, 16),
    "pcie max width": (n.nvmlDeviceGetMaxPcieLinkWidth, 16, 16),
    "pcie replays": (n.nvmlDeviceGetPcieReplayCounter, 0, 0),
    "sm clock": (of(n.nvmlDeviceGetClockInfo, 1), 345, 120),
    "sm max clock": (of(n.nvmlDeviceGetMaxClockInfo, 1), 1980, 2062),
    "memory clock": (of(n.nvmlDeviceGetClockInfo, 2), 2619, 3996),
    "clock reasons": (n.nvmlDeviceGetCurrentClocksEventReasons, 1, 1),
    "clock reasons, old name": (n.nvmlDeviceGetCurrentClocksThrottleReasons, 1, 1),
    "temperature": (of(n.nvmlDeviceGetTemperature, 0), 32, 32),
    "temperature, new call": (of(n.nvmlDeviceGetTemperatureV, 0), 32, 32),
    "temperature threshold": (of(n.nvmlDeviceGetTemperatureThreshold, 0), NOT_SUPPORTED, NOT_SUPPORTED),
    "temperature margin": (n.nvmlDeviceGetMarginTemperature, 55, 56),
    "power": (n.nvmlDeviceGetPowerUsage, 100_000, 170_000),
    "enforced limit": (n.nvmlDeviceGetEnforcedPowerLimit, 700_000, 1_200_000),
    "limits": (n.nvmlDeviceGetPowerManagementLimitConstraints, [200_000, 700_000], [200_000, 1_200_000]),
    "throttled": (lambda h: n.nvmlDeviceGetViolationStatus(h, 1).violationTime, 0, 0),
    "utilization": (lambda h: n.nvmlDeviceGetUtilizationRates(h).gpu, 0, 0),
    "processes": (n.nvmlDeviceGetComputeRunningProcesses, [], []),
    "mig": (n.nvmlDeviceGetMigMode, [0, 0], [0, 0]),
    "persistence": (n.nvmlDeviceGetPersistenceMode, 1, 1),
    "compute mode": (n.nvmlDeviceGetComputeMode, 0, 0),
    "compute capability": (n.nvmlDeviceGetCudaComputeCapability, (9, 0), (10, 0)),
    "architecture": (n.nvmlDeviceGetArchitecture, 9, 10),
    "nearest": (lambda h: len(n.nvmlDeviceGetTopologyNearestGpus(h, 40)), 3, 1),
    "cpus": (lambda h: list(n.nvmlDeviceGetCpuAffinity(h, 2)), [2**64 - 1, 0], [2**64 - 1, 0xFF]),
    "numa": (n.nvmlDeviceGetNumaNodeId, NOT_SUPPORTED, 2),
    "performance state": (n.nvmlDeviceGetPerformanceState, 0, 0),
    "limit": (n.nvmlDeviceGetPowerManagementLimit, 700_000, 1_200_000),
    "default limit": (n.nvmlDeviceGetPowerManagementDefaultLimit, 700_000, 1_200_000),
    "inforom oem": (of(n.nvmlDeviceGetInforomVersion, 0), "2.1", "2.1"),
    "graphics processes": (n.nvmlDeviceGetGraphicsRunningProcesses, [], []),
    "event types": (lambda h: n.nvmlDeviceGetSupportedEventTypes(h) & 0x8008, 0x8008, 0x8008),
    "field: recovery action": (field(230), 0, 0),
    "field: ecc": (field(4), 0, 0),
    "field: link count": (field(91), 18, 18),
    "field: link state": (field(165, 17), 1, 1),
    "field: link speed": (field(164, 0), 26562, 53125),
    "field: crc total": (field(38), 0, NOT_SUPPORTED),
    "field: crc of link 7": (field(97), 0, NOT_SUPPORTED),
    "field: failed recoveries": (field(214, 0), NOT_SUPPORTED, 0),
    "field: shutdown offset": (field(193), -8, -5),
    "field: memory temperature": (field(82), 38, 38),
    "field: c2c": (field(170), NOT_SUPPORTED, 10),
    "field: link version": (field(166, 0), 6, 7),
    "field: link replays": (field(161, 0), 0, NOT_SUPPORTED),
    "field: malformed packets": (field(206, 0), NOT_SUPPORTED, 0),
    "field: effective ber": (field(220, 17), NOT_SUPPORTED, 0),
    "field: remap pending": (field(144), 0, 0),
    "field: energy": (field(83), 1_000_000, 1_000_000),
    "field: power": (field(186), 100_000, 170_000),
    "field: fatal pcie errors": (field(180), 0, 0),
    "field: pcie replays": (field(94), 0, 0),
    "field: throttled by heat": (field(75), 0, 0),
    "field: unknown": (field(4000), NOT_SUPPORTED, NOT_SUPPORTED),
}


def answer(call: Callable[[Any], Any]) -> Any:
    try:
        return call(n.nvmlDeviceGetHandleByIndex(0))
    except n.NVMLError_NotSupported:
        return NOT_SUPPORTED


@pytest.mark.parametrize("what", CALLS)
@pytest.mark.usefixtures("node")
def test_an_h100_answers(what: str) -> None:
    call, expected, _ = CALLS[what]
    assert answer(call) == expected


@pytest.mark.parametrize("what", CALLS)
@pytest.mark.usefixtures("tray")
def test_a_gb200_answers(what: str) -> None:
    call, _, expected = CALLS[what]
    assert answer(call) == expected


@pytest.mark.usefixtures("node")
def test_a_node_lists_eight_gpus_with_their_own_uuids_and_serials() -> None:
    handles = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]
    uuids = {n.nvmlDeviceGetUUID(h) for h in handles}
    serials = {n.nvmlDeviceGetSerial(h) for h in handles}
    assert len(uuids) == len(serials) == 8
    assert all(re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", u) for u in uuids)
    assert all(re.fullmatch(r"\d{13}", s) for s in serials)


@pytest.mark.usefixtures("node")
def test_the_driver_tells_its_versions() -> None:
    assert re.fullmatch(r"580\.\d+\.\d+", n.nvmlSystemGetDriverVersion())
    assert n.nvmlSystemGetNVMLVersion().endswith(n.nvmlSystemGetDriverVersion())
    assert n.nvmlSystemGetCudaDriverVersion() == 13000


@pytest.mark.usefixtures("node")
def test_gpus_are_found_by_uuid_and_by_any_spelling_of_their_bus_id() -> None:
    wanted = n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByIndex(1))
    assert n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID(wanted)) == 1
    for spelling in ("00000000:3B:00.0", "0000:3b:00.0"):
        assert n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByPciBusId(spelling)) == wanted
    assert code_of(n.nvmlDeviceGetHandleByUUID, "GPU-none") == n.NVML_ERROR_NOT_FOUND
    assert code_of(n.nvmlDeviceGetHandleByPciBusId, "0000:FF:00.0") == n.NVML_ERROR_NOT_FOUND


@pytest.mark.usefixtures("node")
def test_topology_tells_the_cpu_socket_apart() -> None:
    first, same, other = (n.nvmlDeviceGetHandleByIndex(i) for i in (0, 1, 4))
    assert n.nvmlDeviceGetTopologyCommonAncestor(first, first) == n.NVML_TOPOLOGY_INTERNAL
    assert n.nvmlDeviceGetTopologyCommonAncestor(first, same) == n.NVML_TOPOLOGY_NODE
    assert n.nvmlDeviceGetTopologyCommonAncestor(first, other) == n.NVML_TOPOLOGY_SYSTEM
    assert n.nvmlDeviceGetP2PStatus(first, other, 0) == n.NVML_P2P_STATUS_OK


def test_trays_of_a_rack_share_their_cluster_and_nodes_never_a_serial() -> None:
    a, b, far = (profile_values("gb200", *seed) for seed in (("a", "r0"), ("b", "r0"), ("c", "r1")))
    assert a["gpu.fabric.cluster"] == b["gpu.fabric.cluster"] != far["gpu.fabric.cluster"]
    assert a["gpu.0.serial"] != b["gpu.0.serial"]
    assert a == profile_values("gb200", "a", "r0")


BOARDS = {
    "a100": ("NVIDIA A100-SXM4-80GB", (8, 0), 12, 81920, 400_000, NOT_SUPPORTED, 89),
    "h200": ("NVIDIA H200", (9, 0), 18, 143771, 700_000, 55, NOT_SUPPORTED),
    "b200": ("NVIDIA B200", (10, 0), 18, 183359, 1_000_000, 56, NOT_SUPPORTED),
}


@pytest.mark.parametrize("profile", BOARDS)
def test_other_boards_answer_as_they_do(tmp_path: Path, profile: str) -> None:
    with installed(tmp_path, profile):
        n.nvmlInit()
        assert n.nvmlDeviceGetCount() == 8
        questions: tuple[Callable[[Any], Any], ...] = (
            n.nvmlDeviceGetName,
            n.nvmlDeviceGetCudaComputeCapability,
            field(91),
            lambda handle: n.nvmlDeviceGetMemoryInfo(handle).total // MIB,
            n.nvmlDeviceGetEnforcedPowerLimit,
            n.nvmlDeviceGetMarginTemperature,
            of(n.nvmlDeviceGetTemperatureThreshold, 1),
        )
        assert tuple(answer(question) for question in questions) == BOARDS[profile]


def test_an_unknown_profile_is_refused_by_name() -> None:
    with pytest.raises(TestbedError, match=r"'v100'.*a100, b200, gb200, h100, h200"):
        profile_values("v100", "a", "r0")


def test_a_board_before_ampere_lists_its_retired_pages(node: NvmlState) -> None:
    node.set_gpu(0, {"retired.pages": "2 1", "retired.pending": 1})
    gpu = n.nvmlDeviceGetHandleByIndex(0)
    assert [len(n.nvmlDeviceGetRetiredPages(gpu, cause)) for cause in (0, 1)] == [2, 1]
    assert n.nvmlDeviceGetRetiredPagesPendingStatus(gpu) == 1


def test_processes_are_listed_with_their_memory(node: NvmlState) -> None:
    node.set_gpu(0, {"processes": f"4711:{7 * MIB} 4712:{2**64 - 1}"})
    found = n.nvmlDeviceGetComputeRunningProcesses(n.nvmlDeviceGetHandleByIndex(0))
    assert [(p.pid, p.usedGpuMemory) for p in found] == [(4711, 7 * MIB), (4712, None)]


def test_a_state_file_is_refused_in_words_where_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match="no such state file"):
        NvmlState(tmp_path / "nvml.state").read()
