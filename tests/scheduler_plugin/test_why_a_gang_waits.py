import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.api.core import Node, Pod, Taint
from outrider.api.gpunode import Health, Verdict
from outrider.api.meta import MESSAGE_MAX
from outrider.api.why import ENDS_MAX, NodeState, StateCount, WaitReason, Why
from outrider.topology import TopologyAsk
from scheduler_plugin.cluster.blackholes import Closure
from scheduler_plugin.cluster.members import member
from scheduler_plugin.placing.explain import ANYWHERE, Scope, explain, missing, refusal
from scheduler_plugin.placing.gang import Gang
from scheduler_plugin.placing.wording import sentence
from tests.scheduler_plugin.builders import (
    NOW,
    gang_pods,
    make_gpunode,
    make_node,
    make_placement,
    make_pod,
    make_snapshot,
)

LEAF = 5  # levels from the top to the leaf in the preset nvidia
replace = msgspec.structs.replace


def gang(pods: list[Pod], **fields: object) -> Gang:
    members = tuple(member(pod, rank) for rank, pod in enumerate(pods))
    return replace(Gang("job-train", members), **fields)


def said(snapshot_of: list[object], pods: list[Pod], scope: Scope = ANYWHERE, **fields: object) -> str:
    return sentence(explain(gang(pods, **fields), make_snapshot(*snapshot_of), NOW, scope))


def leaf(number: int, nodes: int, **fields: object) -> list[Node]:
    return [make_node(f"l{number}-n{one}", f"leaf-{number}", **fields) for one in range(nodes)]  # type: ignore[arg-type]


def running(job: str, *nodes: str) -> list[object]:
    pods = [make_pod(f"{job}-{rank}", job=job, rank=rank, node=node) for rank, node in enumerate(nodes)]
    return [*pods, make_placement(job, dict(enumerate(nodes)))]


def in_one_leaf() -> TopologyAsk:
    return TopologyAsk(required_level="leaf")


def test_the_best_domain_is_named_with_what_it_lacks_and_whose_end_would_make_it_fit() -> None:
    scene = [
        *leaf(1, 2),
        *leaf(2, 6),
        *running("big", "l2-n0", "l2-n1"),
        make_gpunode("l2-n2", verdict=Verdict.REPLACE, reason="xid/79"),
        make_node("l2-n3", "leaf-2", cordoned=True),
        make_node("l2-n6", "leaf-2"),
    ]
    assert said(scene, gang_pods("train", 4), Scope(LEAF), ask=in_one_leaf()) == (
        "needs 4 nodes with 8 free GPUs under one leaf; best is spine-0/leaf-2: 3 healthy and free, 2 in use, "
        "1 cordoned, 1 unhealthy (xid/79); fits first when Job ml/big ends"
    )


def test_the_same_is_there_as_data() -> None:
    scene = [*leaf(1, 2), *leaf(2, 3), *running("other", "l2-n0"), make_gpunode("l1-n0", health=Health.UNKNOWN)]
    why = explain(gang(gang_pods("train", 3), ask=in_one_leaf()), make_snapshot(*scene), NOW, Scope(LEAF))
    assert why.reason is WaitReason.NO_ROOM_TOGETHER
    assert (why.pods, why.gpus_per_pod, why.whole_nodes, why.level, why.room) == (3, 8, True, "leaf", 3)
    assert why.best is not None
    assert (why.best.domain, why.best.room) == ("spine-0/leaf-2", 2)
    assert why.best.states == [StateCount(state=NodeState.FREE, nodes=2), StateCount(state=NodeState.IN_USE, nodes=1)]
    assert StateCount(state=NodeState.UNKNOWN_HEALTH, nodes=1) in why.states
    assert (why.ends, why.ends_together) == (["Job ml/other"], False)
    assert msgspec.json.decode(msgspec.json.encode(why), type=Why) == why


def test_a_level_that_no_domain_could_ever_serve_is_told_as_such() -> None:
    words = said([*leaf(1, 2), *leaf(2, 3)], gang_pods("train", 4), Scope(LEAF), ask=in_one_leaf())
    assert words == (
        "needs 4 nodes with 8 free GPUs under one leaf; best is spine-0/leaf-2: 3 healthy and free; "
        "no leaf is large enough, even empty and healthy"
    )


