"""What lines about PCIe devices say: errors of the bus, and what network drivers tell of their adapters.

Wordings are those of Linux 5.4 to 6.14: a PCIe error is "Uncorrected (Fatal)" or "Uncorrectable (Fatal)". It is about
the device that the line names; only a device that a GPU's driver holds is a GPU, a network driver's is a NIC, and
every other is a part of the node.
"""

import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from outrider.api.gpunode import SubjectKind
from outrider.health.kernel.devices import FULL_BDF, address_id, canonical, function_id
from outrider.health.kernel.rates import Limit, Rates
from outrider.health.kernel.recent import Recent
from outrider.health.kernel.words import Happening, Said

CORRECTED_LIMIT: Final = Limit(events=10, seconds=600)  # our own: a sound link corrects a few errors a day at most
_DEVICES_MAX: Final = 1024
_WAITING_MAX: Final = 64

_GPU_DRIVERS: Final = frozenset({"nvidia"})
_NIC_DRIVERS: Final = frozenset(
    (
        *("mlx5_core", "mlx4_core", "bnxt_en", "ice", "i40e", "ixgbe", "idpf", "igb", "igc", "irdma", "fm10k", "enic"),
        *("ena", "efa", "gve", "qede", "hfi1", "ionic", "sfc", "tg3", "cxgb4", "be2net", "atlantic", "nfp", "hinic"),
    )
)
_DEVICE: Final = re.compile(rf"([\w-]{{1,32}}) ({FULL_BDF})(?: [\w.@-]{{1,32}})?: (.*)", re.DOTALL)
_SEVERITY: Final = r"(Corrected|Correctable|Uncorrected|Uncorrectable)\s{0,2}(?:\((Fatal|Non-Fatal)\))?"
_BUS_ERROR: Final = re.compile(rf"(?:AER: )?PCIe Bus Error: severity={_SEVERITY}", re.IGNORECASE)
_RECEIVED: Final = re.compile(
    rf"AER: (?:Multiple )?{_SEVERITY} error (?:message )?received(?: from|:)? "
    rf"(?:({FULL_BDF})|id=([0-9a-fA-F]{{2}})([0-9a-fA-F]{{2}}))",
    re.IGNORECASE,
)
_PORT_WORDS: Final = (
    ("DPC: containment event", "kernel/pcie-contained"),
    ("Link Down", "kernel/pcie-link-down"),
    ("Card not present", "kernel/pcie-link-down"),
)
_LOST_WORDS: Final = ("device inaccessible", "config space inaccessible", "after FLR; giving up", "reset; giving up")
_NIC_WORDS: Final = (
    ("Will cause a leak of a command resource", "kernel/nic-command"),
    ("health compromised", "kernel/nic-health"),
    ("Health issue observed", "kernel/nic-health"),
    ("health recovery failed", "kernel/nic-health"),
    ("health recovery flow aborted", "kernel/nic-health"),
    ("Fatal error ", "kernel/nic-health"),
    ("nternal error detected", "kernel/nic-health"),
    ("nternal error mark was detected", "kernel/nic-health"),
    ("FW is unable to respond", "kernel/nic-health"),
    ("Communication with FW over the PCI link is down", "kernel/nic-health"),
    ("PCI slot is unavailable", "kernel/nic-health"),
    ("irmware fatal ", "kernel/nic-health"),
    ("handling bad device", "kernel/nic-health"),
    ("irmware is not responding", "kernel/nic-health"),
    ("irmware not responding", "kernel/nic-health"),
    ("eep alive watchdog timeout", "kernel/nic-health"),
    ("eep alive timeout", "kernel/nic-health"),
    ("insufficient power on the PCIe slot", "kernel/nic-power"),
    ("budget exceeded", "kernel/nic-power"),
    ("igh temperature", "kernel/nic-temperature"),
    ("igh Temperature", "kernel/nic-temperature"),
    ("Port module event[error]", "kernel/nic-module"),
    ("transmit queue", "kernel/nic-stuck"),
    ("TX timeout", "kernel/nic-stuck"),
)
_REGISTER: Final = re.compile(r"ACCESS_REG\b.{0,120}(?:failed|timeout)")


