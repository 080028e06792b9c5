"""What a testbed knows about a failed test: objects, events, the last log lines of everything."""

import subprocess
from pathlib import Path

from outrider.api.names import RELEASE_NAMESPACE
from testbed import processes
from testbed.build import program
from testbed.state import State

_KINDS = "pods,jobs,gangplacements,remediations,gpunodes,nodes"


def sections(state: State, namespace: str | None) -> list[tuple[str, str]]:
    """Titles and texts for a test report."""
    found = [
        (f"logs/{name}.log", processes.tail(state, name))
        for name in processes.names(state)
        if processes.find(state, name) is None
    ]
    wanted = [f"--namespace={namespace}" if namespace else "--all-namespaces"]
    found.append(("objects", _kubectl(state, "get", *_known(state), *wanted, "-o", "wide")))
    found.append(("events", _kubectl(state, "get", "events", *wanted, "--sort-by=.lastTimestamp")))
    own = _kubectl(state, "get", "pods", "-n", RELEASE_NAMESPACE, "-o", "name", "--ignore-not-found").split()
    found += [(f"log of {pod}", _logs(state, pod)) for pod in own if pod.startswith("pod/")]
    return found


def _known(state: State) -> list[str]:
    """Kinds that the API server has: our own are there only while the chart is installed."""
    have = _kubectl(state, "api-resources", "-o", "name", "--cached").splitlines()
    plurals = {line.partition(".")[0] for line in have}
    return [",".join(kind for kind in _KINDS.split(",") if kind in plurals)]


def _logs(state: State, pod: str) -> str:
    return _kubectl(state, "logs", "-n", RELEASE_NAMESPACE, pod, "--all-containers", "--prefix", "--tail=40")


def _kubectl(state: State, *arguments: str) -> str:
    command: list[str | Path] = [
        program("kubectl"),
        f"--kubeconfig={state.folder / 'kubeconfig'}",
        "--request-timeout=5s",
        *arguments,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr
