"""The command `outrider`, also `kubectl outrider`. Needs a kubeconfig and nothing running in the cluster."""

import os
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from outrider.api.names import RELEASE_NAMESPACE
from outrider.cli import checks, evidence, inject, live_scan, placing, saved_log, tables
from outrider.cli.answering import MANAGER, Kubeconfig, Output, OutputOption, Release, run, show
from outrider.cli.explain import (
    CodeError,
    NoSuchCodeError,
    code_of,
    explain_code,
    explained_lines,
    known_code,
)
from outrider.cli.picture import Picture, fetch_picture
from outrider.cli.status import Status, status_of
from outrider.cli.terminal import terminal
from outrider.health.catalogue import load as load_catalogue
from outrider.health.overrides import OverrideError, apply_overrides
from outrider.kube.transport import connect

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    help="Outrider keeps GPU training running through bad hardware. Reads the cluster and changes nothing, but for "
    "ungate. Exit code 2: wrong arguments, or the cluster could not be asked.",
)
app.add_typer(inject.app, name="inject")


@app.command()
def status(output: OutputOption = Output.TABLE, kubeconfig: Kubeconfig = None) -> None:
    """Show GPU nodes with their health, training jobs with their steps, and remediation episodes."""
    answer = run(_status(kubeconfig))
    show(answer, tables.status_tables(answer), output, folded=True)


for _command in (placing.why, placing.plan, placing.snapshot, placing.ungate):
    app.command()(_command)


@app.command()
def check(
    output: OutputOption = Output.TABLE, release_namespace: Release = RELEASE_NAMESPACE, kubeconfig: Kubeconfig = None
) -> None:
    """Check that every part of Outrider is installed and works. Exit code 1 where something fails."""
    results = run(_check(release_namespace, kubeconfig))
    show(results, tables.check_lines(results), output)
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
    show(answer, explained_lines(answer), output, folded=True)


async def _status(kubeconfig: Path | None) -> Status:
    return status_of(await _picture(kubeconfig))


async def _picture(kubeconfig: Path | None) -> Picture:
    async with connect(MANAGER, kubeconfig=kubeconfig) as client:
        return await fetch_picture(client, time.time())


async def _check(release_namespace: str, kubeconfig: Path | None) -> list[checks.Check]:
    async with (
        connect(MANAGER, kubeconfig=kubeconfig) as client,
        connect(MANAGER, kubeconfig=kubeconfig, dry_run=True) as trying,
    ):
        return checks.judge(await evidence.gather(client, trying, release_namespace, time.time()))


def _scan_machine(config: Path | None, output: Output) -> None:
    try:
        state = live_scan.look(config)
    except live_scan.ScanError as error:
        typer.echo(f"outrider: {error}", err=True)
        raise typer.Exit(2) from None
    show(live_scan.spelled_out(state), live_scan.tables(state, load_catalogue()), output)
    raise typer.Exit(saved_log.exit_code([state.verdict]))


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
