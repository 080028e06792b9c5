"""`outrider plan` and `outrider snapshot`: start the planner's own code, and show what it says.

The command's package knows no component, so the scheduler plugin's part runs as a process of its own, which answers
in JSON.
"""

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from outrider.api.landing import Landing, LandingGang
from outrider.api.names import RELEASE_NAMESPACE
from outrider.words import listed, plural

_PROGRAM: Final = "scheduler_plugin.offline"
_LACKING: Final = (
    "scheduler_plugin is not installed here: pip install '.[cli]' in a checkout of Outrider, or ask from its own pod:\n"
    f"  kubectl exec -i -n {RELEASE_NAMESPACE} deploy/outrider-scheduler -c extender -- "
    "python3 -m outrider.cli.main plan -f - < job.yaml"
)
_BAD: Final = 2
_RANKS_SHOWN: Final = 64


class OfflineError(Exception):
    """There is no answer; the text, where there is one, says why and what to do. Else it stands on stderr already."""


class Written(msgspec.Struct, frozen=True):
    """A snapshot that was written: the file, and the objects in it by kind."""

    file: str
    objects: dict[str, int]


def ask(arguments: Sequence[str]) -> bytes:
    """Return what the planner's code answers on its standard output. Raises OfflineError."""
    if importlib.util.find_spec("scheduler_plugin") is None:
        raise OfflineError(_LACKING)
    done = subprocess.run(  # noqa: S603 - ours
        [sys.executable, "-m", _PROGRAM, *arguments], stdout=subprocess.PIPE, check=False
    )
    if done.returncode not in (0, 1) or not done.stdout:
        raise OfflineError("" if done.returncode == _BAD else "the planner's code failed; what it said stands above")
    return done.stdout


def options(kubeconfig: Path | None, config: Path | None, release_namespace: str) -> list[str]:
    """Return the arguments that both commands share."""
    named = {"--kubeconfig": kubeconfig, "--config": config}
    given = [part for name, path in named.items() if path for part in (name, str(path))]
    return [*given, "--release-namespace", release_namespace]


def landing_lines(landing: Landing) -> RenderableType:
    """Return where the job would land, for people."""
    verdict = "it fits" if landing.fits else "it does not fit now"
    if not landing.gangs:
        verdict = "nothing here is for Outrider to place"
    head = Text(f"As of {landing.taken}: {verdict}", style="bold")
    notes = [Text(f"Note: {note}") for note in landing.notes]
    return Group(head, *(line for gang in landing.gangs for line in _gang(gang)), *notes)


def _gang(gang: LandingGang) -> list[RenderableType]:
    lines: list[RenderableType] = ["", Text(f"{gang.name}, {plural(gang.pods, 'pod')}: {gang.message}")]
    if gang.ranks:
        lines.append(_ranks(gang))
    if len(gang.ranks) > _RANKS_SHOWN:
        lines.append(Text(f"and {len(gang.ranks) - _RANKS_SHOWN} more: -o json lists all"))
    return lines + [Text(f"not {one.domain}: {one.reason}") for one in gang.rejected[:3]]


def _ranks(gang: LandingGang) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("RANK", "POD", "NODE", "GPUS"):
        table.add_column(column, overflow="fold")
    for rank in gang.ranks[:_RANKS_SHOWN]:
        table.add_row(str(rank.rank), rank.pod, rank.node, str(rank.gpus))
    return table


def written_line(written: Written) -> Text:
    """Return what was saved, for people."""
    counts = listed([f"{count} {kind}" for kind, count in sorted(written.objects.items())], 12)
    return Text(f"{written.file}: {counts}. It holds no environment, command or image of any pod.")
