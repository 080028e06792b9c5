"""What lines of the rest of the kernel say: devices, processors and memory, disks and file systems, the kernel itself.

A line counts only if it begins as the kernel begins it. Programs that the kernel had to kill are evidence about the
program, never about hardware.
"""

import re
from collections.abc import Sequence
from typing import Final

from outrider.api.gpunode import SubjectKind
from outrider.health.kernel.device_lines import DeviceLines
from outrider.health.kernel.memory_lines import MemoryLines
from outrider.health.kernel.recent import Recent
from outrider.health.kernel.words import Happening, Said

_LOCKUP: Final = re.compile(r"(?:(?:NMI )?watchdog: )?BUG: soft lockup - CPU#\d{1,5} stuck for \d{1,9}s! \[(.{1,64})\]")
_NAPI: Final = re.compile(r"(?:RIP: \w{1,8}:|\s{0,4}(?:\? )?)(?:\w{0,40}napi\w{0,40}|net_rx_action)\b")
_OOPS: Final = re.compile(
    r"BUG: (?:unable to handle|kernel NULL pointer|Bad page|scheduling while atomic)|Oops: |general protection fault"
    r"|kernel BUG at |Unable to handle kernel |Kernel panic - not syncing"
)
_QUEUE: Final = re.compile(r"NETDEV WATCHDOG: (?:CPU: \d{1,5}: )?([\w.@-]{1,32}) \([\w-]{1,32}\): transmit queue")
_INVALID_CONTEXT: Final = re.compile(r"(?:nvidia-peermem|nvidia_peermem|nv_mem).{0,120}ERROR detected invalid context")
_DISK: Final = r"(?P<part>[\w.-]{1,64})"
_RULES: Final = tuple(
    (re.compile(pattern), code)
    for pattern, code in (
        (r"INFO: task (?P<unit>.{1,64}):\d{1,9} blocked for more than \d{1,9} seconds", "kernel/hung-task"),
        (r"(?:NMI )?[Ww]atchdog:? (?:Watchdog )?detected hard LOCKUP on cpu (?P<unit>\d{1,5})", "kernel/hard-lockup"),
        (r"rcu: INFO: rcu_\w{1,32} (?:self-)?detected (?:expedited )?stalls?", "kernel/cpu-stall"),
        (r"(?:mce: )?CPU\d{1,5}: (?:Core|Package) temperature (?:is )?above threshold", "kernel/cpu-hot"),
        (rf"EXT[234]-fs error \(device {_DISK}\)", "kernel/fs-error"),
        (rf"EXT[234]-fs \({_DISK}\): Remounting filesystem read-only", "kernel/fs-read-only"),
        (rf"XFS \({_DISK}\): .{{0,80}}(?:[Ss]hut(?:ting)? ?down|log I/O error)", "kernel/fs-read-only"),
        (rf"XFS \({_DISK}\): .{{0,80}}(?:[Cc]orruption|metadata I/O error)", "kernel/fs-error"),
        (rf"BTRFS.{{0,20}} \(device {_DISK}.{{0,100}}forced readonly", "kernel/fs-read-only"),
        (rf"BTRFS (?:error|critical) \(device {_DISK}", "kernel/fs-error"),
        (r"nvme (?P<part>nvme\d{1,4}): I/O .{0,80}timeout", "kernel/nvme-timeout"),
        (r"nvme (?P<part>nvme\d{1,4}): (?:controller is down|resetting controller)", "kernel/nvme-reset"),
        (r"nvme (?P<part>nvme\d{1,4}): (?:Removing after probe|Device not ready|Disabling device)", "kernel/nvme-lost"),
        (rf"(?:blk_update_request: )?(?:critical (?:medium|target)|I/O) error, dev {_DISK},", "kernel/io-error"),
        (rf"Buffer I/O error on dev(?:ice)? {_DISK},", "kernel/io-error"),
        (r"(?:Memory cgroup o|O)ut of memory.{0,40}: Killed process \d{1,9} \((?P<unit>.{1,64}?)\)", "kernel/oom-kill"),
        (r"(?P<unit>.{1,64}?)\[\d{1,9}\]: segfault at .{0,200} in libnccl", "kernel/nccl-crash"),
        (r"traps: (?P<unit>.{1,64}?)\[\d{1,9}\] .{0,200} in libnccl", "kernel/nccl-crash"),
    )
)


class HostLines:
    """Reads messages in order, each with its time in seconds of a steady clock."""

    def __init__(self) -> None:
        self.devices = DeviceLines()
        self._memory = MemoryLines(self.devices)
        self._recent = Recent()

    @property
    def waits(self) -> bool:
        """True where an event waits for its further lines."""
        return self.devices.waits

    def flush(self) -> list[Said]:
        """Return what waits for its further lines: called when no more are there to read."""
        return self.devices.flush()

    def read(self, message: str, now: float) -> Sequence[Said]:
        """Return what the message says, nothing where it says nothing about hardware or programs."""
        for reader in (self.devices.read, self._memory.read, self._kernel):
            if (said := reader(message, now)) is not None:
                return said
        found = ((rule.match(message), code) for rule, code in _RULES)
        return [_by_rule(match, code, message) for match, code in found if match][:1]

    def _kernel(self, message: str, now: float) -> Sequence[Said] | None:
        if lockup := _LOCKUP.match(message):
            self._recent.note("lockup", now)
            return [Happening(code="kernel/soft-lockup", unit=lockup[1], line=message)]
        if _NAPI.match(message):
            stuck = self._recent.take("lockup", now)
            return [Happening(code="kernel/nic-lockup", line=message.strip())] if stuck else []
        if _OOPS.match(message):
            again = self._recent.take("oops", now)
            self._recent.note("oops", now)
            return [] if again else [Happening(code="kernel/oops", line=message)]
        if queue := _QUEUE.match(message):
            return [Happening(code="kernel/nic-stuck", subject=SubjectKind.NIC, subject_id=queue[1], line=message)]
        return [Happening(code="kernel/peermem", line=message)] if _INVALID_CONTEXT.match(message) else None


def _by_rule(found: re.Match[str], code: str, message: str) -> Happening:
    groups = found.groupdict()
    return Happening(code=code, subject_id=groups.get("part") or "", unit=groups.get("unit") or "", line=message)
