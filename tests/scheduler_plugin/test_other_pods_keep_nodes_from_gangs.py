"""Host ports, pod affinity and anti-affinity, topology spread: plans agree with what kube-scheduler would refuse."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from outrider.api.core import Node, Pod
from outrider.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from scheduler_plugin.cluster.members import member
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.placing.gang import Gang, Placement, Refusal
from scheduler_plugin.placing.plan import plan
from tests.scheduler_plugin.builders import NOW, make_node, make_pod, make_world

HOST = "kubernetes.io/hostname"
LEAF = "network.topology.nvidia.com/leaf"


def pods(count: int, spec: dict[str, Any], *, job: str = "train", gpus: int = 1, namespace: str = "ml") -> list[Pod]:
    """Return members of a gang, with more in their spec."""
    found = []
    for rank in range(count):
        pod = make_pod(f"{job}-{rank}", job=job, rank=rank, gpus=gpus)
        body = msgspec.to_builtins(pod)
        body["metadata"]["namespace"] = namespace
        body["metadata"]["labels"]["app"] = job
        ports = spec.get("ports", [])
        body["spec"] |= {key: value for key, value in spec.items() if key != "ports"}
        body["spec"]["containers"][0]["ports"] = ports
        found.append(msgspec.convert(body, Pod))
    return found


def near(key: str, app: str = "train", **more: Any) -> dict[str, Any]:
    return {"podAffinity": required(key, app, **more)}


def far(key: str, app: str = "train", **more: Any) -> dict[str, Any]:
    return {"podAntiAffinity": required(key, app, **more)}


def required(key: str, app: str, **more: Any) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}} | more
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def spread(key: str, skew: int = 1, **more: Any) -> list[dict[str, Any]]:
    selector = {"matchLabels": {"app": "train"}}
    one = {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    return [one | more]


def bound(pod: Pod, node: str) -> Pod:
    spec = msgspec.structs.replace(pod.spec, node_name=node, scheduling_gates=[])
    return msgspec.structs.replace(pod, spec=spec)


def planned(snapshot: Snapshot, gang: Sequence[Pod]) -> Placement | Refusal:
    members = tuple(member(pod, rank) for rank, pod in enumerate(gang))
    return plan(Gang("job-train", members), snapshot, 0, NOW)


def nodes_of(snapshot: Snapshot, gang: Sequence[Pod]) -> list[str]:
    """Return the node of each rank, none where nothing was placed."""
    result = planned(snapshot, gang)
    return [result.nodes[pod.metadata.uid] for pod in gang] if isinstance(result, Placement) else []


def world(*objects: object, nodes: int = 4) -> Snapshot:
    made = [make_node(f"n{index}", leaf=f"leaf-{index // 2}") for index in range(nodes)]
    return make_world(*made, *objects).snapshot


PORT = {"ports": [{"containerPort": 29500, "hostPort": 29500}]}


def test_pods_that_want_one_port_of_the_node_go_to_different_nodes() -> None:
    assert sorted(nodes_of(world(), pods(4, PORT))) == ["n0", "n1", "n2", "n3"]
    assert nodes_of(world(), pods(5, PORT)) == []


def test_a_port_that_anybody_holds_keeps_the_node_from_others() -> None:
    [holder] = pods(1, PORT, job="web", namespace="other")
    assert nodes_of(world(bound(holder, "n0"), nodes=2), pods(1, PORT)) == ["n1"]


@pytest.mark.parametrize(
    ("mine", "theirs", "free"),
    [
        ({"hostPort": 80, "protocol": "UDP"}, {"hostPort": 80}, True),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80, "hostIP": "10.0.0.2"}, True),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80, "hostIP": "10.0.0.1"}, False),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80}, False),
        ({"hostPort": 80}, {"hostPort": 80, "hostIP": "10.0.0.2"}, False),
        ({"containerPort": 80}, {"hostPort": 80}, True),
    ],
)
def test_ports_meet_where_protocol_and_address_do(mine: dict[str, Any], theirs: dict[str, Any], free: bool) -> None:
    [holder] = pods(1, {"ports": [theirs]}, job="web")
    assert bool(nodes_of(world(bound(holder, "n0"), nodes=1), pods(1, {"ports": [mine]}))) is free


def test_a_pod_on_the_network_of_its_host_holds_its_ports() -> None:
    spec = {"hostNetwork": True, "ports": [{"containerPort": 80}]}
    assert nodes_of(world(nodes=1), pods(2, spec)) == []


def test_pods_that_shun_each_other_get_a_node_each() -> None:
    assert sorted(nodes_of(world(), pods(4, {"affinity": far(HOST)}))) == ["n0", "n1", "n2", "n3"]
    assert nodes_of(world(), pods(5, {"affinity": far(HOST)})) == []


def test_pods_that_shun_each_other_within_a_leaf_get_a_leaf_each() -> None:
    chosen = nodes_of(world(), pods(2, {"affinity": far(LEAF)}))
    assert {name in ("n0", "n1") for name in chosen} == {True, False}
    assert nodes_of(world(), pods(3, {"affinity": far(LEAF)})) == []


def test_pods_that_want_each_other_within_a_leaf_stay_there() -> None:
    assert set(nodes_of(world(), pods(16, {"affinity": near(LEAF)}))) <= {"n0", "n1"}
    assert nodes_of(world(), pods(17, {"affinity": near(LEAF)})) == []


def test_a_pod_joins_those_that_it_wants_near() -> None:
    [other] = pods(1, {}, job="cache")
    assert nodes_of(world(bound(other, "n3")), pods(1, {"affinity": near(HOST, "cache")})) == ["n3"]
    assert nodes_of(world(bound(other, "n3")), pods(1, {"affinity": near(LEAF, "cache")}))[0] in ("n2", "n3")


def test_a_pod_that_wants_somebody_who_is_nowhere_has_no_node() -> None:
    assert nodes_of(world(), pods(1, {"affinity": near(HOST, "cache")})) == []


def test_pods_of_another_namespace_are_not_meant_unless_named() -> None:
    [other] = pods(1, {}, job="cache", namespace="other")
    there = world(bound(other, "n3"))
    assert nodes_of(there, pods(1, {"affinity": near(HOST, "cache")})) == []
    assert nodes_of(there, pods(1, {"affinity": near(HOST, "cache", namespaces=["other"])})) == ["n3"]
    assert nodes_of(there, pods(1, {"affinity": near(HOST, "cache", namespaceSelector={})})) == ["n3"]


def test_pods_that_are_there_may_shun_those_that_come() -> None:
    [hermit] = pods(1, {"affinity": far(LEAF)}, job="web")
    assert nodes_of(world(bound(hermit, "n0")), pods(1, {}))[0] in ("n2", "n3")


def test_a_pod_that_is_being_deleted_still_keeps_others_away() -> None:
    [hermit] = pods(1, {"affinity": far(HOST)}, job="web")
    gone = msgspec.structs.replace(hermit.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    leaving = bound(msgspec.structs.replace(hermit, metadata=gone), "n0")
    assert nodes_of(world(leaving, nodes=2), pods(1, {})) == ["n1"]


def test_a_node_without_the_label_is_no_place_near_anybody() -> None:
    unlabelled = make_node("bare")
    bare = msgspec.structs.replace(unlabelled, metadata=msgspec.structs.replace(unlabelled.metadata, labels={}))
    assert nodes_of(make_world(bare).snapshot, pods(1, {"affinity": near(LEAF)})) == []
    assert nodes_of(make_world(bare).snapshot, pods(2, {"affinity": far(LEAF)})) == ["bare", "bare"]


def test_a_gang_is_spread_as_evenly_as_it_asks() -> None:
    chosen = nodes_of(world(), pods(4, {"topologySpreadConstraints": spread(LEAF)}))
    assert sorted(name in ("n0", "n1") for name in chosen) == [False, False, True, True]


def test_spread_counts_pods_that_are_there_already() -> None:
    old = pods(1, {}, job="train-old")[0]
    label = msgspec.structs.replace(old.metadata, labels={"app": "train"})
    there = bound(msgspec.structs.replace(old, metadata=label), "n0")
    chosen = nodes_of(world(there), pods(1, {"topologySpreadConstraints": spread(LEAF)}))
    assert chosen[0] in ("n2", "n3")


def test_too_few_domains_count_as_an_empty_one() -> None:
    asked = {"topologySpreadConstraints": spread(LEAF, 1, minDomains=3)}
    assert len(nodes_of(world(), pods(2, asked))) == 2
    assert nodes_of(world(), pods(3, asked)) == []


def test_domains_of_nodes_that_the_pod_may_not_use_do_not_count() -> None:
    asked = {"topologySpreadConstraints": spread(HOST), "nodeSelector": {HOST: "n0"}}
    assert nodes_of(world(), pods(3, asked)) == ["n0", "n0", "n0"]
    ignored = {"topologySpreadConstraints": spread(HOST, nodeAffinityPolicy="Ignore"), "nodeSelector": {HOST: "n0"}}
    assert nodes_of(world(), pods(3, ignored)) == []


def test_a_soft_spread_is_no_obstacle() -> None:
    asked = {"topologySpreadConstraints": spread(HOST, whenUnsatisfiable="ScheduleAnyway")}
    assert len(set(nodes_of(world(), pods(3, asked)))) == 1


CLASS = msgspec.convert({"metadata": {"name": "c"}, "volumeBindingMode": "WaitForFirstConsumer"}, StorageClass)


def stored(snapshot_nodes: int, *claims: dict[str, Any], volumes: Sequence[dict[str, Any]] = ()) -> Snapshot:
    made: list[Node] = [make_node(f"n{index}") for index in range(snapshot_nodes)]
    known = make_world(*made)
    known.on_storage_class(None, CLASS)
    for body in claims:
        known.on_volume_claim(None, msgspec.convert(body, PersistentVolumeClaim))
    for body in volumes:
        known.on_volume(None, msgspec.convert(body, PersistentVolume))
    return known.publish()


def data(name: str, volume: str = "", mode: str = "ReadWriteOnce") -> dict[str, Any]:
    meta = {
        "name": name,
        "namespace": "ml",
        "annotations": {"pv.kubernetes.io/bind-completed": "yes"} if volume else {},
    }
    return {"metadata": meta, "spec": {"volumeName": volume, "storageClassName": "c", "accessModes": [mode]}}


def local(name: str, node: str) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]}]
    return {"metadata": {"name": name}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}


def volume(claim: str) -> dict[str, Any]:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}


def test_each_rank_goes_where_its_own_volume_is() -> None:
    claims = [data(f"data-{rank}", f"pv-{rank}") for rank in range(2)]
    there = stored(3, *claims, volumes=[local("pv-0", "n2"), local("pv-1", "n0")])
    gang = [pods(2, volume(f"data-{rank}"))[rank] for rank in range(2)]
    assert nodes_of(there, gang) == ["n2", "n0"]


def test_a_volume_nobody_can_reach_is_named() -> None:
    result = planned(stored(2), pods(1, volume("data")))
    assert isinstance(result, Refusal)
    assert "PersistentVolumeClaim data does not exist" in result.message


def test_a_claim_for_one_pod_at_a_time_places_no_second_pod() -> None:
    there = stored(2, data("data", "pv", "ReadWriteOncePod"), volumes=[local("pv", "n1")])
    assert nodes_of(there, pods(1, volume("data"))) == ["n1"]
    assert nodes_of(there, pods(2, volume("data"))) == []
