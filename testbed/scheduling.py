"""Outrider's scheduler plugin and a kube-scheduler of its own, as processes beside a testbed: for tests and benches.

The demo installs the chart instead; this needs no real node.
"""

import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from outrider.api.names import SCHEDULER_NAME
from testbed import control_plane, processes
from testbed.build import program
from testbed.errors import TestbedError
from testbed.ports import free_port
from testbed.state import State

_PLUGIN: Final = "scheduler-plugin"
_SCHEDULER: Final = "outrider-kube-scheduler"
_NAMESPACE: Final = "outrider-system"
_MALLOC: Final = {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "131072"}  # as the chart sets them


class Scheduling:
    """Both processes. ``kill`` and ``start`` act on the plugin, whose configuration is ``settings`` and free ports.

    Files go to ``folder``. The testbed's default scheduler runs beside them, without extender. A second plugin gets a
    ``name`` of its own; ``kubeconfig`` is by which the plugin reaches the API server, the testbed's by default.
    """

    def __init__(
        self,
        state: State,
        folder: Path,
        settings: Mapping[str, object],
        *,
        name: str = "plugin-0",
        kubeconfig: Path | None = None,
    ) -> None:
        self._state, self._name = state, name
        self._process = f"{_PLUGIN}-{name}"
        self._extender, self._probes, self._secure = (free_port() for _ in range(3))
        self._kubeconfig = state.folder / "kubeconfig"
        self._own_kubeconfig = kubeconfig or self._kubeconfig
        self._config = folder / "plugin.yaml"
        self._config.write_text(json.dumps({"extenderPort": self._extender, "probePort": self._probes, **settings}))
        self._scheduler = folder / "kube-scheduler.yaml"
        self._scheduler.write_text(json.dumps(configuration(self._kubeconfig, self._extender)))

    def start(self) -> None:
        """Start the plugin and wait until its filter knows the cluster."""
        environment = {
            "KUBECONFIG": str(self._own_kubeconfig),
            "POD_NAME": self._name,
            "POD_NAMESPACE": _NAMESPACE,
        } | _MALLOC
        argv = [sys.executable, "-m", "scheduler_plugin", "--config", self._config]
        processes.spawn(self._state, self._process, argv, environment)
        _wait(self._ready, lambda: processes.require_running(self._state, self._process))

    def start_scheduler(self) -> None:
        """Start kube-scheduler."""
        argv = [program("kube-scheduler"), f"--config={self._scheduler}", f"--secure-port={self._secure}"]
        processes.spawn(self._state, _SCHEDULER, [*argv, "--bind-address=127.0.0.1"])

    def kill(self) -> None:
        """SIGKILL the plugin."""
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        processes.wait_gone([pid], 5.0)

    def kill_scheduler(self) -> None:
        """SIGKILL kube-scheduler."""
        pid = self.scheduler_pid
        os.kill(pid, signal.SIGKILL)
        processes.wait_gone([pid], 5.0)

    def pause(self) -> None:
        """Stop the plugin and its extender where they stand, in the middle of whatever they do."""
        os.killpg(self.pid, signal.SIGSTOP)

    def hang(self) -> None:
        """Stop the plugin's main process alone: its extender runs on, and nobody tells it anything."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused plugin go on, as if nothing had happened."""
        os.killpg(self.pid, signal.SIGCONT)

    @property
    def pid(self) -> int:
        """Process ID of the plugin."""
        return running(self._state, self._process)

    @property
    def extender_url(self) -> str:
        """Where the plugin answers kube-scheduler."""
        return f"http://127.0.0.1:{self._extender}"

    @property
    def scheduler_pid(self) -> int:
        """Process ID of kube-scheduler."""
        return running(self._state, _SCHEDULER)

    def stop(self) -> None:
        """Stop both."""
        for name in (_SCHEDULER, self._process):
            processes.stop(self._state, name)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._probes}/readyz", timeout=2):
                return True
        except (urllib.error.URLError, OSError):
            return False


def running(state: State, name: str) -> int:
    """Return the process ID of one of the testbed's programs. Raises TestbedError, with its last words, if it ended."""
    processes.require_running(state, name)
    pid = processes.find(state, name)
    if pid is None:
        raise TestbedError(f"{name} has ended")
    return pid


def prepare(state: State) -> None:
    """Create the release namespace, and PyTorchJob as a kind without a controller.

    Pods of a PyTorchJob keep running on simulated nodes; KWOK ends those of a batch Job within seconds.
    """
    api = control_plane.admin(state)
    api.ensure("/api/v1/namespaces", {"metadata": {"name": _NAMESPACE}})
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": free}}
    names = {"kind": "PyTorchJob", "listKind": "PyTorchJobList", "plural": "pytorchjobs", "singular": "pytorchjob"}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "pytorchjobs.kubeflow.org"},
        "spec": {"group": "kubeflow.org", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    api.ensure("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    _wait(lambda: bool(api.call("GET", "/apis/kubeflow.org/v1/pytorchjobs")[0] == 200), lambda: None)
    api.close()


def configuration(kubeconfig: Path, extender_port: int) -> dict[str, Any]:
    """Return what the chart gives to kube-scheduler, with the client's limits out of the way."""
    extender = {
        "urlPrefix": f"http://127.0.0.1:{extender_port}",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "weight": 20,
        "httpTimeout": "2s",
        "nodeCacheCapable": True,
        "ignorable": True,
    }
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 2000, "burst": 4000},
        "leaderElection": {"leaderElect": False},
        "percentageOfNodesToScore": 0,
        "profiles": [{"schedulerName": SCHEDULER_NAME}],
        "extenders": [extender],
    }


def _wait(done: Callable[[], bool], check: Callable[[], None], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        check()
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.05)
