import asyncio
import json
import time
from pathlib import Path

import pytest

from outrider.api.gangplacement import GangPlacement, GangPlacementSpec, GangPlacementStatus, PlacementState
from outrider.api.gpunode import GPUNode, GPUNodeStatus, Health
from outrider.api.meta import ObjectMeta
from outrider.kube import errors
from outrider.kube.client import Client, PatchType, Selector
from outrider.kube.eviction import evict
from outrider.kube.kinds import GANGPLACEMENTS, GPUNODES, NODES, PODS, PYTORCHJOBS
from outrider.kube.transport import connect
from testbed.state import State
from tests.kube.api_server import frozen

pytestmark = pytest.mark.control_plane


def gang(name: str) -> GangPlacement:
    spec = GangPlacementSpec(job_kind="Job", job_name="train", job_uid="u", size=2)
    return GangPlacement(metadata=ObjectMeta(name=name), spec=spec)


def pod(name: str, **spec: object) -> dict[str, object]:
    containers = [{"name": "main", "image": "none"}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, "schedulerName": "nobody", **spec}}


async def test_an_object_is_created_read_replaced_and_deleted(client: Client, namespace: str) -> None:
    made = await client.create(GANGPLACEMENTS, gang("g"), namespace)
    assert made.metadata.uid
    status = GangPlacementStatus(state=PlacementState.PLANNED, revision=3)
    planned = GangPlacement(metadata=made.metadata, spec=made.spec, status=status)
    await client.replace(GANGPLACEMENTS, "g", planned, namespace, "status")
    assert (await client.get(GANGPLACEMENTS, "g", namespace)).status == status
    await client.delete(GANGPLACEMENTS, "g", namespace)
    await client.delete(GANGPLACEMENTS, "g", namespace)
    with pytest.raises(errors.NotFound, match="not found"):
        await client.get(GANGPLACEMENTS, "g", namespace)


async def test_creating_twice_and_replacing_an_old_version_are_told_apart(client: Client, namespace: str) -> None:
    made = await client.create(GANGPLACEMENTS, gang("g"), namespace)
    with pytest.raises(errors.AlreadyExists):
        await client.create(GANGPLACEMENTS, gang("g"), namespace)
    await client.patch(GANGPLACEMENTS, "g", {"metadata": {"labels": {"a": "b"}}}, PatchType.MERGE, namespace)
    with pytest.raises(errors.Conflict):
        await client.replace(GANGPLACEMENTS, "g", made, namespace)


async def test_a_conditional_patch_of_an_old_version_conflicts(client: Client, namespace: str) -> None:
    made = await client.create(PODS, pod("p"), namespace)
    versioned = {"metadata": {"resourceVersion": made.metadata.resource_version, "annotations": {"a": "1"}}}
    await client.patch(PODS, "p", versioned, PatchType.STRATEGIC, namespace)
    with pytest.raises(errors.Conflict):
        await client.patch(
            PODS,
            "p",
            versioned | {"metadata": versioned["metadata"] | {"labels": {"x": "y"}}},
            PatchType.STRATEGIC,
            namespace,
        )


async def test_a_json_patch_test_that_fails_is_invalid(client: Client, namespace: str) -> None:
    await client.create(PODS, pod("p", schedulingGates=[{"name": "outrider.dev/gang"}]), namespace)
    lift = [
        {"op": "test", "path": "/spec/schedulingGates/0/name", "value": "outrider.dev/gang"},
        {"op": "remove", "path": "/spec/schedulingGates/0"},
    ]
    assert (await client.patch(PODS, "p", lift, PatchType.JSON, namespace)).spec.scheduling_gates == []
    with pytest.raises(errors.Invalid):
        await client.patch(PODS, "p", lift, PatchType.JSON, namespace)


async def test_applied_fields_name_their_manager(client: Client, namespace: str, kubeconfig: Path) -> None:
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": {"outrider.dev/why": "x"}}}
    await client.create(PODS, pod("p"), namespace)
    async with connect("outrider-planner", kubeconfig=kubeconfig) as planner:
        applied = await planner.patch(PODS, "p", body, PatchType.APPLY, namespace)
        assert applied.metadata.annotations == {"outrider.dev/why": "x"}
        del body["metadata"]["annotations"]  # type: ignore[attr-defined]
        assert (await planner.patch(PODS, "p", body, PatchType.APPLY, namespace)).metadata.annotations == {}


async def test_a_dry_run_client_changes_nothing(client: Client, namespace: str, kubeconfig: Path) -> None:
    await client.create(PODS, pod("kept"), namespace)
    async with connect("outrider-tests", kubeconfig=kubeconfig, dry_run=True) as dry:
        await dry.create(PODS, pod("new"), namespace)
        await dry.patch(PODS, "kept", {"metadata": {"labels": {"a": "b"}}}, PatchType.MERGE, namespace)
        await dry.delete(PODS, "kept", namespace)
        eviction = {"metadata": {"name": "kept", "namespace": namespace}}
        await dry.create(PODS, eviction, namespace, "eviction", "kept")
    page = await client.list(PODS, Selector(namespace))
    assert [(p.metadata.name, p.metadata.labels, p.metadata.deletion_timestamp) for p in page.items] == [
        ("kept", {}, None)
    ]


