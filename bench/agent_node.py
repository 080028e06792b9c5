"""The node agent on one real node of a testbed, as the chart installs it: what it costs, and what it has found."""

import json
import os
import time
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from testbed import kernel_log, node
from testbed.demo import own_processes
from testbed.demo.release import NAMESPACE, kubectl
from testbed.errors import TestbedError
from testbed.faults import Driver, clear
from testbed.node_config import Node
from testbed.state import State

GPUS = 8
_TICKS = os.sysconf("SC_CLK_TCK")


class Told(NamedTuple):
    """A finding as the agent's log has it: when it was judged (seconds since 1970), and what it is."""

    at: float
    code: str
    subject_id: str


class Usage(NamedTuple):
    """Processor time of all processes of the agent up to a moment, in seconds."""

    at: float
    cpu_s: float

    def percent_until(self, later: "Usage") -> float:
        """Return the share of one core between two moments, in percent."""
        return 100 * (later.cpu_s - self.cpu_s) / (later.at - self.at)


class AgentNode:
    """One node of the testbed and the agent's processes there."""

    def __init__(self, state: State, injections: int) -> None:
        self.state = state
        self.injections = injections
        self.node: Node = node.all_of(state)[0]
        self.driver = Driver(self.node.driver)
        self._sequence = 0
        self.heal()

    def pids(self) -> list[int]:
        """Return the agent and its child processes. Raises TestbedError where it does not run."""
        found = own_processes.pids(self.state).get("node_agent")
        if not found:
            raise TestbedError(f"no agent runs on {self.node.name}")
        return [found[0], *_children(found[0])]

    def rss_mb(self) -> float:
        """Return the resident memory of all its processes, shared pages counted in each, in MB (10^6 bytes)."""
        return sum(_memory_kb(pid, "Rss") for pid in self.pids()) * 1024 / 1e6

    def pss_mb(self) -> float:
        """Return the same with each shared page counted once over all that share it."""
        return sum(_memory_kb(pid, "Pss") for pid in self.pids()) * 1024 / 1e6

    def usage(self) -> Usage:
        """Return the processor time so far; of children that have ended too."""
        ticks = sum(sum(_ticks(pid, with_children=number == 0)) for number, pid in enumerate(self.pids()))
        return Usage(time.monotonic(), ticks / _TICKS)

    def told(self, since: float) -> list[Told]:
        """Return the findings that its log names since a moment (seconds since 1970), oldest first."""
        seconds = int(time.time() - since) + 2
        text = kubectl(self.state, "logs", "-n", NAMESPACE, "daemonset/outrider-node-agent", f"--since={seconds}s")
        lines = (json.loads(line) for line in text.splitlines() if line.startswith("{"))
        return [_told(line) for line in lines if line.get("msg") == "finding"]

    def uuid(self, gpu: int) -> str:
        """Return the UUID of a GPU."""
        return self.driver.state.get(gpu, "uuid") or ""

    def say(self, *messages: str) -> None:
        """Append lines to its kernel log, in one write. The testbed's own writer would read the whole log each time."""
        now_us = time.monotonic_ns() // 1000
        records = [f"4,{number},{now_us},-;{text}\n" for number, text in enumerate(messages, self._sequence)]
        self._sequence += len(records)
        with self.driver.kmsg.open("ab", buffering=0) as file:
            file.write("".join(records).encode())

    def heal(self) -> None:
        """Boot anew as far as the agent can see: healthy GPUs, another boot id, an empty kernel log."""
        clear(self.driver)
        (self.node.driver / "boot_id").write_text(f"bench-{time.time_ns()}\n")
        kernel_log.clear(self.driver.kmsg)
        self._sequence = 0


def _told(line: dict[str, Any]) -> Told:
    return Told(datetime.fromisoformat(line["ts"]).timestamp(), line["code"], line["subject_id"])


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _memory_kb(pid: int, kind: str) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{kind}:"))


def _ticks(pid: int, *, with_children: bool) -> list[int]:
    """User and system time; of the main process also those of children that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return [int(value) for value in fields[11 : 15 if with_children else 13]]
