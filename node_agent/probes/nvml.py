"""The NVML child process: reads all GPUs each time it is asked, and waits for events. The only importer of pynvml.

NVML calls can hang for ever in the driver, and a thread stuck there can't be ended; a process can. So this runs as
``python -m node_agent.probes.nvml`` and holds no judgement: node_agent/probes/gpus.py asks, watches the time and
checks each answer against nvml_wire.py. It imports the standard library and pynvml alone: msgspec would add 10 MB to
a process that runs on every node.

NVML's "not supported" (3), "function not found" (13) and "deprecated" (26) mean that there is no such value. So does
a struct version that the driver does not know (25), and a call that this release of the binding lacks. A timeout (10)
is asked once more.
"""

import ctypes
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, Final

# pynvml imports ctypes.util, which brings in shutil, subprocess and more (2 MB), for a function that it never calls.
_UNUSED: Final = ModuleType("ctypes.util")
_UNUSED.find_library = lambda _name: None  # type: ignore[attr-defined]  # a module made by hand declares nothing
sys.modules.setdefault("ctypes.util", _UNUSED)

import pynvml  # noqa: E402 - after the stand-in above

JSON = dict[str, Any]

NO_VALUE: Final = frozenset({3, 13, 25, 26})
_INVALID_ARGUMENT: Final = 2
_TIMEOUT: Final = 10
_CORRUPTED_INFOROM: Final = 14
_UNREADABLE: Final = -1  # no code of NVML: the answer itself could not be taken
_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_MAX_LINKS: Final = 36  # NVML_NVLINK_MAX_LINKS of 13.615; older boards answer "invalid argument" earlier

# Field ids: nvml.h, NVML_FI_DEV_*. Ids that moved between releases (251 and up) are not used.
_FIELDS: Final = {
    230: "recovery_action",
    82: "temperature_memory",
    194: "margin_slowdown",
    180: "pcie_fatal_errors",
}
_LINK_FIELDS: Final = {  # scope: the link
    161: "replay",
    162: "recovery",
    163: "crc",
    164: "speed_mbps",
    206: "malformed_packets",
    207: "buffer_overruns",
    208: "receive_errors",
    209: "remote_errors",
    211: "integrity_errors",
    212: "transmit_discards",
    214: "recoveries_failed",
    215: "recovery_events",
    220: "effective_ber",
}
_C2C_COUNT, _C2C_STATUS = 170, 171  # links between the chips of a Grace superchip; the second with scope: the link
_LINK_CALLS: Final = {0: "replay", 1: "recovery", 2: "crc"}  # nvmlNvLinkErrorCounter_t, where the fields are not known
_FIELD_MEMBERS: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # by nvmlValueType_t

# Double-bit error, Xid, storm of single-bit errors, page retired or not, poison, GPU unavailable, recovery action.
_EVENTS: Final = 0x2 | 0x8 | 0x200 | 0x400 | 0x800 | 0x1000 | 0x2000 | 0x4000 | 0x8000
_WAIT_MS: Final = 10_000
_ARM_SECONDS: Final = 1.0  # registration may hang as any call; the readings go on without it
_BACK_OFF_SECONDS: Final = (1.0, 5.0, 30.0)
_REFRESH_SECONDS: Final = 600.0  # what does not change while a driver is loaded is asked again this often


def main() -> None:
    """Answer each request line on stdin until it is closed, or until NVML fails as a whole."""
    _die_with_parent()
    node = _Node()
    for line in sys.stdin:
        try:
            node.read(skip=json.loads(line)["skip"])
        except pynvml.NVMLError as error:
            _say("failed", call=node.call, code=error.value, text=str(error))
            sys.stdout.flush()
            sys.exit(1)


