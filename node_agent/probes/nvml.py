"""The NVML child process: reads all GPUs each time it is asked. The only importer of pynvml.

NVML calls can hang for ever in the driver, and a thread stuck there can't be ended; a process can. So this runs as
``python -m node_agent.probes.nvml`` and holds no judgement: node_agent/probes/gpus.py asks, watches the time and
checks each answer against nvml_wire.py. It imports the standard library and pynvml alone: msgspec would add 10 MB to
a process that runs on every node.

NVML's "not supported" (3), "function not found" (13) and "deprecated" (26) mean that there is no such value.
"""

import json
import signal
import sys
from collections.abc import Callable
from ctypes import CDLL, byref
from typing import Any, Final

import pynvml

JSON = dict[str, Any]

NO_VALUE: Final = frozenset({3, 13, 26})
_INVALID_ARGUMENT: Final = 2
_VERSION_MISMATCH: Final = 25
_RECOVERY_ACTION_FIELD: Final = 230
_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_MAX_LINKS: Final = 36  # NVML_NVLINK_MAX_LINKS of 13.615; older boards answer "invalid argument" earlier


def main() -> None:
    """Answer each request line on stdin until it is closed, or until NVML fails as a whole."""
    _die_with_parent()
    for line in sys.stdin:
        try:
            _read_all(skip=json.loads(line)["skip"])
        except pynvml.NVMLError as error:
            _say("failed", call=_READING[0], code=error.value, text=str(error))
            sys.exit(1)


def _die_with_parent() -> None:
    """Ask the kernel to end this process with the agent: stuck in a call, it would not see stdin close."""
    CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


_READING: Final = ["nvmlInit"]
"""The node-wide call under way, for the report of its failure."""
_STARTED: Final[list[bool]] = []


def _read_all(skip: list[int]) -> None:
    _say("begin", index=-1)
    if not _STARTED:
        pynvml.nvmlInit()
        _STARTED.append(True)
    driver = _node("nvmlSystemGetDriverVersion", pynvml.nvmlSystemGetDriverVersion)
    count = _node("nvmlDeviceGetCount", pynvml.nvmlDeviceGetCount)
    for index in range(count):
        if index not in skip:
            _say("begin", index=index)
            _say("read", gpu=_read(index))
    _say("end", driver_version=driver)


def _node(name: str, call: Callable[[], Any]) -> Any:
    _READING[0] = name
    return call()


def _say(kind: str, **answer: Any) -> None:
    sys.stdout.write(json.dumps({"type": kind, **answer}) + "\n")
    sys.stdout.flush()


class _Reader:
    """Makes calls on one GPU and keeps the return codes of those that fail."""

    def __init__(self) -> None:
        self.errors: dict[str, int] = {}

    def ask(self, name: str, *arguments: Any) -> Any:
        """Return the value of a call, None where there is none."""
        try:
            return getattr(pynvml, name)(*arguments)
        except pynvml.NVMLError as error:
            if error.value not in NO_VALUE:
                self.errors[name] = error.value
            return None

    def text(self, name: str, handle: Any) -> str:
        """Return a text, empty where there is none."""
        return self.ask(name, handle) or ""


def _read(index: int) -> JSON:
    reader = _Reader()
    handle = reader.ask("nvmlDeviceGetHandleByIndex", index)
    if handle is None:
        return {"index": index, "errors": reader.errors}
    pci = reader.ask("nvmlDeviceGetPciInfo", handle)
    remapped = reader.ask("nvmlDeviceGetRemappedRows", handle)
    active, inactive = _links(reader, handle)
    return {
        "index": index,
        "uuid": reader.text("nvmlDeviceGetUUID", handle),
        "serial": reader.text("nvmlDeviceGetSerial", handle),
        "pci_address": pci.busId.lower().rsplit(".", 1)[0] if pci else "",
        "model": reader.text("nvmlDeviceGetName", handle),
        "recovery_action": _field(reader, handle, _RECOVERY_ACTION_FIELD),
        "remap_pending": bool(remapped[2]) if remapped else None,
        "remap_failure": bool(remapped[3]) if remapped else None,
        "ecc_uncorrected": reader.ask("nvmlDeviceGetTotalEccErrors", handle, 1, 0),
        "links_active": active,
        "links_inactive": inactive,
        "fabric_state": _fabric_state(reader, handle),
        "errors": reader.errors,
    }


def _field(reader: _Reader, handle: Any, field: int) -> int | None:
    values = reader.ask("nvmlDeviceGetFieldValues", handle, [field])
    if not values:
        return None
    value = values[0]
    if value.nvmlReturn:
        if value.nvmlReturn not in NO_VALUE:
            reader.errors[f"field {field}"] = value.nvmlReturn
        return None
    return int(_union(value))


def _union(value: Any) -> int | float:
    """Read the member of the value that NVML filled: another one holds garbage."""
    members = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
    member: int | float = getattr(value.value, members[value.valueType])
    return member


def _links(reader: _Reader, handle: Any) -> tuple[int, list[int]]:
    active, inactive = 0, []
    for link in range(_MAX_LINKS):
        try:
            up = pynvml.nvmlDeviceGetNvLinkState(handle, link)
        except pynvml.NVMLError as error:
            if error.value not in NO_VALUE and error.value != _INVALID_ARGUMENT:
                reader.errors["nvmlDeviceGetNvLinkState"] = error.value
            break
        if up:
            active += 1
        else:
            inactive.append(link)
    return active, inactive


def _fabric_state(reader: _Reader, handle: Any) -> int | None:
    info = pynvml.c_nvmlGpuFabricInfoV_t()
    answer = reader.ask("nvmlDeviceGetGpuFabricInfoV", handle, byref(info))
    if reader.errors.get("nvmlDeviceGetGpuFabricInfoV") == _VERSION_MISMATCH:
        del reader.errors["nvmlDeviceGetGpuFabricInfoV"]  # an older driver that knows an older struct: no fault
    return None if answer is None else int(info.state)


if __name__ == "__main__":
    main()