class DeviceLines:
    """Reads messages in order; remembers which driver holds which device, and how often errors were corrected."""

    def __init__(self) -> None:
        self._kinds: OrderedDict[str, SubjectKind] = OrderedDict()
        self._corrected = Rates(CORRECTED_LIMIT)
        self._waiting: dict[tuple[str, str], tuple[str, float]] = {}
        self._recent = Recent()

    def learn_gpu(self, gpu: str) -> None:
        """Remember that the device with this subject id is a GPU."""
        self._learn(gpu, SubjectKind.GPU)

    def subject_of(self, function: str) -> tuple[SubjectKind, str]:
        """Return the subject that the function of a PCI device (subject id) is, as far as the log has told."""
        device = function.rpartition(".")[0]
        if device in self._kinds:
            return SubjectKind.GPU, device
        return self._kinds.get(function, SubjectKind.NODE), function

    def read(self, message: str, now: float) -> Sequence[Said] | None:
        """Return what a line says that opens with driver and device, None where the line does not."""
        device = _DEVICE.match(message)
        if device is None:
            return None
        driver, bdf, text = device.groups()
        if driver in _GPU_DRIVERS:
            self._learn(address_id(canonical(bdf)), SubjectKind.GPU)
        elif driver in _NIC_DRIVERS:
            self._learn(function_id(bdf), SubjectKind.NIC)
        if "rror" in text and (error := self._bus_error(bdf, text, message, now)) is not None:
            return error
        if any(words in text for words in _LOST_WORDS):
            kind, subject = self.subject_of(function_id(bdf))
            return [Happening(code="kernel/pcie-lost", subject=kind, subject_id=subject, line=message)]
        if driver == "pcieport":
            return _port(bdf, text, message)
        return _nic(bdf, text, message) if driver in _NIC_DRIVERS else []

    @property
    def waits(self) -> bool:
        """True where the port of a device told of an error, and the device has not yet."""
        return bool(self._waiting)

    def flush(self) -> list[Said]:
        """Return the errors of which the port alone told; the device's line may still come."""
        waiting, self._waiting = self._waiting, {}
        told: list[Said] = []
        for (severity, device), (message, now) in waiting.items():
            self._recent.note(f"{severity} {device}", now)
            told += self._told(severity, device, message, now)
        return told

    def error(self, severity: str, bdf: str, message: str, now: float, *, of_port: bool = False) -> Sequence[Said]:
        """Return what a bus error of this severity (corrected, nonfatal, fatal) says about a device.

        The port that receives an error prints a line, then the driver of the device that sent it: that one tells more.
        """
        key = (severity, function_id(bdf))
        before = self._waiting.pop(key, None)
        if not of_port:
            already_told = self._recent.take(f"{severity} {function_id(bdf)}", now)
            return [] if already_told else self._told(*key, message, now)
        told = list(self._told(*key, *before)) if before else []
        if len(self._waiting) >= _WAITING_MAX:
            told += self.flush()
        self._waiting[key] = (message, now)
        return told

    def _told(self, severity: str, subject_id: str, message: str, now: float) -> Sequence[Said]:
        count = self._corrected.add(subject_id, now) if severity == "corrected" else 1
        kind, subject = self.subject_of(subject_id)
        happening = Happening(
            code=f"kernel/aer-{severity}", subject=kind, subject_id=subject, line=message, count=count or 1
        )
        return [happening] if count else []

    def _bus_error(self, bdf: str, text: str, message: str, now: float) -> Sequence[Said] | None:
        if error := _BUS_ERROR.match(text):
            return self.error(_severity(error), bdf, message, now)
        if (error := _RECEIVED.match(text)) is None:
            return None
        sender = error[3] or _old_sender(bdf, int(error[4], 16), int(error[5], 16))
        return self.error(_severity(error), sender, message, now, of_port=True)

    def _learn(self, subject_id: str, kind: SubjectKind) -> None:
        self._kinds[subject_id] = kind
        if len(self._kinds) > _DEVICES_MAX:
            self._kinds.popitem(last=False)


def _severity(error: re.Match[str]) -> str:
    if error[1].lower().startswith("corr"):
        return "corrected"
    return "fatal" if (error[2] or "").lower() == "fatal" else "nonfatal"


def _old_sender(port: str, bus: int, device_function: int) -> str:
    """Return the address that old kernels give as ``id=00e0``, bus and device-function, in the domain of the port."""
    return f"{port.split(':', 1)[0]}:{bus:02x}:{device_function >> 3:02x}.{device_function & 7}"


def _port(bdf: str, text: str, message: str) -> Sequence[Said]:
    codes = (code for words, code in _PORT_WORDS if words in text)
    return [Happening(code=code, subject_id=function_id(bdf), line=message) for code in codes][:1]


def _nic(bdf: str, text: str, message: str) -> Sequence[Said]:
    code = next((code for words, code in _NIC_WORDS if words in text), "")
    if not code and _REGISTER.search(text):
        code = "kernel/nic-register"
    return [Happening(code=code, subject=SubjectKind.NIC, subject_id=function_id(bdf), line=message)] if code else []
