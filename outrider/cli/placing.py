"""The commands about placement: why a pod or job waits, where a job would land, and how to free pods by hand."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from outrider.api.landing import Landing
from outrider.api.names import RELEASE_NAMESPACE
from outrider.cli import offline, tables
from outrider.cli.answering import MANAGER, Kubeconfig, Output, OutputOption, Release, run, show
from outrider.cli.picture import fetch_picture
from outrider.cli.resources import NAMESPACES
from outrider.cli.targets import Target, target_of, uids_of
from outrider.cli.ungate import Outcome, outcome_lines
from outrider.cli.ungate import ungate as free
from outrider.cli.why import Explanation, explain
from outrider.cli.why_job import JobExplanation, explain_job
from outrider.kube.client import Client
from outrider.kube.errors import NotFound
from outrider.kube.kinds import PODS
from outrider.kube.transport import connect

_ONE: Final = "pod or job: NAME, or KIND/NAME such as job/train"
Config = Annotated[
    Path | None,
    typer.Option(help="settings of the planner; else those of the snapshot, or of the planner that is installed"),
]


def why(
    target: Annotated[str, typer.Argument(metavar="POD|JOB", help=_ONE)],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="its namespace")] = "default",
    output: OutputOption = Output.TABLE,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Say why a pod or a job waits, runs where it runs, or was moved, and what to do next."""
    answer = run(_why(_target(target), namespace, kubeconfig))
    table = tables.explanation_lines(answer) if isinstance(answer, Explanation) else tables.job_lines(answer)
    show(answer, table, output, folded=True)


def plan(
    file: Annotated[str, typer.Option("--file", "-f", help="manifest of the job or pods, - for standard input")],
    snapshot: Annotated[
        Path | None, typer.Option(help="answer from this saved cluster instead of the real one")
    ] = None,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="for objects that name none")] = "default",
    config: Config = None,
    output: OutputOption = Output.TABLE,
    release_namespace: Release = RELEASE_NAMESPACE,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Say where a job would land now, and why, without submitting it. Changes nothing.

    Takes what kubectl create -f takes: Job, JobSet, LeaderWorkerSet, PyTorchJob and its siblings, TrainJob with its
    runtime, MPIJob, RayCluster, RayJob, StatefulSet, Volcano's Job, and pods. Exit code 0: it fits. 1: it does not fit
    now. 2: the manifest, the snapshot or a setting can't be used, or the cluster could not be asked.
    """
    arguments = [
        "plan",
        "--file",
        file,
        "--namespace",
        namespace,
        *offline.options(kubeconfig, config, release_namespace),
    ]
    landing = msgspec.json.decode(
        _asked([*arguments, *(["--snapshot", str(snapshot)] if snapshot else [])]), type=Landing
    )
    show(landing, offline.landing_lines(landing), output, folded=True)
    raise typer.Exit(0 if landing.fits else 1)


def snapshot(
    out: Annotated[Path, typer.Option("--out", "-o", help="file to write; compressed where it ends in .gz")] = Path(
        "outrider-snapshot.json.gz"
    ),
    config: Config = None,
    release_namespace: Release = RELEASE_NAMESPACE,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Save the cluster as the planner sees it to one file, for outrider plan --snapshot, bug reports and tests.

    Nodes, their health, pods, jobs, placements and policies, in the fields that placement depends on: names, labels,
    requests and constraints are in it; environment, commands, images and secrets are not. Exit code 2: nothing was
    written.
    """
    arguments = ["snapshot", "--output", str(out), *offline.options(kubeconfig, config, release_namespace)]
    written = msgspec.json.decode(_asked(arguments), type=offline.Written)
    show(written, offline.written_line(written), Output.TABLE)


def ungate(
    target: Annotated[str, typer.Argument(metavar="[POD|JOB]", help=_ONE)] = "",
    every: Annotated[bool, typer.Option("--all", help="every pod that waits; with -n, of that namespace")] = False,
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="its namespace; else default")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would be done, and what is lost")] = False,
    output: OutputOption = Output.TABLE,
    release_namespace: Release = RELEASE_NAMESPACE,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Free pods that wait for a planner which is gone: the one command here that changes the cluster.

    Lifts Outrider's scheduling gate, and labels the pods outrider.dev/ignore=true so that an extender waits for no plan
    of theirs. Placement as a whole is lost. Needs the right to patch pods, and nothing of Outrider in the cluster.
    Exit code 0: all were freed. 1: none waits, or some could not be freed. 2: the cluster could not be asked.
    """
    if bool(target) == every:
        raise typer.BadParameter("name one pod or job, or give --all for every pod that waits", param_hint="POD|JOB")
    answer = run(
        _ungate(_target(target) if target else None, namespace, release_namespace, kubeconfig, dry_run=dry_run)
    )
    show(answer, outcome_lines(answer), output)
    raise typer.Exit(0 if answer.done else 1)


def _target(text: str) -> Target:
    try:
        return target_of(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="POD|JOB") from None


def _asked(arguments: list[str]) -> bytes:
    try:
        return offline.ask(arguments)
    except offline.OfflineError as error:
        if str(error):
            typer.echo(f"outrider: {error}", err=True)
        raise typer.Exit(2) from None


async def _why(target: Target, namespace: str, kubeconfig: Path | None) -> Explanation | JobExplanation:
    async with connect(MANAGER, kubeconfig=kubeconfig) as client:
        if target.may_be_pod:
            with suppress(NotFound):
                return await _why_pod(client, target.name, namespace)
        picture = await fetch_picture(client, time.time())
        uids = uids_of(target, namespace, picture.pods, picture.placements)
        if not uids:
            raise NotFound(f"no {_sought(target, namespace)}")
        return explain_job(uids[0], namespace, target.name, picture)


def _sought(target: Target, namespace: str) -> str:
    """Return in words what was looked for: a job's own object is not read, only its pods are."""
    as_job = f"{target} with pods that Outrider manages in namespace {namespace}"
    if target.kind:
        return f"{target} in namespace {namespace}" if target.may_be_pod else as_job
    return f"pod {target}, and no job {as_job}"


async def _why_pod(client: Client, name: str, namespace: str) -> Explanation:
    pod = await client.get(PODS, name, namespace)
    home = await client.get(NAMESPACES, namespace)
    return explain(pod, home, await fetch_picture(client, time.time()))


async def _ungate(
    target: Target | None, namespace: str | None, release_namespace: str, kubeconfig: Path | None, *, dry_run: bool
) -> Outcome:
    where = namespace or ("" if target is None else "default")
    async with connect(MANAGER, kubeconfig=kubeconfig) as client:
        return await free(client, target, where, dry_run=dry_run, release_namespace=release_namespace, now=time.time())
