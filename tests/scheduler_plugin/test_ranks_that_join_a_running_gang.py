"""Replacements: any number at once, survivors stay, nearest first, never outside a required domain."""

import itertools
from collections import Counter
from collections.abc import Sequence

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.api.core import PodStatus
from outrider.api.times import rfc3339
from outrider.topology import TopologyAsk
from outrider.topology.domains import Path
from scheduler_plugin.cluster.members import Member, member
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.placing.gang import Gang, Placement, Refusal
from scheduler_plugin.placing.replacing import replace
from scheduler_plugin.placing.seating import Vacancy, best_vacancies
from scheduler_plugin.placing.spares import spares_for, within
from tests.scheduler_plugin.builders import NOW, gang_pods, make_node, make_pod, make_snapshot


def leaf(number: int, count: int, spine: int = 0) -> list[object]:
    return [make_node(f"l{number}-n{index}", f"leaf-{number}", f"spine-{spine}") for index in range(count)]


def busy(*names: str) -> list[object]:
    return [make_pod(f"busy-{name}", node=name, phase="Running") for name in names]


def members(*ranks: int, gpus: int = 8, segment: int | None = None) -> tuple[Member, ...]:
    pods = gang_pods("train", max(ranks) + 1, gpus=gpus)
    found = (member(pods[rank], rank) for rank in ranks)
    return tuple(one if segment is None else msgspec.structs.replace(one, segment=segment) for one in found)


def joined(
    asked: Sequence[Member],
    survivors: Sequence[str],
    snapshot: Snapshot,
    ask: TopologyAsk | None = None,
    wishes: dict[str, list[str]] | None = None,
    segments: dict[int, list[str]] | None = None,
) -> list[str]:
    """Return the nodes of the members by rank; empty text for those left out."""
    gang = Gang("job-train", tuple(asked), ask=ask or TopologyAsk())
    result = replace(gang, survivors, wishes or {}, snapshot, NOW, segments)
    nodes = result.nodes if isinstance(result, Placement) else {}
    return [nodes.get(one.uid, "") for one in asked]


def test_the_same_leaf_comes_first_then_the_same_spine() -> None:
    objects = [*leaf(0, 2), *leaf(1, 1), *leaf(2, 2, 1), *busy("l0-n0")]
    assert joined(members(0, 1, 2), ["l0-n0"], make_snapshot(*objects)) == ["l0-n1", "l1-n0", "l2-n0"]


def test_pods_that_move_together_stay_together() -> None:
    """One leaf takes both; alone, the fuller leaf by name would have come first for each."""
    objects = [*leaf(0, 1), *leaf(1, 1), *leaf(2, 1), *leaf(3, 2), *busy("l0-n0")]
    assert joined(members(0, 1), ["l0-n0"], make_snapshot(*objects)) == ["l3-n0", "l3-n1"]


def test_survivors_draw_more_than_company() -> None:
    objects = [*leaf(0, 2), *leaf(1, 2), *leaf(2, 3), *busy("l0-n0", "l1-n0")]
    survivors = ["l0-n0", "l0-n0", "l1-n0", "l1-n0"]
    assert set(joined(members(0, 1), survivors, make_snapshot(*objects))) == {"l0-n1", "l1-n1"}


def test_a_rank_goes_back_to_its_own_node_and_others_take_spares() -> None:
    objects = [*leaf(0, 3), *leaf(1, 2), *busy("l0-n0")]
    asked = members(3, 5)
    wishes = {asked[0].uid: ["l1-n1", "l1-n0"], asked[1].uid: ["", "l1-n0"]}
    assert joined(asked, ["l0-n0"], make_snapshot(*objects), wishes=wishes) == ["l1-n1", "l1-n0"]


def test_a_rank_does_not_go_back_at_once_to_where_the_kubelet_turned_it_away() -> None:
    turned_away = make_pod("train-0", job="train", rank=0, node="l0-n1")
    status = PodStatus(phase="Failed", reason="UnexpectedAdmissionError", start_time=rfc3339(NOW - 60))
    objects = [*leaf(0, 3), *busy("l0-n0"), msgspec.structs.replace(turned_away, status=status)]
    asked = members(0)
    wishes = {asked[0].uid: ["l0-n1"]}
    assert joined(asked, ["l0-n0"], make_snapshot(*objects), wishes=wishes) == ["l0-n2"]
    full = make_snapshot(*objects, *busy("l0-n2"))
    assert joined(asked, ["l0-n0"], full, wishes=wishes) == ["l0-n1"]


