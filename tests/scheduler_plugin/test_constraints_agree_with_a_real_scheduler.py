"""What we hold possible and what a bare kube-scheduler does, for pods with random constraints on unlike nodes."""

import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from outrider.api.core import Pod
from outrider.kube.client import Client, PatchType
from outrider.kube.kinds import NODES, PERSISTENTVOLUMECLAIMS, PERSISTENTVOLUMES, PODS, STORAGECLASSES, Kind
from scheduler_plugin.cluster.members import member
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.cluster.world import World
from scheduler_plugin.placing.room import Room
from testbed import cluster, kwok
from testbed.state import State
from tests.scheduler_plugin.attached import kube_scheduler
from tests.scheduler_plugin.builders import RULES
from tests.scheduler_plugin.real import eventually

pytestmark = [pytest.mark.slow, pytest.mark.control_plane]

ZONE: Final = "topology.kubernetes.io/zone"
HOSTNAME: Final = "kubernetes.io/hostname"
POOL: Final = {"pool": "unlike"}
PODS_TRIED: Final = 64
MIG, OTHER = "nvidia.com/mig-1g.10gb", "example.com/thing"
# Name -> what is unlike about the node: labels, taints, cordon, resources.
NODES_OF_THE_TEST: Final[dict[str, dict[str, Any]]] = {
    "unlike-0": {"labels": {ZONE: "a", "size": "8"}},
    "unlike-1": {
        "labels": {ZONE: "a", "size": "16"},
        "taints": [{"key": "team", "value": "ml", "effect": "NoSchedule"}],
    },
    "unlike-2": {"labels": {ZONE: "b", "size": "x"}, "cordon": True},
    "unlike-3": {"labels": {ZONE: "b"}, "resources": {MIG: "7", "nvidia.com/gpu": "0"}},
    "unlike-4": {"labels": {ZONE: "c", "size": "4"}, "resources": {"cpu": "2", OTHER: "3", "pods": "4"}},
    "unlike-5": {"labels": {"size": "08"}, "taints": [{"key": "soft", "effect": "PreferNoSchedule"}]},
    "unlike-6": {"labels": {ZONE: "", "disk": ""}, "taints": [{"key": "out", "effect": "NoExecute"}]},
    "unlike-7": {"labels": {ZONE: "c", "disk": "fast"}, "resources": {"ephemeral-storage": "10Gi"}},
}


def node(name: str, unlike: dict[str, Any]) -> dict[str, Any]:
    body = kwok.node("h100", 0)
    labels = {HOSTNAME: name, **POOL, **unlike["labels"]}
    body["metadata"] = {**body["metadata"], "name": name, "labels": labels}
    body["spec"] = {"taints": unlike.get("taints", []), "unschedulable": unlike.get("cordon", False)}
    resources = {"cpu": "8", "memory": "64Gi", "pods": "20", "nvidia.com/gpu": "8"} | unlike.get("resources", {})
    body["status"] |= {"capacity": resources, "allocatable": resources}
    return body


@pytest.fixture
async def unlike_nodes(control_plane: State, client: Client) -> AsyncIterator[None]:
    """Eight nodes, no two alike."""
    cluster.up(control_plane.name, kwok_nodes=1)
    for name, unlike in NODES_OF_THE_TEST.items():
        body = node(name, unlike)
        await client.create(NODES, body)
        # The API server taints every new node as not ready.
        await client.patch(NODES, name, {"spec": body["spec"]}, PatchType.MERGE)
    yield
    for name in NODES_OF_THE_TEST:
        await client.delete(NODES, name)


def volume(name: str, kind: str, claim: str = "", **more: Any) -> dict[str, Any]:
    labels = more.pop("labels", {})
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": kind, **more}
    spec["hostPath"] = {"path": f"/tmp/{name}"}  # noqa: S108 - never mounted
    kept_for = {"claimRef": {"namespace": claim.partition("/")[0], "name": claim.partition("/")[2]}} if claim else {}
    meta = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": spec | kept_for}


def on(*names: str) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": list(names)}]}]
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}


