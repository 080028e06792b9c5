"""The kubelet's count of GPUs beside NVML's."""

import pytest
from around import CATALOGUE, NOW, record
from hypothesis import given
from hypothesis import strategies as st

from node_agent.readings.kubelet import BLACK_HOLE, UNADVERTISED, UNUSABLE, Comparison, compare
from node_agent.readings.nvml import BLIND_CODES
from outrider.api.core import Node, NodeStatus
from outrider.api.gpunode import SubjectKind
from outrider.health.findings import seen

GPUS = [record(index) for index in range(8)]


def node(offered, capacity=8, **more):
    status = NodeStatus(
        capacity={"nvidia.com/gpu": str(capacity), **more}, allocatable={"nvidia.com/gpu": str(offered)}
    )
    return Node(status=status)


def lost(*indices: int, code="gpu/lost"):
    return [seen(code, NOW, subject=SubjectKind.GPU, subject_id=f"GPU-{index}", source="nvml") for index in indices]


@pytest.mark.parametrize(
    ("offered", "capacity", "findings", "code"),
    [
        (8, 8, [], ""),
        (8, 8, lost(3), BLACK_HOLE),
        (7, 8, lost(3), ""),
        (7, 8, [], UNADVERTISED),
        (0, 8, [], UNADVERTISED),
        (9, 9, [], BLACK_HOLE),
        (32, 32, [], ""),
        (32, 32, lost(3), BLACK_HOLE),
        (28, 32, lost(3), ""),
        (56, 56, [], ""),
        (0, 0, [], UNADVERTISED),
    ],
)
def test_more_offered_than_usable_is_a_black_hole_and_fewer_is_lost_capacity(offered, capacity, findings, code):
    assert compare(node(offered, capacity), GPUS, findings).code == code


def test_the_evidence_names_counts_and_gpus():
    line = compare(node(8), GPUS, lost(3, 5, code="gpu/missing")).line
    assert line == "the kubelet offers 8 GPUs to pods, NVML can use 6 (not GPU 3, GPU 5)"


@pytest.mark.parametrize("code", sorted(UNUSABLE))
def test_every_way_to_be_unusable_has_a_row(code):
    assert code in CATALOGUE
    assert compare(node(8), GPUS, lost(1, code=code)).code == BLACK_HOLE


def test_gpus_in_mig_mode_are_counted_under_other_names():
    assert compare(node(6, 6, **{"nvidia.com/mig-1g.10gb": "14"}), GPUS, []) == Comparison()


def test_a_node_without_the_device_plugin_has_nothing_to_compare():
    assert compare(Node(), GPUS, []) == Comparison()


@pytest.mark.parametrize(
    "finding",
    [
        *(seen(code, NOW, source="nvml") for code in sorted(BLIND_CODES)),
        seen("monitor/blind", NOW, subject_id="nvml", source="monitor:nvml"),
        seen("monitor/blind", NOW, source="nvml"),
    ],
)
def test_nothing_can_be_told_while_nvml_is_blind(finding):
    assert not compare(node(8), GPUS, [finding]).possible


def test_nothing_can_be_told_before_both_views_are_there():
    assert not compare(None, GPUS, []).possible
    assert not compare(node(8), [], []).possible


@pytest.mark.parametrize("text", ["", "many", "-3", "8.5", "1e400", "9" * 400])
def test_a_count_that_is_no_number_is_no_finding(text):
    broken = Node(status=NodeStatus(capacity={"nvidia.com/gpu": text}, allocatable={"nvidia.com/gpu": text}))
    assert compare(broken, GPUS, []).possible


@given(st.dictionaries(st.sampled_from(["nvidia.com/gpu", "cpu"]), st.text(max_size=8)), st.text(max_size=8))
def test_no_text_in_a_nodes_status_is_an_error(capacity, offered):
    compare(Node(status=NodeStatus(capacity=capacity, allocatable={"nvidia.com/gpu": offered})), GPUS, [])
