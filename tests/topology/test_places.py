import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.topology import (
    NVLINK_LEVEL,
    PRESETS,
    Level,
    Place,
    common,
    depth_of,
    domains,
    domains_of,
    levels_from,
    names_of,
    oddities,
    place,
)

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


def test_the_chart_offers_every_preset() -> None:
    schema = json.loads((Path(__file__).parents[2] / "charts/outrider/values.schema.json").read_text())
    offered = schema["properties"]["scheduler"]["properties"]["topologyPreset"]["enum"]
    assert offered == list(PRESETS)


def test_a_wrong_choice_of_levels_names_the_way_out() -> None:
    with pytest.raises(ValueError, match="nvidia"):
        levels_from("cisco")
    with pytest.raises(ValueError, match="repeat a/leaf"):
        levels_from("", ["a/leaf", "a/leaf"])


def test_own_labels_take_the_place_of_a_preset() -> None:
    clique, rack, room = "nvidia.com/gpu.clique", "rack", "my.org/room"
    expected = (Level("room", room), Level("rack", rack), Level(NVLINK_LEVEL, clique, inner=True))
    assert levels_from("nvidia", [room, rack]) == expected
    assert levels_from("nvidia", [clique, room, rack]) == expected


@pytest.mark.parametrize(
    ("preset", "labels", "near"),
    [
        ("nvidia", {"leaf": "l", "spine": "s", "core": "c"}, ("", "", "c", "s", "l")),
        ("nvidia", {"block": "l", "spine": "s", "datacenter": "c"}, ("", "", "c", "s", "l")),
        ("nvidia", {"leaf": "l", "accelerator": "nvl1"}, ("", "", "", "", "l", "nvl1")),
    ],
)
def test_new_and_old_labels_of_topograph_are_one_level(preset: str, labels: dict[str, str], near: domains.Path) -> None:
    given_labels = {f"network.topology.nvidia.com/{key}": value for key, value in labels.items()}
    assert place("n0", given_labels, PRESETS[preset]).near == near


def test_topograph_tiers_count_from_the_node_and_a_sub_domain_is_within_its_domain() -> None:
    labels = {"fabric.topograph.run/tier-0": "t0", "fabric.topograph.run/tier-1": "t1"}
    inner = {"accelerator.topograph.run/domain": "d", "accelerator.topograph.run/sub-domain": "e"}
    assert place("n0", labels | inner, PRESETS["topograph"]).near == ("", "", "", "", "t1", "t0", "d", "e")


def test_layer_1_of_aws_is_the_top_and_an_ultraserver_is_an_nvlink_domain() -> None:
    labels = {f"topology.k8s.aws/network-node-layer-{layer}": f"nn-{layer}" for layer in (1, 2, 3)}
    found = place("n0", labels | {"topology.k8s.aws/ultraserver-id": "us-1"}, PRESETS["aws"])
    assert found.near == ("", "", "nn-1", "nn-2", "nn-3", "us-1")


@pytest.mark.parametrize(
    ("preset", "labels", "leaf"),
    [
        (
            "gke",
            {"cloud.google.com/gce-topology-block": "b", "cloud.google.com/gce-topology-subblock": "s"},
            ("b", "s"),
        ),
        ("gke", {"topology.gke.io/cluster": "b", "topology.gke.io/rack": "s"}, ("b", "s")),
        (
            "oci",
            {"oci.oraclecloud.com/host.network_block_id": "b", "oci.oraclecloud.com/host.rack_id": "r"},
            ("b", "r"),
        ),
        ("coreweave", {"ib.coreweave.cloud/superpod": "2", "backend.coreweave.cloud/leafgroup": "7"}, ("2", "7")),
        ("crusoe", {"crusoe.ai/ib.partition.id": "p", "crusoe.ai/pod.id": "7"}, ("p", "7")),
    ],
)
def test_labels_of_each_cloud_give_a_leaf(preset: str, labels: dict[str, str], leaf: domains.Path) -> None:
    assert place("n0", labels, PRESETS[preset]).path[-2:] == leaf


def test_a_clique_is_below_the_leaf_and_ends_at_the_node_where_there_is_none() -> None:
    labels = {"network.topology.nvidia.com/leaf": "l0", "nvidia.com/gpu.clique": "uuid.7"}
    a, b = (place(name, labels, PRESETS["nvidia"]) for name in ("n0", "n1"))
    alone = place("n2", {"network.topology.nvidia.com/leaf": "l0"}, PRESETS["nvidia"])
    assert a.near == b.near == (*a.path, "uuid.7")
    assert alone.path == a.path
    assert alone.inner == ()


