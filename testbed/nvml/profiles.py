"""Boards that the simulated NVML library can be: every value it answers on a healthy idle node.

Numbers are those that `nvidia-smi -q` of such boards prints when idle.
"""

import hashlib
import uuid
from collections.abc import Callable

from testbed.errors import TestbedError
from testbed.nvml.state import Value, gpu_key

_MIB = 1 << 20
_NVIDIA = 0x10DE
_UUIDS = uuid.UUID("6f1c3a52-0c0b-5a0e-9d0f-3f1f1d2f6a11")
"""Namespace of the UUIDs that follow from a node's name; any fixed value would do."""

Values = dict[str, Value]


def profile_values(profile: str, seed: str, rack: str) -> Values:
    """Content of the state file of a healthy node.

    Raises:
        TestbedError: no such profile.
    """
    if profile not in _PROFILES:
        message = f"profile {profile!r}: there is only {', '.join(sorted(_PROFILES))}"
        raise TestbedError(message)
    header: Values = {"node.profile": profile, "node.seed": seed, "node.rack": rack}
    return header | _driver() | _common() | _PROFILES[profile](seed, rack)


def _driver() -> Values:
    return {"driver.version": "580.82.07", "nvml.version": "13.580.82.07", "cuda.version": 13000}


def _common() -> Values:
    return (
        _modes()
        | _errors()
        | {
            "gpu.events.supported": 0xFE0B,  # Xid, ECC, page retirement, poison, unavailable, recovery action
            "gpu.p2p": 0,
            "gpu.pcie.width": 16,
            "gpu.pcie.max_width": 16,
            "gpu.pcie.replays": 0,
            "gpu.utilization": "0 0",
            "gpu.clock.event_reasons": 1,
            "gpu.violation.reference_us": 1_000_000,
            "gpu.violation.0.ns": 0,
            "gpu.violation.1.ns": 0,
            "gpu.energy_mj": 1_000_000,
            "gpu.performance_state": 0,
            "gpu.recovery.action": 0,
            "gpu.nvlink.state": 1,
            "gpu.nvlink.remote_type": 2,
            "gpu.temperature.gpu": 32,
            "gpu.temperature.memory": 38,
        }
    )


def _modes() -> Values:
    return {
        "gpu.brand": 14,
        "gpu.persistence_mode": 1,
        "gpu.compute_mode": 0,
        "gpu.ecc.mode": "1 1",
        "gpu.mig.mode": "0 0",
        "gpu.mig.max_devices": 7,
        "gpu.inforom.oem": "2.1",
        "gpu.inforom.power": "N/A",
        "gpu.repair.pending": "0 0",
        "gpu.memory.unrepairable": 0,
    }


def _errors() -> Values:
    counters = ("volatile", "aggregate")
    places = ("", ".dram", ".sram")
    ecc = [f"gpu.ecc.{c}.{kind}{p}" for c in counters for kind in ("corrected", "uncorrected") for p in places]
    sram = [f"gpu.sram.{c}.{kind}" for c in counters for kind in ("unc_parity", "unc_secded", "cor")]
    buckets = [f"gpu.sram.bucket.{name}" for name in ("l2", "sm", "pcie", "mcu", "other")]
    remap = [f"gpu.remap.{name}" for name in ("corrected", "uncorrected", "pending", "failure")]
    pcie: tuple[str, ...] = ("correctable", "naks_received", "receiver_errors", "bad_tlp", "naks_sent", "bad_dllp")
    pcie += ("non_fatal", "fatal", "unsupported_requests", "lcrc", "lane_errors")
    keys = ecc + sram + buckets + remap + [f"gpu.pcie.{name}" for name in pcie]
    return dict.fromkeys([*keys, "gpu.sram.threshold_exceeded"], 0)


def _links(names: tuple[str, ...]) -> Values:
    return {f"gpu.nvlink.{name}": 0 for name in names}


