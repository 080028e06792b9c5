"""Faults of a node's GPUs: what the driver would answer and print, written into the node's driver folder.

A driver folder holds `lib/nvml.state`, which the simulated NVML library answers from, and `kmsg`, the kernel log.
"""

import argparse
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from testbed import kernel_log
from testbed.errors import TestbedError
from testbed.nvml import STATE_FILE
from testbed.nvml.profiles import profile_values
from testbed.nvml.state import NvmlState, Value
from testbed.xid_lines import RECOVERY_ACTIONS, off_bus_lines, recovery_line, xid_line

GPU_IS_LOST = 15
UNKNOWN_ERROR = 999

_XID_EVENT = 0x8
_RECOVERY_EVENT = 0x8000
_NOT_CRITICAL = frozenset({63, 92, 154})
"""Xids that only inform: NVML sends no event for them, the kernel log alone has them."""


class Driver:
    """The driver of one node, as its folder shows it."""

    def __init__(self, folder: Path) -> None:
        self.state = NvmlState(folder / "lib" / STATE_FILE)
        self.kmsg = folder / "kmsg"

    def bus_id(self, gpu: int) -> str:
        """PCI bus id of a GPU.

        Raises:
            TestbedError: the node has no GPU of that number.
        """
        count = self.state.gpu_count()
        if not 0 <= gpu < count:
            message = f"--gpu {gpu}: this node has GPUs 0 to {count - 1}"
            raise TestbedError(message)
        return self.state.get(gpu, "pci.bus_id") or ""

    def number(self, gpu: int, name: str) -> int:
        """Present value of a counter; 0 where the board has none."""
        return int(self.state.get(gpu, name) or "0", 0)


def xid(driver: Driver, gpu: int, code: int, message: str | None = None) -> str:
    """The driver reports an Xid: a kernel line, and an NVML event where NVML holds it critical."""
    kernel_log.append(driver.kmsg, [xid_line(driver.bus_id(gpu), code, message)])
    if code not in _NOT_CRITICAL:
        driver.state.add_event(gpu, _XID_EVENT, code)
    return f"GPU {gpu} reported Xid {code}"


def off_bus(driver: Driver, gpu: int, *, code: int = GPU_IS_LOST, silent: bool = False) -> str:
    """The GPU stops answering on PCIe: every NVML call on it fails; Xid 79, unless the loss is silent."""
    bus_id = driver.bus_id(gpu)
    # The UUID stays readable on a handle that is held: NVIDIA's device plugin names the device of a Xid 79 by it.
    driver.state.set_gpu(gpu, {"call.all.error": code, "call.GetUUID.error": 0})
    if not silent:
        kernel_log.append(driver.kmsg, off_bus_lines(bus_id, driver.state.get(gpu, "serial") or "0"))
        driver.state.add_event(gpu, _XID_EVENT, 79)
    return f"GPU {gpu} fell off the bus: NVML answers {code} for it"


def ecc(driver: Driver, gpu: int, *, count: int = 1, corrected: bool = False) -> str:
    """Memory errors: corrected ones only count; an uncorrectable one prints Xid 48 and wants a row remapped."""
    bus_id = driver.bus_id(gpu)
    kind = "corrected" if corrected else "uncorrected"
    keys = [f"ecc.{life}.{kind}{place}" for life in ("volatile", "aggregate") for place in ("", ".dram")]
    changes: dict[str, Value | None] = {key: driver.number(gpu, key) + count for key in keys}
    if not corrected:
        changes |= {"remap.uncorrected": driver.number(gpu, "remap.uncorrected") + 1, "remap.pending": 1}
        kernel_log.append(driver.kmsg, [xid_line(bus_id, 48), xid_line(bus_id, 63)])
        driver.state.add_event(gpu, _XID_EVENT, 48)
    driver.state.set_gpu(gpu, changes)
    return f"GPU {gpu} has {count} more {kind} memory errors"


def remap_failure(driver: Driver, gpu: int) -> str:
    """A row could not be remapped, since no spare is left: the board needs replacing (Xid 64)."""
    driver.bus_id(gpu)
    driver.state.set_gpu(gpu, {"remap.failure": 1})
    return f"{xid(driver, gpu, 64)}: a memory row could not be remapped"


def nvlink_down(driver: Driver, gpu: int, link: int | None = None) -> str:
    """One NVLink, or all of a GPU, becomes inactive (Xid 74)."""
    driver.bus_id(gpu)
    count = driver.number(gpu, "nvlink.count")
    if link is not None and not 0 <= link < count:
        message = f"--link {link}: GPU {gpu} has links 0 to {count - 1}"
        raise TestbedError(message)
    links = range(count) if link is None else (link,)
    driver.state.set_gpu(gpu, {f"nvlink.{down}.state": 0 for down in links})
    registers = ", ".join(["0x0", "0x0", "0x10000", *["0x0"] * 4])
    xid(driver, gpu, 74, f"NVLink: fatal error detected on link {links[0]}({registers})")
    return f"GPU {gpu}: {len(links)} of {count} NVLinks inactive"


