"""What the node's objects should say, as values."""

from typing import Any

import pytest

from node_agent.judging import Rules, conclude
from node_agent.memory import Memory
from node_agent.publishing.devices import isolation
from node_agent.publishing.objects import (
    condition_patch,
    status_of,
    taint_patch,
    taint_words,
    tells_the_same,
    traceparents,
)
from outrider.api.core import Node, NodeSpec, NodeStatus, StatusCondition, Taint
from outrider.api.gpunode import GPUNode, GPUNodeSpec, Mode, RankState, SubjectKind
from outrider.api.meta import ObjectMeta
from outrider.api.names import UNHEALTHY_TAINT
from outrider.health.catalogue import load
from outrider.health.findings import Evidence

NOW = 1_800_000_000.0
RULES = Rules(catalogue=load(), clear_dwell_seconds=30, expected_gpus=0)
OURS = Taint(key=UNHEALTHY_TAINT, value="xid-79")
OTHER = Taint(key="dedicated", value="team-a")
FOREIGN = Taint(key=UNHEALTHY_TAINT, value="x", effect="NoExecute")


def found(*codes: str, count: int = 1, last_seen: float = NOW) -> Memory:
    times = {"first_seen": NOW, "last_seen": last_seen}
    return Memory(
        findings=[Evidence(code=code, count=count, source="test", **subject(code), **times) for code in codes]
    )


def subject(code: str) -> dict[str, Any]:
    return {"subject": SubjectKind.GPU, "subject_id": "GPU-1"} if code.startswith("xid/") else {}


def judged(*codes: str):
    return conclude(found(*codes), NOW + 60, RULES)


def node(*taints: Taint, conditions=()) -> Node:
    return Node(
        metadata=ObjectMeta(name="n", resource_version="7"),
        spec=NodeSpec(taints=list(taints)),
        status=NodeStatus(conditions=list(conditions)),
    )


def status(memory: Memory, existing: GPUNode | None = None, now: float = NOW + 60, ranks=()):
    existing = existing or GPUNode(metadata=ObjectMeta(name="n", generation=3))
    return status_of(memory, conclude(memory, NOW + 60, RULES), ranks, existing, now)


@pytest.mark.parametrize(
    ("codes", "mode", "taint"),
    [
        (["xid/79"], Mode.AUTO, "xid-79"),
        (["xid/154.2"], Mode.AUTO, "xid-154.2"),
        (["xid/94"], Mode.AUTO, None),
        (["monitor/blind"], Mode.AUTO, None),
        ([], Mode.AUTO, None),
        (["xid/79"], Mode.PAUSED, None),
        ([], Mode.QUARANTINED, "quarantined"),
    ],
)
def test_only_hard_verdicts_and_quarantine_want_a_taint(codes, mode, taint):
    assert isolation(found(*codes).findings, judged(*codes), {}, "n", mode).taint == taint


@pytest.mark.parametrize(
    ("wanted", "spec", "words"),
    [
        ("xid-79", GPUNodeSpec(), "no new GPU work (outrider.dev/unhealthy=xid-79): GPU 3 is lost"),
        ("quarantined", GPUNodeSpec(mode=Mode.QUARANTINED), "spec.mode is Quarantined; Auto ends it"),
        (
            "quarantined",
            GPUNodeSpec(mode=Mode.QUARANTINED, reason="fan swap"),
            "spec.mode is Quarantined (fan swap); Auto ends it. GPU 3 is lost",
        ),
        (None, GPUNodeSpec(), "taint outrider.dev/unhealthy lifted: GPU 3 is lost"),
        (None, GPUNodeSpec(mode=Mode.PAUSED), "lifted: GPUNode spec.mode is Paused, so"),
        (None, GPUNodeSpec(mode=Mode.PAUSED, reason="known bug"), "spec.mode is Paused (known bug), so nothing acts"),
    ],
)
def test_a_change_of_the_taint_names_the_wish_of_people_that_caused_it(wanted, spec, words):
    assert words in taint_words(wanted, spec, "GPU 3 is lost")


def test_the_first_taint_of_a_node_is_tied_to_the_version_that_was_read():
    test, add = taint_patch(node(), "xid-79", may_remove=True)
    assert test == {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}
    assert add["path"] == "/spec/taints"


