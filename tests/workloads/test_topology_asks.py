import pytest

from outrider.api.core import Container, Owner, Pod, PodSpec, ResourceRequirements
from outrider.api.leaderworkerset import LeaderWorkerSet
from outrider.api.meta import ObjectMeta
from outrider.api.podgroups import PodGroup, PodGroupConstraints, PodGroupSpec, TopologyConstraint
from outrider.topology import NO_ASK, TopologyAsk
from outrider.workloads import GPU, topology_ask

GPUS = PodSpec(containers=[Container(resources=ResourceRequirements(limits={GPU: "8"}))])
RACK = "cloud.provider.com/topology-rack"


def pod(**annotations: str) -> Pod:
    return Pod(metadata=ObjectMeta(annotations=annotations), spec=GPUS)


def asked(annotations: dict[str, str], owner: Owner | None = None) -> TopologyAsk:
    ask, problem = topology_ask([pod(**annotations)] * 2, owner)
    assert problem == ""
    return ask


def test_pods_that_ask_for_nothing_get_nothing() -> None:
    assert topology_ask([pod()]) == (NO_ASK, "")
    assert topology_ask([]) == (NO_ASK, "")


@pytest.mark.parametrize(
    "required",
    [
        "outrider.dev/required-level",
        "kueue.x-k8s.io/podset-required-topology",
        "kai.scheduler/topology-required-placement",
        "leaderworkerset.sigs.k8s.io/exclusive-topology",
    ],
)
def test_a_level_is_required_in_anyones_words(required: str) -> None:
    assert asked({required: RACK}) == TopologyAsk(required_level=RACK)


@pytest.mark.parametrize(
    "preferred",
    [
        "outrider.dev/preferred-level",
        "kueue.x-k8s.io/podset-preferred-topology",
        "kai.scheduler/topology-preferred-placement",
    ],
)
def test_a_level_is_preferred_in_anyones_words(preferred: str) -> None:
    assert asked({preferred: "leaf"}) == TopologyAsk(preferred_level="leaf")


def test_our_own_words_come_before_those_of_others() -> None:
    both = {"outrider.dev/required-level": "leaf", "kueue.x-k8s.io/podset-required-topology": RACK}
    assert asked(both).required_level == "leaf"


def test_segments_are_kept_where_they_can_be_or_must_be() -> None:
    ours = {"outrider.dev/segment-pods": "4", "outrider.dev/segment-level": "leaf"}
    assert asked(ours) == TopologyAsk(segment_pods=4, segment_level="leaf")
    kueue = {"kueue.x-k8s.io/podset-slice-size": "4", "kueue.x-k8s.io/podset-slice-required-topology": RACK}
    assert asked(kueue) == TopologyAsk(segment_pods=4, segment_level=RACK, segment_required=True)
    assert asked(ours | kueue).segment_level == "leaf"


def test_exclusive_segments_share_no_domain() -> None:
    jobset = asked({"alpha.jobset.sigs.k8s.io/exclusive-topology": RACK})
    assert jobset == TopologyAsk(segment_level=RACK, segment_required=True, segment_exclusive=True)
    subgroups = {
        "leaderworkerset.sigs.k8s.io/subgroup-size": "2",
        "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology": RACK,
    }
    lws = asked(subgroups)
    assert lws == TopologyAsk(segment_pods=2, segment_level=RACK, segment_required=True, segment_exclusive=True)
    assert asked({"leaderworkerset.sigs.k8s.io/subgroup-size": "2"}) == NO_ASK


def test_the_owners_annotations_count_too() -> None:
    owner = LeaderWorkerSet(metadata=ObjectMeta(annotations={"kai.scheduler/topology-required-placement": "rack"}))
    assert asked({}, owner).required_level == "rack"


def test_the_topology_constraint_of_a_podgroup_is_required() -> None:
    constraints = PodGroupConstraints(topology=[TopologyConstraint(key=RACK)])
    assert asked({}, PodGroup(spec=PodGroupSpec(scheduling_constraints=constraints))).required_level == RACK
    assert asked({}, PodGroup(spec=PodGroupSpec(scheduling_constraints=PodGroupConstraints()))) == NO_ASK


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        ({"outrider.dev/segment-pods": "4"}, "stands without outrider.dev/segment-level"),
        ({"outrider.dev/segment-level": "leaf"}, "stands without outrider.dev/segment-pods"),
        ({"outrider.dev/segment-level": "leaf", "outrider.dev/segment-pods": "four"}, "'four' is no number of pods"),
        ({"outrider.dev/segment-level": "leaf", "outrider.dev/segment-pods": "0"}, "'0' is no number of pods"),
        ({"outrider.dev/required-level": "l" * 400}, "no level has so long a name"),
    ],
)
def test_what_makes_no_sense_is_said_and_left_out(annotations: dict[str, str], words: str) -> None:
    ask, problem = topology_ask([pod(**annotations)])
    assert ask == NO_ASK
    assert words in problem


def test_of_pods_that_disagree_most_have_their_way() -> None:
    level = "outrider.dev/required-level"
    ask, problem = topology_ask([pod(**{level: "a"}), pod(**{level: "b"}), pod(**{level: "b"}), pod()])
    assert ask.required_level == "b"
    assert problem == "pods disagree on outrider.dev/required-level; 'b' holds, as most of them say"


def test_a_launcher_that_others_place_has_no_say() -> None:
    launcher = Pod(metadata=ObjectMeta(annotations={"outrider.dev/required-level": "leaf"}))
    assert topology_ask([launcher, pod()]) == (NO_ASK, "")
