"""A kube-scheduler with our extender and planner, on 48 simulated GPU nodes under three leaves."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import cluster, control_plane
from testbed.state import State
from tests.scheduler_plugin.real import Scheduling

NODES = 48


@pytest.fixture(scope="session")
def scheduling(
    control_plane: State, kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scheduling]:
    """Both processes, up for the whole run."""
    del kubeconfig  # asked for: it installs the custom resources
    state = cluster.up(control_plane.name, kwok_nodes=NODES)
    _prepare(state)
    ports = _free_port(), _free_port(), _free_port()
    both = Scheduling(state, tmp_path_factory.mktemp("scheduling"), ports, {"planSeconds": 5})
    try:
        both.start()
        both.start_scheduler()
        yield both
    finally:
        both.stop()


def _prepare(state: State) -> None:
    """Create the release namespace, and PyTorchJob as a kind without a controller."""
    api = control_plane.admin(state)
    api.ensure("/api/v1/namespaces", {"metadata": {"name": "outrider-system"}})
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": free}}
    names = {"kind": "PyTorchJob", "listKind": "PyTorchJobList", "plural": "pytorchjobs", "singular": "pytorchjob"}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "pytorchjobs.kubeflow.org", "annotations": {"api-approved.kubernetes.io": "none"}},
        "spec": {"group": "kubeflow.org", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    api.ensure("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    while api.call("GET", "/apis/kubeflow.org/v1/pytorchjobs")[0] != 200:
        time.sleep(0.1)
    api.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
