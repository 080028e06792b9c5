"""The command `outrider`, also `kubectl outrider`. Needs a kubeconfig and nothing running in the cluster."""

import asyncio
import os
import sys
import time
from collections.abc import Coroutine
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec
import typer
from rich.console import RenderableType

from outrider.api.names import RELEASE_NAMESPACE
from outrider.cli import checks, evidence, inject, live_scan, saved_log, tables
from outrider.cli.explain import (
    CodeError,
    Explained,
    NoSuchCodeError,
    code_of,
    explain_code,
    explained_lines,
    known_code,
)
from outrider.cli.picture import Picture, fetch_picture
from outrider.cli.resources import NAMESPACES
from outrider.cli.status import Status, status_of
from outrider.cli.terminal import terminal
from outrider.cli.why import Explanation, explain
from outrider.health.catalogue import load as load_catalogue
from outrider.health.overrides import OverrideError, apply_overrides
from outrider.kube.errors import Forbidden, Invalid, KubeError, NoCredentials, NotFound, Unreachable
from outrider.kube.kinds import PODS
from outrider.kube.transport import connect

T = TypeVar("T")
_MANAGER: Final = "outrider-cli"
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

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    help="Outrider keeps GPU training running through bad hardware. Reads the cluster and changes nothing. "
    "Exit code 2: wrong arguments, or the cluster could not be asked.",
)
app.add_typer(inject.app, name="inject")


class Output(StrEnum):
    """Forms of the answer."""

    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="table for people, json for programs")]
Kubeconfig = Annotated[Path | None, typer.Option(help="kubeconfig; else $KUBECONFIG or ~/.kube/config")]
Release = Annotated[str, typer.Option(help="namespace that Outrider was installed into")]


@app.command()
def status(output: OutputOption = Output.TABLE, kubeconfig: Kubeconfig = None) -> None:
    """Show GPU nodes with their health, training jobs with their steps, and remediation episodes."""
    answer = _run(_status(kubeconfig))
    _show(answer, tables.status_tables(answer), output)


@app.command()
def why(
    pod: Annotated[str, typer.Argument(help="name of the pod")],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="namespace of the pod")] = "default",
    output: OutputOption = Output.TABLE,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Say why a pod waits, runs where it runs, or was moved, and what to do next."""
    if "/" in pod:
        raise typer.BadParameter(f"'{pod}': name the pod alone, and its namespace with -n", param_hint="POD")
    answer = _run(_why(pod, namespace, kubeconfig))
    _show(answer, tables.explanation_lines(answer), output)


@app.command()
def check(
    output: OutputOption = Output.TABLE, release_namespace: Release = RELEASE_NAMESPACE, kubeconfig: Kubeconfig = None
) -> None:
    """Check that every part of Outrider is installed and works. Exit code 1 where something fails."""
    results = _run(_check(release_namespace, kubeconfig))
    _show(results, tables.check_lines(results), output)
    raise typer.Exit(0 if checks.healthy(results) else 1)


@app.command()
def scan(
    kernel_log: Annotated[
        list[Path] | None,
        typer.Option(
            "--kernel-log",
            help="saved log, - for standard input; can be given again. From dmesg with any options, journalctl (also "
            "-o json), syslog or /dev/kmsg; lines of several hosts are told apart by the names in them",
        ),
    ] = None,
    node: Annotated[str, typer.Option(help="name for the node of a log without host names")] = "",
    config: Annotated[
        Path | None,
        typer.Option(help="settings of the node agent, for a look at this machine; else /etc/outrider/config.yaml"),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Judge this machine, or saved kernel logs, as the node agent would; no cluster is needed.

    With -o json, a saved log gives one object a line for each finding.

    Exit code 0: nothing. 1: something to watch, to restart or to keep new work from, or lines that could not be read.
    3: hardware that asks for a reset, a reboot or a replacement. 2: wrong arguments, or nothing could be read.

    The journal, syslog, dmesg -r or -x and /dev/kmsg tell who wrote a line, and only the kernel's count. Other forms do
    not: there a line counts where it begins as a driver's line does. Times without a zone are taken as local ones.
    """
    if kernel_log and config:
        raise typer.BadParameter("is for a look at this machine: saved logs are judged without", param_hint="--config")
    if node and not kernel_log:
        raise typer.BadParameter("names the node of a saved log: give one with --kernel-log", param_hint="--node")
    if kernel_log:
        raise typer.Exit(saved_log.run(kernel_log, node, as_json=output is Output.JSON, console=terminal()))
    _scan_machine(config, output)


