import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.api.core import Container, NodeStatus, ResourceRequirements, Taint, Toleration
from outrider.workloads.resources import GPU
from scheduler_plugin.cluster.members import member
from scheduler_plugin.placing.constraints import selects, untolerated
from scheduler_plugin.placing.room import Room
from tests.scheduler_plugin.builders import NOW, make_node, make_pod, make_snapshot

LABELS = {"disk": "fast", "size": "8"}


@pytest.mark.parametrize(
    ("requirement", "allowed"),
    [
        ({"key": "disk", "operator": "In", "values": ["slow", "fast"]}, True),
        ({"key": "disk", "operator": "In", "values": ["slow"]}, False),
        ({"key": "none", "operator": "In", "values": ["fast"]}, False),
        ({"key": "disk", "operator": "NotIn", "values": ["fast"]}, False),
        ({"key": "none", "operator": "NotIn", "values": ["fast"]}, True),
        ({"key": "disk", "operator": "Exists"}, True),
        ({"key": "none", "operator": "Exists"}, False),
        ({"key": "none", "operator": "DoesNotExist"}, True),
        ({"key": "disk", "operator": "DoesNotExist"}, False),
        ({"key": "size", "operator": "Gt", "values": ["7"]}, True),
        ({"key": "size", "operator": "Gt", "values": ["8"]}, False),
        ({"key": "size", "operator": "Lt", "values": ["9"]}, True),
        ({"key": "size", "operator": "Lt", "values": ["8"]}, False),
        ({"key": "disk", "operator": "Gt", "values": ["1"]}, False),
        ({"key": "size", "operator": "Gt", "values": []}, False),
        ({"key": "size", "operator": "Gt", "values": ["1_0"]}, False),
        ({"key": "size", "operator": "Gt", "values": [" 7"]}, False),
        ({"key": "size", "operator": "Gt", "values": ["+7"]}, True),
        ({"key": "size", "operator": "Gt", "values": ["-9"]}, True),
        ({"key": "size", "operator": "Gt", "values": ["9" * 5000]}, False),
        ({"key": "size", "operator": "FromTheFuture", "values": ["8"]}, False),
        ({}, False),
    ],
)
def test_a_requirement_on_labels_is_read_as_the_scheduler_reads_it(
    requirement: dict[str, object], allowed: bool
) -> None:
    terms = [{"matchExpressions": [requirement]}]
    assert selects({}, affinity(terms), "n0", LABELS) is allowed


def affinity(terms: object) -> dict[str, object]:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def test_terms_are_alternatives_and_an_empty_one_matches_nothing() -> None:
    fast = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["fast"]}]}
    other_node = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    assert selects({}, affinity([other_node, fast]), "n0", LABELS)
    assert not selects({}, affinity([{**other_node, **fast}]), "n0", LABELS)
    assert not selects({}, affinity([{}]), "n0", LABELS)


@pytest.mark.parametrize("odd", [{"nodeAffinity": None}, {"nodeAffinity": []}, {"podAffinity": {}}, affinity(None)])
def test_an_affinity_without_node_terms_is_no_obstacle(odd: dict[str, object]) -> None:
    assert selects({}, odd, "n0", LABELS) is (odd != affinity(None))


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration(key="team", value="ml", effect="NoSchedule"), True),
        (Toleration(key="team", value="web", effect="NoSchedule"), False),
        (Toleration(key="team", value="ml", effect="NoExecute"), False),
        (Toleration(key="team", value="ml"), True),
        (Toleration(key="team", operator="Exists"), True),
        (Toleration(key="other", operator="Exists"), False),
        (Toleration(operator="Exists"), True),
        (Toleration(key="team", operator="Gt", value="ml"), False),
        (Toleration(key="team", operator="FromTheFuture", value="ml"), False),
    ],
)
def test_a_toleration_covers_the_taint_that_it_names(toleration: Toleration, tolerated: bool) -> None:
    taint = Taint(key="team", value="ml")
    assert (untolerated([taint], [toleration]) is None) is tolerated


def test_a_soft_taint_keeps_nobody_away_and_a_cordon_counts_as_its_taint() -> None:
    assert untolerated([Taint(key="team", effect="PreferNoSchedule")], []) is None
    cordon = untolerated([], [], cordoned=True)
    assert cordon is not None
    assert untolerated([], [Toleration(key=cordon.key, operator="Exists")], cordoned=True) is None


KEYS = st.sampled_from(
    [
        "podAffinity",
        "podAntiAffinity",
        "nodeAffinity",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "nodeSelectorTerms",
        "labelSelector",
        "namespaceSelector",
        "namespaces",
        "matchLabels",
        "matchExpressions",
        "matchFields",
        "topologyKey",
        "key",
        "operator",
        "values",
        "maxSkew",
        "whenUnsatisfiable",
        "matchLabelKeys",
    ]
)
ANYTHING = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | st.sampled_from(["In", "Gt", "DoNotSchedule", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(KEYS, ANYTHING, max_size=4), st.lists(st.dictionaries(KEYS, ANYTHING, max_size=6), max_size=3))
def test_affinity_and_spread_of_any_content_are_no_crash(
    affinity: dict[str, object], spread: list[dict[str, object]]
) -> None:
    odd = make_pod("odd", gpus=1, affinity=affinity)
    odd = msgspec.structs.replace(odd, spec=msgspec.structs.replace(odd.spec, topology_spread_constraints=spread))
    there = msgspec.structs.replace(
        odd,
        metadata=msgspec.structs.replace(odd.metadata, uid="there"),
        spec=msgspec.structs.replace(odd.spec, node_name="n0"),
    )
    snapshot = make_snapshot(make_node("n0"), make_node("n1"), there)
    one = member(odd, 0)
    assert {view.name for view in Room(snapshot, "", (one,), frozenset(), NOW).fitting(one)} <= {"n0", "n1"}


@pytest.mark.parametrize("amount", ["", "eight", "-8", "8 GPUs"])
def test_a_node_whose_amounts_are_nonsense_has_no_room_and_stops_nobody_elsewhere(amount: str) -> None:
    odd = make_node("odd")
    odd = msgspec.structs.replace(odd, status=NodeStatus(allocatable={GPU: amount, "cpu": "64", "pods": "110"}))
    one = member(make_pod("p", gpus=1), 0)
    snapshot = make_snapshot(odd, make_node("n0"), make_node("none", gpus=0))
    assert {view.name for view in Room(snapshot, "", (one,), frozenset(), NOW).fitting(one)} == {"n0"}


@pytest.mark.parametrize(
    "resource", ["nvidia.com/mig-3g.40gb", "amd.com/gpu", "gpu.intel.com/i915", "volcano.sh/vgpu-memory"]
)
def test_a_resource_of_any_vendor_is_counted_on_its_own_nodes(resource: str) -> None:
    node = make_node("theirs")
    theirs = msgspec.structs.replace(node, status=NodeStatus(allocatable={resource: "3", "cpu": "64", "pods": "110"}))
    pod = make_pod("p", gpus=0)
    asked = Container(resources=ResourceRequirements(limits={resource: "2"}))
    pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=[asked]))
    one = member(pod, 0)
    room = Room(make_snapshot(theirs, make_node("n0")), "", (one,), frozenset(), NOW)
    assert [view.name for view in room.fitting(one)] == ["theirs"]
    room.use(next(iter(room.fitting(one))), one)
    assert list(room.fitting(one)) == []
