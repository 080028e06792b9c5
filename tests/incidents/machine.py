"""A machine as the agent sees it: kernel log, GPUs, adapters. The agent's own probes read it; its judging concludes."""

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from node_agent.config import Config
from node_agent.judging import Rules, absorb, conclude, noted
from node_agent.memory import Memory
from node_agent.probes.gpus import NVMLProbe
from node_agent.probes.kernel_log import KernelLogProbe
from node_agent.probes.nics import SysfsNICs
from node_agent.probes.nvml_wire import Failed, GPUReading, Snapshot
from node_agent.probes.registry import Surroundings
from node_agent.probes.report import KernelPosition, Report, Sighting
from node_agent.publishing.devices import isolation
from node_agent.publishing.objects import status_of
from node_agent.readings.nic_inventory import Inventory
from node_agent.readings.nic_judging import NICWatch
from outrider.api.gpunode import GPUNode, GPUNodeStatus, Mode, Verdict
from outrider.api.meta import ObjectMeta
from outrider.health.catalogue import load
from outrider.health.judge import Judgement
from testbed import kernel_log
from testbed.nvml.state import NvmlState
from tests.node_agent.sysfs_tree import Host

CATALOGUE = load()
DRIVER = "580.82.07"
_USER = 12  # facility 1, level 4: what a program writes to /dev/kmsg


def bus(gpu: int) -> str:
    """Bus id of a GPU of a machine without simulated library."""
    return f"00000000:{0x1B + 0x10 * gpu:02X}:00.0"


def uuid(gpu: int, machine: str = "m") -> str:
    return f"GPU-{machine}-{gpu}"


def readings(count: int, machine: str = "m") -> list[GPUReading]:
    """Return healthy GPUs as NVML shows them."""
    return [
        GPUReading(
            index=gpu,
            uuid=uuid(gpu, machine),
            serial=f"{machine}-{gpu}",
            pci_address=bus(gpu).lower().partition(".")[0],
            model="NVIDIA H100 80GB HBM3",
            links_active=18,
        )
        for gpu in range(count)
    ]


