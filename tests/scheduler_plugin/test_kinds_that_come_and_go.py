"""Kinds of jobs are followed from when they are installed, however often that is."""

import asyncio

import pytest

from outrider.api.core import Owner, Pod
from outrider.api.meta import ObjectMeta, Resource
from outrider.kube.client import Client
from outrider.kube.errors import NotFound
from outrider.kube.kinds import JOBSETS, Kind
from outrider.workloads import gang_of, size_of
from scheduler_plugin.cluster.world import World
from scheduler_plugin.following import Following
from tests.kube.waiting import running, until
from tests.scheduler_plugin.builders import RULES

pytestmark = [pytest.mark.slow, pytest.mark.control_plane]


class CustomResourceDefinition(Resource, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()


CRDS = Kind(CustomResourceDefinition, "customresourcedefinitions", group="apiextensions.k8s.io", namespaced=False)


def definition() -> dict[str, object]:
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": JOBSETS.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": free}}
    names = {"kind": "JobSet", "listKind": "JobSetList", "plural": "jobsets", "singular": "jobset"}
    return {
        "metadata": {"name": f"jobsets.{JOBSETS.group}"},
        "spec": {"group": JOBSETS.group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def jobset(pods: int) -> dict[str, object]:
    job = {"spec": {"parallelism": pods, "completions": pods, "completionMode": "Indexed"}}
    kind = {"apiVersion": JOBSETS.api_version, "kind": "JobSet"}
    return kind | {
        "metadata": {"name": "js"},
        "spec": {"replicatedJobs": [{"name": "w", "replicas": 1, "template": job}]},
    }


async def test_a_kind_that_is_deleted_and_installed_again_is_followed_again(client: Client, namespace: str) -> None:
    world = World(RULES)
    labels = {"jobset.sigs.k8s.io/jobset-name": "js"}
    pod = Pod(metadata=ObjectMeta(name="p", namespace=namespace, uid="u", labels=labels))
    world.on_pod(None, pod)
    uid = job_uid(pod)

    def owner() -> Owner | None:
        state = world.gang(uid)
        return state.owner if state else None

    following = Following(client, world)
    async with running(following.run()):
        for pods in (3, 4):
            await install(client)
            await client.create(JOBSETS, jobset(pods), namespace)
            await until(owner, seconds=20)
            assert size_of(owner()).pods == pods
            await uninstall(client)
            await until(lambda: owner() is None, seconds=20)


def job_uid(pod: Pod) -> str:
    gang = gang_of(pod)
    assert gang is not None
    return gang.uid


async def install(client: Client) -> None:
    await client.create(CRDS, definition())
    await become(client, there=True)


async def uninstall(client: Client) -> None:
    await client.delete(CRDS, f"jobsets.{JOBSETS.group}")
    await become(client, there=False)


async def become(client: Client, *, there: bool) -> None:
    """Wait until the kind is served, or the definition of it is gone."""
    async with asyncio.timeout(20):
        while await found(client, there=there) is not there:  # noqa: ASYNC110 - the API server tells no event
            await asyncio.sleep(0.05)


async def found(client: Client, *, there: bool) -> bool:
    try:
        if there:
            await client.list(JOBSETS)
        else:
            await client.get(CRDS, f"jobsets.{JOBSETS.group}")
    except NotFound:
        return False
    return True
