"""Outrider's webhook as a process beside a testbed, called by the API server as the chart says: for tests.

Its Service leads to the bridge, so it needs root.
"""

import contextlib
import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import yaml

from outrider.api.names import WEBHOOK_CONFIGURATION
from testbed import build, control_plane, processes, versions
from testbed.build import program
from testbed.errors import TestbedError
from testbed.operators import manifests
from testbed.ports import free_port
from testbed.say import silent
from testbed.state import State

ENABLED: Final = {"outrider.dev/enabled": "true"}
"""Labels of namespaces whose pods it changes."""

_PROCESS: Final = "webhook"
_NAMESPACE: Final = "outrider-system"
_CHART: Final = Path(__file__).parents[1] / "charts" / "outrider"
_TEMPLATES: Final = ("mutatingwebhook.yaml", "service.yaml")
_PATIENCE_S: Final = 60.0


def start(state: State, folder: Path) -> None:
    """Start the webhook, its files in ``folder``, and wait until the API server trusts it; it then refuses what fails.

    Raises:
        TestbedError: it ended, or a minute passed.
    """
    port, probes = free_port(), free_port()
    config = folder / "webhook.yaml"
    config.write_text(json.dumps({"port": port, "probePort": probes, "image": "registry.example.com/outrider:1"}))
    manifests.apply(state, _objects(state, port))
    environment = {"KUBECONFIG": str(state.folder / "kubeconfig"), "POD_NAMESPACE": _NAMESPACE}
    processes.spawn(state, _PROCESS, [sys.executable, "-m", "webhook", "--config", config], environment)
    deadline = time.monotonic() + _PATIENCE_S
    with contextlib.closing(control_plane.admin(state)) as api:
        path = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{WEBHOOK_CONFIGURATION}"
        while not api.get(path)["webhooks"][0]["clientConfig"].get("caBundle") or not _listens(state, port):
            processes.require_running(state, _PROCESS)
            if time.monotonic() > deadline:
                raise TestbedError(f"the webhook was not ready within {_PATIENCE_S:.0f} s")
            time.sleep(0.1)


def stop(state: State) -> None:
    """Stop the webhook and let the API server forget it."""
    with contextlib.closing(control_plane.admin(state)) as api:
        path = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{WEBHOOK_CONFIGURATION}"
        api.call("DELETE", path)
    processes.stop(state, _PROCESS)


def _objects(state: State, port: int) -> list[dict[str, Any]]:
    """What the chart installs for the API server's sake, its Service led to this machine."""
    build.build_all(versions.TOOLS, silent)
    shown = [part for file in _TEMPLATES for part in ("--show-only", f"templates/webhook/{file}")]
    chosen = ["--set", "webhook.failurePolicy=Fail,webhook.replicas=1", "--kube-version", f"v{versions.KUBERNETES}"]
    argv: list[str | Path] = [
        program("helm"),
        "template",
        "outrider",
        _CHART,
        "--namespace",
        _NAMESPACE,
        *shown,
        *chosen,
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TestbedError(f"helm template failed: {done.stderr.strip()}")
    objects: list[dict[str, Any]] = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}}]
    for one in filter(None, yaml.safe_load_all(done.stdout)):
        objects.extend(manifests.led_to(one, state.plan.host, port) if one["kind"] == "Service" else (one,))
    return objects


def _listens(state: State, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((state.plan.host, port)) == 0
