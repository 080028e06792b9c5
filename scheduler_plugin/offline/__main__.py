"""``python -m scheduler_plugin.offline plan|snapshot``, which `outrider plan` and `outrider snapshot` start.

Prints its answer as JSON or writes the file asked for; what went wrong goes to stderr as one line with the way out.
Exit code 0: done, and the job fits; 1: it does not fit now; 2: a bad manifest, snapshot or setting, or no cluster.
"""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Final

import msgspec

from outrider.config import ConfigError, load
from outrider.kube.errors import KubeError
from outrider.workloads import BadQuantity
from scheduler_plugin.config import Config
from scheduler_plugin.offline.answer import answer
from scheduler_plugin.offline.documents import BadManifest
from scheduler_plugin.offline.pods import hypothesis
from scheduler_plugin.offline.saved import BadSnapshot, Saved, decode, encode
from scheduler_plugin.offline.take import take

_BAD: Final = 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m scheduler_plugin.offline", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    plan = commands.add_parser("plan", help="say where a manifest's pods would land")
    plan.add_argument("--file", required=True, help="manifest, - for standard input")
    plan.add_argument("--snapshot", type=Path, help="saved cluster; without it the cluster is asked")
    plan.add_argument("--namespace", default="default", help="for objects that name none")
    snapshot = commands.add_parser("snapshot", help="save the cluster as the planner sees it")
    snapshot.add_argument("--output", type=Path, required=True, help="file; compressed where it ends in .gz")
    for command in (plan, snapshot):
        command.add_argument("--config", type=Path, help="settings of the planner, else those of the cluster's own")
        command.add_argument("--kubeconfig", type=Path)
        command.add_argument("--release-namespace", required=True)
    return parser


def _saved(arguments: argparse.Namespace) -> Saved:
    settings = load(Config, arguments.config) if arguments.config else None
    if getattr(arguments, "snapshot", None) is None:
        return asyncio.run(take(arguments.kubeconfig, arguments.release_namespace, settings))
    saved = decode(_bytes(arguments.snapshot))
    return saved if settings is None else msgspec.structs.replace(saved, settings=settings)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadSnapshot(f"{path}: {error.strerror}") from None


def _manifest(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text("utf-8")
    except OSError as error:
        raise BadManifest(f"{name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadManifest(f"{name}: is no text: give a manifest in YAML or JSON") from None


def _plan(arguments: argparse.Namespace) -> int:
    text = _manifest(arguments.file)
    saved = _saved(arguments)
    landing = answer(saved, hypothesis(text, arguments.namespace, saved.now))
    sys.stdout.write(msgspec.json.encode(landing).decode() + "\n")
    return 0 if landing.fits else 1


def _snapshot(arguments: argparse.Namespace) -> int:
    saved = _saved(arguments)
    try:
        arguments.output.write_bytes(encode(saved, packed=arguments.output.suffix == ".gz"))
    except OSError as error:
        raise BadSnapshot(f"{arguments.output}: can't be written: {error.strerror}") from None
    counts = {kind: len(objects) for kind, objects in saved.objects.items() if objects}
    sys.stdout.write(msgspec.json.encode({"file": str(arguments.output), "objects": counts}).decode() + "\n")
    return 0


def main() -> int:
    """Do what the command line asks for."""
    arguments = _parser().parse_args()
    try:
        return _plan(arguments) if arguments.command == "plan" else _snapshot(arguments)
    except (BadManifest, BadQuantity, BadSnapshot, ConfigError, KubeError) as error:
        sys.stderr.write(f"outrider: {' '.join(str(error).split())}\n")
        return _BAD


if __name__ == "__main__":
    sys.exit(main())
