"""How many records of a kernel log the agent's probe reads in a second: one process, nothing else to do."""

import asyncio
import tempfile
import time
from pathlib import Path

from node_agent.config import Config
from node_agent.probes.kernel_log import KernelLogProbe
from testbed.xid_lines import xid_line

LINES = 200_000
_XID_EVERY = 10
_OTHERS = (
    "usb 1-1.4: new high-speed USB device number 7 using xhci_hcd",
    "EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode. Quota mode: none.",
    "mlx5_core 0000:3b:00.0 ens1f0: Link up",
    'audit: type=1400 audit(1700000000.123:42): apparmor="STATUS" operation="profile_load" name="containerd"',
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05",
)


def lines_per_second(xid_every: int = _XID_EVERY) -> float:
    """Return the rate over a log with an Xid of one of 8 GPUs, each line different, in every so many records.

    0: a log without any.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "boot_id").write_text("bench\n")
        (folder / "kmsg").write_text("".join(_record(number, xid_every) for number in range(LINES)))
        config = Config(kernel_log_path=str(folder / "kmsg"), boot_id_path=str(folder / "boot_id"))
        return LINES / asyncio.run(_seconds(KernelLogProbe(config)))


async def _seconds(probe: KernelLogProbe) -> float:
    try:
        began = time.perf_counter()
        await probe.read()
        return time.perf_counter() - began
    finally:
        await probe.close()


def _record(number: int, xid_every: int) -> str:
    if not xid_every or number % xid_every:
        text = _OTHERS[number % len(_OTHERS)]
    else:
        text = xid_line(f"00000000:{0x19 + number % 8:02x}:00.0", 31, f"MMU Fault at 0x7f_{number:08x}")
    return f"4,{number},{number * 10},-;{text}\n"