def _die_with_parent() -> None:
    """Ask the kernel to end this process with the agent: stuck in a call, it would not see stdin close."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


_SPEAKING: Final = threading.Lock()


def _say(what: str, /, **answer: Any) -> None:
    text = json.dumps({"type": what, **answer}) + "\n"
    with _SPEAKING:  # the thread that waits for events speaks too
        sys.stdout.write(text)
        sys.stdout.flush()


class _Node:
    """NVML from its start on: what is read of the node, and the GPUs' lasting properties."""

    def __init__(self) -> None:
        self.call = "nvmlInit"
        """The node-wide call under way, for the report of its failure."""
        self._started = False
        self._events = _Events()
        self._lasting: dict[int, tuple[float, JSON]] = {}

    def read(self, skip: list[int]) -> None:
        _say("begin", index=-1)
        if not self._started:
            pynvml.nvmlInit()
            self._started = True
        driver = self._ask("nvmlSystemGetDriverVersion", pynvml.nvmlSystemGetDriverVersion)
        library = _optional(pynvml.nvmlSystemGetNVMLVersion)
        for index in range(self._ask("nvmlDeviceGetCount", pynvml.nvmlDeviceGetCount)):
            if index not in skip:
                _say("begin", index=index)
                _say("read", gpu=self._gpu(index))
        self._events.start()
        _say("end", driver_version=driver, nvml_version=library or "", events_code=self._events.code)

    def _ask(self, name: str, call: Callable[[], Any]) -> Any:
        self.call = name
        return call()

    def _gpu(self, index: int) -> JSON:
        started, reader = time.monotonic(), _Reader()
        handle = reader.ask("nvmlDeviceGetHandleByIndex", index)
        values: JSON = {"index": index}
        if handle is not None:
            lasting = self._lasting_of(index, handle)
            self._events.add(index, lasting["uuid"], handle)
            values |= lasting | _changing(reader, handle)
        # A call that failed makes the lasting values suspect too: they are asked anew at the next reading.
        errors = values.get("errors", {}) | reader.errors
        if errors:
            self._lasting.pop(index, None)
        return values | {"errors": errors, "seconds": time.monotonic() - started}

    def _lasting_of(self, index: int, handle: Any) -> JSON:
        until, values = self._lasting.get(index, (float("-inf"), {}))
        now = time.monotonic()
        if now >= until:
            values = _lasting(handle)
            self._lasting[index] = (now + _REFRESH_SECONDS, values)
        return values


def _optional(call: Callable[[], Any]) -> Any:
    """Return the answer of a call that may fail, None where it does."""
    try:
        return call()
    except pynvml.NVMLError:
        return None


class _Reader:
    """Makes calls on one GPU and keeps the return codes of those that fail."""

    def __init__(self) -> None:
        self.errors: dict[str, int] = {}

    def ask(self, name: str, *arguments: Any) -> Any:
        """Return the value of a call, None where there is none."""
        for last in (False, True):
            try:
                return getattr(pynvml, name)(*arguments)
            except pynvml.NVMLError as error:
                if error.value == _TIMEOUT and not last:
                    continue
                self.failed(name, error.value)
            except (AttributeError, pynvml.NVMLLibraryMismatchError):
                pass  # an older release of the binding, or of the library, has no such call
            except Exception:  # noqa: BLE001 - whatever the binding makes of an answer it does not know, the rest is read
                self.errors[name] = _UNREADABLE
            return None
        return None

    def failed(self, name: str, code: int) -> None:
        """Keep a return code, unless it says that there is no such value."""
        if code not in NO_VALUE:
            self.errors[name] = code

    def text(self, name: str, handle: Any) -> str:
        """Return a text, empty where there is none."""
        return self.ask(name, handle) or ""

    def flag(self, name: str, handle: Any) -> bool | None:
        """Return a truth value."""
        value = self.ask(name, handle)
        return None if value is None else bool(value)

    def pair(self, name: str, handle: Any) -> list[int] | None:
        """Return what is now and what will be after a reset."""
        value = self.ask(name, handle)
        return None if value is None else [int(value[0]), int(value[1])]

    def struct(self, name: str, handle: Any, struct: str) -> Any:
        """Return a struct that a call fills: a fresh one, since its version is set as it is made."""
        make = getattr(pynvml, struct, None)
        if make is None:
            return None
        filled = make()
        return None if self.ask(name, handle, ctypes.byref(filled)) is None else filled


