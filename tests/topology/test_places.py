import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.topology import PRESETS, Level, Place, common, levels_from, place

LEVELS = (Level("spine", "spine"), Level("leaf", "leaf"))
LABELS = st.fixed_dictionaries({}, optional={"spine": st.sampled_from("ab"), "leaf": st.sampled_from("ab")})
PLACES = st.builds(lambda name, labels: place(name, labels, LEVELS), st.sampled_from("xyz"), LABELS)


def at(node: str, spine: str, leaf: str) -> Place:
    return place(node, {"spine": spine, "leaf": leaf}, LEVELS)


def test_near_nodes_share_more_domains_than_far_ones() -> None:
    here = at("n0", "s0", "l0").path
    assert common(here, at("n1", "s0", "l0").path) == 2
    assert common(here, at("n2", "s0", "l1").path) == 1
    assert common(here, at("n3", "s1", "l0").path) == 0


def test_equal_names_under_different_parents_are_different_domains() -> None:
    assert at("n0", "s0", "rack-1").path != at("n1", "s1", "rack-1").path
    assert at("n0", "same", "same").path == ("same", "same")


def test_a_node_without_labels_is_far_from_all() -> None:
    assert common(place("n9", {}, LEVELS).path, place("n8", {}, LEVELS).path) == 0


def test_a_level_that_the_cluster_does_not_use_separates_nobody() -> None:
    a, b = (place(name, {"leaf": "l0"}, LEVELS) for name in ("n0", "n1"))
    assert common(a.path, b.path) == 2


def test_a_node_without_leaf_stays_under_its_spine() -> None:
    lost = place("n9", {"spine": "s0"}, LEVELS)
    assert common(lost.path, at("n0", "s0", "l0").path) == 1


@given(PLACES, PLACES, PLACES)
def test_two_nodes_share_at_least_what_both_share_with_a_third(a: Place, b: Place, c: Place) -> None:
    assert common(a.path, b.path) == common(b.path, a.path)
    assert common(a.path, c.path) >= min(common(a.path, b.path), common(b.path, c.path))


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