def test_the_nearest_of_the_spares_comes_first() -> None:
    objects = [*leaf(0, 2), *leaf(1, 1), *leaf(2, 1, 1), *busy("l0-n0", "l0-n1")]
    asked = members(0)
    wishes = {asked[0].uid: ["", "l2-n0", "l1-n0"]}
    assert joined(asked, ["l0-n0"], make_snapshot(*objects), wishes=wishes) == ["l1-n0"]


def test_a_healthier_node_comes_first_among_those_equally_close_then_a_fuller_one() -> None:
    objects = [*leaf(0, 3), *busy("l0-n0"), make_pod("half", gpus=4, node="l0-n2", phase="Running")]
    assert joined(members(0, gpus=4), ["l0-n0"], make_snapshot(*objects)) == ["l0-n2"]


def required(level: str) -> TopologyAsk:
    return TopologyAsk(required_level=level)


def test_a_rank_never_leaves_the_domain_that_its_gang_requires() -> None:
    snapshot = make_snapshot(*leaf(0, 2), *leaf(1, 2), *leaf(2, 1, 1), *busy("l0-n0"))
    assert joined(members(0, 1), ["l0-n0"], snapshot, required("leaf")) == ["l0-n1", ""]
    assert joined(members(0, 1), ["l0-n0"], snapshot, required("network.topology.nvidia.com/spine")) == [
        "l0-n1",
        "l1-n0",
    ]


def test_a_rank_under_a_preferred_level_may_leave_but_stays_nearest() -> None:
    snapshot = make_snapshot(*leaf(0, 1), *leaf(1, 1), *leaf(2, 1, 1), *busy("l0-n0"))
    assert joined(members(0), ["l0-n0"], snapshot, TopologyAsk(preferred_level="leaf")) == ["l1-n0"]


def test_a_refusal_says_which_level_held_the_rank_back() -> None:
    snapshot = make_snapshot(*leaf(0, 1), *leaf(1, 2), *busy("l0-n0"))
    asked = Gang("job-train", members(0), ask=required("leaf"))
    result = replace(asked, ["l0-n0"], {}, snapshot, NOW)
    assert isinstance(result, Refusal)
    assert "leaf" in result.message


def test_a_gang_that_lost_every_node_comes_back_within_one_required_domain() -> None:
    snapshot = make_snapshot(*leaf(0, 1), *leaf(1, 2), *leaf(2, 3))
    assert joined(members(0, 1, 2), ["gone"], snapshot, required("leaf")) == ["l2-n0", "l2-n1", "l2-n2"]
    assert joined(members(0, 1, 2, 3), ["gone"], snapshot, required("leaf")) == ["l2-n0", "l2-n1", "l2-n2", ""]


def test_a_spare_too_is_in_the_domain_that_the_gang_requires() -> None:
    snapshot = make_snapshot(*leaf(0, 2), *leaf(1, 2), *busy("l0-n0"))
    asked = Gang("job-train", members(0), ask=required("leaf"))
    assert spares_for(asked, ["l0-n0"], snapshot, 2, NOW) == ("l0-n1",)
    anywhere = Gang("job-train", members(0))
    assert spares_for(anywhere, ["l0-n0"], snapshot, 2, NOW) == ("l0-n1", "l1-n0")


def test_segments_that_may_not_leave_their_domains_have_a_spare_in_each() -> None:
    objects = [*leaf(0, 3), *leaf(1, 3), *leaf(2, 3), *busy("l0-n0", "l1-n0")]
    ask = TopologyAsk(segment_level="leaf", segment_required=True, segment_pods=1)
    asked = Gang("job-train", members(0, 1), ask=ask)
    assert spares_for(asked, ["l0-n0", "l1-n0"], make_snapshot(*objects), 1, NOW) == ("l0-n1", "l1-n1")
    many = [*(one for number in range(12) for one in leaf(number, 2)), *busy(*(f"l{n}-n0" for n in range(12)))]
    found = spares_for(asked, [f"l{number}-n0" for number in range(12)], make_snapshot(*many), 1, NOW)
    assert len({name.partition("-")[0] for name in found}) == len(found) == 8


