"""Where gangs go on fabrics of all shapes, and what they may ask of them."""

from collections import Counter

import msgspec
import pytest

from outrider.api.core import Node
from outrider.api.gpunode import GPU as BOARD
from outrider.api.gpunode import GPUNode
from outrider.api.why import WaitReason
from outrider.topology import NO_ASK, TopologyAsk, levels_from
from scheduler_plugin.cluster.members import Member, member
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.placing.gang import Gang, Placement, Refusal
from scheduler_plugin.placing.plan import plan
from scheduler_plugin.rules import Rules
from tests.scheduler_plugin.builders import NOW, gang_pods, make_gpunode, make_node, make_pod, make_snapshot

CLIQUE = "nvidia.com/gpu.clique"
# Leaf groups of a real cluster of 64 nodes (marin-community/marin, issue 6950).
RAGGED = (1, 1, 2, 2, 2, 3, 3, 3, 5, 5, 6, 6, 6, 8, 11)


def leaf(index: int, count: int, spine: str = "s0", clique: str = "") -> list[Node]:
    labels = {CLIQUE: clique} if clique else {}
    return [make_node(f"l{index}{clique}-n{number}", f"l{index}", spine, labels=labels) for number in range(count)]


def workers(count: int, gpus: int = 8, first: int = 0) -> list[Member]:
    pods = gang_pods("train", first + count, gpus=gpus)
    return [member(pod, rank) for rank, pod in enumerate(pods)][first:]


def asked(members: int | list[Member], ask: TopologyAsk = NO_ASK) -> Gang:
    return Gang("job-train", tuple(workers(members) if isinstance(members, int) else members), ask=ask)


def placed(gang: Gang, snapshot: Snapshot) -> list[str]:
    result = plan(gang, snapshot, 0, NOW)
    assert isinstance(result, Placement), result
    return [result.nodes[one.uid] for one in sorted(gang.members, key=lambda one: one.rank)]


def refused(gang: Gang, snapshot: Snapshot) -> Refusal:
    result = plan(gang, snapshot, 0, NOW)
    assert isinstance(result, Refusal)
    return result


def under(names: list[str]) -> Counter[str]:
    return Counter(name.partition("-")[0] for name in names)


def test_two_leaves_in_use_are_taken_before_a_leaf_that_nobody_uses() -> None:
    used = [make_pod("a", node="l1-n7"), make_pod("b", node="l2-n7")]
    snapshot = make_snapshot(*leaf(0, 8), *leaf(1, 8), *leaf(2, 8), *used)
    assert under(placed(asked(12), snapshot)) == {"l1": 7, "l2": 5}


def test_no_leaf_more_is_used_to_keep_another_one_whole() -> None:
    used = [make_pod(f"busy-{number}", node=f"l{number}-n0") for number in (1, 2, 3)]
    snapshot = make_snapshot(*leaf(0, 8), *leaf(1, 5), *leaf(2, 5), *leaf(3, 5), *used)
    assert len(under(placed(asked(12), snapshot))) == 2


def test_of_the_leaves_that_would_do_the_last_one_is_the_tightest() -> None:
    snapshot = make_snapshot(*leaf(0, 8), *leaf(1, 6), *leaf(2, 3))
    assert under(placed(asked(11), snapshot)) == {"l0": 8, "l2": 3}


def test_of_the_blocks_that_hold_it_the_pair_with_the_fewest_leaves_is_taken() -> None:
    blocks = [leaf(10 * block + index, 2, f"s{block}") for block in range(2) for index in range(5)]
    wide = [leaf(30, 5, "s3"), leaf(40, 5, "s4")]
    names = placed(asked(11), make_snapshot(*(node for group in (*blocks, *wide) for node in group)))
    assert len(under(names)) == 4  # 5 + 2 + 2 + 2: two blocks hold it only with one of ten nodes


def test_a_gang_that_one_clique_holds_stays_in_it() -> None:
    snapshot = make_snapshot(*leaf(0, 4, clique="a"), *leaf(0, 4, clique="b"), *leaf(1, 4))
    assert len(under(placed(asked(3), snapshot))) == 1
    names = placed(asked(4), make_snapshot(*leaf(0, 3, clique="a"), *leaf(0, 4, clique="b"), *leaf(1, 8)))
    assert under(names) == {"l0b": 4}


def test_a_clique_in_use_is_taken_before_one_that_nobody_uses() -> None:
    used = make_pod("busy", node="l0b-n0")
    names = placed(asked(2), make_snapshot(*leaf(0, 4, clique="a"), *leaf(0, 4, clique="b"), used))
    assert under(names) == {"l0b": 2}


