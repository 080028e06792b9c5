import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.topology import PRESETS, Level, Place, distance, levels_from, place

LEVELS = (Level("spine", "spine"), Level("leaf", "leaf"))
LABELS = st.fixed_dictionaries({}, optional={"spine": st.sampled_from("ab"), "leaf": st.sampled_from("ab")})
PLACES = st.builds(lambda name, labels: place(name, labels, LEVELS), st.sampled_from("xyz"), LABELS)


def at(node: str, spine: str, leaf: str) -> Place:
    return place(node, {"spine": spine, "leaf": leaf}, LEVELS)


def test_distance_counts_the_levels_crossed() -> None:
    here = at("n0", "s0", "l0")
    assert distance(here, here) == 0
    assert distance(here, at("n1", "s0", "l0")) == 1
    assert distance(here, at("n2", "s0", "l1")) == 2
    assert distance(here, at("n3", "s1", "l0")) == 3


def test_equal_names_under_different_parents_are_different_domains() -> None:
    assert at("n0", "s0", "rack-1").path != at("n1", "s1", "rack-1").path
    assert at("n0", "same", "same").path == ("same", "same")


def test_a_node_without_labels_is_far_from_all_and_says_what_is_missing() -> None:
    lost = place("n9", {}, LEVELS)
    assert distance(lost, place("n8", {}, LEVELS)) == 3
    assert "n9 has no label spine, leaf" in lost.explanation


def test_a_level_that_the_cluster_does_not_use_separates_nobody() -> None:
    a, b = (place(name, {"leaf": "l0"}, LEVELS) for name in ("n0", "n1"))
    assert distance(a, b) == 1
    assert not a.missing


def test_a_node_without_leaf_stays_under_its_spine() -> None:
    lost = place("n9", {"spine": "s0"}, LEVELS)
    assert distance(lost, at("n0", "s0", "l0")) == 2
    assert lost.missing == ("leaf",)


@given(PLACES, PLACES, PLACES)
def test_distance_is_symmetric_and_no_detour_is_shorter_than_its_longest_leg(a: Place, b: Place, c: Place) -> None:
    assert distance(a, b) == distance(b, a)
    if len({a.node, b.node, c.node}) == 3:
        assert distance(a, c) <= max(distance(a, b), distance(b, c))


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_usable(preset: str) -> None:
    labels = [level.label for level in levels_from(preset)]
    assert len(set(labels)) == len(labels) >= 3


def test_a_wrong_choice_of_levels_names_the_way_out() -> None:
    with pytest.raises(ValueError, match="nvidia"):
        levels_from("cisco")
    with pytest.raises(ValueError, match="repeat a/leaf"):
        levels_from("", ["a/leaf", "a/leaf"])


def test_own_labels_take_the_place_of_a_preset() -> None:
    assert levels_from("nvidia", ["my.org/room", "rack"]) == (Level("room", "my.org/room"), Level("rack", "rack"))