def test_a_pod_is_pinned_to_no_spare_outside_the_domains_that_it_must_not_leave() -> None:
    snapshot = make_snapshot(*leaf(0, 2), *leaf(1, 2))
    spares = ["l0-n1", "l1-n1", "gone"]
    ask = TopologyAsk(segment_level="leaf", segment_required=True, segment_pods=1)
    assert within(ask, "l0-n0", spares, snapshot) == ["l0-n1"]
    assert within(required("spine"), "l0-n0", spares, snapshot) == ["l0-n1", "l1-n1"]
    assert within(TopologyAsk(), "l0-n0", spares, snapshot) == spares


SEGMENTED = TopologyAsk(segment_level="leaf", segment_required=True, segment_pods=2)


def test_a_rank_stays_in_the_domain_of_its_segment() -> None:
    snapshot = make_snapshot(*leaf(0, 2), *leaf(1, 3), *busy("l0-n0", "l1-n0"))
    stay = {0: ["l0-n0"], 1: ["l1-n0"]}
    assert joined(members(3), ["l0-n0", "l1-n0"], snapshot, SEGMENTED, segments=stay) == ["l1-n1"]
    assert joined(members(1), ["l0-n0", "l1-n0"], snapshot, SEGMENTED, segments=stay) == ["l0-n1"]


def test_a_segment_that_is_lost_whole_comes_back_in_one_domain() -> None:
    snapshot = make_snapshot(*leaf(0, 2), *leaf(1, 1), *leaf(2, 2), *busy("l0-n0"))
    assert joined(members(2, 3), ["l0-n0"], snapshot, SEGMENTED, segments={0: ["l0-n0"]}) == ["l2-n0", "l2-n1"]


def test_segments_that_exclude_each_other_keep_their_domains_apart() -> None:
    ask = TopologyAsk(segment_level="leaf", segment_required=True, segment_exclusive=True)
    snapshot = make_snapshot(*leaf(0, 3), *leaf(1, 1), *busy("l0-n0"))
    assert joined(members(1, segment=7), ["l0-n0"], snapshot, ask, segments={6: ["l0-n0"]}) == ["l1-n0"]


def test_ranks_follow_the_network() -> None:
    snapshot = make_snapshot(*leaf(2, 2), *leaf(10, 2))
    assert joined(members(0, 1, 2, 3), [], snapshot) == ["l2-n0", "l2-n1", "l10-n0", "l10-n1"]


PATHS = st.tuples(st.sampled_from("ab"), st.sampled_from("cd"), st.sampled_from("ef"))
SEATS = st.lists(st.tuples(PATHS, st.integers(1, 2), st.booleans(), st.integers(0, 3)), min_size=1, max_size=6)


def shared(left: Path, right: Path) -> int:
    return sum(left[:depth] == right[:depth] for depth in range(1, len(left) + 1))


def value(chosen: Sequence[Vacancy], stay: Sequence[Path]) -> tuple[int, int, int, int]:
    """Return what is maximised, counted pair by pair."""
    near = sum(shared(one.path, path) for one in chosen for path in stay)
    company = sum(shared(one.path, other.path) for one, other in itertools.combinations(chosen, 2))
    return sum(one.first_choice for one in chosen), near, company, sum(one.worth for one in chosen)


@settings(max_examples=200, deadline=None)
@given(SEATS, st.lists(PATHS, max_size=3), st.integers(1, 4))
def test_no_other_seats_are_better(drawn: list[tuple[Path, int, bool, int]], stay: list[Path], wanted: int) -> None:
    vacancies = [Vacancy(f"n{index}", *one) for index, one in enumerate(drawn)]
    best = best_vacancies(vacancies, stay, wanted)
    by_name = {vacancy.node: vacancy for vacancy in vacancies}
    every = [vacancy for vacancy in vacancies for _ in range(vacancy.count)]
    size = min(wanted, len(every))
    assert len(best.nodes) == size
    assert all(count <= by_name[name].count for name, count in Counter(best.nodes).items())
    optimum = max(value(chosen, stay) for chosen in itertools.combinations(every, size))
    assert value([by_name[name] for name in best.nodes], stay) == optimum


def test_many_seats_of_a_large_cluster_are_found_in_time() -> None:
    vacancies = [
        Vacancy(f"n{index}", (f"c{index // 512}", f"l{index // 16}"), 1, worth=index % 7) for index in range(5000)
    ]
    best = best_vacancies(vacancies, [("c0", "l0")] * 480, 32)
    assert Counter(name for name in best.nodes).most_common(1)[0][1] == 1
    assert {vacancy.path[0] for vacancy in vacancies if vacancy.node in best.nodes} == {"c0"}