def test_a_clique_keeps_its_nodes_together_where_the_network_has_no_labels() -> None:
    a, b = (place(name, {"nvidia.com/gpu.clique": "uuid.7"}, PRESETS["nvidia"]) for name in ("n0", "n1"))
    assert a.near == b.near


def test_a_clique_that_the_gpus_report_beats_a_stale_label() -> None:
    labels = {"network.topology.nvidia.com/leaf": "l0", "nvidia.com/gpu.clique": "old.1"}
    assert place("n0", labels, PRESETS["nvidia"], "new.2").inner == ("new.2",)


@pytest.mark.parametrize("word", ["unknown", "None", "n-a", "null", ""])
def test_a_word_for_nothing_makes_no_neighbours(word: str) -> None:
    a, b = (place(name, {"spine": "s", "leaf": word}, LEVELS) for name in ("n0", "n1"))
    assert common(a.path, b.path) == 1


def test_a_level_is_found_by_its_name_and_by_its_labels() -> None:
    levels = levels_from("gke")
    assert depth_of(levels, "subblock") == depth_of(levels, "topology.gke.io/rack") == 4
    assert depth_of(levels, NVLINK_LEVEL) == 5
    assert depth_of(levels, "node") == depth_of(levels, "kubernetes.io/hostname") == len(levels) + 1
    assert depth_of(levels, "leaf") is None
    assert names_of(LEVELS) == "spine, leaf, node"


def test_an_nvlink_domain_has_one_name_whichever_label_tells_it() -> None:
    levels = levels_from("aws")
    found = domains_of("n0", {"topology.k8s.aws/ultraserver-id": "us-1"}, levels)
    assert [str(one) for one in found] == ["nvlink-domain us-1", "the whole cluster"]


def fabric(leaves: dict[str, tuple[str, int]]) -> dict[str, dict[str, str]]:
    return {
        f"{leaf}-n{number}": {"spine": spine, "leaf": leaf}
        for leaf, (spine, count) in leaves.items()
        for number in range(count)
    }


def test_labels_that_agree_are_not_spoken_of() -> None:
    assert oddities(fabric({"l0": ("s0", 3), "l1": ("s0", 2), "l2": ("s1", 2)}), LEVELS) == ()
    assert oddities({"n0": {}, "n1": {}}, LEVELS) == ()
    assert oddities({}, LEVELS) == ()


def test_a_leaf_under_two_spines_is_told_with_the_nodes_to_look_at() -> None:
    nodes = fabric({"l0": ("s0", 3), "l1": ("s0", 2), "l2": ("s1", 2)}) | {"n9": {"spine": "s1", "leaf": "l0"}}
    assert oddities(nodes, LEVELS) == (
        (
            "leaf l0 is under s0 on 3 nodes and under s1 on 1 (n9): they count as different domains; "
            "if it is one, correct the labels"
        ),
    )


def test_names_that_every_spine_uses_anew_are_no_contradiction() -> None:
    nodes = {f"n{spine}{leaf}": {"spine": f"s{spine}", "leaf": f"rack-{leaf}"} for spine in "ab" for leaf in "xyz"}
    assert oddities(nodes, LEVELS) == ()


def test_nodes_without_the_label_that_others_have_are_told() -> None:
    nodes = fabric({"l0": ("s0", 3)}) | {"n8": {"spine": "s0"}, "n9": {"spine": "s0", "leaf": "unknown"}}
    assert oddities(nodes, LEVELS) == (
        "2 nodes have no leaf label (n8, n9): each counts as far from all others until it has one",
    )


def test_an_nvlink_domain_under_two_leaves_is_told() -> None:
    levels = levels_from("", ["leaf"])
    nodes = {f"n{number}": {"leaf": f"l{number // 2}", "nvidia.com/gpu.clique": "u.1"} for number in range(4)}
    assert oddities(nodes, levels)[0].startswith("nvlink-domain u.1 is under l0 on 2 nodes and under l1 on 2")


ANY_LABELS = st.dictionaries(st.sampled_from(["spine", "leaf", "nvidia.com/gpu.clique"]), st.text(max_size=5))


@given(st.dictionaries(st.text(max_size=4), ANY_LABELS, max_size=8))
def test_any_labels_at_all_give_a_place_and_words(nodes: dict[str, dict[str, str]]) -> None:
    levels = levels_from("", ["spine", "leaf"])
    for name, labels in nodes.items():
        assert len(place(name, labels, levels).path) == 2
    assert all(0 < len(words) <= 512 for words in oddities(nodes, levels))
