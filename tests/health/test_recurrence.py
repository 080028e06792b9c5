import msgspec
import pytest
from evidence import CATALOGUE, NOW, on_gpu, on_node
from hypothesis import given
from hypothesis import strategies as st

from outrider.health.findings import Evidence
from outrider.health.recurrence import ACCUSATIONS_MAX, Accusation, remembered, suspects, told

HOUR = 3600.0
UNIT = "GPC 1 TPC 2"


def fault(code: str, job: str, uuid: str = "GPU-a", *, unit: str = "", hours_ago: float = 0.0) -> Evidence:
    return msgspec.structs.replace(on_gpu(code, uuid, ago=hours_ago * HOUR), job=job, unit=unit)


def suspected(*faults: Evidence, others: tuple[Evidence, ...] = (), now: float = NOW) -> dict[str, str]:
    """Suspect GPUs, each with the words that say why."""
    accusations: list[Accusation] = []
    for one in faults:  # as they come: one at a time
        accusation = told(one, [*others, one], CATALOGUE)
        accusations = remembered(accusations, [accusation] if accusation else [], now)
    return {evidence.subject_id: evidence.line for evidence in suspects(accusations, now)}


@pytest.mark.parametrize("code", ["xid/31", "xid/13"])
def test_the_same_fault_in_two_jobs_on_the_same_part_makes_the_gpu_suspect(code):
    unit = UNIT if code == "xid/13" else ""
    why = suspected(fault(code, "job-1", unit=unit, hours_ago=20), fault(code, "job-2", unit=unit))
    assert list(why) == ["GPU-a"]
    assert f"{code} in 2 jobs" in why["GPU-a"]
    assert unit in why["GPU-a"]


@pytest.mark.parametrize("code", ["xid/43", "xid/45"])
def test_what_a_killed_program_leaves_too_needs_a_third_job(code):
    faults = [fault(code, f"job-{number}") for number in range(3)]
    assert suspected(*faults[:2]) == {}
    assert list(suspected(*faults)) == ["GPU-a"]


def test_one_job_that_fails_again_and_again_is_the_programs_fault():
    assert suspected(*(fault("xid/31", "job-1", hours_ago=hours) for hours in range(20))) == {}


def test_two_jobs_more_than_a_day_apart_say_nothing():
    assert suspected(fault("xid/31", "job-1", hours_ago=25), fault("xid/31", "job-2")) == {}


def test_different_multiprocessors_of_one_gpu_are_different_places():
    assert suspected(fault("xid/13", "job-1", unit=UNIT), fault("xid/13", "job-2", unit="GPC 3 TPC 0")) == {}
    for nowhere in ("", "MIG GI 5"):  # the line does not say where
        assert suspected(*(fault("xid/13", f"job-{number}", unit=nowhere) for number in range(3))) == {}


def test_a_program_that_fails_on_many_multiprocessors_accuses_none():
    faults = [fault("xid/13", job, unit=f"GPC {number} TPC 0") for job in ("job-1", "job-2") for number in range(1, 7)]
    assert suspected(*faults) == {}


def test_a_job_that_fails_on_many_gpus_is_the_programs_fault():
    ranks = [fault("xid/31", job, uuid) for job in ("job-1", "job-2", "job-3") for uuid in ("GPU-a", "GPU-b")]
    assert suspected(*ranks) == {}
    assert list(suspected(*ranks, fault("xid/31", "job-4"), fault("xid/31", "job-5"))) == ["GPU-a"]


def test_faults_of_nobody_known_say_nothing():
    assert suspected(fault("xid/31", ""), fault("xid/31", "job-1"), fault("xid/31", "")) == {}


def test_a_clean_up_after_another_fault_says_nothing():
    cause = (on_gpu("xid/95", ago=0),)
    assert suspected(*(fault("xid/45", f"job-{number}") for number in range(5)), others=cause) == {}
    assert suspected(*(fault("xid/45", f"job-{n}") for n in range(5)), others=(on_node("sxid/12028", ago=0),)) == {}


@pytest.mark.parametrize("code", ["xid/79", "xid/94", "xid/154.1", "recovery/1", "nonsense"])
def test_only_faults_of_programs_count(code):
    assert suspected(*(fault(code, f"job-{number}") for number in range(9))) == {}


def test_the_suspicion_ends_a_day_after_the_faults():
    accusations = [told(fault("xid/31", f"job-{number}"), [], CATALOGUE) for number in range(2)]
    known = remembered([], [one for one in accusations if one], NOW)
    assert suspects(known, NOW + 23 * HOUR)
    assert suspects(known, NOW + 24 * HOUR) == []
    assert remembered(known, [], NOW + 24 * HOUR) == []


places = st.builds(
    Accusation,
    code=st.sampled_from(["xid/13", "xid/31"]),
    job=st.sampled_from(["job-1", "job-2", "job-3"]),
    owner=st.sampled_from(["GPU-a", "GPU-b", ""]),
    unit=st.sampled_from(["", UNIT]),
    last_seen=st.floats(NOW - 20 * HOUR, NOW),
)


@given(st.lists(places, max_size=6).flatmap(lambda known: st.tuples(st.just(known), st.permutations(known))))
def test_the_order_of_faults_never_matters(orders):
    known, shuffled = ([], [])
    for one, other in zip(*orders, strict=True):
        known, shuffled = remembered(known, [one], NOW), remembered(shuffled, [other], NOW)
    assert known == shuffled == remembered([], orders[0], NOW)
    assert suspects(known, NOW) == suspects(shuffled, NOW)


def test_the_memory_is_bounded_and_keeps_the_latest():
    flood = [
        Accusation(code="xid/31", job=f"job-{number}", owner="GPU-a", last_seen=NOW - 1000 + number)
        for number in range(1000)
    ]
    known = remembered(remembered([], flood[:600], NOW), flood[600:], NOW)
    assert len(known) == ACCUSATIONS_MAX
    assert {one.last_seen for one in known} == {one.last_seen for one in flood[-ACCUSATIONS_MAX:]}
