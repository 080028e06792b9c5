"""Upgrade and uninstall by helm, with a gang that waits and a node that is sick. Last: it takes the chart away."""

import json
from typing import Any

import pytest

from testbed.demo import release
from testbed.demo.scenario import MANIFEST, Scenario
from testbed.say import silent
from testbed.state import State

pytestmark = pytest.mark.cluster


def objects(state: State, *what: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(release.kubectl(state, "get", *what, "-o", "json"))["items"]
    return found


def ca_bundle(state: State) -> str:
    hooks = objects(state, "mutatingwebhookconfigurations", "-l", "app.kubernetes.io/name=outrider")
    return str(hooks[0]["webhooks"][0]["clientConfig"]["caBundle"])


def test_an_upgrade_keeps_the_webhooks_certificate(installed: State) -> None:
    before = ca_bundle(installed)
    assert before
    release.install(installed, silent, "telemetry.logLevel=DEBUG")
    assert ca_bundle(installed) == before
    assert "logLevel: DEBUG" in release.kubectl(
        installed, "get", "configmap", "outrider-webhook", "-n", release.NAMESPACE, "-o", "yaml"
    )


def test_uninstalling_leaves_nothing_that_blocks(run: Scenario) -> None:
    state = run.state
    run.break_node("gpu-0")
    run.break_node("gpu-1")
    run.until("both nodes are tainted", lambda: tainted(state) == ["gpu-0", "gpu-1"], 60)
    release.kubectl(state, "apply", "-f", str(MANIFEST))  # 3 workers, 2 healthy nodes: the gang waits
    run.until("the gang waits", lambda: len([p for p in run.now.pods.values() if p.gated]) == 3, 60)

    release.uninstall(state)
    try:
        assert tainted(state) == []
        assert not any(c["type"] == "GPUHealthy" for n in objects(state, "nodes") for c in n["status"]["conditions"])
        pods = objects(state, "pods", "-n", run.namespace)
        assert pods
        assert not any(p["spec"].get("schedulingGates") for p in pods)
        left = {key for p in pods for key in p["metadata"].get("annotations", {}) if key.startswith("outrider.dev/")}
        assert left <= {"outrider.dev/traceparent", "outrider.dev/injected"}  # which do nothing
        for kind in (
            "mutatingwebhookconfigurations",
            "validatingadmissionpolicies",
            "clusterroles",
            "clusterrolebindings",
        ):
            assert not [o for o in objects(state, kind) if o["metadata"]["name"].startswith("outrider")]
        for kind in ("pods", "deployments", "daemonsets", "jobs", "secrets", "leases", "configmaps", "serviceaccounts"):
            named = [o["metadata"]["name"] for o in objects(state, kind, "-n", release.NAMESPACE)]
            assert not [name for name in named if "outrider" in name], kind
        events = objects(state, "events", "-n", run.namespace)
        assert len([e for e in events if e["reason"] == "OutriderUninstalled"]) == 3
        assert objects(state, "crd")  # kept: they hold the users' policies
        plain = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "after", "namespace": run.namespace}}
        spec = {
            "containers": [{"name": "c", "image": "outrider.dev/tools:1", "command": ["true"]}],
            "restartPolicy": "Never",
        }
        release.kubectl(state, "create", "-f", "-", stdin=json.dumps(plain | {"spec": spec}))
        wait = ("--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s")
        release.kubectl(state, "wait", "pod/after", "-n", run.namespace, *wait)
        release.kubectl(state, "delete", "pod", "after", "-n", run.namespace)
    finally:
        release.install(state, silent)  # for whoever comes next


def tainted(state: State) -> list[str]:
    nodes = objects(state, "nodes")
    keys = {n["metadata"]["name"]: [t["key"] for t in n["spec"].get("taints", [])] for n in nodes}
    return sorted(name for name, found in keys.items() if "outrider.dev/unhealthy" in found)
