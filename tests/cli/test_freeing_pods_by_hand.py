import io

import msgspec
from rich.console import Console
from scenes import pod
from test_status_and_why import held

from outrider.api.core import NamedReference
from outrider.api.names import IGNORE_LABEL
from outrider.cli.ungate import Freed, Outcome, losses, outcome_lines, patch_of

replace = msgspec.structs.replace


def test_the_patch_lifts_our_gate_alone_and_only_from_this_very_pod() -> None:
    subject = held(pod(0, "a"))
    gates = [NamedReference(name="team.example/quota"), *subject.spec.scheduling_gates]
    steps = patch_of(replace(subject, spec=replace(subject.spec, scheduling_gates=gates)))
    assert [step["op"] for step in steps] == ["test", "test", "add", "remove"]
    assert steps[0] == {"op": "test", "path": "/metadata/uid", "value": "a"}
    assert steps[1] == {"op": "test", "path": "/spec/schedulingGates/1/name", "value": "outrider.dev/gang"}
    assert steps[3] == {"op": "remove", "path": "/spec/schedulingGates/1"}


def test_the_label_is_added_to_pods_with_and_without_labels() -> None:
    subject = held(pod(0, "a"))
    assert patch_of(subject)[2] == {"op": "add", "path": "/metadata/labels/outrider.dev~1ignore", "value": "true"}
    bare = replace(subject, metadata=replace(subject.metadata, labels={}))
    assert patch_of(bare)[2] == {"op": "add", "path": "/metadata/labels", "value": {IGNORE_LABEL: "true"}}


def test_what_is_lost_is_said() -> None:
    said = " | ".join(losses([held(pod(0, "a")), held(pod(1, "b"))], planner="scheduler-0"))
    assert "placement as a whole is lost for Job team/train" in said
    assert "a planner leads (scheduler-0)" in said
    assert "2 pods still go to outrider-scheduler" in said


def text_of(outcome: Outcome) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(outcome_lines(outcome))
    return console.export_text()


def test_the_answer_names_each_pod_and_what_went_wrong() -> None:
    outcome = Outcome(False, [Freed("team/a"), Freed("team/b", "forbidden")], ["all is lost"])
    assert not outcome.done
    assert text_of(outcome).splitlines()[:2] == ["team/a: gate lifted", "team/b: forbidden"]
    assert "Note: all is lost" in text_of(outcome)
    assert "gate would be lifted" in text_of(Outcome(True, [Freed("team/a")], []))
    assert "no pod waits for Outrider there" in text_of(Outcome(False, [], []))
    assert not Outcome(False, [], []).done
