import pytest

from outrider.api.core import Taint, Toleration
from scheduler_plugin.placing.constraints import selects, untolerated

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
