"""Episodes about domains, from the Remediation that says so to the plan that goes elsewhere."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.api.core import Pod
from outrider.api.meta import ObjectMeta
from outrider.api.names import RACK_LABEL
from outrider.api.remediation import DomainRef, Phase, Remediation, RemediationSpec, RemediationStatus
from outrider.topology import Domain
from scheduler_plugin.cluster.members import member
from scheduler_plugin.cluster.suspects import suspected, suspicion
from scheduler_plugin.cluster.world import World
from scheduler_plugin.extender.decide import decide
from scheduler_plugin.extender.prioritize import prioritize
from scheduler_plugin.placing.gang import Gang, Placement, Refusal
from scheduler_plugin.placing.plan import plan
from scheduler_plugin.placing.replacing import replace
from tests.scheduler_plugin.builders import NOW, gang_pods, make_node, make_pod, make_world


def episode(level: str, name: str, *, phase: Phase = Phase.OPEN, cancel: bool = False, title: str = "e") -> Remediation:
    ref = DomainRef(level=level, name=name)
    spec = RemediationSpec(cause="domain/network", domain=ref, cancel=cancel)
    return Remediation(metadata=ObjectMeta(name=title, uid=title), spec=spec, status=RemediationStatus(phase=phase))


LEAF_0 = episode("leaf", "spine-0/leaf-0")


def cluster(*episodes: Remediation, **labels: dict[str, str]) -> World:
    """Four nodes, two under each of two leaves."""
    nodes = [
        make_node(f"n{index}", leaf=f"leaf-{index // 2}", labels=labels.get(f"n{index}", {})) for index in range(4)
    ]
    world = make_world(*nodes)
    for one in episodes:
        world.on_remediation(None, one)
    world.publish()
    return world


def planned(world: World, pods: list[Pod]) -> Placement | Refusal:
    members = tuple(member(pod, rank) for rank, pod in enumerate(pods))
    return plan(Gang("job-train", members), world.publish(), 2, NOW)


def nodes_of(result: Placement | Refusal) -> set[str]:
    return set(result.nodes.values()) if isinstance(result, Placement) else set()


def test_a_new_gang_goes_where_nothing_is_suspected_and_so_do_its_spares() -> None:
    result = planned(cluster(LEAF_0), gang_pods("train", 1))
    assert isinstance(result, Placement)
    assert nodes_of(result) | set(result.spares) == {"n2", "n3"}


def test_a_gang_that_fits_only_there_waits_and_is_told() -> None:
    result = planned(cluster(LEAF_0), gang_pods("train", 3))
    assert isinstance(result, Refusal)
    assert "in a suspect domain (leaf spine-0/leaf-0: domain/network)" in result.message


@pytest.mark.parametrize(
    ("level", "name", "label"),
    [("rack", "r7", RACK_LABEL), ("nvlink-domain", "c1.4", "nvidia.com/gpu.clique")],
)
def test_racks_and_nvlink_domains_are_known_by_their_labels(level: str, name: str, label: str) -> None:
    world = cluster(episode(level, name), n0={label: name}, n2={label: name})
    result = planned(world, gang_pods("train", 2))
    assert nodes_of(result) == {"n1", "n3"}


def test_a_leaf_of_the_same_name_under_another_spine_is_not_meant() -> None:
    assert len(nodes_of(planned(cluster(episode("leaf", "spine-9/leaf-0")), gang_pods("train", 4)))) == 4


def test_a_whole_cluster_under_suspicion_refuses_nothing() -> None:
    assert len(nodes_of(planned(cluster(episode("cluster", "")), gang_pods("train", 4)))) == 4


@pytest.mark.parametrize("end", [{"phase": Phase.RESOLVED}, {"phase": Phase.CANCELLED}, {"cancel": True}])
def test_a_suspicion_ends_with_its_episode(end: dict[str, Any]) -> None:
    world = cluster(LEAF_0)
    world.on_remediation(LEAF_0, episode("leaf", "spine-0/leaf-0", **end))
    assert len(nodes_of(planned(world, gang_pods("train", 4)))) == 4


def test_a_suspicion_ends_when_its_episode_is_deleted_and_not_before_the_last_one() -> None:
    other = episode("leaf", "spine-0/leaf-0", title="other")
    world = cluster(LEAF_0, other)
    world.on_remediation(LEAF_0, None)
    assert nodes_of(planned(world, gang_pods("train", 2))) == {"n2", "n3"}
    world.on_remediation(other, None)
    assert len(nodes_of(planned(world, gang_pods("train", 4)))) == 4


def test_an_episode_about_a_node_makes_no_domain_suspect() -> None:
    spec = RemediationSpec(cause="xid/79", node="n0")
    about_node = Remediation(metadata=ObjectMeta(name="e"), spec=spec)
    assert suspected(about_node) is None
    assert len(nodes_of(planned(cluster(about_node), gang_pods("train", 4)))) == 4


def test_a_single_pod_takes_a_suspect_node_last() -> None:
    snapshot = cluster(LEAF_0).publish()
    single, names = make_pod("single", gpus=1), ["n0", "n2"]
    assert decide(single, names, snapshot, NOW).allowed == names
    assert [score.score > 0 for score in prioritize(single, names, snapshot, NOW)] == [False, True]


def test_a_node_that_comes_into_the_domain_later_is_suspect_too() -> None:
    world = cluster(episode("leaf", "spine-0/leaf-9"))
    world.on_node(None, make_node("late", leaf="leaf-9"))
    assert world.publish().nodes["late"].suspect.startswith("leaf spine-0/leaf-9")


def joining(world: World, survivors: list[str]) -> Placement | Refusal:
    pods = gang_pods("train", 1)
    gang = Gang("job-train", (member(pods[0], 0),))
    return replace(gang, survivors, {}, world.publish(), NOW)


def test_a_rank_that_moves_goes_elsewhere_where_its_gang_is_not() -> None:
    world = cluster(LEAF_0)
    world.on_pod(None, make_pod("train-9", node="n2", phase="Running"))
    assert nodes_of(joining(world, ["n2"])) == {"n3"}
    world.on_pod(None, make_pod("other", node="n3", phase="Running"))
    assert nodes_of(joining(world, ["n2"])) == set()


def test_a_gang_that_runs_in_the_domain_already_may_be_completed_there() -> None:
    world = cluster(LEAF_0)
    for index in (0, 2, 3):
        world.on_pod(None, make_pod(f"other-{index}", node=f"n{index}", phase="Running"))
    assert nodes_of(joining(world, ["n0"])) == {"n1"}
    assert nodes_of(joining(world, ["n2"])) == set()


TEXTS = st.text(max_size=8)


@given(st.lists(st.tuples(TEXTS.filter(bool), TEXTS), max_size=4), TEXTS.filter(bool), TEXTS)
def test_domains_of_any_name_are_compared_as_they_are(known: list[tuple[str, str]], level: str, name: str) -> None:
    asked = suspected(
        msgspec.structs.replace(LEAF_0, spec=RemediationSpec(cause="c", domain=DomainRef(level=level, name=name)))
    )
    episodes = {asked: {"e": LEAF_0}} if asked else {}
    domains = [Domain(*one) for one in known]
    assert bool(suspicion(domains, episodes)) is (asked in domains)
