import asyncio
import json
import sys
from pathlib import Path

import pytest
import yaml

from outrider.api.gpunode import GPUNode, GPUNodeStatus, Health, Verdict
from outrider.api.meta import ObjectMeta
from outrider.kube.client import Client
from outrider.kube.kinds import GPUNODES, PODS

pytestmark = pytest.mark.control_plane


async def outrider(kubeconfig: Path, *arguments: str) -> tuple[int, str, str]:
    """Run the command as a user would; returns exit code, stdout and stderr."""
    environment = {"KUBECONFIG": str(kubeconfig), "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "outrider.cli.main", *arguments),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


@pytest.fixture
async def sick(client: Client, namespace: str) -> str:
    """A GPUNode that its agent found sick; returns its name."""
    name = f"{namespace}-gpu"
    made = await client.create(GPUNODES, GPUNode(metadata=ObjectMeta(name=name)))
    status = GPUNodeStatus(health=Health.UNHEALTHY, score=3, verdict=Verdict.REPLACE, reason="xid/79")
    body = GPUNode(metadata=made.metadata, status=status)
    await client.replace(GPUNODES, name, body, subresource="status")
    return name


async def test_status_shows_what_the_cluster_holds(kubeconfig, sick, client):
    code, text, _ = await outrider(kubeconfig, "status")
    assert code == 0
    assert sick in text
    code, text, _ = await outrider(kubeconfig, "status", "-o", "json")
    row = next(row for row in json.loads(text)["nodes"] if row["name"] == sick)
    assert (row["health"], row["score"], row["reason"]) == ("Unhealthy", 3, "xid/79")
    await client.delete(GPUNODES, sick)


async def test_why_explains_a_pod(kubeconfig, client, namespace):
    resources = {"limits": {"nvidia.com/gpu": "1"}}
    container = {"name": "c", "image": "none", "resources": resources}
    body = {"metadata": {"name": "alone"}, "spec": {"containers": [container], "schedulerName": "the-test"}}
    await client.create(PODS, body, namespace)
    code, text, _ = await outrider(kubeconfig, "why", "alone", "-n", namespace)
    assert code == 0
    assert f"Next: kubectl label namespace {namespace} outrider.dev/enabled=true" in text
    code, text, _ = await outrider(kubeconfig, "why", "alone", "-n", namespace, "-o", "json")
    assert json.loads(text)["pod"] == f"{namespace}/alone"


async def test_why_of_a_pod_that_does_not_exist_is_one_clear_line(kubeconfig, namespace):
    code, _, words = await outrider(kubeconfig, "why", "ghost", "-n", namespace)
    assert code == 2
    assert "no pod ghost, and no job ghost with pods that Outrider manages in namespace" in words
    assert "Traceback" not in words


@pytest.mark.parametrize("name", ["pod/ghost", "team/ghost"])
async def test_what_does_not_exist_is_told_with_the_way_out(kubeconfig, name):
    code, _, words = await outrider(kubeconfig, "why", name)
    assert code == 2
    said = " ".join(words.replace("│", " ").split())
    assert f"no {name}" in said
    assert "are name and namespace (-n) right" in said


async def test_check_fails_with_hints_where_the_chart_is_not_installed(kubeconfig):
    code, text, _ = await outrider(kubeconfig, "check", "-o", "json", "--release-namespace", "nowhere")
    assert code == 1
    results = {(row["category"], row["name"]): row for row in json.loads(text)}
    assert results["resources", "gpunodes"]["ok"] is True
    assert results["webhook", "configuration"]["ok"] is False
    assert "helm install" in results["webhook", "configuration"]["hint"]
    assert all(row["hint"] for row in results.values() if row["ok"] is False)


@pytest.mark.parametrize("command", ["status", "check"])
async def test_without_a_kubeconfig_the_way_out_is_named(command, tmp_path):
    code, _, words = await outrider(tmp_path / "none", command)
    assert code == 2
    assert "KUBECONFIG" in words
    assert "Traceback" not in words


async def test_a_cluster_that_does_not_answer_is_named(tmp_path):
    file = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    users = [{"name": "u", "user": {}}]
    file.write_text(json.dumps({"clusters": [cluster], "contexts": [context], "users": users, "current-context": "c"}))
    code, _, words = await outrider(file, "status")
    assert code == 2
    assert "kubectl cluster-info" in words


async def test_missing_rights_are_named(kubeconfig, tmp_path):
    content = yaml.safe_load(kubeconfig.read_text())
    content["users"][0]["user"] = {"token": "of nobody"}
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(content))
    code, _, words = await outrider(file, "status")
    assert code == 2
    assert "ask for the rights" in words
