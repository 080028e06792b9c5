"""What lines about processors and main memory say: machine checks, EDAC counts, errors that the firmware reports."""

import re
from collections.abc import Sequence
from typing import Final

from outrider.health.kernel.device_lines import DeviceLines
from outrider.health.kernel.devices import FULL_BDF
from outrider.health.kernel.rates import Limit, Rates
from outrider.health.kernel.words import Happening, Said

CORRECTED_LIMIT: Final = Limit(events=10, seconds=24 * 3600)  # mcelog's default for a memory module
_FIRMWARE: Final = re.compile(r"(?:\{\d{1,9}\})?\[Hardware Error\]:\s{0,8}(.*)", re.DOTALL)
_DEVICE_ID: Final = re.compile(rf"device_id: ({FULL_BDF})")
_UNCORRECTED_WORDS: Final = (  # the firmware's, and those of AMD's decoder, whose numbers come in further lines
    "section_type: general processor error",
    "Uncorrected",
    "Deferred error",
    "System Fatal error",
)
_SEVERITIES: Final = {"corrected": "corrected", "fatal": "fatal", "recoverable": "nonfatal"}
_CHECK: Final = re.compile(
    r"(?:mce: )?(?:\[Hardware Error\]: )?CPU\s?(\d{1,5}):? Machine Check(?: Exception)?: (?:\d{1,3} )?"
    r"Bank (\d{1,3}): ([0-9a-fA-F]{16})"
)
_UNCORRECTED: Final = 1 << 61  # bit UC of a machine-check status (Intel SDM 3B, chapter 16; AMD's is the same)
_EDAC: Final = re.compile(r"EDAC MC(\d{1,3}): (\d{1,9}) (CE|UE) (.{0,120})")
_MODULE: Final = re.compile(r"\bon ([\w#:./-]{1,80})")
_BAD_PAGE: Final = re.compile(r"Memory failure: 0x[0-9a-f]{1,16}: |mce: Uncorrected hardware memory error")


class MemoryLines:
    """Reads messages in order; remembers how often errors were corrected. PCIe errors of the firmware go to devices."""

    def __init__(self, devices: DeviceLines) -> None:
        self._devices = devices
        self._corrected = Rates(CORRECTED_LIMIT)
        self._severity = "nonfatal"

    def read(self, message: str, now: float) -> Sequence[Said] | None:
        """Return what the line says, None where it is of another kind."""
        if check := _CHECK.match(message):
            return self._check(int(check[1]), int(check[2]), int(check[3], 16), message, now)
        if edac := _EDAC.match(message):
            module = _MODULE.search(edac[4])
            part = module[1] if module else f"memory controller {int(edac[1])}"
            return self._memory(part, edac[3] == "CE", message, now, max(1, int(edac[2])))
        if _BAD_PAGE.match(message):
            return [Happening(code="kernel/memory-uncorrected", line=message)]
        reported = _FIRMWARE.match(message)
        return self._firmware(reported[1], message, now) if reported else None

    def _check(self, cpu: int, bank: int, status: int, message: str, now: float) -> Sequence[Said]:
        unit = f"CPU {cpu} bank {bank}"
        if status & _UNCORRECTED:
            return [Happening(code="kernel/mce", unit=unit, line=message)]
        return self._often(f"bank {bank}", message, now, unit)

    def _often(self, part: str, message: str, now: float, unit: str = "") -> Sequence[Said]:
        count = self._corrected.add(part, now)
        return [Happening(code="kernel/mce-corrected", unit=unit, line=message, count=count)] if count else []

    def _memory(self, part: str, corrected: bool, message: str, now: float, errors: int) -> Sequence[Said]:
        if not corrected:
            return [Happening(code="kernel/memory-uncorrected", unit=part, line=message, count=errors)]
        count = self._corrected.add(part, now, errors)
        return [Happening(code="kernel/memory-corrected", unit=part, line=message, count=count)] if count else []

    def _firmware(self, text: str, message: str, now: float) -> Sequence[Said]:
        """The firmware's report spans lines: its severity first, then what it is about."""
        if text.startswith("event severity: "):
            self._severity = _SEVERITIES.get(text.removeprefix("event severity: ").strip(), "nonfatal")
        elif text.startswith("section_type: memory error"):
            return self._memory("reported by firmware", self._severity == "corrected", message, now, 1)
        elif text.startswith(_UNCORRECTED_WORDS) and not (text.startswith("section") and self._severity == "corrected"):
            return [Happening(code="kernel/mce", line=message)]
        elif text.startswith("Corrected error"):
            return self._often("processor", message, now)
        elif device := _DEVICE_ID.match(text):
            return self._devices.error(self._severity, device[1], message, now)
        return []
