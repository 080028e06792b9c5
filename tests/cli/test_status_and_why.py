import io

import msgspec
import pytest
from rich.console import Console
from scenes import BEFORE, NOW, domain_episode, episode, picture, placement, pod, rank_state, unscheduled

from outrider.api import names
from outrider.api.core import Container, NamedReference, Pod, ResourceRequirements
from outrider.api.gangplacement import PlacementState
from outrider.api.meta import ObjectMeta
from outrider.api.remediation import Phase
from outrider.api.times import rfc3339
from outrider.cli.picture import Picture
from outrider.cli.resources import Namespace
from outrider.cli.status import status_of
from outrider.cli.tables import explanation_lines, status_tables
from outrider.cli.why import explain

replace = msgspec.structs.replace
ENABLED = Namespace(metadata=ObjectMeta(name="team", labels={names.ENABLED_LABEL: "true"}))
PLAIN = Namespace(metadata=ObjectMeta(name="team"))


def printed(table: object) -> str:
    console = Console(width=250, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def text_of(pod: Pod, scene: Picture, namespace: Namespace = ENABLED) -> str:
    return printed(explanation_lines(explain(pod, namespace, scene)))


def test_status_shows_the_sickest_node_first_with_its_taint():
    status = status_of(picture())
    assert [row.name for row in status.nodes] == ["gpu-1", "gpu-0"]
    sick = status.nodes[0]
    assert (sick.health, sick.score, sick.verdict, sick.reason) == ("Unhealthy", 0, "replace", "xid/79")
    assert (sick.gpus, sick.taint, sick.age_seconds) == ("1/2", "xid-79", 2.0)


def test_status_shows_each_rank_with_its_steps():
    job = status_of(picture()).jobs[0]
    assert (job.name, job.state, job.domain) == ("train", "Placed", "leaf-0")
    assert [(rank.rank, rank.node, rank.step, rank.checkpoint_step) for rank in job.ranks] == [
        (0, "gpu-0", 100, 95),
        (1, "gpu-1", -1, -1),
    ]


def test_open_episodes_come_before_ended_ones():
    ended = replace(episode(Phase.ISOLATED), metadata=ObjectMeta(name="a-ended"))
    status = status_of(changed(picture(), episodes=[ended, episode()]))
    assert [row.phase for row in status.episodes] == ["Open", "Isolated"]


def changed(scene: Picture, **changes: object) -> Picture:
    return Picture(**{**vars(scene), **changes})  # type: ignore[arg-type]


def test_the_tables_show_it_all():
    text = printed(status_tables(status_of(picture())))
    for words in ("gpu-1", "xid-79", "team/train", "isolate ✓ checkpoint …", "2 s ago"):
        assert words in text


def test_a_suspect_domain_is_shown_first_with_the_guilty_node():
    status = status_of(changed(picture(), episodes=[episode(), domain_episode()]))
    (row,) = status.domains
    assert (row.level, row.name, row.score, row.affected, row.members) == ("rack", "r1", 12, 14, 16)
    text = printed(status_tables(status))
    assert text.index("Suspect domains") < text.index("GPU nodes")
    assert "14/16" in text
    assert [one.node for one in status.episodes] == ["gpu-1", "rack r1"]


def test_a_domain_that_is_cleared_is_suspected_no_more():
    status = status_of(changed(picture(), episodes=[domain_episode(Phase.RESOLVED)]))
    assert status.domains == []
    assert "Suspect domains" not in printed(status_tables(status))


def test_a_pod_in_a_suspect_domain_is_told():
    scene = changed(picture(), episodes=[domain_episode()])
    assert "14 of 16 nodes show NVLink trouble" in text_of(pod(0, "a", "gpu-0"), scene)
    assert "NVLink trouble" not in text_of(pod(2, "c", "gpu-2"), scene)


def test_an_empty_cluster_says_what_to_do_next():
    text = printed(status_tables(status_of(Picture(now=NOW))))
    assert "Next: outrider check" in text
    assert "kubectl label namespace NAME outrider.dev/enabled=true" in text
    assert "No remediation episode." in text


def test_the_json_can_be_read_again():
    status = status_of(picture())
    assert msgspec.json.decode(msgspec.json.encode(status), type=type(status)) == status


def test_a_pod_on_the_sick_node_is_told_what_happens_to_it():
    explanation = explain(pod(1, "old", "gpu-1"), ENABLED, picture())
    topics = {fact.topic: fact.text for fact in explanation.facts}
    assert topics["node"].startswith("on gpu-1: Unhealthy, score 0, verdict replace, tainted xid-79")
    assert "moves this pod off because of xid/79 on gpu-1" in topics["remediation"]
    assert explanation.next_step == "kubectl describe gpunode gpu-1"


def test_a_pod_that_stays_is_told_why_its_job_is_touched():
    assert "another rank of this job is moved because of xid/79" in text_of(pod(0, "a", "gpu-0"), picture())


def test_after_the_episode_it_is_told_in_the_past():
    ended = changed(picture(), episodes=[episode(Phase.ISOLATED)])
    assert "another rank of this job was moved because of xid/79" in text_of(pod(0, "a", "gpu-0"), ended)


def test_the_replacement_is_told_whom_it_replaces():
    new = pod(1, "new", "gpu-3", created=rfc3339(NOW))
    assert "this pod replaces train-1-old, moved because of xid/79 on gpu-1" in text_of(new, picture())


def test_a_gated_pod_is_told_what_its_gang_waits_for():
    waiting = placement(PlacementState.WAITING, "2 of 3 pods exist")
    gated = pod(0, "a")
    gated = replace(gated, spec=replace(gated.spec, scheduling_gates=[NamedReference(name=names.GANG_GATE)]))
    text = text_of(gated, Picture(now=NOW, placements=[waiting]))
    assert "held by the scheduling gate" in text
    assert "2 of 3 pods exist" in text
    assert "Next: kubectl describe gangplacement -n team job-train" in text


def held(subject: Pod) -> Pod:
    return replace(subject, spec=replace(subject.spec, scheduling_gates=[NamedReference(name=names.GANG_GATE)]))


def test_a_replacement_without_room_is_told_so_and_nothing_else():
    needs = "needs 1 node with 8 free GPUs; 1 unhealthy (xid/79)"
    meta = {"annotations": {names.INJECTED_ANNOTATION: "0.1.0", names.WHY_ANNOTATION: needs}}
    new = held(pod(1, "new", created=rfc3339(NOW), **meta))
    plan = placement(PlacementState.PLACED, f"1 of 2 ranks have their nodes; the rest waits: {needs}")
    text = text_of(new, changed(picture(), placements=[plan]))
    assert "until a node has room for it; the gang's plan has no place for it yet" in text
    assert "gang of 2 is Placed within leaf-0 without this pod. 1 of 2 ranks have their nodes" in text
    assert "about to be lifted" not in text
    assert "Next: repair, uncordon or free such a node (outrider status)" in text


def test_a_gated_pod_that_is_in_the_plan_is_told_that_it_is_let_go():
    text = text_of(held(pod(0, "a")), Picture(now=NOW, placements=[placement(PlacementState.PLANNED)]))
    assert "the plan is written and the gate is about to be lifted" in text
    assert "this pod on gpu-0 as rank 0" in text


def test_a_bound_pod_is_told_its_place_and_not_what_was_said_when_it_was_planned():
    planned = {"annotations": {names.WHY_ANNOTATION: "2 pods on 2 nodes; spare: gpu-3"}}
    scene = Picture(now=NOW, placements=[placement()])
    assert "spare: gpu-3" not in text_of(pod(0, "a", "gpu-0", **planned), scene)
    assert "spare: gpu-3" in text_of(pod(0, "a", **planned), scene)
    assert "spare: gpu-3" in text_of(pod(0, "a", "gpu-0", **planned), Picture(now=NOW))


def test_a_gated_pod_without_a_plan_points_to_the_planner():
    gated = pod(0, "a")
    gated = replace(gated, spec=replace(gated.spec, scheduling_gates=[NamedReference(name=names.GANG_GATE)]))
    assert "Next: outrider check: is the planner running?" in text_of(gated, Picture(now=NOW))


def test_the_schedulers_words_are_passed_on():
    pending = pod(0, "a")
    words = "0/4 nodes are available: 1 GPU hardware unhealthy"
    pending = replace(pending, status=replace(pending.status, conditions=unscheduled(words)))
    assert words in text_of(pending, Picture(now=NOW))


def gpu_pod(**labels: str) -> Pod:
    limits = ResourceRequirements(limits={"nvidia.com/gpu": "1"}, requests={"nvidia.com/gpu": "1"})
    bare = Pod(metadata=ObjectMeta(name="p", namespace="team", uid="u", creation_timestamp=BEFORE, labels=labels))
    return replace(bare, spec=replace(bare.spec, containers=[Container(name="c", resources=limits)]))


@pytest.mark.parametrize(
    ("subject", "namespace", "words"),
    [
        (gpu_pod(), PLAIN, "kubectl label namespace team outrider.dev/enabled=true"),
        (gpu_pod(), ENABLED, "created while the webhook did not answer"),
        (gpu_pod(**{names.IGNORE_LABEL: "true"}), ENABLED, "keeps Outrider away"),
        (Pod(metadata=ObjectMeta(name="p", namespace="team")), ENABLED, "asks for no GPU"),
    ],
    ids=["namespace not enabled", "not admitted", "opted out", "no GPU"],
)
def test_a_pod_that_outrider_did_not_touch_is_told_why(subject, namespace, words):
    assert words in text_of(subject, Picture(now=NOW), namespace)


def test_a_healthy_pod_shows_its_steps_and_asks_for_nothing():
    scene = changed(picture(), episodes=[])
    explanation = explain(pod(0, "a", "gpu-0"), ENABLED, scene)
    assert any(fact.text == "rank 0 is at step 100, last checkpoint at step 95" for fact in explanation.facts)
    assert explanation.next_step.startswith("nothing")
    assert rank_state("a", 0, 100).step == 100