@app.command(name="explain")
def explain_command(
    code: Annotated[
        list[str],
        typer.Argument(
            help="xid 119 (also 119, xid-119), sxid 20034, nvlink/inactive; "
            'xid 74 "LINE" or a line of the kernel log alone is read too'
        ),
    ],
    driver: Annotated[str, typer.Option(help="driver version such as 580.65.06, to read NVLink5 lines by")] = "",
    overrides: Annotated[Path | None, typer.Option(help="file with overrides, checked and applied")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say what the fault catalogue knows about a code, and what is done about it. Needs no cluster.

    Exit code 1: there is no such code. An Xid that is not listed is explained too: unknown codes are only shown.
    """
    try:
        catalogue = load_catalogue() if overrides is None else apply_overrides(load_catalogue(), overrides.read_text())
        name, line = code_of(code, driver)
        name = known_code(catalogue, name)
    except NoSuchCodeError as error:
        typer.echo(f"outrider: {error}\n  the fault reference lists all: docs/reference/faults.md", err=True)
        raise typer.Exit(1) from None
    except CodeError as error:
        raise typer.BadParameter(str(error), param_hint="CODE") from None
    except (OSError, UnicodeDecodeError, OverrideError) as error:
        typer.echo(f"outrider: {overrides}: {error}", err=True)
        raise typer.Exit(2) from None
    answer = explain_code(catalogue, name, line)
    _show(answer, explained_lines(answer), output)


async def _status(kubeconfig: Path | None) -> Status:
    return status_of(await _picture(kubeconfig))


async def _picture(kubeconfig: Path | None) -> Picture:
    async with connect(_MANAGER, kubeconfig=kubeconfig) as client:
        return await fetch_picture(client, time.time())


async def _why(name: str, namespace: str, kubeconfig: Path | None) -> Explanation:
    async with connect(_MANAGER, kubeconfig=kubeconfig) as client:
        pod = await client.get(PODS, name, namespace)
        home = await client.get(NAMESPACES, namespace)
        return explain(pod, home, await fetch_picture(client, time.time()))


async def _check(release_namespace: str, kubeconfig: Path | None) -> list[checks.Check]:
    async with (
        connect(_MANAGER, kubeconfig=kubeconfig) as client,
        connect(_MANAGER, kubeconfig=kubeconfig, dry_run=True) as trying,
    ):
        return checks.judge(await evidence.gather(client, trying, release_namespace, time.time()))


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run the work; a failure becomes one line with the way out, and exit code 2."""
    try:
        return asyncio.run(work)
    except KubeError as error:
        way_out = next((words for kind, words in _WAYS_OUT if isinstance(error, kind)), "")
        typer.echo(f"outrider: {evidence.one_line(error)}" + (f"\n  {way_out}" if way_out else ""), err=True)
        raise typer.Exit(2) from None


def _scan_machine(config: Path | None, output: Output) -> None:
    try:
        state = live_scan.look(config)
    except live_scan.ScanError as error:
        typer.echo(f"outrider: {error}", err=True)
        raise typer.Exit(2) from None
    _show(live_scan.spelled_out(state), live_scan.tables(state, load_catalogue()), output)
    raise typer.Exit(saved_log.exit_code([state.verdict]))


def _show(answer: object, table: RenderableType, output: Output) -> None:
    if output is Output.JSON:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode() + "\n")
    else:
        terminal().print(table, soft_wrap=not isinstance(answer, Status | Explanation | Explained))


def main() -> None:
    """Run the command. An answer that could not be printed is no answer: exit code 2."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - closed by whoever started the command
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is left to flush at the end
        if not isinstance(error, BrokenPipeError):  # whoever reads it has seen enough, as head has
            sys.stderr.write(f"outrider: the answer could not be printed: {error.strerror or error}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