def claim(name: str, kind: str) -> dict[str, Any]:
    size = {"requests": {"storage": "1Gi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": kind, "resources": size}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
async def volumes(client: Client, namespace: str) -> AsyncIterator[None]:
    """Claims that are bound, that wait for their pod, and that nothing will ever bind."""
    suffix = namespace.rpartition("-")[2]
    local, dynamic = f"local-{suffix}", f"dynamic-{suffix}"
    terms = [{"matchLabelExpressions": [{"key": ZONE, "values": ["b", "c"]}]}]
    classes: list[dict[str, Any]] = [
        {"metadata": {"name": local}, "provisioner": "kubernetes.io/no-provisioner"},
        {"metadata": {"name": dynamic}, "provisioner": "example.com/none", "allowedTopologies": terms},
    ]
    made = [
        volume(f"far-{suffix}", "", f"{namespace}/bound", **on("unlike-3", "unlike-7")),
        volume(f"zone-{suffix}", "", f"{namespace}/zonal", labels={ZONE: "a"}),
        volume(f"local0-{suffix}", local, **on("unlike-0")),
        volume(f"local7-{suffix}", local, **on("unlike-7")),
    ]
    for one in classes:
        shared = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"}
        await client.create(STORAGECLASSES, {**shared, **one, "volumeBindingMode": "WaitForFirstConsumer"})
    for one in made:
        await client.create(PERSISTENTVOLUMES, one)
    for name, kind in (
        ("bound", ""),
        ("zonal", ""),
        ("never", ""),
        ("local", local),
        ("more", local),
        ("new", dynamic),
    ):
        await client.create(PERSISTENTVOLUMECLAIMS, claim(name, kind), namespace)

    async def all_bound() -> bool:
        there = [await client.get(PERSISTENTVOLUMECLAIMS, name, namespace) for name in ("bound", "zonal")]
        return all(one.status.phase == "Bound" for one in there)

    await eventually(all_bound)
    yield
    for one in made:
        await client.delete(PERSISTENTVOLUMES, one["metadata"]["name"])
    for one in classes:
        await client.delete(STORAGECLASSES, one["metadata"]["name"])


def required(terms: object, *, key: str = "requiredDuringSchedulingIgnoredDuringExecution") -> dict[str, Any]:
    return {key: terms}


class Draw:
    """Random pods; the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - wanted to be the same each time

    def pod(self, index: int) -> dict[str, Any]:
        """Return one that names one node half of the time, so that the answer is about that node."""
        chance, choice = self._random.random, self._random.choice
        affinity: dict[str, Any] = {}
        spec: dict[str, Any] = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": POOL | ({"disk": choice(["fast", ""])} if chance() < 0.1 else {}),
            "affinity": affinity,
            "containers": [self._container()],
            "tolerations": [one for one in self._tolerations() if chance() < 0.3],
        }
        terms = [self._term() for _ in range(self._random.randint(1, 2))] if chance() < 0.25 else []
        if chance() < 0.5:
            names = self._random.sample(sorted(NODES_OF_THE_TEST), 1)
            terms = [{**term, **_named(names)} for term in terms or [{}]]
        if terms:
            affinity["nodeAffinity"] = required({"nodeSelectorTerms": terms})
        for kind in ("podAffinity", "podAntiAffinity"):
            if chance() < 0.2:
                affinity[kind] = required([{"topologyKey": choice([ZONE, HOSTNAME]), "labelSelector": self._apps()}])
        if chance() < 0.2:
            spec["topologySpreadConstraints"] = [self._spread()]
        if chance() < 0.25:
            name = choice(["bound", "zonal", "never", "local", "more", "missing"])
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
        labels = {"app": choice("xy")}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p-{index}", "labels": labels}, "spec": spec}

    def _container(self) -> dict[str, Any]:
        chance, choice = self._random.random, self._random.choice
        requests = {"cpu": choice(["100m", "1", "3"])}
        for name, amounts, share in (
            ("nvidia.com/gpu", "148", 0.3),
            (MIG, "18", 0.1),
            (OTHER, "12", 0.1),
            ("ephemeral-storage", "1", 0.1),
        ):
            if chance() < share:
                requests[name] = choice(amounts)
        ports = [{"containerPort": 80, "hostPort": choice([80, 81])}] if chance() < 0.15 else []
        return {
            "name": "main",
            "image": "none",
            "resources": {"requests": requests, "limits": requests},
            "ports": ports,
        }

    def _tolerations(self) -> list[dict[str, Any]]:
        return [
            {"key": "team", "operator": "Equal", "value": "ml"},
            {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
            {"key": "out", "operator": "Exists", "effect": "NoExecute"},
            {"key": "team", "operator": "Equal", "value": "web"},
        ]

    def _term(self) -> dict[str, Any]:
        choice = self._random.choice
        tests = [
            {"key": ZONE, "operator": choice(["In", "NotIn"]), "values": [choice("abc"), ""]},
            {"key": "disk", "operator": choice(["Exists", "DoesNotExist"])},
            {"key": "size", "operator": choice(["Gt", "Lt"]), "values": [choice(["4", "8", "10"])]},
        ]
        return {"matchExpressions": self._random.sample(tests, self._random.randint(1, 2))}

    def _apps(self) -> dict[str, Any]:
        choice = self._random.choice
        test = {"key": "app", "operator": choice(["In", "NotIn"]), "values": [choice("xyz")]}
        return choice([{"matchLabels": {"app": choice("xy")}}, {"matchExpressions": [test]}])

    def _spread(self) -> dict[str, Any]:
        choice = self._random.choice
        spread = {
            "topologyKey": choice([ZONE, HOSTNAME]),
            "maxSkew": choice([1, 2]),
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": choice("xy")}},
            "nodeAffinityPolicy": choice(["Honor", "Ignore"]),
            "nodeTaintsPolicy": choice(["Honor", "Ignore"]),
        }
        return spread | ({"minDomains": choice([1, 3])} if self._random.random() < 0.3 else {})


def _named(names: list[str]) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": names}]}


async def seen(client: Client) -> World:
    """Return the cluster as it is now."""
    world = World(RULES)
    followed: list[tuple[Kind[Any], Callable[[Any, Any], None]]] = [
        (NODES, world.on_node),
        (PODS, world.on_pod),
        (PERSISTENTVOLUMES, world.on_volume),
        (PERSISTENTVOLUMECLAIMS, world.on_volume_claim),
        (STORAGECLASSES, world.on_storage_class),
    ]
    for kind, take in followed:
        for one in (await client.list(kind)).items:
            take(None, one)
    return world


def possible(snapshot: Snapshot, pod: Pod) -> set[str]:
    """Return the nodes that we hold possible."""
    one = member(pod, 0)
    return {view.name for view in Room(snapshot, "", (one,), frozenset(), 0.0).fitting(one)}


async def verdict(client: Client, namespace: str, name: str) -> str:
    """Return the node that kube-scheduler chose, or what it says against all."""

    async def known() -> str:
        pod = await client.get(PODS, name, namespace)
        said = [one for one in pod.status.conditions if one.type == "PodScheduled" and one.status == "False"]
        return pod.spec.node_name or (f"none: {said[0].message}" if said and said[0].message else "")

    return await eventually(known)


@pytest.mark.usefixtures("unlike_nodes", "volumes")
@pytest.mark.parametrize("seed", [1, 2])
async def test_every_node_that_the_scheduler_chooses_is_possible_and_where_none_is_it_chooses_none(
    client: Client, namespace: str, control_plane: State, tmp_path: Path, seed: int
) -> None:
    draw, bound, refused = Draw(seed), 0, 0
    with kube_scheduler(control_plane, tmp_path, f"bare-{seed}") as scheduler:
        for index in range(PODS_TRIED):
            body = draw.pod(index)
            body["spec"]["schedulerName"] = scheduler
            world = await seen(client)
            pod = await client.create(PODS, body, namespace)
            ours = possible(world.publish(), pod)
            theirs = await verdict(client, namespace, pod.metadata.name)
            case = f"pod {index}: we say {sorted(ours)}, kube-scheduler {theirs}: {body}"
            if theirs.startswith("none: "):
                refused += 1
                assert not ours, case
                await client.delete(PODS, pod.metadata.name, namespace)  # it must not come back later
            else:
                bound += 1
                assert theirs in ours, case
    assert min(bound, refused) > PODS_TRIED // 5  # else the test says little


@pytest.mark.usefixtures("unlike_nodes", "volumes")
async def test_a_claim_whose_volume_is_still_to_be_made_goes_where_we_say(
    client: Client, namespace: str, control_plane: State, tmp_path: Path
) -> None:
    """Nobody makes the volume here: kube-scheduler writes the node that it chose on the claim, and waits."""
    data = [{"name": "data", "persistentVolumeClaim": {"claimName": "new"}}]
    container = {"name": "main", "image": "none"}
    with kube_scheduler(control_plane, tmp_path, "bare-volumes") as scheduler:
        spec = {"schedulerName": scheduler, "nodeSelector": POOL, "containers": [container], "volumes": data}
        world = await seen(client)
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "late"}, "spec": spec}
        pod = await client.create(PODS, body, namespace)
        ours = possible(world.publish(), pod)

        async def chosen() -> str:
            there = await client.get(PERSISTENTVOLUMECLAIMS, "new", namespace)
            return there.metadata.annotations.get("volume.kubernetes.io/selected-node", "")

        assert await eventually(chosen) in ours
        assert ours == {"unlike-3", "unlike-4", "unlike-7"}
        assert possible((await seen(client)).publish(), pod) == {await chosen()}
