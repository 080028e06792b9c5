"""`outrider scan` on the machine itself: starts the node agent's own probes and judging, and shows what they say.

The command's package knows no component, so the agent's scan runs as a process of its own and answers in JSON.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from outrider.api.gpunode import GPUNodeStatus

_PROGRAM: Final = "node_agent.scan"
_SECONDS: Final = 240.0  # more than the scan itself gives a driver that hangs


class ScanError(Exception):
    """The machine can't be looked at; the text says why and what to do."""


def look(config: Path | None) -> GPUNodeStatus:
    """Return the state of this machine. Raises ScanError."""
    if importlib.util.find_spec(_PROGRAM.partition(".")[0]) is None:
        raise ScanError(
            "the node agent is not installed here: pip install 'outrider[agent]', or run this in an agent's pod: "
            "kubectl exec -n outrider-system ds/outrider-node-agent -- python3 -m outrider.cli.main scan"
        )
    command = [sys.executable, "-m", _PROGRAM, *(["--config", str(config)] if config else [])]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, timeout=_SECONDS, check=False)  # noqa: S603 - ours
    except subprocess.TimeoutExpired as error:
        raise ScanError(f"no answer within {_SECONDS:g} s: a program is stuck in the driver; try dmesg") from error
    if done.returncode:
        raise ScanError("the scan did not finish; what it said stands above")
    try:
        return msgspec.json.decode(done.stdout, type=GPUNodeStatus)
    except msgspec.DecodeError as error:
        raise ScanError(f"the scan's answer does not decode: {error}") from error


def tables(status: GPUNodeStatus) -> RenderableType:
    """Return the state for people: one line for the machine, then its GPUs, then what was found."""
    head = Text(f"{status.health}, score {status.score}, verdict {status.verdict}: {status.message}")
    return Group(head, _gpus(status), _findings(status)) if status.findings else Group(head, _gpus(status))


def _gpus(status: GPUNodeStatus) -> Table:
    table = _table("GPU", "UUID", "PCI", "MODEL", "HEALTH", "SCORE", "VERDICT")
    for gpu in status.gpus:
        table.add_row(str(gpu.index), gpu.uuid, gpu.pci_address, gpu.model, gpu.health, str(gpu.score), gpu.verdict)
    return table


def _findings(status: GPUNodeStatus) -> Table:
    table = _table("CODE", "ON", "COUNT", "LAST SEEN", "VERDICT", "EVIDENCE")
    for finding in status.findings:
        where = finding.subject_id or finding.subject
        table.add_row(
            finding.code, where, str(finding.count), finding.last_seen, finding.verdict, Text(finding.evidence)
        )
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