def _identity(seed: str, gpu: int, bus_id: str, module: int) -> Values:
    digest = int.from_bytes(hashlib.sha256(f"{seed}/gpu/{gpu}".encode()).digest()[:8], "big")
    bus = int(bus_id.split(":")[1], 16)
    values: Values = {
        "uuid": f"GPU-{uuid.uuid5(_UUIDS, f'{seed}/gpu/{gpu}')}",
        "serial": str(1_650_000_000_000 + digest % 10_000_000_000),
        "minor": gpu,
        "module": module,
        "pci.bus_id": bus_id,
        "board.id": f"{bus << 8:#x}",
    }
    return {gpu_key(gpu, name): value for name, value in values.items()}


def _h100(seed: str, _rack: str) -> Values:
    """Eight H100 80GB HBM3 on an HGX board with NVSwitches."""
    return _hgx(_H100_BOARD | _links(_NVLINK4_COUNTERS), seed)


def _h200(seed: str, _rack: str) -> Values:
    """Eight H200: the H100's board with more memory."""
    return _hgx(_H100_BOARD | _H200_DIFFERENCES | _links(_NVLINK4_COUNTERS), seed)


def _b200(seed: str, _rack: str) -> Values:
    """Eight B200: NVLink 5, more power."""
    return _hgx(_H100_BOARD | _B200_DIFFERENCES | _links(_NVLINK5_COUNTERS), seed)


def _a100(seed: str, _rack: str) -> Values:
    """Eight A100-SXM4-80GB: temperatures as thresholds, no state of the fabric."""
    values = _hgx(_H100_BOARD | _A100_DIFFERENCES | _links(_NVLINK4_COUNTERS), seed)
    return {key: value for key, value in values.items() if not key.startswith(_NOT_ON_A100)}


_NVLINK4_COUNTERS = ("replay", "recovery", "crc_flit", "crc_data", "ecc")
_NVLINK5_COUNTERS: tuple[str, ...] = ("malformed_packets", "buffer_overruns", "receive_errors", "receive_remote_errors")
_NVLINK5_COUNTERS += ("integrity_errors", "transmit_discards", "recoveries_successful", "recoveries_failed")
_NVLINK5_COUNTERS += ("recovery_events", "effective_errors", "effective_ber", "symbol_errors", "symbol_ber")


def _hgx(board: Values, seed: str) -> Values:
    """Eight GPUs on an HGX board: two CPU sockets with four GPUs each."""
    buses = ("19", "3B", "4C", "5D", "9B", "BB", "CB", "DB")
    modules = (2, 4, 3, 1, 7, 5, 6, 8)
    values: Values = board | {"gpu.count": len(buses)}
    for gpu, (bus, module) in enumerate(zip(buses, modules, strict=True)):
        values |= _identity(seed, gpu, f"00000000:{bus}:00.0", module)
        socket = gpu // 4
        values[gpu_key(gpu, "numa.cpu_node")] = socket
        values[gpu_key(gpu, "numa.cpus")] = "0x0 0xffffffffffffffff" if socket else "0xffffffffffffffff 0x0"
    return values


_H100_BOARD: Values = {
    "gpu.name": "NVIDIA H100 80GB HBM3",
    "gpu.architecture": 9,
    "gpu.compute_capability": "9 0",
    "gpu.board.part_number": "692-2G520-0200-000",
    "gpu.inforom.image": "G520.0200.00.05",
    "gpu.inforom.ecc": "7.16",
    "gpu.vbios": "96.00.99.00.01",
    "gpu.pci.device_id": f"{0x2330 << 16 | _NVIDIA:#x}",
    "gpu.pci.subsystem_id": f"{0x16C1 << 16 | _NVIDIA:#x}",
    "gpu.memory.total": 81559 * _MIB,
    "gpu.memory.reserved": 454 * _MIB,
    "gpu.bar1.total": 131072 * _MIB,
    "gpu.remap.histogram": "2560 0 0 0 0",
    "gpu.pcie.generation": 5,
    "gpu.pcie.max_generation": 5,
    "gpu.pcie.gpu_max_generation": 5,
    "gpu.nvlink.count": 18,
    "gpu.nvlink.switch_connected": 18,
    "gpu.nvlink.version": 6,
    "gpu.nvlink.speed_mbps": 26562,
    "gpu.fabric.state": 3,
    "gpu.fabric.status": 0,
    "gpu.fabric.clique": 0,
    "gpu.fabric.health_mask": 0x2,
    "gpu.fabric.health_summary": 1,
    "gpu.power.usage_mw": 100_000,
    "gpu.power.limit_mw": 700_000,
    "gpu.power.default_limit_mw": 700_000,
    "gpu.power.limits_mw": "200000 700000",
    "gpu.clock.graphics": 345,
    "gpu.clock.sm": 345,
    "gpu.clock.memory": 2619,
    "gpu.clock.video": 765,
    "gpu.clock.max.graphics": 1980,
    "gpu.clock.max.sm": 1980,
    "gpu.clock.max.memory": 2619,
    "gpu.clock.max.video": 1545,
    "gpu.temperature.margin": 55,
    "gpu.temperature.tlimit.shutdown": -8,
    "gpu.temperature.tlimit.slowdown": -2,
    "gpu.temperature.tlimit.memory_max": 0,
    "gpu.temperature.tlimit.gpu_max": 0,
}

