"""The chart without a kube-scheduler of its own: the extender is attached to the cluster's."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from outrider.config import load
from scheduler_plugin.config import Config
from testbed.demo.release import CHART
from webhook.config import Config as WebhookConfig

Render = Callable[..., list[dict[str, Any]]]
ATTACHED = ["--set", "scheduler.attach.enabled=true"]
SECURE = ["--set", "scheduler.attach.clusterIP=10.96.0.9,scheduler.attach.tls.secretName=mine"]
MUTUAL = ["--set", "scheduler.attach.tls.clientCertificates=true"]


def one(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    return next(item for item in objects if (item["kind"], item["metadata"]["name"]) == (kind, name))


def data(objects: list[dict[str, Any]], name: str) -> dict[str, str]:
    found: dict[str, str] = one(objects, "ConfigMap", name)["data"]
    return found


def test_there_is_no_second_kube_scheduler_and_no_right_of_one(render: Render) -> None:
    objects = render(*ATTACHED)
    pod = one(objects, "Deployment", "outrider-scheduler")["spec"]["template"]["spec"]
    assert [container["name"] for container in pod["containers"]] == ["extender"]
    bound = {item["roleRef"]["name"] for item in objects if item["kind"] == "ClusterRoleBinding"}
    assert not bound & {"system:kube-scheduler", "system:volume-scheduler"}


def test_the_service_leads_to_the_extenders_port(render: Render) -> None:
    objects = render(*ATTACHED, *SECURE)
    service = one(objects, "Service", "outrider-extender")["spec"]
    container = one(objects, "Deployment", "outrider-scheduler")["spec"]["template"]["spec"]["containers"][0]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert service["clusterIP"] == "10.96.0.9"
    assert [ports[port["targetPort"]] for port in service["ports"]] == [8888]
    labels = one(objects, "Deployment", "outrider-scheduler")["spec"]["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()


def test_without_attaching_there_is_no_service(render: Render) -> None:
    assert not any(item["metadata"]["name"] == "outrider-extender" for item in render())


@pytest.mark.parametrize("values", [[], ATTACHED, [*ATTACHED, *SECURE], [*ATTACHED, *SECURE, *MUTUAL]])
def test_the_plugin_understands_what_the_chart_configures(render: Render, values: list[str], tmp_path: Path) -> None:
    settings = tmp_path / "config.yaml"
    settings.write_text(data(render(*values), "outrider-scheduler")["config.yaml"])
    config = load(Config, settings)
    assert config.extender_host == ("" if values else "127.0.0.1")
    assert (config.extender_tls is not None) == (SECURE[1] in values)
    assert bool(config.extender_tls and config.extender_tls.client_ca_file) == (MUTUAL[1] in values)


def test_certificates_are_mounted_where_the_plugin_reads_them(render: Render) -> None:
    objects = render(*ATTACHED, *SECURE)
    pod = one(objects, "Deployment", "outrider-scheduler")["spec"]["template"]["spec"]
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    secrets = {volume["name"]: volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
    config = yaml.safe_load(data(objects, "outrider-scheduler")["config.yaml"])
    assert secrets == {"tls": "mine"}
    assert config["extenderTls"]["certFile"] == f"{mounts['tls']}/tls.crt"


def test_pods_stay_with_the_default_scheduler(render: Render, tmp_path: Path) -> None:
    settings = tmp_path / "config.yaml"
    settings.write_text(data(render(*ATTACHED), "outrider-webhook")["config.yaml"])
    assert load(WebhookConfig, settings).scheduler_name == "default-scheduler"


def test_what_to_add_to_kube_scheduler_is_told_in_full(render: Render) -> None:
    (extender,) = yaml.safe_load(data(render(*ATTACHED, *SECURE, *MUTUAL), "outrider-scheduler")["attach.yaml"])[
        "extenders"
    ]
    assert extender["urlPrefix"] == "https://10.96.0.9:8888"
    assert extender["managedResources"] == [{"name": "nvidia.com/gpu", "ignoredByScheduler": False}]
    assert extender["tlsConfig"]["serverName"] == "outrider-extender.outrider-system.svc"
    assert {"caFile", "certFile", "keyFile"} < extender["tlsConfig"].keys()


def test_an_address_of_ipv6_is_told_in_brackets(render: Render) -> None:
    objects = render(*ATTACHED, "--set", "scheduler.attach.clusterIP=fd00::9")
    assert "urlPrefix: http://[fd00::9]:8888\n" in data(objects, "outrider-scheduler")["attach.yaml"]


def test_every_pod_is_asked_about_where_no_resource_is_named(render: Render) -> None:
    objects = render(*ATTACHED, "--set-json", "scheduler.attach.managedResources=[]")
    (extender,) = yaml.safe_load(data(objects, "outrider-scheduler")["attach.yaml"])["extenders"]
    assert "managedResources" not in extender


def test_a_resource_that_kube_scheduler_would_not_accept_is_refused(
    run_helm: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    wrong = run_helm("template", "x", str(CHART), *ATTACHED, "--set-json", 'scheduler.attach.managedResources=["cpu"]')
    assert "managedResources" in wrong.stderr


def test_the_docs_show_what_the_chart_says(render: Render) -> None:
    text = (CHART.parents[1] / "docs/attach.md").read_text()
    blocks = [yaml.safe_load(part.partition("```")[0]) for part in text.split("```yaml\n")[1:]]
    shown = next(block for block in blocks if block.get("kind") == "KubeSchedulerConfiguration")
    told = yaml.safe_load(data(render(*ATTACHED, *SECURE, *MUTUAL), "outrider-scheduler")["attach.yaml"])
    told["extenders"][0]["urlPrefix"] = shown["extenders"][0]["urlPrefix"]
    assert shown["extenders"] == told["extenders"]
