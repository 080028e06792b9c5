"""The nodes kept as spares are looked for again only where something changed that the choice depends on."""

import msgspec
import pytest

from scheduler_plugin.cluster.nodes import NodeView
from scheduler_plugin.cluster.spares import Keeper, Spares
from scheduler_plugin.rules import DomainSpares
from tests.scheduler_plugin.builders import RULES, make_gpunode, make_node, make_pod, make_snapshot

NODES = make_snapshot(*(make_node(f"n{number}") for number in range(4))).nodes


def spares_of(nodes: dict[str, NodeView]) -> Spares:
    spares = Spares(RULES.levels, [DomainSpares("leaf", nodes=1)])
    for view in nodes.values():
        spares.changed(None, view)
    return spares


def changed(*objects: object) -> NodeView:
    return make_snapshot(make_node("n1"), *objects).nodes["n1"]


def test_an_agent_that_is_heard_again_changes_nothing() -> None:
    nodes = dict(NODES)
    spares = spares_of(nodes)
    before = spares.kept(nodes, [])
    assert list(before) == ["n3"]
    old, nodes["n1"] = nodes["n1"], changed(make_gpunode("n1"))
    spares.changed(old, nodes["n1"])
    assert spares.kept(nodes, []) is before


@pytest.mark.parametrize("what", ["gone", "made", "full", "sick", "cordoned"])
def test_whatever_matters_to_the_choice_is_chosen_anew(what: str) -> None:
    nodes = dict(NODES)
    spares = spares_of(nodes)
    before = spares.kept(nodes, [])
    old = nodes["n3"]
    views = {
        "full": make_snapshot(make_node("n3"), make_pod("u", gpus=8, job="j", node="n3", phase="Running")).nodes["n3"],
        "sick": make_snapshot(make_node("n3"), make_gpunode("n3", age_seconds=1e6)).nodes["n3"],
        "cordoned": msgspec.structs.replace(old, cordoned=True),
    }
    match what:
        case "gone":
            spares.changed(nodes.pop("n3"), None)
        case "made":
            nodes["n9"] = make_snapshot(make_node("n9")).nodes["n9"]
            spares.changed(None, nodes["n9"])
        case _:
            nodes["n3"] = views[what]
            spares.changed(old, nodes["n3"])
    after = spares.kept(nodes, [])
    assert list(after) == {"made": ["n9"], "sick": ["n3"]}.get(what, ["n2"])
    assert (after is before) == (what == "sick"), "silence is told from the time, not from a change"


def test_a_gang_that_keeps_nodes_or_no_longer_does_is_heard_at_once() -> None:
    nodes = dict(NODES)
    spares = spares_of(nodes)
    spares.kept(nodes, [])
    assert set(spares.kept(nodes, [Keeper("job", 0, ("n3",))])) == {"n2", "n3"}
    old, nodes["n3"] = nodes["n3"], msgspec.structs.replace(nodes["n3"], holds={"another": {"nvidia.com/gpu": 8000}})
    spares.changed(old, nodes["n3"])
    assert set(spares.kept(nodes, [Keeper("job", 0, ("n3",))])) == {"n2"}
    nodes["n3"] = old
    spares.changed(nodes["n3"], old)
    assert set(spares.kept(nodes, [])) == {"n3"}
