"""Keys of the state file that the simulated NVML library answers from: what each value may be called. Pure."""

import difflib
import re
from collections.abc import Iterable
from typing import Final

_NODE_KEYS: Final = """
cuda.version driver.version nvml.version gpu.count node.profile node.rack node.seed
init.delay_ms init.error init.hang event.next event.N
"""
_GPU_KEYS: Final = """
architecture bar1.total bar1.used board.id board.part_number brand c2c.count c2c.status compute_capability compute_mode
dropped_at_init energy_mj events.supported field.N field.N.N minor module name p2p p2p.N performance_state
persistence_mode processes serial utilization uuid vbios
clock.event_reasons clock.graphics clock.memory clock.sm clock.video
clock.max.graphics clock.max.memory clock.max.sm clock.max.video
ecc.mode ecc.aggregate.corrected ecc.aggregate.uncorrected ecc.volatile.corrected ecc.volatile.uncorrected
fabric.clique fabric.cluster fabric.health_mask fabric.health_summary fabric.state fabric.status
inforom.ecc inforom.image inforom.oem inforom.power
memory.reserved memory.total memory.unrepairable memory.used mig.max_devices mig.mode
numa.cpu_node numa.cpus numa.gpu_node
nvlink.buffer_overruns nvlink.count nvlink.crc_data nvlink.crc_flit nvlink.ecc nvlink.effective_ber
nvlink.effective_errors nvlink.integrity_errors nvlink.malformed_packets nvlink.receive_errors
nvlink.receive_remote_errors nvlink.recoveries_failed nvlink.recoveries_successful nvlink.recovery
nvlink.recovery_events nvlink.remote_type nvlink.replay nvlink.speed_mbps nvlink.state nvlink.switch_connected
nvlink.symbol_ber nvlink.symbol_errors nvlink.transmit_discards nvlink.version
pci.bus_id pci.device_id pci.subsystem_id
pcie.bad_dllp pcie.bad_tlp pcie.correctable pcie.fatal pcie.generation pcie.gpu_max_generation pcie.lane_errors
pcie.lcrc pcie.max_generation pcie.max_width pcie.naks_received pcie.naks_sent pcie.non_fatal pcie.receiver_errors
pcie.replays pcie.unsupported_requests pcie.width
platform.chassis_serial platform.slot_tray_host
power.default_limit_mw power.limit_mw power.limits_mw power.usage_mw
recovery.action remap.corrected remap.failure remap.histogram remap.pending remap.uncorrected repair.pending
retired.pages retired.pending
sram.aggregate.cor sram.aggregate.unc_parity sram.aggregate.unc_secded sram.threshold_exceeded
sram.bucket.l2 sram.bucket.mcu sram.bucket.other sram.bucket.pcie sram.bucket.sm
sram.volatile.cor sram.volatile.unc_parity sram.volatile.unc_secded
temperature.gpu temperature.gpu_max temperature.margin temperature.memory temperature.memory_max
temperature.shutdown temperature.slowdown
temperature.tlimit.gpu_max temperature.tlimit.memory_max temperature.tlimit.shutdown temperature.tlimit.slowdown
violation.N.ns violation.reference_us
"""
_NODE: Final = frozenset(_NODE_KEYS.split())
_GPU: Final = frozenset(_GPU_KEYS.split())
_PLACE: Final = re.compile(
    r"(ecc\.(?:aggregate|volatile)\.(?:un)?corrected)\.(?:cbu|dram|l1|l2|registers|shared|sram|texture)"
)
_CALL: Final = re.compile(r"call\.\w{1,64}\.(?:delay_ms|error|hang)")
_OF_ANY: Final = re.compile(r"\.(?:error|type)$")  # how a value of a field is answered
_OF_GPU: Final = re.compile(r"gpu\.(?:(\d{1,3})\.)?(.+)")
_NEAREST: Final = 3


class KeyProblemError(ValueError):
    """The key names no value of the library; the text says which ones are near, or what is wrong."""


def full_key(key: str, gpu: int | None, count: int) -> str:
    """Return the key as it stands in the file, of one GPU of ``count``, of all GPUs, or of the node.

    Raises KeyProblemError: an answer that nothing asks for would be a drill that shows nothing.
    """
    if key in _NODE or _numberless(key) in _NODE or (gpu is None and _CALL.fullmatch(key)):
        if gpu is not None:
            raise KeyProblemError(f"'{key}' is of the whole node: leave --gpu out")
        return key
    written = _OF_GPU.fullmatch(key)
    slot, name = (written[1], written[2]) if written else (None, key)
    if gpu is not None and written:
        raise KeyProblemError(f"'{key}' names its GPU itself: leave --gpu out, or write {name}")
    number = gpu if slot is None else int(slot)
    if number is not None and number >= count:
        raise KeyProblemError(f"there is no GPU {number}: {gpus_there(count)}")
    if not _known(name):
        raise KeyProblemError(f"the library has no value '{name}'{_near(name)}")
    return f"gpu.{name}" if number is None else f"gpu.{number}.{name}"


def gpus_there(count: int) -> str:
    """Return which numbers GPUs have."""
    return f"this machine has GPUs 0 to {count - 1}" if count else "the state file lists no GPUs"


def _known(name: str) -> bool:
    plain = _numberless(_OF_ANY.sub("", _PLACE.sub(r"\1", name)))
    return plain in _GPU or plain.replace("nvlink.N.", "nvlink.") in _GPU or bool(_CALL.fullmatch(name))


def _numberless(key: str) -> str:
    return re.sub(r"\.\d{1,20}(?=\.|$)", ".N", key)


def _near(name: str) -> str:
    near = difflib.get_close_matches(name, _plain(_GPU | _NODE), _NEAREST)
    return f"; near it are {', '.join(near)}" if near else ": the state file has those of this board"


def _plain(keys: Iterable[str]) -> list[str]:
    return sorted(key for key in keys if "N" not in key)
