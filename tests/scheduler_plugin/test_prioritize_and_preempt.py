from hypothesis import given
from hypothesis import strategies as st

from outrider.api.gpunode import Verdict
from scheduler_plugin.extender.preempt import preempt
from scheduler_plugin.extender.prioritize import prioritize
from scheduler_plugin.extender.wire import HostPriority, MetaPod, MetaVictims
from tests.scheduler_plugin.builders import (
    NOW,
    gang_pods,
    make_gpunode,
    make_node,
    make_placement,
    make_pod,
    make_snapshot,
)

SINGLE = make_pod("alone", gpus=1)
VICTIM = MetaVictims([MetaPod("uid-victim")], 1)


def test_a_planned_pod_is_drawn_to_its_node() -> None:
    pods = gang_pods("train", 1)
    snapshot = make_snapshot(make_node("n0"), make_node("n1"), *pods, make_placement("train", {0: "n1"}))
    assert prioritize(pods[0], ["n0", "n1"], snapshot, NOW) == [HostPriority("n0", 0), HostPriority("n1", 10)]


def test_healthier_nodes_score_higher() -> None:
    snapshot = make_snapshot(make_node("n0"), make_node("n1"), make_gpunode("n0", score=40), make_gpunode("n1"))
    scores = {entry.host: entry.score for entry in prioritize(SINGLE, ["n0", "n1"], snapshot, NOW)}
    assert scores["n1"] > scores["n0"]


def test_used_nodes_and_leaves_score_higher_so_that_whole_ones_stay_free() -> None:
    nodes = [make_node("used"), make_node("beside"), make_node("free", leaf="leaf-1")]
    snapshot = make_snapshot(*nodes, make_pod("other", gpus=4, node="used"))
    scores = {entry.host: entry.score for entry in prioritize(SINGLE, ["used", "beside", "free"], snapshot, NOW)}
    assert scores["used"] > scores["beside"] > scores["free"]


def test_unknown_hosts_score_zero() -> None:
    assert prioritize(SINGLE, ["stranger"], make_snapshot(), NOW) == [HostPriority("stranger", 0)]


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 8)), min_size=1, max_size=6))
def test_there_is_one_score_from_0_to_10_for_each_name_in_order(nodes: list[tuple[int, int]]) -> None:
    names = [f"n{index}" for index in range(len(nodes))]
    objects: list[object] = []
    for name, (score, used) in zip(names, nodes, strict=True):
        objects += [make_node(name), make_gpunode(name, score=score), make_pod(f"b-{name}", gpus=used, node=name)]
    answer = prioritize(SINGLE, names, make_snapshot(*objects), NOW)
    assert [entry.host for entry in answer] == names
    assert all(0 <= entry.score <= 10 for entry in answer)


def test_preemption_on_nodes_that_filter_refuses_is_dropped() -> None:
    snapshot = make_snapshot(make_node("n0"), make_node("n1"), make_gpunode("n1", verdict=Verdict.REPLACE))
    candidates = {"n0": VICTIM, "n1": VICTIM, "stranger": VICTIM}
    assert preempt(SINGLE, candidates, snapshot, NOW) == {"n0": VICTIM}


def test_preemption_that_gains_nothing_is_dropped() -> None:
    snapshot = make_snapshot(make_node("n0"), *gang_pods("held", 1), make_placement("held", {0: "n0"}))
    assert preempt(SINGLE, {"n0": MetaVictims([], 0)}, make_snapshot(make_node("n0")), NOW) == {}
    assert preempt(SINGLE, {"n0": MetaVictims(None, 0)}, make_snapshot(make_node("n0")), NOW) == {}
    assert preempt(SINGLE, {"n0": VICTIM}, snapshot, NOW) == {}


def test_no_single_rank_of_a_gang_is_preempted() -> None:
    ranks = gang_pods("train", 1, node="n0")
    snapshot = make_snapshot(make_node("n0"), *ranks, make_placement("train", {0: "n0"}))
    assert preempt(SINGLE, {"n0": MetaVictims([MetaPod("uid-train-0")], 0)}, snapshot, NOW) == {}


def test_a_planned_pod_preempts_on_its_own_node_only() -> None:
    pods = gang_pods("train", 1)
    snapshot = make_snapshot(make_node("n0"), make_node("n1"), *pods, make_placement("train", {0: "n1"}))
    assert preempt(pods[0], {"n0": VICTIM, "n1": VICTIM}, snapshot, NOW) == {"n1": VICTIM}