class Machine:
    """Reads when a test wants it. ``seconds`` is the time that has passed since it was switched on."""

    def __init__(
        self,
        folder: Path,
        name: str = "m",
        *,
        library: NvmlState | None = None,
        host: Host | None = None,
        **settings: object,
    ) -> None:
        self.name, self.library, self.host, self.folder = name, library, host, folder
        self.log = folder / "kmsg"
        self.seconds, self._began, self._boots = 0.0, time.time(), 0
        self.memory, self.inventory = Memory(), Inventory()
        self.gpus = readings(8, name)
        self.failed: Failed | None = None  # instead of the GPUs
        fast = {"sys_path": "/nowhere", "nvml_hang_seconds": 0.6, "nvml_retry_seconds": 0.5}
        paths = {"kernel_log_path": str(self.log), "boot_id_path": str(folder / "boot_id")}
        self._config = Config(**{**fast, **paths, **settings})  # type: ignore[arg-type]
        self.rules = Rules(
            catalogue=CATALOGUE, clear_dwell_seconds=30, expected_gpus=int(str(settings.get("expected_gpus", 0)))
        )
        self._boot()
        self._start()

    @property
    def now(self) -> float:
        return self._began + self.seconds

    # What happens to the machine

    def kernel(self, *lines: str) -> None:
        """The kernel writes lines to its log."""
        kernel_log.append(self.log, lines)

    def program(self, *lines: str) -> None:
        """A program writes lines to the kernel's log."""
        kernel_log.append(self.log, lines, level=_USER)

    async def restart(self) -> None:
        """The agent ends and starts again with what it saved."""
        await self.close()
        self.memory = msgspec.json.decode(msgspec.json.encode(self.memory), type=Memory)
        self._start()

    async def reboot(self) -> None:
        """All of the machine starts anew."""
        self._boot()
        await self.restart()

    async def close(self) -> None:
        await self._log_probe.close()
        if self._nvml is not None:
            await self._nvml.close()

    def _boot(self) -> None:
        kernel_log.create(self.log)
        self.kernel(f"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {DRIVER}  Tue Jan 27 01:03:31 UTC 2026")
        self._boots += 1
        (self.folder / "boot_id").write_text(f"boot-{self._boots}\n")

    def _start(self) -> None:
        around = Surroundings(
            catalogue=lambda: CATALOGUE,
            inventory=lambda: self.memory.inventory,
            kernel_position=lambda: KernelPosition(self.memory.boot_id, self.memory.sequence),
            driver_version=lambda: self.memory.driver_version,
        )
        self._log_probe = KernelLogProbe(self._config)
        self._log_probe.attach(around)
        self._nvml = NVMLProbe(self._config, clock=lambda: self.seconds) if self.library else None
        if self._nvml is not None:
            self._nvml.attach(around)
        if self.host is not None:
            self._sysfs = SysfsNICs(str(self.host.sys), str(self.host.proc), str(self.host.dev))
            self._watch = NICWatch()

    # What the agent sees

    async def look(self, times: int = 1, seconds: float = 10.0) -> "Machine":
        """Let every probe read, the log first; ``seconds`` pass before each reading."""
        for _ in range(times):
            self.seconds += seconds
            self.take("kernel-log", self._in_its_time(await self._log_probe.read()))
            self.take("nvml", await self._gpus())
            if self.host is not None:
                self.take("nics", self._nics())
        return self

    def _in_its_time(self, report: Report) -> Report:
        """Lines are written and read at the test's own time: move them to that of the machine."""
        moved = tuple(
            Sighting(
                one.sequence,
                msgspec.structs.replace(
                    one.evidence,
                    first_seen=one.evidence.first_seen + self.seconds,
                    last_seen=one.evidence.last_seen + self.seconds,
                ),
            )
            for one in report.sightings
        )
        return msgspec.structs.replace(report, sightings=moved)

    def take(self, probe: str, report: Report) -> None:
        """Take in a report as the agent does."""
        self.memory = absorb(self.memory, probe, report, self.now, self.rules)
        self.memory = noted(self.memory, self.judgement, self.now)

    async def _gpus(self) -> Report:
        if self._nvml is not None:
            return await self._nvml.read()
        if self.failed is not None:
            return Report(snapshot=Snapshot(failed=self.failed))
        return Report(snapshot=Snapshot(gpus=self.gpus, driver_version=DRIVER))

    def _nics(self) -> Report:
        look = msgspec.structs.replace(self._sysfs.read(self.seconds), boot_id=f"boot-{self._boots}")
        self.inventory, states = self._watch.judge(self.inventory, look, self.now, self.seconds)
        return Report(states=states)

    # What it concludes

    @property
    def judgement(self) -> Judgement:
        return conclude(self.memory, self.now, self.rules)

    @property
    def found(self) -> list[tuple[str, str]]:
        """Codes and subjects of all findings."""
        return sorted((one.code, one.subject_id) for one in self.memory.findings)

    @property
    def verdict(self) -> Verdict:
        return self.judgement.node.verdict

    @property
    def score(self) -> int:
        return self.judgement.node.score

    @property
    def taint(self) -> str | None:
        """Value of the taint that the node gets."""
        return isolation(self.memory.findings, self.judgement, {}, self.name, Mode.AUTO).taint

    @property
    def ill(self) -> dict[str, Verdict]:
        """GPUs that the agent would isolate."""
        return {gpu: one.verdict for gpu, one in self.judgement.gpus.items() if one.verdict.hard}

    @property
    def status(self) -> GPUNodeStatus:
        """What the agent publishes."""
        existing = GPUNode(metadata=ObjectMeta(name=self.name))
        return status_of(self.memory, self.judgement, [], existing, self.now)

    def leads(self) -> list[tuple[str, str]]:
        """Code and subject of each incident, gravest first."""
        return [(one.lead, one.subject_id) for one in self.judgement.incidents]

    def uuid(self, gpu: int) -> str:
        return (self.library.get(gpu, "uuid") or "") if self.library else uuid(gpu, self.name)

    def bus(self, gpu: int) -> str:
        return (self.library.get(gpu, "pci.bus_id") or "") if self.library else bus(gpu)


Switch = Callable[..., Machine]
"""Switches a machine on: by name, with what Machine takes beside it."""