def _lasting(handle: Any) -> JSON:
    """Return what stays as it is while the driver is loaded, or changes by a person's hand alone."""
    reader = _Reader()
    pci = reader.ask("nvmlDeviceGetPciInfo", handle)
    values = {
        "uuid": reader.text("nvmlDeviceGetUUID", handle),
        "serial": reader.text("nvmlDeviceGetSerial", handle),
        "pci_address": pci.busId.lower().rsplit(".", 1)[0] if pci else "",
        "model": reader.text("nvmlDeviceGetName", handle),
        "pcie_generation_max": reader.ask("nvmlDeviceGetMaxPcieLinkGeneration", handle),
        "pcie_width_max": reader.ask("nvmlDeviceGetMaxPcieLinkWidth", handle),
        "clock_sm_max": reader.ask("nvmlDeviceGetMaxClockInfo", handle, 1),
        "temperature_slowdown": reader.ask("nvmlDeviceGetTemperatureThreshold", handle, 1),
        "temperature_memory_max": reader.ask("nvmlDeviceGetTemperatureThreshold", handle, 2),
        "temperature_max": reader.ask("nvmlDeviceGetTemperatureThreshold", handle, 3),
        "power_limit_default": reader.ask("nvmlDeviceGetPowerManagementDefaultLimit", handle),
    }
    return values | {"errors": reader.errors}


def _changing(reader: _Reader, handle: Any) -> JSON:
    return (
        _fields(reader, handle)
        | _memory(reader, handle)
        | _work(reader, handle)
        | _modes(reader, handle)
        | _links(reader, handle)
        | _fabric(reader, handle)
    )


def _memory(reader: _Reader, handle: Any) -> JSON:
    remapped = reader.ask("nvmlDeviceGetRemappedRows", handle) or (None,) * 4
    banks = reader.ask("nvmlDeviceGetRowRemapperHistogram", handle)
    sram = reader.struct("nvmlDeviceGetSramEccErrorStatus", handle, "c_nvmlEccSramErrorStatus_v1_t")
    return {
        "ecc_mode": reader.pair("nvmlDeviceGetEccMode", handle),
        "ecc_corrected": reader.ask("nvmlDeviceGetTotalEccErrors", handle, 0, 0),
        "ecc_uncorrected": reader.ask("nvmlDeviceGetTotalEccErrors", handle, 1, 0),
        "ecc_uncorrected_life": reader.ask("nvmlDeviceGetTotalEccErrors", handle, 1, 1),
        "sram_threshold_exceeded": bool(sram.bThresholdExceeded) if sram else None,
        "remap_uncorrected": remapped[1],
        "remap_pending": None if remapped[2] is None else bool(remapped[2]),
        "remap_failure": None if remapped[3] is None else bool(remapped[3]),
        "remap_banks": [banks.max, banks.high, banks.partial, banks.low, banks.none] if banks else None,
        "pages_retired": _retired(reader, handle),
        "pages_pending": reader.flag("nvmlDeviceGetRetiredPagesPendingStatus", handle),
        "repair_pending": reader.pair("nvmlDeviceGetRepairStatus", handle),
        "unrepairable": reader.flag("nvmlDeviceGetUnrepairableMemoryFlag_v1", handle),
        "inforom_corrupted": _inforom(reader, handle),
    }


def _retired(reader: _Reader, handle: Any) -> list[int] | None:
    lists = [reader.ask("nvmlDeviceGetRetiredPages", handle, cause) for cause in (0, 1)]
    return None if None in lists else [len(pages) for pages in lists]


def _inforom(reader: _Reader, handle: Any) -> bool:
    reader.ask("nvmlDeviceGetInforomVersion", handle, 0)
    corrupted = reader.errors.get("nvmlDeviceGetInforomVersion") == _CORRUPTED_INFOROM
    if corrupted:
        del reader.errors["nvmlDeviceGetInforomVersion"]  # it has told all: the GPU itself can be read
    return corrupted


def _work(reader: _Reader, handle: Any) -> JSON:
    rates = reader.ask("nvmlDeviceGetUtilizationRates", handle)
    processes = reader.ask("nvmlDeviceGetComputeRunningProcesses", handle)
    return {
        "utilization": rates.gpu if rates else None,
        "processes": None if processes is None else len(processes),
        "performance_state": reader.ask("nvmlDeviceGetPerformanceState", handle),
        "clock_sm": reader.ask("nvmlDeviceGetClockInfo", handle, 1),
        "clock_reasons": reader.ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle),  # the name all drivers know
        "temperature": reader.ask("nvmlDeviceGetTemperature", handle, 0),
        "margin": reader.ask("nvmlDeviceGetMarginTemperature", handle),
        "power": reader.ask("nvmlDeviceGetPowerUsage", handle),
        "power_limit": reader.ask("nvmlDeviceGetEnforcedPowerLimit", handle),
        "power_limit_wanted": reader.ask("nvmlDeviceGetPowerManagementLimit", handle),
        "pcie_generation": reader.ask("nvmlDeviceGetCurrPcieLinkGeneration", handle),
        "pcie_width": reader.ask("nvmlDeviceGetCurrPcieLinkWidth", handle),
        "pcie_replays": reader.ask("nvmlDeviceGetPcieReplayCounter", handle),
    }