def test_a_clique_is_known_from_the_gpus_where_no_label_tells() -> None:
    def reporting(name: str, clique: str) -> GPUNode:
        there = make_gpunode(name)
        fabric = f"completed, clique {clique}"
        status = msgspec.structs.replace(there.status, gpus=[BOARD(index=0, uuid="GPU-0", fabric=fabric)])
        return msgspec.structs.replace(there, status=status)

    a, b = "1b4e28ba-2fa1-11d2-883f-0016d3cca427.1", "1b4e28ba-2fa1-11d2-883f-0016d3cca427.2"
    reports = [reporting(f"l0-n{number}", a if number in (1, 3) else b) for number in range(5)]
    snapshot = make_snapshot(*leaf(0, 5), *reports)
    assert placed(asked(2, TopologyAsk("nvlink-domain")), snapshot) == ["l0-n1", "l0-n3"]


def test_a_required_nvlink_domain_is_the_node_where_nvlink_ends_there() -> None:
    ask = TopologyAsk("nvlink-domain")
    assert len(set(placed(asked(workers(4, gpus=2), ask), make_snapshot(*leaf(0, 2))))) == 1
    assert refused(asked(2, ask), make_snapshot(*leaf(0, 2))).why is not None


def test_a_node_named_like_a_clique_or_a_leaf_is_no_part_of_it() -> None:
    labels = {CLIQUE: "n1"}
    snapshot = make_snapshot(make_node("n0", "n1", labels=labels), make_node("n1", "n1"), make_node("n2", "n2"))
    assert refused(asked(2, TopologyAsk("nvlink-domain")), snapshot)
    assert sorted(placed(asked(2, TopologyAsk("leaf")), snapshot)) == ["n0", "n1"]


def ragged() -> Snapshot:
    groups = (leaf(index, count, f"s{index % 2}") for index, count in enumerate(RAGGED))
    return make_snapshot(*(node for group in groups for node in group))


def test_a_required_leaf_that_no_leaf_is_large_enough_for_is_said_at_once() -> None:
    result = refused(asked(16, TopologyAsk("leaf")), ragged())
    assert result.why is not None
    assert result.why.reason is WaitReason.NEVER_FITS
    assert result.why.level == "leaf"
    assert result.why.best is not None
    assert result.why.best.room == 11


def test_the_same_gang_that_only_prefers_a_leaf_gets_as_few_as_there_can_be() -> None:
    assert len(under(placed(asked(16, TopologyAsk(preferred_level="leaf")), ragged()))) == 2  # 11 + 5 under one spine
    assert len(under(placed(asked(11, TopologyAsk(preferred_level="leaf")), ragged()))) == 1


def test_a_level_may_be_named_by_its_label() -> None:
    ask = TopologyAsk("network.topology.nvidia.com/leaf")
    assert len(under(placed(asked(4, ask), make_snapshot(*leaf(0, 3), *leaf(1, 4))))) == 1


def test_segments_are_not_split_between_leaves() -> None:
    snapshot = make_snapshot(*leaf(0, 6), *leaf(1, 6))
    ask = TopologyAsk(segment_pods=4, segment_level="leaf", segment_required=True)
    assert under(placed(asked(8), snapshot)) == {"l0": 6, "l1": 2}
    names = placed(asked(8, ask), snapshot)
    assert len(under(names[:4])) == len(under(names[4:])) == 1
    assert under(names) == {"l0": 4, "l1": 4}


def test_a_smaller_last_segment_goes_where_it_still_fits() -> None:
    ask = TopologyAsk(segment_pods=4, segment_level="leaf", segment_required=True)
    assert under(placed(asked(10, ask), make_snapshot(*leaf(0, 6), *leaf(1, 4)))) == {"l0": 6, "l1": 4}
    assert under(placed(asked(9, ask), make_snapshot(*leaf(0, 4), *leaf(1, 4), *leaf(2, 1)))) == {
        "l0": 4,
        "l1": 4,
        "l2": 1,
    }


def test_exclusive_segments_share_no_leaf() -> None:
    ask = TopologyAsk("", "", 2, "leaf", segment_required=True, segment_exclusive=True)
    snapshot = make_snapshot(*leaf(0, 8), *leaf(1, 2), *leaf(2, 2))
    assert under(placed(asked(6, ask), snapshot)) == {"l0": 2, "l1": 2, "l2": 2}
    assert refused(asked(8, ask), snapshot)


def test_segments_that_are_a_wish_are_kept_at_the_next_level_where_the_lowest_has_no_room() -> None:
    snapshot = make_snapshot(*leaf(0, 2, "s0"), *leaf(1, 2, "s0"), *leaf(2, 2, "s1"), *leaf(3, 2, "s1"))
    names = placed(asked(6, TopologyAsk(segment_pods=3, segment_level="leaf")), snapshot)
    spines = [snapshot.nodes[name].place.path[3] for name in names]
    assert len(set(spines[:3])) == len(set(spines[3:])) == 1


