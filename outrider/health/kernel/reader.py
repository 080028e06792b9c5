"""Reads one machine's kernel messages in order: the entry to this package."""

import re
from collections.abc import Sequence
from typing import Final

from outrider.api.gpunode import SubjectKind
from outrider.health.kernel.devices import ADDRESS_PREFIX
from outrider.health.kernel.driver_lines import DriverLines
from outrider.health.kernel.host_lines import HostLines
from outrider.health.kernel.words import Naming, Said

MESSAGE_MAX: Final = 4096  # characters looked at: every line that means something is far shorter
_LINES_MAX: Final = 64  # of one record
# Words of which every line that means something holds one, so that all others cost no more than this search. Each
# begins with a character that is rare in kernel lines: the search tries them all only there.
_WORTH: Final = re.compile(
    rb"NVRM|vidia|AER:|PCIe Bus|DPC:|Slot\(|x[45]_c|NETDEV W|queue|ware (?:(?:is )?not resp|fatal )"
    rb"|Keep alive|keep alive|TX timeout|Hardware Error\]|EDAC MC|Machine Check|Memory failure"
    rb"|Uncorrected hardware|CPU\d{1,5}: |BUG|LOCKUP|INFO: (?:task|rcu_)|Oops|protection fault|Unable to handle"
    rb"|Kernel panic|_napi|_rx_action|EXT[234]-fs|XFS \(|BTRFS|vme\d|I/O error|, dev |inaccessible|giving up"
    rb"|Killed process|bnccl"
)
JOIN_SECONDS: Final = 1.0  # the lines of one event are printed within milliseconds
_DRIVER: Final = ("NVRM", "nvidia-nvswitch", "nvidia-uvm")


def worth_reading(raw: bytes) -> bool:
    """Return False for a text, escaped or not, that certainly says nothing."""
    return _WORTH.search(raw, 0, MESSAGE_MAX) is not None


class KernelReader:
    """What the lines say, record by record; times are seconds of any steady clock."""

    def __init__(self, driver_version: str = "") -> None:
        self._driver = DriverLines(driver_version)
        self._host = HostLines()
        self.waiting_since: float | None = None
        """Time of what waits for further lines of the same event; None: nothing does."""

    @property
    def driver_version(self) -> str:
        """Version of the NVIDIA driver as the log told it last, or as it was given."""
        return self._driver.driver_version

    def read(self, message: str, now: float) -> Sequence[Said]:
        """Return what the record says, nothing where it says nothing about hardware or programs.

        A line of the GPU's driver counts in a record that the driver began: others may hold a program's text, such as
        the name of a file with line ends in it.
        """
        if "\n" not in message:
            return self._line(message[:MESSAGE_MAX], now)
        lines = message[:MESSAGE_MAX].split("\n", _LINES_MAX)[:_LINES_MAX]
        drivers = message.lstrip("\n").startswith(_DRIVER)
        return [said for line in lines if drivers or not line.startswith(_DRIVER) for said in self._line(line, now)]

    def flush(self) -> list[Said]:
        """Return what waits for its further lines: called when no more are there to read, or none will come."""
        self.waiting_since = None
        return self._driver.flush() + self._host.flush()

    def subject_of(self, function: str) -> tuple[SubjectKind, str]:
        """Return the subject that the function of a PCI device (subject id) is, as far as the log has told."""
        return self._host.devices.subject_of(function)

    def overdue(self, now: float) -> bool:
        """Return whether what waits has waited so long that no further line will come."""
        return self.waiting_since is not None and abs(now - self.waiting_since) > JOIN_SECONDS

    def _line(self, line: str, now: float) -> Sequence[Said]:
        said = self._driver_line(line) if line.startswith(_DRIVER) else self._host.read(line, now)
        if self.waiting_since is None and (self._driver.waits or self._host.waits):
            self.waiting_since = now
        return said

    def _driver_line(self, line: str) -> Sequence[Said]:
        said = self._driver.read(line)
        for word in said:
            of_gpu = isinstance(word, Naming) or word.subject is SubjectKind.GPU
            if of_gpu and word.subject_id.startswith(ADDRESS_PREFIX):
                self._host.devices.learn_gpu(word.subject_id)
        return said
