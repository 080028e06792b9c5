"""What the chart renders, whatever the values."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from node_agent.config import Config
from outrider.config import load
from testbed.demo.release import CHART, NAMESPACE

Render = Callable[..., list[dict[str, Any]]]
TEMPLATES = sorted((CHART / "templates").rglob("*.yaml"))
ROLE_FILES = [path for path in TEMPLATES if "rules:" in path.read_text() and "rbac.authorization" in path.read_text()]
VALUE_SETS: list[list[str]] = [
    [],
    ["--values", str(CHART.parents[1] / "testbed/demo/values.yaml")],
    ["--set", "webhook.enabled=false,nodeAgent.enabled=false,hooks.enabled=false,crds.enabled=false"],
    ["--set", "remediation.mode=enforce,scheduler.replicas=1,webhook.replicas=1,remediation.replicas=1"],
    ["--set", "scheduler.attach.enabled=true,scheduler.attach.clusterIP=10.96.0.9,scheduler.attach.tls.secretName=tls"],
    ["--set", "nodeAgent.runtimeClassName=nvidia,imagePullSecrets[0].name=mine,telemetry.otlpEndpoint=http://c:4318"],
]


def pods_of(objects: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for item in objects:
        if template := item.get("spec", {}).get("template"):
            yield item["metadata"]["name"], template["spec"]


@pytest.mark.parametrize("values", VALUE_SETS, ids=["default", "testbed", "least", "single", "attached", "extras"])
def test_every_container_but_the_agents_satisfies_restricted_pod_security(render: Render, values: list[str]) -> None:
    checked = 0
    for name, spec in pods_of(render(*values)):
        if name == "outrider-node-agent":
            continue
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] == 65532
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not any("hostPath" in volume for volume in spec.get("volumes", []))
        for container in spec["containers"]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["readOnlyRootFilesystem"] is True
            assert security["capabilities"] == {"drop": ["ALL"]}
            checked += 1
    assert checked


@pytest.mark.parametrize("values", VALUE_SETS, ids=["default", "testbed", "least", "single", "attached", "extras"])
def test_every_container_has_requests_and_a_memory_limit(render: Render, values: list[str]) -> None:
    for _, spec in pods_of(render(*values)):
        for container in spec["containers"]:
            assert set(container["resources"]["requests"]) == {"cpu", "memory"}
            assert "memory" in container["resources"]["limits"]


def test_every_long_running_container_has_all_three_probes(render: Render) -> None:
    for name, spec in pods_of(render()):
        if name != "outrider-uninstall":
            for container in spec["containers"]:
                assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container), container["name"]


def test_the_agent_shares_no_namespace_with_its_host_and_writes_no_root_filesystem(render: Render) -> None:
    spec = dict(pods_of(render()))["outrider-node-agent"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert spec["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True


@pytest.mark.parametrize("values", VALUE_SETS, ids=["default", "testbed", "least", "single", "attached", "extras"])
def test_no_rule_holds_a_wildcard_and_no_role_of_ours_reads_secrets_at_large(render: Render, values: list[str]) -> None:
    rules = [rule for item in render(*values) if item["kind"] in ("Role", "ClusterRole") for rule in item["rules"]]
    assert rules
    for rule in rules:
        assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
        if "secrets" in rule["resources"]:
            assert rule["verbs"] == ["create"] or rule["resourceNames"] == ["outrider-webhook-tls"]


@pytest.mark.parametrize("path", ROLE_FILES, ids=lambda path: path.parent.name)
def test_every_rbac_rule_is_preceded_by_its_reason(path: Any) -> None:
    lines = path.read_text().splitlines()
    rules = [number for number, line in enumerate(lines) if re.match(r"  - (\{apiGroups|apiGroups)", line)]
    assert rules
    for number in rules:
        assert lines[number - 1].strip().startswith("# "), f"{path}:{number + 1}: {lines[number]}"


def test_modes_other_than_enforce_have_no_right_to_move_anything(render: Render) -> None:
    def writes(*values: str) -> set[str]:
        role = next(
            i for i in render(*values) if i["kind"] == "ClusterRole" and i["metadata"]["name"] == "outrider-remediation"
        )
        return {r for rule in role["rules"] if {"create", "patch"} & set(rule["verbs"]) for r in rule["resources"]}

    assert not {"pods", "pods/eviction", "nodes"} & writes()
    assert {"pods", "pods/eviction"} <= writes("--set", "remediation.mode=enforce")


def test_kube_scheduler_is_of_the_clusters_version_without_the_distributions_suffix(
    run_helm: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    for version, tag in {"v1.37.2-eks-1a2b": "v1.37.2", "v1.36.0+k3s1": "v1.36.0"}.items():
        done = run_helm("template", "outrider", str(CHART), "--kube-version", version)
        assert f"registry.k8s.io/kube-scheduler:{tag}\n" in done.stdout


def test_the_webhook_fails_open_and_never_sees_our_own_or_the_systems_namespace(render: Render) -> None:
    hook = next(i for i in render() if i["kind"] == "MutatingWebhookConfiguration")["webhooks"][0]
    assert (hook["failurePolicy"], hook["timeoutSeconds"], hook["sideEffects"]) == ("Ignore", 2, "None")
    excluded = next(e for e in hook["namespaceSelector"]["matchExpressions"] if e["operator"] == "NotIn")
    assert {"kube-system", NAMESPACE} <= set(excluded["values"])


def test_the_webhooks_ca_is_never_set_by_the_chart_so_that_no_upgrade_can_wipe_it(render: Render) -> None:
    hook = next(i for i in render() if i["kind"] == "MutatingWebhookConfiguration")["webhooks"][0]
    assert "caBundle" not in hook["clientConfig"]


def test_custom_resource_definitions_are_upgraded_with_the_release_and_kept_at_uninstall(render: Render) -> None:
    crds = [i for i in render() if i["kind"] == "CustomResourceDefinition"]
    assert {c["spec"]["names"]["kind"] for c in crds} == {"GPUNode", "GangPlacement", "Remediation", "TrainingPolicy"}
    assert all(c["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep" for c in crds)
    gone = [i for i in render("--set", "crds.keep=false") if i["kind"] == "CustomResourceDefinition"]
    assert not any("helm.sh/resource-policy" in c["metadata"].get("annotations", {}) for c in gone)


@pytest.mark.parametrize(
    ("setting", "field"),
    [
        ("remediation.mode=Enforce", "mode"),
        ("webhook.failurePolicy=ignore", "failurePolicy"),
        ("nodeAgent.kernelLogPath=dev/kmsg", "kernelLogPath"),
        ("nodeAgent.kernelLog=/dev/kmsg", "kernelLog"),
        ("scheduler.replicas=0", "replicas"),
        ("scheduler.attach.clusterIP=extender.svc", "clusterIP"),
        ("scheduler.attach.tls.clientCertificates=true", "tls/secretName"),
        ("scheduler.domainSpares[0].level=leaf", "missing property 'nodes'"),
        ("scheduler.gpuResources={nvidia.com/*gpu}", "gpuResources"),
        ("scheduler.gpuResources={*}", "gpuResources"),
        ("typo=1", "typo"),
    ],
)
def test_a_wrong_value_is_refused_and_named(
    run_helm: Callable[..., subprocess.CompletedProcess[str]], setting: str, field: str
) -> None:
    done = run_helm("template", "outrider", str(CHART), "--set", setting, "--kube-version", "v1.37.2")
    assert done.returncode
    assert field in done.stderr


def paths(values: Any, prefix: str = "") -> Iterator[str]:
    for key, value in values.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and value and key not in ("nodeSelector", "resources", "securityContext"):
            yield from paths(value, f"{path}.")
        else:
            yield path


def test_every_value_is_used_by_a_template_and_every_use_is_declared() -> None:
    declared = set(paths(yaml.safe_load((CHART / "values.yaml").read_text())))
    text = "\n".join(
        p.read_text() for p in [*TEMPLATES, CHART / "templates/_helpers.tpl", CHART / "templates/NOTES.txt"]
    )
    for alias, path in {"agent": "nodeAgent", "scheduler": "scheduler", "webhook": "webhook", "image": "image"}.items():
        text = re.sub(rf"\${alias}\.", f".Values.{path}.", text)
    text = re.sub(
        r"\$values\.(\w+)",
        lambda m: " ".join(f".Values.{c}.{m[1]}" for c in ("scheduler", "webhook", "remediation")),
        text,
    )
    text = text.replace("$remediation.", ".Values.remediation.")
    used = set(re.findall(r"\.Values\.([A-Za-z.]+[A-Za-z])", text)) - {
        "scheduler",
        "webhook",
        "remediation",
        "nodeAgent",
        "image",
    }
    assert declared - used == set()
    assert {
        u for u in used if not any(u == d or d.startswith(f"{u}.") or u.startswith(f"{d}.") for d in declared)
    } == set()


def test_every_value_has_a_comment_and_a_place_in_the_schema() -> None:
    lines = (CHART / "values.yaml").read_text().splitlines()
    schema = json.loads((CHART / "values.schema.json").read_text())
    for path in paths(yaml.safe_load((CHART / "values.yaml").read_text())):
        node = schema
        for part in path.split("."):
            node = node["properties"][part]
        key = path.rsplit(".", 1)[-1]
        at = [n for n, line in enumerate(lines) if re.match(rf"\s*{re.escape(key)}:", line)]
        assert any(lines[n - 1].strip().startswith("#") for n in at), path


@pytest.mark.parametrize("values", VALUE_SETS, ids=["default", "testbed", "least", "single", "attached", "extras"])
def test_the_node_agent_understands_what_the_chart_configures(
    render: Render, values: list[str], tmp_path: Path
) -> None:
    maps = [i for i in render(*values) if i["kind"] == "ConfigMap" and i["metadata"]["name"] == "outrider-node-agent"]
    for item in maps:
        (tmp_path / "config.yaml").write_text(item["data"]["config.yaml"])
        config = load(Config, tmp_path / "config.yaml")
        assert (config.sys_path, config.pod_resources_socket) == (
            "/host/sys",
            "/var/lib/kubelet/pod-resources/kubelet.sock",
        )
    assert bool(maps) == ("nodeAgent.enabled=false" not in str(values))


def test_each_optional_source_of_the_agent_brings_its_mount(render: Render) -> None:
    def mounts(*values: str) -> set[str]:
        spec = dict(pods_of(render(*values)))["outrider-node-agent"]
        assert {m["name"] for m in spec["containers"][0]["volumeMounts"]} == {v["name"] for v in spec["volumes"]}
        return {mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}

    optional = {"/var/lib/kubelet/pod-resources", "/etc/outrider-faults"}
    none = mounts("--set", "nodeAgent.probes.podResourcesDir=,nodeAgent.catalogueConfigMap=")
    assert mounts() - none == optional
    assert mounts("--set", "nodeAgent.probes.checksConfigMap=mine") - mounts() == {"/etc/outrider-checks"}


def test_checks_are_read_where_the_kubelet_keeps_a_volumes_files(render: Render) -> None:
    objects = render("--set", "nodeAgent.probes.checksConfigMap=mine")
    (item,) = (i for i in objects if i["kind"] == "ConfigMap" and i["metadata"]["name"] == "outrider-node-agent")
    # The volume's own folder is one that everybody may change, and the agent runs nothing from such a folder.
    assert yaml.safe_load(item["data"]["config.yaml"])["checksDir"] == "/etc/outrider-checks/..data"


def test_every_host_path_but_state_and_pods_is_read_only(render: Render) -> None:
    spec = dict(pods_of(render()))["outrider-node-agent"]
    host = {volume["name"] for volume in spec["volumes"] if "hostPath" in volume}
    writable = {m["name"] for m in spec["containers"][0]["volumeMounts"] if not m.get("readOnly")} & host
    assert writable == {"state", "pods"}