async def test_an_eviction_takes_only_the_pod_of_that_uid(client: Client, namespace: str) -> None:
    made = await client.create(PODS, pod("p"), namespace)
    for uid, outcome in (("another", errors.Conflict), (made.metadata.uid, None)):
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "p", "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        if outcome:
            with pytest.raises(outcome):
                await client.create(PODS, body, namespace, "eviction", "p")
        else:
            assert (await client.create(PODS, body, namespace, "eviction", "p")).metadata.name == "p"
    with pytest.raises(errors.NotFound):
        await client.get(PODS, "p", namespace)


async def test_an_evicted_pod_is_marked_as_disrupted_so_that_its_job_need_not_count_it(
    client: Client, namespace: str
) -> None:
    spec = {"nodeName": "none", "terminationGracePeriodSeconds": 30}
    made = await client.create(PODS, pod("p", **spec), namespace)
    await evict(client, namespace, "p", made.metadata.uid, "none")
    leaving = await client.get(PODS, "p", namespace)
    assert leaving.metadata.deletion_timestamp is not None
    assert [one.status for one in leaving.status.conditions if one.type == "DisruptionTarget"] == ["True"]
    assert leaving.status.phase != "Failed"


async def test_deleting_by_uid_spares_a_namesake(client: Client, namespace: str) -> None:
    await client.create(PODS, pod("p"), namespace)
    await client.delete(PODS, "p", namespace, uid="00000000-0000-0000-0000-000000000000")
    assert (await client.get(PODS, "p", namespace)).metadata.deletion_timestamp is None


async def test_a_list_comes_in_chunks_and_whole(client: Client, namespace: str) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(1100):
            group.create_task(client.create(GANGPLACEMENTS, gang(f"g{number:04}"), namespace))
    page = await client.list(GANGPLACEMENTS, Selector(namespace))
    assert {item.metadata.name for item in page.items} == {f"g{number:04}" for number in range(1100)}
    assert int(page.resource_version) > 0


async def test_selectors_filter_at_the_server(client: Client, namespace: str) -> None:
    for name in ("a", "b"):
        await client.create(PODS, pod(name) | {"metadata": {"name": name, "labels": {"name": name}}}, namespace)
    by_label = await client.list(PODS, Selector(namespace, labels="name=a"))
    by_field = await client.list(PODS, Selector(namespace, fields="metadata.name=b"))
    assert [p.metadata.name for p in (*by_label.items, *by_field.items)] == ["a", "b"]


async def test_a_kind_that_the_cluster_lacks_is_not_found(client: Client) -> None:
    with pytest.raises(errors.NotFound):
        await client.list(PYTORCHJOBS)


async def test_a_status_written_whole_resets_what_it_leaves_out(client: Client) -> None:
    name = f"node-{time.time_ns()}"
    made = await client.create(GPUNODES, GPUNode(metadata=ObjectMeta(name=name)))
    sick = GPUNode(metadata=made.metadata, status=GPUNodeStatus(health=Health.UNHEALTHY, score=3, reason="xid/79"))
    made = await client.replace(GPUNODES, name, sick, subresource="status")
    unknown = GPUNode(metadata=made.metadata, status=GPUNodeStatus())
    assert (await client.replace(GPUNODES, name, unknown, subresource="status")).status == GPUNodeStatus()
    await client.delete(GPUNODES, name)


async def test_no_request_hangs_on_a_frozen_api_server(client: Client, control_plane: State) -> None:
    await client.list(NODES)
    began = time.monotonic()
    with frozen(control_plane), pytest.raises(errors.Unreachable, match="no answer in time"):
        await client.list(NODES)
    assert time.monotonic() - began < 12
    await client.list(NODES)


async def test_a_refused_connection_and_missing_credentials_say_so(tmp_path: Path, kubeconfig: Path) -> None:
    nowhere = changed(kubeconfig, tmp_path / "nowhere", server="https://127.0.0.1:1")
    async with connect("outrider-tests", kubeconfig=nowhere) as client:
        with pytest.raises(errors.Unreachable, match="127"):
            await client.list(NODES)
    with pytest.raises(errors.NoCredentials, match="set KUBECONFIG"):
        async with connect("outrider-tests", kubeconfig=tmp_path / "missing"):
            pass


async def test_an_unknown_certificate_authority_is_not_trusted(tmp_path: Path, kubeconfig: Path) -> None:
    distrusting = changed(kubeconfig, tmp_path / "distrusting", **{"certificate-authority-data": None})
    async with connect("outrider-tests", kubeconfig=distrusting) as client:
        with pytest.raises(errors.Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
            await client.list(NODES)


def changed(kubeconfig: Path, copy: Path, **cluster: str | None) -> Path:
    """Write a copy of the kubeconfig with other cluster settings."""
    content = json.loads(kubeconfig.read_text())
    settings = content["clusters"][0]["cluster"] | cluster
    content["clusters"][0]["cluster"] = {key: value for key, value in settings.items() if value is not None}
    copy.write_text(json.dumps(content))
    return copy
