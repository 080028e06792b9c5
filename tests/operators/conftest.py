"""One testbed for all: simulated nodes, our webhook and planner, a kube-scheduler, and every job controller."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import admission, cluster, operators, versions
from testbed.build import build_all, program
from testbed.control_plane import admin
from testbed.operators.catalogue import CATALOGUE
from testbed.paths import ROOT
from testbed.say import to_stderr
from testbed.scheduling import Scheduling, prepare
from testbed.state import State
from tests.operators.site import Site

NODES = 64
_CRDS = Path(__file__).parents[2] / "charts" / "outrider" / "files" / "crds"


@pytest.fixture(name="control_plane", scope="session")
def _control_plane(fresh_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[State]:
    """A testbed of its own: elsewhere PyTorchJob is a kind without a controller."""
    if not ROOT:
        pytest.skip("each controller has a network namespace, which needs root")
    build_all(versions.OPERATORS, to_stderr)
    with cluster.temporary(f"{fresh_name}-ops", kwok_nodes=NODES) as state:
        _install_crds(state)
        operators.start(state, *(one.name for one in CATALOGUE), say=to_stderr)
        prepare(state)
        both = Scheduling(state, tmp_path_factory.mktemp("scheduling"), {"planSeconds": 5})
        both.start()
        both.start_scheduler()
        admission.start(state, tmp_path_factory.mktemp("admission"))
        yield state


def _install_crds(state: State) -> None:
    kubectl = [program("kubectl"), f"--kubeconfig={state.folder / 'kubeconfig'}"]
    subprocess.run([*kubectl, "apply", "--server-side", "-f", _CRDS], check=True)
    subprocess.run([*kubectl, "wait", "--for=condition=Established", "--timeout=20s", "-f", _CRDS], check=True)


@pytest.fixture
def site(control_plane: State, namespace: str) -> Iterator[Site]:
    """A namespace whose pods our webhook changes, on nodes that nobody else uses."""
    with contextlib.closing(admin(control_plane)) as api:
        api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": admission.ENABLED}})
        here = Site(api, namespace)
        here.settle()
        yield here
        here.clear()