_H200_DIFFERENCES: Values = {
    "gpu.name": "NVIDIA H200",
    "gpu.pci.device_id": f"{0x2335 << 16 | _NVIDIA:#x}",
    "gpu.memory.total": 143771 * _MIB,
    "gpu.memory.reserved": 700 * _MIB,
    "gpu.bar1.total": 262144 * _MIB,
    "gpu.remap.histogram": "3072 0 0 0 0",
    "gpu.power.usage_mw": 75_000,
    "gpu.clock.memory": 3201,
    "gpu.clock.max.memory": 3201,
}

_B200_DIFFERENCES: Values = _H200_DIFFERENCES | {
    "gpu.name": "NVIDIA B200",
    "gpu.architecture": 10,
    "gpu.compute_capability": "10 0",
    "gpu.pci.device_id": f"{0x2901 << 16 | _NVIDIA:#x}",
    "gpu.memory.total": 183359 * _MIB,
    "gpu.pcie.gpu_max_generation": 6,
    "gpu.nvlink.version": 7,
    "gpu.nvlink.speed_mbps": 53125,
    "gpu.power.usage_mw": 160_000,
    "gpu.power.limit_mw": 1_000_000,
    "gpu.power.default_limit_mw": 1_000_000,
    "gpu.power.limits_mw": "200000 1000000",
    "gpu.clock.graphics": 120,
    "gpu.clock.sm": 120,
    "gpu.clock.memory": 3996,
    "gpu.clock.max.graphics": 1965,
    "gpu.clock.max.sm": 1965,
    "gpu.clock.max.memory": 3996,
    "gpu.temperature.margin": 56,
    "gpu.temperature.tlimit.shutdown": -5,
    "gpu.temperature.tlimit.slowdown": -3,
}

_A100_DIFFERENCES: Values = {
    "gpu.name": "NVIDIA A100-SXM4-80GB",
    "gpu.architecture": 7,
    "gpu.compute_capability": "8 0",
    "gpu.inforom.ecc": "6.16",
    "gpu.pci.device_id": f"{0x20B2 << 16 | _NVIDIA:#x}",
    "gpu.memory.total": 81920 * _MIB,
    "gpu.memory.reserved": 763 * _MIB,
    "gpu.remap.histogram": "640 0 0 0 0",
    "gpu.pcie.generation": 4,
    "gpu.pcie.max_generation": 4,
    "gpu.pcie.gpu_max_generation": 4,
    "gpu.nvlink.count": 12,
    "gpu.nvlink.switch_connected": 12,
    "gpu.nvlink.version": 5,
    "gpu.nvlink.speed_mbps": 25781,
    "gpu.power.usage_mw": 60_000,
    "gpu.power.limit_mw": 400_000,
    "gpu.power.default_limit_mw": 400_000,
    "gpu.power.limits_mw": "100000 400000",
    "gpu.clock.graphics": 210,
    "gpu.clock.sm": 210,
    "gpu.clock.memory": 1593,
    "gpu.clock.max.graphics": 1410,
    "gpu.clock.max.sm": 1410,
    "gpu.clock.max.memory": 1593,
    "gpu.temperature.shutdown": 92,
    "gpu.temperature.slowdown": 89,
    "gpu.temperature.gpu_max": 85,
    "gpu.temperature.memory_max": 95,
}
_NOT_ON_A100 = ("gpu.fabric.", "gpu.temperature.margin", "gpu.temperature.tlimit.", "gpu.sram.", "gpu.repair.")


def _gb200(seed: str, rack: str) -> Values:
    """One compute tray of a GB200 NVL72: four GPUs, each its own NUMA node, one clique over the rack."""
    domains = ("00000008", "00000009", "00000018", "00000019")
    values = _GB200_BOARD | _links(_NVLINK5_COUNTERS) | {"gpu.count": len(domains)}
    values["gpu.fabric.cluster"] = str(uuid.uuid5(_UUIDS, f"cluster/{rack}"))
    values["gpu.platform.chassis_serial"] = f"{uuid.uuid5(_UUIDS, rack).int % 10**13:013d}"
    for gpu, domain in enumerate(domains):
        values |= _identity(seed, gpu, f"{domain}:01:00.0", gpu + 1)
        socket = gpu // 2
        values[gpu_key(gpu, "numa.cpu_node")] = socket
        values[gpu_key(gpu, "numa.gpu_node")] = 2 + 8 * gpu
        values[gpu_key(gpu, "numa.cpus")] = "0x0 0xffffffffffffff00 0xffff" if socket else "0xffffffffffffffff 0xff 0x0"
    return values


_GB200_BOARD: Values = {
    "gpu.name": "NVIDIA GB200",
    "gpu.architecture": 10,
    "gpu.compute_capability": "10 0",
    "gpu.board.part_number": "699-2G548-0201-800",
    "gpu.inforom.image": "G548.0201.00.06",
    "gpu.inforom.ecc": "7.16",
    "gpu.vbios": "97.00.B9.00.69",
    "gpu.pci.device_id": f"{0x2941 << 16 | _NVIDIA:#x}",
    "gpu.pci.subsystem_id": f"{0x2046 << 16 | _NVIDIA:#x}",
    "gpu.memory.total": 189471 * _MIB,
    "gpu.memory.reserved": 800 * _MIB,
    "gpu.bar1.total": 262144 * _MIB,
    "gpu.remap.histogram": "3072 0 0 0 0",
    "gpu.pcie.generation": 5,
    "gpu.pcie.max_generation": 5,
    "gpu.pcie.gpu_max_generation": 6,
    "gpu.nvlink.count": 18,
    "gpu.nvlink.switch_connected": 18,
    "gpu.nvlink.version": 7,
    "gpu.nvlink.speed_mbps": 53125,
    "gpu.c2c.count": 10,
    "gpu.c2c.status": 1,
    "gpu.fabric.state": 3,
    "gpu.fabric.status": 0,
    "gpu.fabric.clique": 32766,
    "gpu.fabric.health_mask": 0x1AA,
    "gpu.fabric.health_summary": 1,
    "gpu.platform.slot_tray_host": "1 1 1",
    "gpu.power.usage_mw": 170_000,
    "gpu.power.limit_mw": 1_200_000,
    "gpu.power.default_limit_mw": 1_200_000,
    "gpu.power.limits_mw": "200000 1200000",
    "gpu.clock.graphics": 120,
    "gpu.clock.sm": 120,
    "gpu.clock.memory": 3996,
    "gpu.clock.video": 405,
    "gpu.clock.max.graphics": 2062,
    "gpu.clock.max.sm": 2062,
    "gpu.clock.max.memory": 3996,
    "gpu.clock.max.video": 1755,
    "gpu.temperature.margin": 56,
    "gpu.temperature.tlimit.shutdown": -5,
    "gpu.temperature.tlimit.slowdown": -3,
    "gpu.temperature.tlimit.memory_max": 0,
    "gpu.temperature.tlimit.gpu_max": 0,
}

_PROFILES: dict[str, Callable[[str, str], Values]] = {
    "a100": _a100,
    "h100": _h100,
    "h200": _h200,
    "b200": _b200,
    "gb200": _gb200,
}
