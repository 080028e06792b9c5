from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.api.core import Node, Pod, Taint, Toleration
from outrider.api.gpunode import Verdict
from scheduler_plugin.cluster.members import member
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.placing.gang import Gang, Placement, Refusal
from scheduler_plugin.placing.plan import plan
from scheduler_plugin.placing.replacing import replace
from scheduler_plugin.placing.spares import spares_for
from tests.scheduler_plugin.builders import (
    NOW,
    gang_pods,
    make_gpunode,
    make_node,
    make_placement,
    make_pod,
    make_snapshot,
)


def leaf(index: int, count: int, spine: str = "spine-0") -> list[Node]:
    return [make_node(f"l{index}-n{number}", f"leaf-{index}", spine) for number in range(count)]


def gang(pods: list[Pod], job: str = "train", excluded: frozenset[str] = frozenset()) -> Gang:
    return Gang(f"job-{job}", tuple(member(pod, rank) for rank, pod in enumerate(pods)), excluded)


def placed(result: Placement | Refusal) -> list[str]:
    assert isinstance(result, Placement), result
    return [result.nodes[uid] for uid in sorted(result.nodes, key=lambda uid: int(uid.rpartition("-")[2]))]


def refused(result: Placement | Refusal) -> str:
    assert isinstance(result, Refusal), result
    return result.message


def leaves(names: list[str]) -> set[str]:
    return {name.partition("-")[0] for name in names}


def test_a_gang_that_fits_under_one_leaf_gets_one_with_ranks_in_order() -> None:
    snapshot = make_snapshot(*leaf(0, 2), *leaf(1, 4), *leaf(2, 3))
    assert placed(plan(gang(gang_pods("train", 3)), snapshot, 1, NOW)) == ["l2-n0", "l2-n1", "l2-n2"]


def test_the_leaf_that_fits_most_tightly_is_taken_so_that_whole_leaves_stay_free() -> None:
    busy = make_pod("busy", gpus=8, node="l1-n0")
    snapshot = make_snapshot(*leaf(0, 4), *leaf(1, 4), busy)
    assert leaves(placed(plan(gang(gang_pods("train", 3)), snapshot, 1, NOW))) == {"l1"}


def test_a_large_gang_stays_under_one_spine_with_the_fewest_leaves() -> None:
    snapshot = make_snapshot(
        *leaf(0, 4), *leaf(1, 1), *leaf(2, 3), *(leaf(3, 3, "spine-1") + leaf(4, 2, "spine-1") + leaf(5, 1, "spine-1"))
    )
    names = placed(plan(gang(gang_pods("train", 7)), snapshot, 1, NOW))
    assert leaves(names) == {"l0", "l2"}
    assert names == sorted(names)


def test_of_two_spines_that_hold_it_the_gang_gets_the_one_with_fewer_leaves() -> None:
    narrow = [node for index in range(4) for node in leaf(index, 1)]
    wide = leaf(4, 3, "spine-1") + leaf(5, 3, "spine-1")
    names = placed(plan(gang(gang_pods("train", 4)), make_snapshot(*narrow, *wide), 1, NOW))
    assert leaves(names) == {"l4", "l5"}


def test_healthier_nodes_are_taken_first() -> None:
    weak = [make_gpunode(f"l0-n{number}", score=50) for number in (0, 2)]
    strong = [make_gpunode(f"l0-n{number}") for number in (1, 3)]
    snapshot = make_snapshot(*leaf(0, 4), *weak, *strong)
    assert placed(plan(gang(gang_pods("train", 2)), snapshot, 1, NOW)) == ["l0-n1", "l0-n3"]


def test_small_pods_share_a_node_and_leave_the_others_whole() -> None:
    snapshot = make_snapshot(*leaf(0, 3))
    names = placed(plan(gang(gang_pods("train", 4, gpus=2)), snapshot, 1, NOW))
    assert len(set(names)) == 1


def test_small_pods_fill_the_fullest_node_that_holds_them() -> None:
    snapshot = make_snapshot(*leaf(0, 2), make_pod("other", gpus=4, node="l0-n1"))
    assert placed(plan(gang(gang_pods("train", 2, gpus=2)), snapshot, 1, NOW)) == ["l0-n1", "l0-n1"]


def test_pods_that_ask_for_different_things_are_placed_together() -> None:
    pods = [make_pod("train-0", gpus=0, job="train", rank=0), *gang_pods("train", 3)[1:]]
    snapshot = make_snapshot(*leaf(0, 2), *leaf(1, 1))
    names = placed(plan(gang(pods), snapshot, 1, NOW))
    assert names[1:] == ["l0-n0", "l0-n1"]
    assert leaves(names) == {"l0"}