def test_gangs_that_would_have_to_end_together_are_told_so() -> None:
    scene = [*leaf(1, 4), *running("a", "l1-n0", "l1-n1"), *running("b", "l1-n2"), *running("c", "l1-n3")]
    words = said(scene, gang_pods("train", 4))
    assert words.endswith("; fits first when Job ml/a, Job ml/b and Job ml/c end")
    assert said(scene, gang_pods("train", 3)).endswith("; fits first when Job ml/a and Job ml/b end")


def test_any_one_of_several_gangs_is_enough_where_it_is() -> None:
    scene = [*leaf(1, 3), *running("a", "l1-n0"), *running("b", "l1-n1")]
    assert said(scene, gang_pods("train", 2)).endswith("; fits first when Job ml/a or Job ml/b ends")


def test_what_blocks_is_not_put_down_to_a_gang_whose_end_would_change_nothing() -> None:
    scene = [*leaf(1, 2), *running("a", "l1-n0"), make_gpunode("l1-n0", verdict=Verdict.RESET, reason="xid/48")]
    assert said(scene, gang_pods("train", 2)) == (
        "needs 2 nodes with 8 free GPUs; 1 healthy and free, 1 unhealthy (xid/48)"
    )


def test_causes_of_one_state_stand_together_most_frequent_first() -> None:
    scene = [*leaf(1, 4)]
    for number, code in enumerate(["xid/79", "xid/48", "xid/79"]):
        scene.append(make_gpunode(f"l1-n{number}", verdict=Verdict.REPLACE, reason=code))
    assert "1 healthy and free, 3 unhealthy (xid/79, xid/48)" in said(scene, gang_pods("train", 2))


def test_each_obstacle_has_its_own_words() -> None:
    scene = [
        make_node("small", gpus=4),
        make_node("thin", cpu="100m"),
        make_node("tainted", taints=[Taint(key="maintenance", effect="NoSchedule")]),
        make_node("tried"),
        make_node("silent"),
        make_gpunode("silent", age_seconds=9999.0),
        make_node("away", labels={"pool": "b"}),
    ]
    words = said(
        scene,
        [make_pod("train-0", job="train", rank=0, node_selector={"kubernetes.io/hostname": "away"}, cpu="2")],
        excluded=frozenset({"tried"}),
    )
    for part in ("1 healthy and free", "3 outside the pods' node selector or affinity", "1 of unknown health"):
        assert part in words
    words = said(scene, [make_pod("train-0", job="train", rank=0, cpu="2")], excluded=frozenset({"tried"}))
    for part in ("1 short of cpu", "1 with fewer GPUs", "1 tainted (maintenance)", "1 tried before"):
        assert part in words


def test_pods_smaller_than_a_node_are_counted_as_pods() -> None:
    scene = [*leaf(1, 2), make_pod("busy", gpus=3, node="l1-n0")]
    assert said(scene, gang_pods("train", 4, gpus=4)).startswith("needs room for 4 pods with 4 free GPUs each; 2 ")
    assert said([*leaf(1, 1), *running("a", "l1-n0")], gang_pods("train", 1, gpus=1)) == (
        "needs room for 1 pod with 1 free GPU; 1 in use; fits first when Job ml/a ends"
    )


def test_segments_are_counted_whole() -> None:
    ask = TopologyAsk(segment_pods=2, segment_level="leaf", segment_required=True)
    why = explain(gang(gang_pods("train", 4), ask=ask), make_snapshot(*leaf(1, 3), *leaf(2, 1)), NOW, Scope(0, LEAF))
    assert sentence(why).startswith("needs 4 nodes with 8 free GPUs, each 2 pods under one leaf; 4 healthy and free")
    assert why.reason is WaitReason.NEVER_FITS


def test_pods_without_gpus_are_told_of_all_nodes() -> None:
    words = said([make_node("cpu", gpus=0, cpu="1")], [make_pod("train-0", job="train", rank=0, gpus=0, cpu="2")])
    assert words == ("needs room for 1 pod; 1 short of cpu; the cluster is not large enough, even empty and healthy")


