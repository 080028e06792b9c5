"""What the commands share: their options, how they ask the cluster, and how they show an answer."""

import asyncio
import sys
from collections.abc import Coroutine
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec
import typer
from rich.console import RenderableType

from outrider.cli.terminal import terminal
from outrider.kube.errors import Forbidden, Invalid, KubeError, NoCredentials, NotFound, Unreachable
from outrider.words import one_line

T = TypeVar("T")
MANAGER: Final = "outrider-cli"
_WAYS_OUT: Final[tuple[tuple[type[KubeError], str], ...]] = (
    (NoCredentials, ""),
    (Unreachable, "is the cluster up, and is this its kubeconfig? Try: kubectl cluster-info"),
    (Forbidden, "ask for the rights to read this, or use another kubeconfig"),
    (
        NotFound,
        "are name and namespace (-n) right, and is Outrider installed? Try: kubectl get pods -A; outrider check",
    ),
    (Invalid, "is this cluster's Outrider newer or older than this command?"),
)


class Output(StrEnum):
    """Forms of the answer."""

    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="table for people, json for programs")]
Kubeconfig = Annotated[Path | None, typer.Option(help="kubeconfig; else $KUBECONFIG or ~/.kube/config")]
Release = Annotated[str, typer.Option(help="namespace that Outrider was installed into")]


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run the work; a failure becomes one line with the way out, and exit code 2."""
    try:
        return asyncio.run(work)
    except KubeError as error:
        way_out = next((words for kind, words in _WAYS_OUT if isinstance(error, kind)), "")
        typer.echo(f"outrider: {one_line(error)}" + (f"\n  {way_out}" if way_out else ""), err=True)
        raise typer.Exit(2) from None


def show(answer: object, table: RenderableType, output: Output, *, folded: bool = False) -> None:
    """Print the answer as JSON, or as a table; ``folded`` at words, where it holds long texts."""
    if output is Output.JSON:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode() + "\n")
    else:
        terminal().print(table, soft_wrap=not folded)