def test_the_nearest_nodes_are_named_as_spares() -> None:
    snapshot = make_snapshot(*leaf(0, 3), *leaf(1, 3), *leaf(2, 9, "spine-1"))
    result = plan(gang(gang_pods("train", 2)), snapshot, 3, NOW)
    assert isinstance(result, Placement)
    assert [name[:2] for name in result.spares] == ["l0", "l1", "l1"]


TAINT = Taint(key="dedicated", value="ml")


@pytest.mark.parametrize(
    ("node", "pod"),
    [
        (make_node("n0", taints=[TAINT]), {}),
        (make_node("n0", cordoned=True), {}),
        (make_node("n0"), {"node_selector": {"disk": "fast"}}),
        (make_node("n0"), {"cpu": "65"}),
        (make_node("n0", gpus=4), {}),
        (make_node("n0", gpus=0), {}),
    ],
)
def test_what_the_scheduler_would_refuse_is_not_planned(node: Node, pod: dict[str, object]) -> None:
    assert refused(plan(gang(gang_pods("train", 1, **pod)), make_snapshot(node), 1, NOW))


def test_a_tolerated_taint_a_matching_label_and_an_allowing_affinity_are_no_obstacle() -> None:
    node = make_node("n0", taints=[TAINT], labels={"disk": "fast"})
    terms = [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["fast"]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    tolerated = Toleration(key="dedicated", operator="Exists")
    pods = gang_pods("train", 1, affinity=affinity, node_selector={"disk": "fast"}, tolerations=[tolerated])
    assert placed(plan(gang(pods), make_snapshot(node), 1, NOW)) == ["n0"]


def test_a_refusal_says_what_is_needed_and_what_there_is() -> None:
    snapshot = make_snapshot(
        *leaf(0, 2),
        *leaf(1, 4),
        make_gpunode("l1-n0", verdict=Verdict.REPLACE, reason="xid/79"),
        make_pod("busy", gpus=1, node="l1-n1"),
        *gang_pods("other", 1),
        make_placement("other", {0: "l1-n2"}),
        make_node("l1-n3", "leaf-1", cordoned=True),
    )
    message = refused(plan(gang(gang_pods("train", 3)), snapshot, 1, NOW))
    assert message == (
        "needs 3 nodes with 8 free GPUs; 2 healthy and free, 1 cordoned, 1 in use, 1 reserved for other gangs, "
        "1 unhealthy (xid/79); fits first when Job ml/other ends"
    )


def test_a_refusal_of_small_pods_counts_pods() -> None:
    message = refused(plan(gang(gang_pods("train", 3, gpus=4)), make_snapshot(*leaf(0, 1)), 1, NOW))
    assert message == (
        "needs room for 3 pods with 4 free GPUs each; 1 healthy and free; "
        "the cluster is not large enough, even empty and healthy"
    )


def test_a_refusal_names_the_leaves_that_came_near() -> None:
    result = plan(gang(gang_pods("train", 4)), make_snapshot(*leaf(0, 2), *leaf(1, 1)), 1, NOW)
    assert isinstance(result, Refusal)
    assert [(one.domain, one.reason) for one in result.rejected] == [
        ("spine-0/leaf-0", "room for 2 of 4 pods"),
        ("spine-0/leaf-1", "room for 1 of 4 pods"),
    ]


def test_a_node_that_was_tried_in_vain_is_not_planned_again() -> None:
    asked = gang(gang_pods("train", 1), excluded=frozenset(["l0-n0"]))
    assert placed(plan(asked, make_snapshot(*leaf(0, 2)), 1, NOW)) == ["l0-n1"]
    assert "tried before" in refused(plan(asked, make_snapshot(*leaf(0, 1)), 1, NOW))


def test_a_replacement_goes_to_the_spare_first_then_to_the_nearest() -> None:
    snapshot = make_snapshot(*leaf(0, 3), *leaf(1, 2), *leaf(2, 2, "spine-1"))
    asked = gang(gang_pods("train", 1))
    uid = asked.members[0].uid
    assert placed(replace(asked, ["l0-n0", "l0-n1"], {uid: ["l1-n1"]}, snapshot, NOW)) == ["l1-n1"]
    assert placed(replace(asked, ["l0-n0", "l0-n1"], {}, snapshot, NOW)) == ["l0-n0"]


def test_many_ranks_are_replaced_at_once_each_on_its_own_node() -> None:
    used = [make_pod(f"s{number}", node=f"l0-n{number}") for number in range(2)]
    snapshot = make_snapshot(*leaf(0, 3), *leaf(1, 2), *used)
    asked = gang(gang_pods("train", 2))
    names = placed(replace(asked, ["l0-n0", "l0-n1"], {}, snapshot, NOW))
    assert names[0] == "l0-n2"
    assert leaves(names[1:]) == {"l1"}
    left = {"l1-n0", "l1-n1"} - set(names)
    assert set(spares_for(asked, {"l0-n0", "l0-n1", *names}, snapshot, 2, NOW)) == left


CLUSTERS = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(0, 3), st.integers(0, 8), st.sampled_from(list(Verdict)), st.integers(0, 100)
    ),
    min_size=1,
    max_size=14,
)


