"""`outrider scan` on the machine itself: starts the node agent's own probes and judging, and shows what they say.

The command's package knows no component, so the agent's scan runs as a process of its own and answers in JSON.
"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from outrider.api.gpunode import GPUNodeStatus
from outrider.api.names import RELEASE_NAMESPACE
from outrider.cli.resources import COMPONENT_LABEL
from outrider.health.advice import next_step
from outrider.health.catalogue import Catalogue

_PROGRAM: Final = "node_agent.scan"
_NEEDED: Final = ("node_agent", "pynvml")  # the package outrider imports neither
_AGENTS_CONFIG: Final = Path("/etc/outrider/config.yaml")  # where the chart mounts it in the agent's pods
_POD: Final = (
    f"kubectl get pods -n {RELEASE_NAMESPACE} -o name -l {COMPONENT_LABEL}=node-agent "
    "--field-selector spec.nodeName=NODE"
)
_LACKING: Final = (
    "{} is not installed here: pip install '.[agent,cli]' in a checkout of Outrider, or look from the agent's pod:\n"
    f"  kubectl exec -n {RELEASE_NAMESPACE} $({_POD}) -- python3 -m outrider.cli.main scan"
)
_SECONDS: Final = 240.0  # more than the scan itself gives a driver that hangs


class ScanError(Exception):
    """The machine can't be looked at; the text says why and what to do."""


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def lacking(installed: Callable[[str], bool] = _installed) -> str:
    """Return what is not installed, with the ways out; empty where all is there that a scan needs."""
    module = next((module for module in _NEEDED if not installed(module)), "")
    return _LACKING.format(module) if module else ""


def command(config: Path | None, agents: Path = _AGENTS_CONFIG) -> list[str]:
    """Return the program that scans: with ``config``, else with the settings of the agent in whose pod this runs."""
    settings = config or (agents if os.access(agents, os.R_OK) else None)
    return [sys.executable, "-m", _PROGRAM, *(["--config", str(settings)] if settings else [])]


def look(config: Path | None) -> GPUNodeStatus:
    """Return the state of this machine. Raises ScanError."""
    if words := lacking():
        raise ScanError(words)
    try:
        done = subprocess.run(  # noqa: S603 - ours
            command(config), stdout=subprocess.PIPE, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ScanError(f"no answer within {_SECONDS:g} s: a program is stuck in the driver; try dmesg") from error
    if done.returncode:
        raise ScanError("the scan did not finish; what it said stands above")
    try:
        return msgspec.json.decode(done.stdout, type=GPUNodeStatus)
    except msgspec.DecodeError as error:
        raise ScanError(f"the scan's answer does not decode: {error}") from error


def spelled_out(value: object) -> object:
    """Return a state for programs: with all that stands for nothing, such as health Unknown or score 0, written too."""
    if isinstance(value, msgspec.Struct):
        return {one.encode_name: spelled_out(getattr(value, one.name)) for one in msgspec.structs.fields(value)}
    return [spelled_out(one) for one in value] if isinstance(value, list) else value


def tables(status: GPUNodeStatus, catalogue: Catalogue) -> RenderableType:
    """Return the state for people: one line for the machine, then its GPUs, then what was found."""
    head = Text(f"{status.health}, score {status.score}, verdict {status.verdict}: {status.message}")
    return Group(head, _gpus(status), _findings(status, catalogue)) if status.findings else Group(head, _gpus(status))


def _gpus(status: GPUNodeStatus) -> Table:
    table = _table("GPU", "UUID", "PCI", "MODEL", "HEALTH", "SCORE", "VERDICT")
    for gpu in status.gpus:
        table.add_row(str(gpu.index), gpu.uuid, gpu.pci_address, gpu.model, gpu.health, str(gpu.score), gpu.verdict)
    return table


def _findings(status: GPUNodeStatus, catalogue: Catalogue) -> Table:
    table = _table("CODE", "ON", "COUNT", "LAST SEEN", "VERDICT", "EVIDENCE", "NEXT")
    for finding in status.findings:
        where = finding.subject_id or finding.subject
        advice = next_step(finding.code, finding.verdict, finding.decided_by, catalogue)
        texts = (finding.code, where, str(finding.count), finding.last_seen, finding.verdict, finding.evidence, advice)
        table.add_row(*map(Text, texts))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