def test_a_further_taint_is_put_behind_those_of_others():
    (add,) = taint_patch(node(OTHER), "xid-79", may_remove=True)
    assert (add["op"], add["path"], add["value"]["effect"]) == ("add", "/spec/taints/-", "NoSchedule")


def test_a_taint_that_is_right_is_left_alone_and_a_new_reason_replaces_its_value():
    assert taint_patch(node(OTHER, OURS), "xid-79", may_remove=True) == []
    assert taint_patch(node(OTHER, OURS), "xid-95", may_remove=True)[-1]["path"] == "/spec/taints/1/value"


def test_only_our_own_taint_is_removed_and_the_patch_tests_that_it_is_ours():
    *tests, remove = taint_patch(node(OTHER, FOREIGN, OURS), None, may_remove=True)
    assert [test["value"] for test in tests] == [UNHEALTHY_TAINT, "NoSchedule"]
    assert remove == {"op": "remove", "path": "/spec/taints/2"}
    assert taint_patch(node(OTHER, FOREIGN), None, may_remove=True) == []


def test_silence_lifts_no_taint():
    assert taint_patch(node(OURS), None, may_remove=False) == []


def test_the_condition_changes_its_time_only_with_its_status():
    first = condition_patch(node(), judged("xid/79"), NOW)
    (written,) = first["status"]["conditions"]
    assert (written["status"], written["reason"], "lastTransitionTime" in written) == ("False", "Unhealthy", True)
    before = StatusCondition(type="GPUHealthy", status="False", reason="Unhealthy", message=written["message"])
    assert condition_patch(node(conditions=[before]), judged("xid/79"), NOW + 5) is None
    (again,) = condition_patch(node(conditions=[before]), judged("xid/95"), NOW + 5)["status"]["conditions"]
    assert "lastTransitionTime" not in again


def test_a_blind_node_has_the_condition_unknown():
    (written,) = condition_patch(node(), judged("monitor/blind"), NOW)["status"]["conditions"]
    assert (written["status"], written["reason"]) == ("Unknown", "MonitorBlind")


def test_the_status_names_the_generation_it_has_seen_and_keeps_the_time_of_transition():
    first = status(found("xid/79"))
    (condition,) = first.conditions
    assert condition.observed_generation == 3
    later = status(found("xid/79", "xid/95"), GPUNode(metadata=ObjectMeta(name="n"), status=first), NOW + 500)
    assert later.conditions[0].last_transition_time == condition.last_transition_time


def test_times_steps_and_small_changes_of_a_count_are_not_worth_a_write():
    rank = RankState(pod_uid="u", rank=0, step=5, observed_at="2026-01-01T00:00:00Z")
    further = RankState(pod_uid="u", rank=0, step=9, observed_at="2026-01-01T00:00:09Z")
    one = status(found("xid/95", count=1000), ranks=[rank])
    known = GPUNode(metadata=ObjectMeta(name="n", generation=3), status=one)
    more = found("xid/95", count=1001, last_seen=NOW + 9)
    assert tells_the_same(one, status(more, known, NOW + 70, ranks=[further]))
    assert not tells_the_same(one, status(found("xid/95", count=2000), known, ranks=[rank]))
    assert not tells_the_same(one, status(found("xid/95", "xid/31", count=1000), known, ranks=[rank]))
    answered = RankState(pod_uid="u", rank=0, step=5, acknowledged="r", observed_at="2026-01-01T00:00:00Z")
    assert not tells_the_same(one, status(found("xid/95", count=1000), known, ranks=[answered]))


def test_the_gravest_findings_come_first():
    codes = [finding.code for finding in status(found("xid/31", "xid/79", "xid/999")).findings]
    assert codes[0] == "xid/79"


def test_pods_of_one_job_share_one_trace():
    contexts = {"a": f"00-{'1' * 32}-{'a' * 16}-01", "b": f"00-{'1' * 32}-{'a' * 16}-01", "c": "nonsense", "d": ""}
    assert traceparents(contexts) == [f"00-{'1' * 32}-{'a' * 16}-01"]


def test_a_finding_names_the_code_that_decided_about_it():
    memory = found("xid/48", "xid/63")
    status = status_of(memory, judged("xid/48", "xid/63"), [], GPUNode(metadata=ObjectMeta(name="n")), NOW + 60)
    assert {one.code: one.decided_by for one in status.findings} == {"xid/48": "xid/63", "xid/63": ""}
