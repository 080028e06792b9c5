"""Claims, volumes and classes as kube-scheduler reads them."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from scheduler_plugin.cluster.volumes import Storage

ZONE = "topology.kubernetes.io/zone"


def claim(name: str, volume: str = "", kind: str | None = "fast", **more: Any) -> PersistentVolumeClaim:
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    body = {
        "metadata": {"name": name, "namespace": "ml", "annotations": annotations | more.pop("annotations", {})}
        | more.pop("metadata", {}),
        "spec": {"volumeName": volume, "storageClassName": kind, "accessModes": ["ReadWriteOnce"]}
        | {"resources": {"requests": {"storage": "10Gi"}}}
        | more.pop("spec", {}),
        **more,
    }
    return msgspec.convert(body, PersistentVolumeClaim)


def volume(
    name: str, *, nodes: tuple[str, ...] = (), labels: dict[str, str] | None = None, **spec: Any
) -> PersistentVolume:
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}]}]
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if nodes else {}
    body = {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast"}
        | affinity
        | spec,
        "status": {"phase": "Available"},
    }
    return msgspec.convert(body, PersistentVolume)


def storage_class(name: str = "fast", provisioner: str = "csi.example", **more: Any) -> StorageClass:
    body = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer", **more}
    return msgspec.convert(body, StorageClass)


def storage(*objects: object) -> Storage:
    claims = {f"ml/{one.metadata.name}": one for one in objects if isinstance(one, PersistentVolumeClaim)}
    volumes = {one.metadata.name: one for one in objects if isinstance(one, PersistentVolume)}
    classes = {one.metadata.name: one for one in objects if isinstance(one, StorageClass)}
    return Storage(claims, volumes, classes)


def allows(
    known: Storage, node: str, labels: dict[str, str] | None = None, claims: tuple[str, ...] = ("data",)
) -> bool:
    return known.reach("ml", claims).allows(node, {"kubernetes.io/hostname": node} | (labels or {}))


def test_a_pod_without_claims_may_go_anywhere() -> None:
    assert allows(Storage(), "n0", claims=())


def test_a_bound_claim_ties_the_pod_to_where_its_volume_is() -> None:
    known = storage(claim("data", "pv"), volume("pv", nodes=("n0",)))
    assert allows(known, "n0")
    assert not allows(known, "n1")


def test_a_volume_of_a_zone_is_reached_from_that_zone_only() -> None:
    known = storage(claim("data", "pv"), volume("pv", labels={ZONE: "a__b"}))
    assert allows(known, "n0", {ZONE: "b"})
    assert not allows(known, "n0", {ZONE: "c"})
    assert not allows(known, "n0", {"topology.kubernetes.io/region": "x"})
    assert allows(known, "n0")  # a cluster that labels no zones


def test_an_old_zone_label_of_a_volume_is_compared_with_the_new_one_of_a_node() -> None:
    known = storage(claim("data", "pv"), volume("pv", labels={"failure-domain.beta.kubernetes.io/zone": "a"}))
    assert allows(known, "n0", {ZONE: "a"})
    assert not allows(known, "n0", {ZONE: "b"})


@pytest.mark.parametrize(
    ("objects", "words"),
    [
        ((), "claim data does not exist"),
        ((claim("data", "pv"),), "volume pv of claim data does not exist"),
        ((claim("data"),), "StorageClass fast of claim data does not exist"),
        ((claim("data"), storage_class(volumeBindingMode="Immediate")), "data is not bound yet"),
        ((claim("data", kind=None),), "data is not bound yet"),
        ((claim("data", status={"phase": "Lost"}),), "data has lost its volume"),
        ((claim("data", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),), "data is being deleted"),
    ],
)
def test_a_claim_that_no_node_can_serve_keeps_the_pod_off_all(objects: tuple[object, ...], words: str) -> None:
    known = storage(*objects)
    assert words.removeprefix("claim ") in known.reach("ml", ["data"]).problem
    assert not allows(known, "n0")


def test_a_claim_that_waits_for_its_pod_goes_where_its_class_allows() -> None:
    terms = [{"matchLabelExpressions": [{"key": ZONE, "values": ["a", "b"]}]}]
    known = storage(claim("data"), storage_class(allowedTopologies=terms))
    assert allows(known, "n0", {ZONE: "b"})
    assert not allows(known, "n0", {ZONE: "c"})
    assert not allows(known, "n0")


def test_a_class_without_provisioner_needs_a_free_volume_on_the_node() -> None:
    local = storage_class(provisioner="kubernetes.io/no-provisioner")
    known = storage(claim("data"), local, volume("pv", nodes=("n0",)))
    assert allows(known, "n0")
    assert not allows(known, "n1")


@pytest.mark.parametrize(
    "spec",
    [
        {"capacity": {"storage": "9Gi"}},
        {"capacity": {"storage": "nonsense"}},
        {"accessModes": ["ReadOnlyMany"]},
        {"volumeMode": "Block"},
        {"storageClassName": "slow"},
        {"claimRef": {"namespace": "ml", "name": "other"}},
    ],
)
def test_a_volume_that_is_not_what_the_claim_asks_for_does_not_serve_it(spec: dict[str, Any]) -> None:
    local = storage_class(provisioner="kubernetes.io/no-provisioner")
    assert not allows(storage(claim("data"), local, volume("pv", nodes=("n0",), **spec)), "n0")


def test_a_volume_kept_for_the_claim_serves_it() -> None:
    local = storage_class(provisioner="kubernetes.io/no-provisioner")
    kept = volume("pv", nodes=("n0",), claimRef={"namespace": "ml", "name": "data"})
    assert allows(storage(claim("data"), local, kept), "n0")


def test_two_claims_need_two_volumes() -> None:
    local = storage_class(provisioner="kubernetes.io/no-provisioner")
    known = storage(claim("data"), claim("more"), local, volume("pv", nodes=("n0",)))
    assert not allows(known, "n0", claims=("data", "more"))
    both = Storage(known.claims, {**known.volumes, "pv2": volume("pv2", nodes=("n0",))}, known.classes)
    assert allows(both, "n0", claims=("data", "more"))


def test_a_claim_for_which_a_node_was_chosen_stays_there() -> None:
    known = storage(claim("data", annotations={"volume.kubernetes.io/selected-node": "n1"}), storage_class())
    assert allows(known, "n1")
    assert not allows(known, "n0")


def test_a_claim_for_one_pod_at_a_time_is_told_apart() -> None:
    alone = claim("data", "pv", spec={"accessModes": ["ReadWriteOncePod"]})
    assert storage(alone, volume("pv")).reach("ml", ["data"]).exclusive == ("data",)


def test_pods_whose_claims_are_served_alike_are_of_one_kind() -> None:
    known = storage(
        claim("data-0"), claim("data-1"), claim("data-2", "pv"), volume("pv", nodes=("n0",)), storage_class()
    )
    kinds = [known.reach("ml", [f"data-{rank}"]).kind for rank in range(3)]
    assert kinds[0] == kinds[1] != kinds[2]


KEYS = st.sampled_from(["nodeSelectorTerms", "matchExpressions", "key", "operator", "values"])
ANYTHING = st.recursive(
    st.none() | st.text(max_size=5) | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner)
)


@given(ANYTHING)
def test_an_affinity_of_any_content_is_no_crash(content: object) -> None:
    odd = volume("pv", nodeAffinity={"required": {"nodeSelectorTerms": content}})
    assert allows(storage(claim("data", "pv"), odd), "n0") in (True, False)