def _modes(reader: _Reader, handle: Any) -> JSON:
    return {
        "persistence": reader.flag("nvmlDeviceGetPersistenceMode", handle),
        "compute_mode": reader.ask("nvmlDeviceGetComputeMode", handle),
        "mig_mode": reader.pair("nvmlDeviceGetMigMode", handle),
    }


def _fields(reader: _Reader, handle: Any) -> JSON:
    values: JSON = {}
    for name, (value, code) in zip(_FIELDS.values(), _values(reader, handle, _FIELDS), strict=False):
        values[name] = value
        reader.errors.update(code)
    return values


Value = tuple[int | None, dict[str, int]]


def _values(reader: _Reader, handle: Any, fields: Iterable[Any]) -> list[Value]:
    """Return value and error of each field, in order; nothing where the call as a whole has no answer."""
    return [_value(entry) for entry in reader.ask("nvmlDeviceGetFieldValues", handle, list(fields)) or ()]


def _value(entry: Any) -> Value:
    if entry.nvmlReturn:
        known = entry.nvmlReturn in NO_VALUE or entry.nvmlReturn == _INVALID_ARGUMENT  # a field that it does not know
        return None, {} if known else {f"field {entry.fieldId}": entry.nvmlReturn}
    if not 0 <= entry.valueType < len(_FIELD_MEMBERS):
        return None, {}  # a newer kind of value: which bytes hold it is not known
    # Only the member that NVML filled is read: another one holds garbage.
    return int(getattr(entry.value, _FIELD_MEMBERS[entry.valueType])), {}


def _links(reader: _Reader, handle: Any) -> JSON:
    states = _link_states(reader, handle)
    up = [link for link, state in enumerate(states) if state]
    return {
        "links_active": len(up),
        "links_inactive": [link for link, state in enumerate(states) if not state],
        "link_counters": _link_counters(reader, handle, up, len(states)) if up else {},
        "c2c_inactive": _c2c_inactive(reader, handle),
    }


def _c2c_inactive(reader: _Reader, handle: Any) -> list[int]:
    ((count, _),) = _values(reader, handle, [_C2C_COUNT]) or ((None, {}),)
    if not count:
        return []
    states = _values(reader, handle, [(_C2C_STATUS, link) for link in range(min(count, _MAX_LINKS))])
    return [link for link, (state, _) in enumerate(states) if state == 0]


def _link_states(reader: _Reader, handle: Any) -> list[int]:
    states: list[int] = []
    try:
        while len(states) < _MAX_LINKS:
            states.append(pynvml.nvmlDeviceGetNvLinkState(handle, len(states)))
    except pynvml.NVMLError as error:
        if error.value != _INVALID_ARGUMENT:
            reader.failed("nvmlDeviceGetNvLinkState", error.value)
    return states


def _link_counters(reader: _Reader, handle: Any, up: list[int], count: int) -> dict[str, list[int | None]]:
    """Return the counters that links of this generation have."""
    known = _known_link_fields(reader, handle, up[0])
    counters: dict[str, list[int | None]] = {_LINK_FIELDS[field]: [None] * count for field in known}
    wanted = [(field, link) for field in known for link in up]
    answers = _values(reader, handle, wanted) if wanted else []
    for (field, link), (value, code) in zip(wanted, answers, strict=False):
        counters[_LINK_FIELDS[field]][link] = value
        reader.errors.update(code)
    if set(counters) - {"speed_mbps"}:
        return counters
    return counters | _called_link_counters(reader, handle, up, count)


def _known_link_fields(reader: _Reader, handle: Any, link: int) -> list[int]:
    answers = _values(reader, handle, [(field, link) for field in _LINK_FIELDS])
    return [field for field, (value, _) in zip(_LINK_FIELDS, answers, strict=False) if value is not None]