def recovery_action(driver: Driver, gpu: int, action: int) -> str:
    """The driver asks for a recovery action (NVML field 230): Xid 154 and an NVML event."""
    line = recovery_line(driver.bus_id(gpu), driver.number(gpu, "recovery.action"), action)
    driver.state.set_gpu(gpu, {"recovery.action": action})
    kernel_log.append(driver.kmsg, [line])
    driver.state.add_event(gpu, _RECOVERY_EVENT, action)
    return f"GPU {gpu} asks for recovery action {action} ({RECOVERY_ACTIONS[action]})"


def hang(driver: Driver, gpu: int | None) -> str:
    """NVML calls on a GPU (None: on the node) do not return until the fault is cleared."""
    if gpu is None:
        driver.state.change({"call.all.hang": 1})
        return "every NVML call hangs"
    driver.bus_id(gpu)
    driver.state.set_gpu(gpu, {"call.all.hang": 1})
    return f"NVML calls on GPU {gpu} hang"


def init_failure(driver: Driver, code: int) -> str:
    """NVML's init fails with a code: 9 driver not loaded, 18 version mismatch, 999 no device nodes."""
    driver.state.change({"init.error": code})
    return f"NVML's init answers {code}"


def fabric(driver: Driver, state: int, status: int) -> str:
    """The NVSwitch fabric of all GPUs gets a state (3 completed) and a status (0 success) apart from it."""
    driver.state.change({"gpu.fabric.state": state, "gpu.fabric.status": status})
    return f"fabric state {state}, status {status} on all GPUs"


def set_values(driver: Driver, gpu: int | None, pairs: list[str]) -> str:
    """Set keys of the state file from KEY=VALUE texts; an empty value removes the key.

    Raises:
        TestbedError: a text is not KEY=VALUE.
    """
    if gpu is not None:
        driver.bus_id(gpu)
    prefix = "" if gpu is None else f"gpu.{gpu}."
    changes: dict[str, Value | None] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            message = f"{pair!r}: write KEY=VALUE, for example temperature.gpu=91"
            raise TestbedError(message)
        changes[prefix + key.strip()] = value.strip() or None
    driver.state.change(changes)
    return ", ".join(f"{key} = {value}" for key, value in changes.items())


def clear(driver: Driver) -> str:
    """All GPUs are as on a healthy idle node again; the kernel log keeps what it has."""
    now = driver.state.read()
    driver.state.replace(profile_values(now["node.profile"], now["node.seed"], now["node.rack"]))
    return "NVML answers as on a healthy node"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the faults as subcommands; `run` takes what they parse."""
    faults = parser.add_subparsers(dest="fault", required=True, metavar="FAULT")
    _add(faults, "xid", xid, gpu=True).add_argument("code", type=int)
    faults.choices["xid"].add_argument("--message", help="text after the driver's prefix")
    lost = _add(faults, "off-bus", off_bus, gpu=True)
    lost.add_argument("--code", type=int, default=GPU_IS_LOST, help="NVML return code, 15 or 999")
    lost.add_argument("--silent", action="store_true", help="no kernel lines and no event")
    memory = _add(faults, "ecc", ecc, gpu=True)
    memory.add_argument("--count", type=int, default=1)
    memory.add_argument("--corrected", action="store_true")
    _add(faults, "remap-failure", remap_failure, gpu=True)
    _add(faults, "nvlink-down", nvlink_down, gpu=True).add_argument("--link", type=int, help="default: all")
    actions = range(len(RECOVERY_ACTIONS))
    _add(faults, "recovery-action", recovery_action, gpu=True).add_argument("action", type=int, choices=actions)
    _add(faults, "hang", hang).add_argument("--gpu", type=int, help="default: every call on the node")
    _add(faults, "init-failure", init_failure).add_argument("code", type=int, nargs="?", default=UNKNOWN_ERROR)
    switches = _add(faults, "fabric", fabric)
    switches.add_argument("--state", type=int, default=3)
    switches.add_argument("--status", type=int, default=0)
    values = _add(faults, "set", set_values)
    values.add_argument("--gpu", type=int, help="default: keys of the node")
    values.add_argument("pairs", nargs="+", metavar="KEY=VALUE")
    _add(faults, "clear", clear)


def run(args: argparse.Namespace, driver_folder: Path) -> str:
    """Do the fault that was parsed, and return a line that says what is now wrong.

    Raises:
        TestbedError: the folder is no driver folder, or an argument does not fit the node.
    """
    given = vars(args)
    act: Callable[..., str] = given["act"]
    return act(Driver(driver_folder), **{name: given[name] for name in given["takes"]})


_Faults: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 - argparse gives the type no public name


def _add(faults: _Faults, name: str, act: Callable[..., str], *, gpu: bool = False) -> argparse.ArgumentParser:
    summary = (act.__doc__ or "").partition("\n")[0]
    parser = faults.add_parser(name, help=summary, description=summary)
    parser.set_defaults(act=act, takes=list(inspect.signature(act).parameters)[1:])
    if gpu:
        parser.add_argument("--gpu", type=int, default=0, help="which GPU, default 0")
    return parser