def cluster(drawn: list[tuple[int, int, int, Verdict, int]]) -> list[object]:
    objects: list[object] = []
    for number, (spine, one, used, verdict, score) in enumerate(drawn):
        name = f"n{number}"
        objects.append(make_node(name, f"leaf-{one}", f"spine-{spine}"))
        objects.append(make_gpunode(name, verdict=verdict, score=score))
        objects.append(make_pod(f"used-{number}", gpus=used, node=name, phase="Running"))
    return objects


def room_for(snapshot: Snapshot, gpus: int) -> int:
    return sum(view.spare_gpus // (gpus * 1000) for view in snapshot.nodes.values() if not view.refusal(NOW))


@settings(max_examples=150, deadline=None)
@given(CLUSTERS, st.integers(1, 6), st.sampled_from([1, 2, 4, 8]))
def test_a_gang_is_placed_whole_where_there_is_room_and_not_at_all_where_there_is_none(
    drawn: list[tuple[int, int, int, Verdict, int]], count: int, gpus: int
) -> None:
    snapshot = make_snapshot(*cluster(drawn))
    asked = gang(gang_pods("train", count, gpus=gpus))
    result = plan(asked, snapshot, 1, NOW)
    assert result == plan(asked, snapshot, 1, NOW)
    assert isinstance(result, Placement) == (room_for(snapshot, gpus) >= count)
    if isinstance(result, Placement):
        assert result.nodes.keys() == {one.uid for one in asked.members}
        for name, pods in Counter(result.nodes.values()).items():
            view = snapshot.nodes[name]
            assert not view.refusal(NOW)
            assert pods * gpus * 1000 <= view.free_gpus
        assert not set(result.spares) & set(result.nodes.values())


@settings(max_examples=100, deadline=None)
@given(CLUSTERS, st.lists(st.tuples(st.integers(1, 4), st.sampled_from([2, 4, 8])), min_size=1, max_size=5))
def test_no_two_gangs_ever_get_the_same_gpu(
    drawn: list[tuple[int, int, int, Verdict, int]], gangs: list[tuple[int, int]]
) -> None:
    objects = cluster(drawn)
    for number, (count, gpus) in enumerate(gangs):
        job = f"job{number}"
        pods = gang_pods(job, count, gpus=gpus)
        result = plan(gang(pods, job), make_snapshot(*objects), 1, NOW)
        if isinstance(result, Placement):
            ranks = {rank: result.nodes[pod.metadata.uid] for rank, pod in enumerate(pods)}
            objects += [*pods, make_placement(job, ranks)]
    for view in make_snapshot(*objects).nodes.values():
        assert view.spare_gpus >= 0


@settings(max_examples=100, deadline=None)
@given(CLUSTERS, st.integers(1, 4), st.integers(0, 3))
def test_replacements_fit_and_leave_nobody_out_while_there_is_room(
    drawn: list[tuple[int, int, int, Verdict, int]], lost: int, kept: int
) -> None:
    objects = cluster(drawn)
    survivors = [f"n{number}" for number in range(min(kept, len(drawn)))]
    objects += [make_pod(f"s-{name}", gpus=8, node=name) for name in survivors]
    snapshot = make_snapshot(*objects)
    result = replace(gang(gang_pods("train", lost)), survivors, {}, snapshot, NOW)
    nodes = result.nodes if isinstance(result, Placement) else {}
    assert len(nodes) == min(
        lost, sum(view.free_gpus >= 8000 and not view.refusal(NOW) for view in snapshot.nodes.values())
    )
    assert len(set(nodes.values())) == len(nodes)
    assert not set(nodes.values()) & set(survivors)
