"""Command line of the testbed: `python -m testbed`."""

import argparse
import os
import sys
from collections.abc import Callable
from typing import TypeAlias

from testbed import build, cluster, faults, node, operators, processes, services, state, versions
from testbed.build import program
from testbed.errors import TestbedError
from testbed.node_config import Node
from testbed.paths import ROOT
from testbed.say import to_stderr

_NODE_ACTIONS: dict[str, tuple[Callable[[Node], None], str]] = {
    "kill": (node.kill, "power off at once"),
    "stop": (node.stop, "shut down in order"),
    "start": (node.start, "boot"),
    "reboot": (node.reboot, "power off and boot, with a new boot id and healthy GPUs"),
    "partition": (node.partition, "pull the network cable"),
    "heal": (node.heal, "plug the cable in again"),
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return the exit code."""
    args = _parser().parse_args(arguments)
    try:
        return int(args.run(args) or 0)
    except TestbedError as error:
        print(f"testbed: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m testbed", description="A real Kubernetes on this machine.")
    parser.add_argument("--name", default="default", help="testbeds of different names run side by side")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    build_parser = _command(commands, "build", "build every program into the cache", _build)
    words = "build the controllers of training jobs instead: JobSet, LeaderWorkerSet, Kubeflow's, KubeRay"
    build_parser.add_argument("--operators", action="store_true", help=words)
    up = _command(commands, "up", "start a testbed, or bring one to this size", _up)
    up.add_argument("--nodes", type=_count, default=4 if ROOT else 0, help="real nodes, as root (default %(default)s)")
    up.add_argument("--kwok", type=_count, default=0, help="simulated nodes (default %(default)s)")
    up.add_argument("--profile", choices=("h100", "gb200"), default="h100", help="GPUs of the nodes")
    _command(commands, "down", "remove a testbed and everything it left", _down)
    _command(commands, "status", "show processes and nodes", _status)
    _command(commands, "env", 'print exports for a shell: eval "$(python -m testbed env)"', _env)
    kubectl = _command(commands, "kubectl", "run kubectl against the testbed", _kubectl)
    kubectl.add_argument("arguments", nargs=argparse.REMAINDER)
    words = "run controllers of training jobs on the testbed until it goes down: all, or those that are named"
    _command(commands, "operators", words, _operators).add_argument("names", nargs="*", metavar="NAME")
    inject = _command(commands, "inject", "put a fault into a node's GPUs", _inject)
    inject.add_argument("node", metavar="NODE")
    faults.add_arguments(inject)
    _add_node_command(commands)
    return parser


_Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 - argparse gives the type no public name


def _command(
    commands: _Commands, name: str, words: str, run: Callable[[argparse.Namespace], int | None]
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=words, description=words)
    parser.set_defaults(run=run)
    return parser


def _add_node_command(commands: _Commands) -> None:
    words = "; ".join(f"{name}: {what}" for name, (_, what) in _NODE_ACTIONS.items())
    parser = _command(commands, "node", words, _node)
    parser.add_argument("action", choices=_NODE_ACTIONS)
    parser.add_argument("node", metavar="NODE")


def _count(text: str) -> int:
    if text.isdecimal():
        return int(text)
    message = f"{text!r} is not a number of nodes"
    raise argparse.ArgumentTypeError(message)


def _build(args: argparse.Namespace) -> None:
    if args.operators:
        build.build_all(versions.OPERATORS, to_stderr)
    else:
        cluster.build_all(to_stderr)


def _up(args: argparse.Namespace) -> None:
    if not ROOT:
        to_stderr("not root: simulated nodes only; real nodes need root (sudo)")
    cluster.up(args.name, args.nodes, args.kwok, args.profile, to_stderr)
    to_stderr(f'ready: eval "$(python -m testbed --name {args.name} env)"')


def _down(args: argparse.Namespace) -> None:
    cluster.down(args.name, to_stderr)


def _status(args: argparse.Namespace) -> None:
    current = state.require(args.name)
    print(f"{current.name}: slot {current.slot}, {current.plan.api_url}, state in {current.folder}")
    for name in processes.names(current):
        pid = processes.find(current, name)
        print(f"  {name:26}{f'running, process {pid}' if pid else 'not running'}")
    print(f"  real nodes: {current.nodes}, simulated nodes: {current.kwok}, profile {current.profile}")


def _env(args: argparse.Namespace) -> None:
    current = state.require(args.name)
    tools = [build.folder(b) for b in (*versions.CONTROL_PLANE, *versions.TOOLS)]
    print(f"export KUBECONFIG={current.folder / 'kubeconfig'}")
    print(f"export OTEL_EXPORTER_OTLP_ENDPOINT={services.otlp_endpoint(current)}")
    print(f"export OUTRIDER_TESTBED_STATE={current.folder}")
    print(f'export PATH="{os.pathsep.join(map(str, tools))}:$PATH"')


def _kubectl(args: argparse.Namespace) -> None:
    current = state.require(args.name)
    kubectl = program("kubectl")
    os.execve(kubectl, ["kubectl", *args.arguments], os.environ | {"KUBECONFIG": str(current.folder / "kubeconfig")})  # noqa: S606 - no shell wanted: kubectl takes our place


def _operators(args: argparse.Namespace) -> None:
    names = args.names or [one.name for one in operators.CATALOGUE]
    operators.start(state.require(args.name), *names, say=to_stderr)


def _inject(args: argparse.Namespace) -> None:
    target = node.get(state.require(args.name), args.node)
    print(f"{target.name}: {faults.run(args, target.driver)}")


def _node(args: argparse.Namespace) -> None:
    target = node.get(state.require(args.name), args.node)
    with cluster.lock(args.name):
        _NODE_ACTIONS[args.action][0](target)
    print(f"{target.name}: {args.action} done")