def test_the_kind_of_pod_that_lacks_room_is_the_one_that_is_told() -> None:
    pods = [
        make_pod("train-0", job="train", rank=0, gpus=8),
        make_pod("train-1", job="train", rank=1, gpus=0, cpu="65"),
    ]
    why = explain(gang(pods), make_snapshot(*leaf(1, 2)), NOW)
    assert (why.pods, why.gpus_per_pod) == (1, 0)


def test_a_cluster_without_gpus_says_so() -> None:
    assert said([], gang_pods("train", 2)) == "needs 2 nodes with 8 free GPUs; the cluster has no node with GPUs"


def test_of_a_wish_that_no_cluster_meets_the_wish_alone_is_told() -> None:
    wish = "requires the level 'leef', which this cluster does not have: use one of leaf, node"
    assert sentence(Why(reason=WaitReason.NEVER_FITS, pods=4, notes=[wish])) == wish


@pytest.mark.parametrize(("exist", "words"), [(1, "1 of 3 pods exists"), (2, "2 of 3 pods exist")])
def test_missing_members_are_counted(exist: int, words: str) -> None:
    assert sentence(missing(exist, 3)) == f"{words}; the gang is placed once all do"


def test_notes_follow_the_reason() -> None:
    why = missing(1, 2, ["the pods disagree about their priority"])
    assert sentence(why).endswith("; the pods disagree about their priority")
    behind = Why(reason=WaitReason.BEHIND, pods=2, gpus_per_pod=8, whole_nodes=True, ends=["Job ml/first"])
    assert sentence(behind) == "needs 2 nodes with 8 free GPUs; it waits behind Job ml/first"


def test_a_refusal_the_extender_may_learn_later_is_shown_in_its_own_words() -> None:
    snapshot = make_snapshot(*leaf(1, 1))
    view = snapshot.nodes["l1-n0"]
    odd = replace(view, judgement=replace(view.judgement, refusal="asleep"))
    why = explain(gang(gang_pods("train", 1)), replace(snapshot, nodes={"l1-n0": odd}), NOW)
    assert sentence(why) == "needs 1 node with 8 free GPUs; 1 asleep"


_NAMES = st.text(max_size=300)


@st.composite
def clusters(draw: st.DrawFn) -> list[object]:
    scene: list[object] = []
    for number in range(draw(st.integers(0, 8))):
        name = f"n{number}"
        taints = [Taint(key=draw(_NAMES))] if draw(st.booleans()) else []
        labels = draw(st.dictionaries(st.sampled_from(["topology.kubernetes.io/zone", "x"]), _NAMES, max_size=2))
        leaf_of = draw(st.sampled_from(["", "a", "b" * 300]))
        scene.append(
            make_node(
                name, leaf_of, gpus=draw(st.integers(0, 9)), taints=taints, labels=labels, cordoned=draw(st.booleans())
            )
        )
        if draw(st.booleans()):
            scene.append(make_gpunode(name, verdict=draw(st.sampled_from(Verdict)), reason=draw(_NAMES)))
        if draw(st.booleans()):
            scene += running(f"j{number}" * draw(st.integers(1, 90)), name)
    return scene


@given(
    scene=clusters(),
    pods=st.lists(st.integers(0, 9), min_size=1, max_size=6),
    scope=st.builds(Scope, st.integers(0, 7), st.integers(0, 7), st.sampled_from([(), ("",), ("", "", "", "spine-0")])),
    ask=st.builds(TopologyAsk, _NAMES, _NAMES, st.integers(0, 5), _NAMES, st.booleans()),
)
def test_whatever_the_cluster_the_answer_fits_and_counts_every_node_once(
    scene: list[object], pods: list[int], scope: Scope, ask: TopologyAsk
) -> None:
    snapshot = make_snapshot(*scene)
    asked = gang([make_pod(f"train-{n}", job="train", rank=n, gpus=gpus) for n, gpus in enumerate(pods)], ask=ask)
    answer = refusal(asked, snapshot, NOW, scope=scope)
    assert answer.why is not None
    assert 0 < len(answer.message) <= MESSAGE_MAX
    assert sum(one.nodes for one in answer.why.states) <= len(snapshot.nodes)
    assert msgspec.json.decode(msgspec.json.encode(answer.why), type=Why) == answer.why
    assert answer == refusal(asked, snapshot, NOW, scope=scope)


