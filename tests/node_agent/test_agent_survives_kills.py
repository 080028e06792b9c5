"""kill -9 at any moment, and reboots: no finding is lost, none counts twice. The real process, with no API server."""

import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest
import yaml

from node_agent.memory import Memory
from testbed import kernel_log, nvml
from testbed.xid_lines import xid_line

pytestmark = pytest.mark.slow
KILLS, REBOOT_EVERY, GPUS = 50, 10, 8
CODES = (13, 31, 43, 68)  # they clear by time, in hours: a reboot keeps them
PATIENCE_S = 60.0


class Node:
    """The driver's files of a node, what its driver has printed, and its agent."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.kmsg = folder, folder / "kmsg"
        self.state = nvml.install(folder / "lib", "h100", seed="killed")
        self.printed: Counter[tuple[str, str]] = Counter()
        self.boots = 0
        self.process: asyncio.subprocess.Process | None = None
        self.reboot()
        (folder / "pods").mkdir()
        settings = {
            "kernelLogPath": str(self.kmsg),
            "bootIdPath": str(folder / "boot_id"),
            "stateDir": str(folder / "state"),
            "kubeletPodsDir": str(folder / "pods"),
            "podResourcesSocket": "",
            "probePort": 0,
        }
        (folder / "config.yaml").write_text(yaml.safe_dump(settings))
        (folder / "kubeconfig").write_text(yaml.safe_dump(NOWHERE))

    def reboot(self) -> None:
        self.boots += 1
        kernel_log.create(self.kmsg)
        (self.folder / "boot_id").write_text(f"boot-{self.boots}\n")

    async def start(self) -> None:
        environment = os.environ | {
            "NODE_NAME": "killed",
            "KUBECONFIG": str(self.folder / "kubeconfig"),
            "LD_LIBRARY_PATH": str(self.folder / "lib"),
        }
        arguments = ["-m", "node_agent", "--config", str(self.folder / "config.yaml")]
        with (self.folder / "log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(sys.executable, *arguments, env=environment, stderr=log)

    async def kill(self) -> None:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGKILL)
        await self.process.wait()

    def print_some(self, dice: random.Random) -> None:
        for _ in range(dice.randint(1, 4)):
            gpu, code = dice.randrange(GPUS), dice.choice(CODES)
            line = xid_line(self.state.get(gpu, "pci.bus_id") or "", code, f"number {dice.random()}")
            kernel_log.append(self.kmsg, [line])
            self.printed[f"xid/{code}", self.state.get(gpu, "uuid") or ""] += 1

    def known(self) -> Counter[tuple[str, str]]:
        """How often each Xid was seen on each GPU, as the agent's memory on disk has it."""
        try:
            memory = msgspec.json.decode((self.folder / "state/memory.json").read_bytes(), type=Memory)
        except FileNotFoundError:
            return Counter()
        return Counter(
            {(one.code, one.subject_id): one.count for one in memory.findings if one.code.startswith("xid/")}
        )

    async def settled(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if self.known() == self.printed:
                    return
                await asyncio.sleep(0.05)


NOWHERE = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "nowhere",
    "clusters": [{"name": "nowhere", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "nobody", "user": {}}],
    "contexts": [{"name": "nowhere", "context": {"cluster": "nowhere", "user": "nobody"}}],
}


async def test_fifty_kills_at_random_moments_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    seed = time.time_ns()
    print(f"seed {seed}")
    dice = random.Random(seed)  # noqa: S311 - chooses moments, guards nothing
    node = Node(tmp_path)
    try:
        for kill in range(1, KILLS + 1):
            await node.start()
            for _ in range(dice.randint(5, 100)):
                node.print_some(dice)
                await asyncio.sleep(0.02)
            if kill % REBOOT_EVERY == 0:  # what nobody has read is lost with the log of that boot
                await node.settled()
            await node.kill()
            if kill % REBOOT_EVERY == 0:
                node.reboot()
        await node.start()
        await node.settled()
        await asyncio.sleep(2)
        assert node.known() == node.printed
        await node.kill()
    except TimeoutError:
        missing, extra = node.printed - node.known(), node.known() - node.printed
        pytest.fail(f"lost {dict(missing)}, doubled {dict(extra)}; {(tmp_path / 'log').read_text()[-2000:]}")
    finally:
        await node.kill()