def test_replicas_of_a_job_set_are_parts_that_stay_together_with_their_leaders() -> None:
    parts = [
        msgspec.structs.replace(one, segment=replica)
        for replica in range(2)
        for one in (*workers(1, gpus=0, first=4 * replica), *workers(3, first=4 * replica + 1))
    ]
    snapshot = make_snapshot(*leaf(0, 4), *leaf(1, 3), *leaf(2, 2))
    names = placed(asked(parts, TopologyAsk(segment_level="leaf", segment_required=True)), snapshot)
    assert len(under(names[:4])) == len(under(names[4:])) == 1


def test_a_leader_that_has_no_room_beside_its_workers_moves_the_gang_to_a_leaf_that_has_it() -> None:
    members = [*workers(1, gpus=1), *workers(8, first=1)]
    snapshot = make_snapshot(*leaf(0, 8), *leaf(1, 9))
    assert under(placed(asked(members), snapshot)) == {"l1": 9}


def test_roles_of_many_kinds_are_placed_whole_where_only_the_right_order_fits() -> None:
    members = [*workers(2, gpus=2), *workers(2, gpus=6, first=2), *workers(1, gpus=8, first=4)]
    assert len(set(placed(asked(members), make_snapshot(*leaf(0, 3))))) == 3


def test_a_sick_leaf_is_left_to_others_where_a_healthy_one_is_as_good() -> None:
    sick = [make_gpunode(f"l0-n{number}", score=40) for number in range(4)]
    assert under(placed(asked(4), make_snapshot(*leaf(0, 4), *leaf(1, 4), *sick))) == {"l1": 4}
    assert under(placed(asked(4), make_snapshot(*leaf(0, 4), *leaf(1, 3), *sick))) == {"l0": 4}


def test_without_any_topology_labels_gangs_are_placed_all_the_same() -> None:
    names = [f"n{number}" for number in range(4)]
    snapshot = make_snapshot(*(make_node(name, "", "") for name in names))
    assert placed(asked(4), snapshot) == names


@pytest.mark.parametrize("preset", ["topograph", "aws", "gke", "oci", "coreweave", "crusoe", "generic"])
def test_a_gang_gets_one_leaf_by_the_labels_of_every_vendor(preset: str) -> None:
    levels = levels_from(preset)
    spine, narrow = [level for level in levels if not level.inner][-2:]
    labels = ({spine.label: "s0", narrow.label: f"leaf-{number // 3}"} for number in range(6))
    nodes = [make_node(f"n{number}", "", "", labels=one) for number, one in enumerate(labels)]
    snapshot = make_snapshot(*nodes, make_pod("busy", node="n0"), rules=Rules(levels))
    assert placed(asked(3, TopologyAsk(narrow.name)), snapshot) == ["n3", "n4", "n5"]


def test_parts_that_no_leaf_has_room_for_are_named() -> None:
    parts = [msgspec.structs.replace(one, segment=one.rank // 5) for one in workers(10)]
    ask = TopologyAsk(segment_level="leaf", segment_required=True)
    assert "no leaf has room for a part of 5 pods" in refused(asked(parts, ask), ragged_of(4, 4, 4)).message
    one_of_two = "1 of 2 parts of 5 pods find room, each under one leaf"
    assert one_of_two in refused(asked(parts, ask), ragged_of(5, 4, 4)).message


def test_kinds_that_take_each_others_room_are_named() -> None:
    members = [*workers(1, gpus=1), *workers(2, first=1)]
    assert "its 2 kinds of pods have room, but not all at once" in refused(asked(members), ragged_of(2)).message


def test_a_wish_that_was_not_met_is_said() -> None:
    result = plan(asked(3, TopologyAsk(preferred_level="leaf")), ragged_of(2, 2), 0, NOW)
    assert getattr(result, "notes", None) == ("prefers one leaf, none has room for all of it: it is on 2",)
    unknown = plan(asked(3, TopologyAsk(preferred_level="rack")), ragged_of(2, 2), 0, NOW)
    assert "use one of region, zone, core, spine, leaf, nvlink-domain, node" in getattr(unknown, "notes", ("",))[0]


def test_wishes_that_exclude_each_other_are_refused_at_once() -> None:
    ask = TopologyAsk("leaf", "", 2, "spine", segment_required=True, segment_exclusive=True)
    assert refused(asked(4, ask), ragged_of(8)).message == (
        "requires one leaf for all pods and a spine of its own for each part: leave one of the two out"
    )
    assert placed(asked(2, ask), ragged_of(8))


def ragged_of(*counts: int) -> Snapshot:
    return make_snapshot(*(node for index, count in enumerate(counts) for node in leaf(index, count)))