@given(scene=clusters(), pods=st.integers(1, 5))
def test_the_end_of_the_gangs_named_makes_room_indeed(scene: list[object], pods: int) -> None:
    asked = gang(gang_pods("train", pods))
    why = explain(asked, make_snapshot(*scene), NOW)
    if not why.ends or why.room >= pods:
        return
    ended = why.ends if why.ends_together else why.ends[:1]
    left = [one for one in scene if f"Job ml/{owner(one)}" not in ended]
    after = explain(asked, make_snapshot(*left), NOW)
    assert after.room >= pods


def owner(one: object) -> str:
    """The job of a pod or placement of ``running``."""
    match one:
        case Pod():
            return one.metadata.owner_references[0].name
    return getattr(getattr(one, "spec", None), "job_name", "")


def test_suspect_domains_and_nodes_that_swallow_pods_are_named_as_such() -> None:
    snapshot = make_snapshot(*leaf(1, 3))
    views = dict(snapshot.nodes)
    views["l1-n0"] = replace(views["l1-n0"], suspect="leaf spine-0/leaf-1: domain/fabric")
    views["l1-n1"] = replace(views["l1-n1"], closure=Closure(NOW + 60, "3 pods failed"), usable_until=float("-inf"))
    words = sentence(explain(gang(gang_pods("train", 3)), replace(snapshot, nodes=views), NOW))
    assert words == (
        "needs 3 nodes with 8 free GPUs; 1 healthy and free, 1 rejecting or killing pods as they start, "
        "1 in a suspect domain (leaf spine-0/leaf-1: domain/fabric)"
    )


def test_a_required_level_below_the_leaf_counts_single_nodes_apart() -> None:
    ask = TopologyAsk(required_level="host")
    why = explain(gang(gang_pods("train", 2, gpus=4), ask=ask), make_snapshot(*leaf(1, 3)), NOW, Scope(9))
    assert why.best is not None
    assert (why.best.room, why.reason) == (2, WaitReason.NO_ROOM_TOGETHER)


def test_too_many_gangs_to_name_are_not_named() -> None:
    scene: list[object] = [*leaf(1, ENDS_MAX + 1)]
    for number in range(ENDS_MAX + 1):
        scene += running(f"g{number}", f"l1-n{number}")
    assert explain(gang(gang_pods("train", ENDS_MAX)), make_snapshot(*scene), NOW).ends_together
    words = said(scene, gang_pods("train", ENDS_MAX + 1))
    assert words == f"needs {ENDS_MAX + 1} nodes with 8 free GPUs; {ENDS_MAX + 1} in use"


def test_two_gangs_that_share_a_node_free_it_together() -> None:
    scene = [*leaf(1, 1), make_pod("a-0", job="a", rank=0, gpus=4, node="l1-n0"), make_placement("a", {0: "l1-n0"})]
    scene += [make_pod("b-0", job="b", rank=0, gpus=4, node="l1-n0"), make_placement("b", {0: "l1-n0"})]
    words = said(scene, gang_pods("train", 1))
    assert words == "needs 1 node with 8 free GPUs; 1 in use; fits first when Job ml/a and Job ml/b end"


def test_segments_need_whole_groups_of_what_others_leave() -> None:
    ask = TopologyAsk(segment_pods=2, segment_level="leaf", segment_required=True)
    scene = [*leaf(1, 2), *leaf(2, 2), *running("one", "l1-n0"), *running("two", "l2-n0")]
    why = explain(gang(gang_pods("train", 4), ask=ask), make_snapshot(*scene), NOW, Scope(0, LEAF))
    assert (why.ends, why.ends_together) == (["Job ml/one", "Job ml/two"], True)
    why = explain(gang(gang_pods("train", 2), ask=ask), make_snapshot(*scene), NOW, Scope(0, LEAF))
    assert (why.ends, why.ends_together) == (["Job ml/one", "Job ml/two"], False)