def _called_link_counters(reader: _Reader, handle: Any, up: list[int], count: int) -> dict[str, list[int | None]]:
    counters: dict[str, list[int | None]] = {}
    for number, name in _LINK_CALLS.items():
        values: list[int | None] = [None] * count
        for link in up:
            values[link] = reader.ask("nvmlDeviceGetNvLinkErrorCounter", handle, link, number)
            if values[link] is None:
                return counters
        counters[name] = values
    return counters


def _fabric(reader: _Reader, handle: Any) -> JSON:
    info = reader.struct("nvmlDeviceGetGpuFabricInfoV", handle, "c_nvmlGpuFabricInfo_v3_t") or reader.struct(
        "nvmlDeviceGetGpuFabricInfoV", handle, "c_nvmlGpuFabricInfo_v2_t"
    )
    if info is None:
        return {}
    return {
        "fabric_state": info.state,
        "fabric_status": info.status,
        "fabric_clique": info.cliqueId,
        "fabric_cluster": bytes(info.clusterUuid).hex(),
        "fabric_health_mask": info.healthMask,
        "fabric_health_summary": getattr(info, "healthSummary", None),
    }


class _Events:
    """Waits for NVML's events in a thread of its own, which ends with the process.

    An error that lasts would be returned at once each time and spin the loop, so the set is made anew after a pause
    that grows. A board or driver without events ("not supported") is no fault: everything is then found by reading.
    """

    def __init__(self) -> None:
        self.code = 0
        self._gpus: dict[int, tuple[str, Any]] = {}
        self._begun = False
        self._armed = threading.Event()

    def add(self, index: int, uuid: str, handle: Any) -> None:
        """Note a GPU to wait for; one that comes later than the others is taken in after the wait under way."""
        self._gpus[index] = (uuid, handle)

    def start(self) -> None:
        """Begin to wait, once, when the GPUs have been read: the end of that reading says that events come now."""
        if not self._begun:
            self._begun = True
            threading.Thread(target=self._run, daemon=True).start()
            self._armed.wait(_ARM_SECONDS)

    def _run(self) -> None:
        failures = 0
        while self.code not in NO_VALUE:
            began = time.monotonic()
            try:
                self._wait_on()
            except pynvml.NVMLError as error:
                self.code = error.value
            except (AttributeError, pynvml.NVMLLibraryMismatchError):
                self.code = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
            self._armed.set()
            failures = 1 if time.monotonic() - began > _BACK_OFF_SECONDS[-1] else failures + 1
            if self.code:
                time.sleep(_BACK_OFF_SECONDS[min(failures, len(_BACK_OFF_SECONDS)) - 1])

    def _wait_on(self) -> None:
        events = pynvml.nvmlEventSetCreate()
        try:
            wanted = set(self._gpus)
            names = self._register(events)
            self.code = 0
            self._armed.set()
            while wanted == set(self._gpus):
                self._wait(events, names)
        finally:
            _optional(lambda: pynvml.nvmlEventSetFree(events))

    def _register(self, events: Any) -> dict[int, tuple[int, str]]:
        """Register all GPUs that have events; raise the error of the last one, else "not supported", where none has."""
        names: dict[int, tuple[int, str]] = {}
        refused = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        for index, (uuid, handle) in list(self._gpus.items()):
            try:
                wanted = pynvml.nvmlDeviceGetSupportedEventTypes(handle) & _EVENTS
                if wanted:
                    pynvml.nvmlDeviceRegisterEvents(handle, wanted, events)
                    names[_place(handle)] = (index, uuid)
            except pynvml.NVMLError as error:
                refused = error
        if not names:
            raise refused
        return names

    def _wait(self, events: Any, names: dict[int, tuple[int, str]]) -> None:
        try:
            event = pynvml.nvmlEventSetWait(events, _WAIT_MS)
        except pynvml.NVMLError as error:
            if error.value == _TIMEOUT:
                return
            raise
        # The device is told by its address: asking NVML for its UUID could hang on a GPU that is in trouble.
        index, uuid = names.get(_place(event.device), (-1, ""))
        _say("event", index=index, uuid=uuid, kind=event.eventType, data=event.eventData)


def _place(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


if __name__ == "__main__":
    main()
