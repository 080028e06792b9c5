"""Outrider's own processes in a testbed, seen from the host: their pids and their memory."""

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from testbed import cleanup
from testbed.state import State

COMPONENTS = ("node_agent", "scheduler_plugin", "webhook", "remediation")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def pids(state: State) -> dict[str, list[int]]:
    """Pids of the main processes by component (module name); children of the agent are not among them."""
    found: dict[str, list[int]] = defaultdict(list)
    for pid in _of_pods(state):
        component = _component(pid)
        if component:
            found[component].append(pid)
    return dict(found)


def megabytes(state: State) -> dict[str, float]:
    """Largest resident set by component, in MB (10^6 bytes); pages shared with other processes count in each."""
    return {name: round(max(map(_resident, found)) / 1e6, 1) for name, found in pids(state).items()}


def _of_pods(state: State) -> Iterator[int]:
    inside = f"{cleanup.cgroup(state.name)}/"
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if inside in (folder / "cgroup").read_text():
                yield int(folder.name)
        except OSError:  # ended meanwhile
            continue


def _component(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return words[2].decode() if words[1:2] == [b"-m"] and words[2].decode() in COMPONENTS else ""


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0
