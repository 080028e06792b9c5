"""Thinning out of what informers deliver: decisions read the same, memory holds equal parts once."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from outrider.api.core import ClaimReference, Container, NamedReference, Node, NodeStatus, Pod, StatusCondition, Volume
from outrider.api.gpunode import GPU, Finding, GPUNode, SubjectKind, Verdict
from outrider.api.meta import ObjectMeta
from scheduler_plugin.cluster.thinning import Thinner
from tests.scheduler_plugin.builders import (
    gang_pods,
    make_gpunode,
    make_node,
    make_placement,
    make_pod,
    make_snapshot,
    pinned_to,
)


def metadata(**changes: Any) -> ObjectMeta:
    return msgspec.structs.replace(make_pod("p").metadata, **changes)


@given(
    st.lists(st.tuples(st.integers(0, 8), st.sampled_from(list(Verdict)), st.booleans()), max_size=5),
    st.lists(st.tuples(st.integers(0, 8), st.sampled_from(["", "n0", "n1"])), max_size=5),
)
def test_decisions_read_the_same_from_what_is_kept(
    nodes: list[tuple[int, Verdict, bool]], pods: list[tuple[int, str]]
) -> None:
    thinner = Thinner()
    objects: list[object] = [*gang_pods("train", 2), make_placement("train", {0: "n0", 1: "n1"})]
    objects += [make_pod(f"p{index}", gpus=gpus, node=node) for index, (gpus, node) in enumerate(pods)]
    for index, (gpus, verdict, cordoned) in enumerate(nodes):
        objects += [make_node(f"n{index}", gpus=gpus, cordoned=cordoned), make_gpunode(f"n{index}", verdict=verdict)]
    kept = [thinned(thinner, one) for one in objects]
    assert make_snapshot(*kept).nodes == make_snapshot(*objects).nodes
    assert make_snapshot(*kept).plans == make_snapshot(*objects).plans


def thinned(thinner: Thinner, one: object) -> object:
    match one:
        case Pod():
            return thinner.pod(one)
        case Node():
            return thinner.node(one)
        case GPUNode():
            return thinner.gpunode(one)
    return one


def test_equal_parts_of_two_pods_are_one() -> None:
    thinner = Thinner()
    first, second = (thinner.pod(make_pod(name, affinity=pinned_to("n0"))) for name in ("a", "b"))
    assert first.spec.containers is second.spec.containers
    assert first.spec.affinity is second.spec.affinity
    assert first.metadata.name == "a"


def test_parts_of_different_fields_are_never_taken_for_each_other() -> None:
    mixed = msgspec.json.decode(
        b'{"spec":{"schedulingGates":[{"name":"x"}],"containers":[{"name":"x"}],"tolerations":[{}]}}', type=Pod
    )
    kept = Thinner().pod(mixed)
    assert kept == mixed
    assert isinstance(kept.spec.containers[0], Container)
    assert isinstance(kept.spec.scheduling_gates[0], NamedReference)


def test_a_bound_pod_loses_its_node_affinity_and_keeps_what_concerns_other_pods() -> None:
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "x"}]}}
    both = pinned_to("n0") | apart
    assert Thinner().pod(make_pod("a", node="n0", affinity=both)).spec.affinity == apart
    assert Thinner().pod(make_pod("a", affinity=both)).spec.affinity == both


def test_long_annotations_and_volumes_without_a_claim_go() -> None:
    claim = Volume(name="data", persistent_volume_claim=ClaimReference(claim_name="data"))
    pod = make_pod("a")
    spec = msgspec.structs.replace(pod.spec, volumes=[Volume(name="token"), claim])
    kept = Thinner().pod(
        Pod(metadata=metadata(annotations={"manifest": "x" * 5000, "rank": "3"}), spec=spec, status=pod.status)
    )
    assert kept.metadata.annotations == {"rank": "3"}
    assert kept.spec.volumes == [claim]


def test_a_node_keeps_its_labels_and_our_annotations() -> None:
    node = make_node("n0", labels={"pool": "a"})
    meta = msgspec.structs.replace(node.metadata, annotations={"csi/nodeid": "x", "outrider.dev/released": "y"})
    ready = NodeStatus(
        allocatable=node.status.allocatable, conditions=[StatusCondition(type="Ready", status="True", message="words")]
    )
    kept = Thinner().node(msgspec.structs.replace(node, metadata=meta, status=ready))
    assert kept.metadata.labels == node.metadata.labels
    assert kept.metadata.annotations == {"outrider.dev/released": "y"}
    assert kept.status.conditions == [StatusCondition(type="Ready", status="True")]


def test_health_keeps_its_verdict_and_leaves_the_evidence() -> None:
    sick = make_gpunode("n0", verdict=Verdict.REPLACE, reason="xid/79")
    when = sick.status.observed_at or ""
    finding = Finding(code="xid/79", subject=SubjectKind.GPU, first_seen=when, last_seen=when)
    gpus = [GPU(index=0, uuid="GPU-1", fabric="clique 7")]
    full = msgspec.structs.replace(sick, status=msgspec.structs.replace(sick.status, findings=[finding], gpus=gpus))
    kept = Thinner().gpunode(full).status
    assert (kept.verdict, kept.reason, kept.observed_at) == (Verdict.REPLACE, "xid/79", when)
    assert (kept.findings, kept.gpus[0].fabric) == ([], "clique 7")
