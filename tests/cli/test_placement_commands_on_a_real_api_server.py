"""outrider why JOB, plan, snapshot and ungate, with no other part of Outrider running."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_the_command_on_a_real_api_server import outrider

from outrider.api.core import Pod
from outrider.api.names import GANG_GATE, IGNORE_LABEL, INJECTED_ANNOTATION, JOB_UID_LABEL, SCHEDULER_NAME
from outrider.kube.client import Client, PatchType, Selector
from outrider.kube.kinds import JOBS, NODES, PODS
from outrider.workloads import gated

pytestmark = pytest.mark.control_plane


def job(name: str, size: int, gpus: int, selector: dict[str, str]) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": gpus}
    container = {
        "name": "c",
        "image": "none",
        "resources": {"limits": limits},
        "env": [{"name": "T", "value": "s3cret"}],
    }
    pod = {"containers": [container], "restartPolicy": "Never", "nodeSelector": selector}
    spec = {"parallelism": size, "completions": size, "completionMode": "Indexed", "template": {"spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


async def submit_gated(client: Client, namespace: str, *other_gates: str) -> list[str]:
    """Create the Job train, whose two pods look as the webhook leaves them; return their names."""
    body = job("train", 2, 1, {})
    template = body["spec"]["template"]
    template["metadata"] = {"labels": {JOB_UID_LABEL: "the-uid"}, "annotations": {INJECTED_ANNOTATION: "0.1.0"}}
    template["spec"]["schedulerName"] = SCHEDULER_NAME
    template["spec"]["schedulingGates"] = [{"name": name} for name in (GANG_GATE, *other_gates)]
    await client.create(JOBS, body, namespace)
    async with asyncio.timeout(30):
        while True:
            pods = await pods_of(client, namespace)
            if len(pods) == 2:
                return sorted(pods)
            await asyncio.sleep(0.05)


async def pods_of(client: Client, namespace: str) -> dict[str, Pod]:
    return {pod.metadata.name: pod for pod in (await client.list(PODS, Selector(namespace=namespace))).items}


async def gates(client: Client, namespace: str) -> list[bool]:
    pods = await pods_of(client, namespace)
    return [gated(pods[name]) for name in sorted(pods)]


@pytest.fixture
async def gang(client: Client, namespace: str) -> str:
    """A namespace with two gated pods of the Job train."""
    await submit_gated(client, namespace)
    return namespace


async def test_a_dry_run_says_what_would_be_lost_and_changes_nothing(kubeconfig, client, gang):
    code, text, _ = await outrider(kubeconfig, "ungate", "job/train", "-n", gang, "--dry-run")
    assert code == 0
    assert text.count("gate would be lifted") == 2
    assert f"placement as a whole is lost for Job {gang}/train" in text
    assert await gates(client, gang) == [True, True]


async def test_one_pod_is_freed_and_the_other_waits_on(kubeconfig, client, namespace):
    first, _ = await submit_gated(client, namespace)
    code, text, _ = await outrider(kubeconfig, "ungate", first, "-n", namespace)
    assert code == 0, text
    assert await gates(client, namespace) == [False, True]
    assert (await client.get(PODS, first, namespace)).metadata.labels[IGNORE_LABEL] == "true"


async def test_a_whole_job_is_freed_and_gates_of_others_stay(kubeconfig, client, namespace):
    await submit_gated(client, namespace, "team.example/quota")
    code, text, _ = await outrider(kubeconfig, "ungate", "train", "-n", namespace, "-o", "json")
    answer = json.loads(text)
    assert code == 0
    assert [one["problem"] for one in answer["pods"]] == ["", ""]
    assert await gates(client, namespace) == [False, False]
    left = [[gate.name for gate in pod.spec.scheduling_gates] for pod in (await pods_of(client, namespace)).values()]
    assert left == [["team.example/quota"]] * 2
    assert any("other scheduling gates stay" in one for one in answer["warnings"])
    code, text, _ = await outrider(kubeconfig, "ungate", "--all", "-n", namespace)
    assert code == 1
    assert "no pod waits for Outrider there" in text


@pytest.mark.parametrize("arguments", [[], ["train", "--all"]])
async def test_freeing_needs_a_name_or_all(kubeconfig, arguments):
    code, _, words = await outrider(kubeconfig, "ungate", *arguments)
    assert code == 2
    assert "name one pod or job, or give --all" in words


async def test_why_takes_a_job(kubeconfig, gang):
    for name in ("job/train", "train"):
        code, text, _ = await outrider(kubeconfig, "why", name, "-n", gang)
        assert code == 0, text
        assert "2 pods held by the scheduling gate" in text
        assert "Next: outrider check: is the planner running?" in text
    code, text, _ = await outrider(kubeconfig, "why", "train", "-n", gang, "-o", "json")
    assert [row["rank"] for row in json.loads(text)["pods"]] == [0, 1]
    for name, said in (
        ("job/ghost", f"no job/ghost with pods that Outrider manages in namespace {gang}"),
        ("pod/ghost", f"no pod/ghost in namespace {gang}"),
        ("ghost", f"no pod ghost, and no job ghost with pods that Outrider manages in namespace {gang}"),
    ):
        code, _, words = await outrider(kubeconfig, "why", name, "-n", gang)
        assert code == 2
        assert said in words


@pytest.fixture
async def gpu_node(client: Client, namespace: str) -> AsyncIterator[str]:
    """The label of a node with eight GPUs that exists for this test alone."""
    name = f"{namespace}-node"
    await client.create(NODES, {"metadata": {"name": name, "labels": {"only": namespace}}})
    amounts = {"nvidia.com/gpu": "8", "cpu": "64", "memory": "64Gi", "pods": "110"}
    status = {"capacity": amounts, "allocatable": amounts}
    await client.patch(NODES, name, {"status": status}, PatchType.MERGE, subresource="status")
    await client.patch(NODES, name, {"spec": {"taints": None}}, PatchType.MERGE)
    yield name
    await client.delete(NODES, name)


async def test_plan_says_where_a_job_would_land_from_the_cluster_and_from_its_snapshot(
    kubeconfig, gpu_node, gang, tmp_path: Path
):
    fits, large = tmp_path / "fits.yaml", tmp_path / "large.yaml"
    fits.write_text(yaml.safe_dump(job("new", 2, 4, {"only": gang})))
    large.write_text(yaml.safe_dump(job("new", 2, 8, {"only": gang})))
    saved = tmp_path / "cluster.json.gz"

    code, text, words = await outrider(kubeconfig, "snapshot", "-o", str(saved))
    assert code == 0, words
    assert str(saved) in text
    plain = tmp_path / "cluster.json"
    await outrider(kubeconfig, "snapshot", "-o", str(plain))
    assert "s3cret" not in plain.read_text()
    assert "train-0" in plain.read_text()

    for source in ([], ["--snapshot", str(saved)], ["--snapshot", str(plain)]):
        code, text, words = await outrider(kubeconfig, "plan", "-f", str(fits), "-n", gang, *source, "-o", "json")
        assert code == 0, (text, words)
        (landed,) = json.loads(text)["gangs"]
        assert [rank["node"] for rank in landed["ranks"]] == [gpu_node, gpu_node]
        code, text, _ = await outrider(kubeconfig, "plan", "-f", str(large), "-n", gang, *source)
        assert code == 1
        assert "it does not fit now" in text
        assert "needs 2 nodes with 8 free GPUs; 1 healthy and free" in text


async def test_plan_without_the_planners_configuration_says_which_settings_hold(kubeconfig, tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job("new", 1, 1, {})))
    _, text, _ = await outrider(kubeconfig, "plan", "-f", str(file), "--release-namespace", "nowhere")
    assert "Note: built-in settings hold, since the planner's could not be read" in text


async def test_a_manifest_without_gpus_is_no_fit(kubeconfig, tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job("new", 1, 0, {})))
    code, text, _ = await outrider(kubeconfig, "plan", "-f", str(file))
    assert code == 0
    assert "nothing here is for Outrider to place" in text
    assert "1 pod without GPUs, or for another scheduler, not placed by Outrider: new-0" in text


async def test_a_bad_manifest_is_one_clear_line(kubeconfig, tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text("{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {parallelism: many}}")
    code, text, words = await outrider(kubeconfig, "plan", "-f", str(file))
    assert (code, text) == (2, "")
    assert words.count("\n") == 1
    assert "Job j.spec.parallelism: 'many' is no number of pods: write 0 to 16384" in words
