"""Judging over time: jobs, repeat offenders, silence of probes, restarts and reboots, as reports come in."""

import math
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from node_agent.agent import Agent, jobs_of, overdue
from node_agent.judging import Rules, absorb, conclude, noted, resumed
from node_agent.memory import Memory
from node_agent.probes.nvml_wire import GPUReading, Snapshot
from node_agent.probes.report import KernelPosition, Report, Sighting, States
from node_agent.publishing.objects import status_body, status_of
from node_agent.state import Store, worth_saving
from outrider.api.core import Pod, PodStatus
from outrider.api.gpunode import GPUNode, Health, SubjectKind, Verdict
from outrider.api.meta import ObjectMeta, OwnerReference
from outrider.api.names import JOB_UID_LABEL
from outrider.health.catalogue import load
from outrider.health.findings import Evidence, seen
from outrider.health.judge import Judgement

NOW = 1_800_000_000.0
DAY, HOUR = 86_400.0, 3600.0
RULES = Rules(catalogue=load(), clear_dwell_seconds=30, expected_gpus=0)
JOBS = {f"pod-{number}": f"job-{number}" for number in range(9)}


def gpus(*indices: int, **values) -> Report:
    readings = [
        GPUReading(index=index, uuid=f"GPU-{index}", serial=f"S{index}", pci_address=f"00000000:0{index}:00", **values)
        for index in indices
    ]
    return Report(snapshot=Snapshot(gpus=readings, driver_version="580"))


def said(*codes: str, sequence: int, at: float, boot: str = "boot-1", subject_id: str = "GPU-0", unit="") -> Report:
    evidence = [
        seen(code, NOW + at, subject=SubjectKind.GPU, subject_id=subject_id, source="kernel-log", unit=unit)
        for code in codes
    ]
    sightings = tuple(Sighting(sequence + place, one) for place, one in enumerate(evidence))
    return Report(sightings=sightings, position=KernelPosition(boot, sequence + len(codes) - 1))


def booted(boot: str) -> Report:
    return Report(position=KernelPosition(boot))


def state(code: str, subject: SubjectKind, subject_id: str, source: str, at: float) -> Evidence:
    return seen(code, NOW + at, subject=subject, subject_id=subject_id, source=source)


def after(*steps: tuple[str, Report, float], memory: Memory | None = None) -> Memory:
    """The memory after reports, each judged like the agent does."""
    memory = memory or Memory()
    for name, report, seconds in steps:
        memory = absorb(memory, name, report, NOW + seconds, RULES, JOBS)
        memory = noted(memory, conclude(memory, NOW + seconds, RULES), NOW + seconds)
    return memory


def codes(memory: Memory) -> set[str]:
    return {evidence.code for evidence in memory.findings}


def at(memory: Memory, seconds: float) -> Judgement:
    return conclude(memory, NOW + seconds, RULES)


BOTH = after(("nvml", gpus(0, 1), 0))


# --- faults of programs ---


def held(pod: str) -> Report:
    return Report(holders={"GPU-0": pod})


def test_a_program_fault_in_two_jobs_on_one_gpu_makes_it_suspect_for_a_day_and_no_longer():
    memory = after(
        ("kubelet", held("pod-1"), 10),
        ("kernel-log", said("xid/31", sequence=1, at=20), 20),
        ("kubelet", held("pod-2"), HOUR),
        ("kernel-log", said("xid/31", sequence=2, at=HOUR + 9), HOUR + 9),
        memory=BOTH,
    )
    judgement = at(memory, HOUR + 9)
    assert (judgement.gpus["GPU-0"].verdict, judgement.gpus["GPU-0"].reason) == (Verdict.NO_NEW_WORK, "gpu/suspect")
    assert judgement.gpus["GPU-1"].health is Health.HEALTHY
    over = 20 + DAY
    memory = after(("nvml", gpus(0, 1), over), ("nvml", gpus(0, 1), over + 30), memory=memory)
    assert "gpu/suspect" not in codes(memory)


def test_a_fault_before_the_pod_was_seen_to_have_the_gpu_is_nobodys():
    memory = after(
        ("kubelet", held("pod-1"), 10),
        ("kernel-log", said("xid/31", sequence=1, at=5), 11),
        ("kernel-log", said("xid/31", sequence=2, at=5, subject_id="GPU-1"), 11),
        memory=BOTH,
    )
    assert {evidence.job for evidence in memory.findings} == {""}
    assert memory.accusations == []


def test_a_pod_that_runs_no_more_is_not_blamed_for_what_its_gpu_does_next():
    memory = after(("kubelet", held("gone"), 10), ("kernel-log", said("xid/31", sequence=1, at=20), 20), memory=BOTH)
    assert memory.accusations == []


def test_who_has_a_gpu_keeps_its_start_over_further_looks():
    memory = after(("kubelet", held("pod-1"), 10), ("kubelet", held("pod-1"), 99), memory=BOTH)
    assert (memory.holders["GPU-0"].pod, memory.holders["GPU-0"].since) == ("pod-1", NOW + 10)
    assert after(("kubelet", Report(holders={}), 100), memory=memory).holders == {}


def test_the_job_of_a_pod_is_the_admitted_one_else_its_controller_else_the_pod():
    def pod(uid: str, phase: str = "Running", **metadata) -> Pod:
        return Pod(metadata=ObjectMeta(uid=uid, **metadata), status=PodStatus(phase=phase))

    owner = OwnerReference(api_version="batch/v1", kind="Job", name="j", uid="from-owner", controller=True)
    pods = [
        pod("a", labels={JOB_UID_LABEL: "from-label"}, owner_references=[owner]),
        pod("b", owner_references=[owner]),
        pod("c"),
        pod("d", phase="Failed"),
    ]
    assert jobs_of(pods) == {"a": "from-label", "b": "from-owner", "c": "c"}


# --- repeat offenders ---


def broken_and_repaired(times: int) -> Memory:
    memory = BOTH
    for number in range(times):
        start = number * DAY
        memory = after(
            ("kernel-log", said("xid/95", sequence=1, at=start, boot=f"boot-{number}"), start),
            ("kernel-log", booted(f"boot-{number}"), start + 60),
            ("kernel-log", booted(f"boot-{number + 1}"), start + 600),
            ("nvml", gpus(0, 1), start + 601),
            memory=memory,
        )
    return memory


@pytest.mark.parametrize(
    ("times", "verdict"),
    [(2, Verdict.NONE), (3, Verdict.NO_NEW_WORK), (4, Verdict.NO_NEW_WORK), (5, Verdict.REPLACE)],
)
def test_a_gpu_that_fails_again_after_each_repair_is_inspected_and_then_replaced(times, verdict):
    memory = broken_and_repaired(times)
    judgement = at(memory, times * DAY)
    assert judgement.gpus["GPU-0"].verdict is verdict
    assert judgement.gpus["GPU-1"].verdict is Verdict.NONE


def test_a_fault_that_each_reboot_brings_back_within_minutes_counts_each_time():
    memory = BOTH
    for number in range(3):
        boot, start = f"boot-{number}", number * 300.0
        memory = after(
            ("kernel-log", booted(boot), start),
            ("kernel-log", said("xid/79", sequence=1, at=start + 5, boot=boot), start + 5),
            memory=memory,
        )
    assert "gpu/repeat-offender" in codes(after(("nvml", gpus(0, 1), 900), memory=memory))


def test_the_verdict_for_a_lemon_is_no_episode_of_its_own():
    memory = broken_and_repaired(5)
    (board,) = memory.offenders
    assert len(board.episodes) == 5
    later = after(*(("nvml", gpus(0, 1), 5 * DAY + minute * HOUR) for minute in range(40)), memory=memory)
    assert later.offenders == [board]


def test_a_repeat_offender_is_known_by_its_serial_and_published():
    memory = broken_and_repaired(3)
    status = status_of(memory, at(memory, 3 * DAY), [], GPUNode(metadata=ObjectMeta(name="new-name")), NOW + 3 * DAY)
    (offender,) = status.offenders
    assert (offender.serial, offender.episodes, offender.reason) == ("S0", 3, "xid/95")


def test_an_offender_is_remembered_by_the_code_that_its_incident_goes_by():
    first, then = said("xid/79", sequence=1, at=20), said("kernel/off-bus", sequence=2, at=21)
    both = msgspec.structs.replace(then, sightings=first.sightings + then.sightings)
    assert [board.reason for board in after(("kernel-log", both, 22), memory=BOTH).offenders] == ["xid/79"]


def test_offenders_leave_with_their_board():
    memory = broken_and_repaired(5)
    swapped = Report(snapshot=Snapshot(gpus=[GPUReading(index=index, uuid=f"GPU-new{index}") for index in range(2)]))
    memory = after(("nvml", swapped, 5 * DAY), ("nvml", swapped, 5 * DAY + 30), memory=memory)
    assert codes(memory) == set()


def test_drills_are_no_episodes_and_accuse_nobody():
    memory = after(("kubelet", held("pod-1"), 0), memory=BOTH)
    for number in range(6):
        report = said("xid/95", "xid/31", sequence=1, at=5 + number * 999, boot=f"boot-{number}")
        drill = tuple(
            Sighting(one.sequence, msgspec.structs.replace(one.evidence, line="outrider-drill: NVRM: Xid"))
            for one in report.sightings
        )
        memory = after(
            ("kernel-log", msgspec.structs.replace(report, sightings=drill), 5 + number * 999), memory=memory
        )
        assert at(memory, 5 + number * 999).node.verdict is Verdict.RESET
    assert (memory.offenders, memory.accusations) == ([], [])


# --- silence ---


@pytest.mark.parametrize("probe", ["nvml", "kernel-log"])
def test_without_a_probe_that_watches_the_gpus_their_health_is_unknown(probe):
    judgement = at(after((probe, Report(blind="hangs"), 1), memory=BOTH), 1)
    assert (judgement.node.health, judgement.node.verdict) == (Health.UNKNOWN, Verdict.NO_NEW_WORK)
    assert {opinion.health for opinion in judgement.gpus.values()} == {Health.UNKNOWN}
    assert judgement.node.score < 100


@pytest.mark.parametrize("probe", ["dcgm", "host", "cloud", "kubelet", "checks", "not-known-yet"])
def test_a_probe_that_only_adds_to_what_others_see_makes_nothing_unknown(probe):
    memory = after((probe, Report(blind="connection refused"), 1), memory=BOTH)
    judgement = at(memory, 1)
    assert (judgement.node.health, judgement.node.verdict) == (Health.HEALTHY, Verdict.WATCH)
    assert 90 <= judgement.node.score < 100
    assert "connection refused" in memory.findings[0].line
    memory = after((probe, Report(), 2), (probe, Report(), 32), memory=memory)
    assert codes(memory) == set()


def test_blind_nics_leave_the_gpus_alone_and_keep_new_work_off_the_node():
    nics = Report(states=States(readable=frozenset({"nic:mlx5_0", "nic:mlx5_1", ""})))
    memory = after(("nics", nics, 0), ("nics", Report(blind="sysfs hangs"), 1), memory=BOTH)
    judgement = at(memory, 1)
    assert set(judgement.nics) == {"mlx5_0", "mlx5_1"}
    assert {opinion.health for opinion in judgement.nics.values()} == {Health.UNKNOWN}
    assert {opinion.health for opinion in judgement.gpus.values()} == {Health.HEALTHY}
    assert judgement.node.verdict is Verdict.NO_NEW_WORK
    assert at(after(("nics", nics, 2), ("nics", nics, 32), memory=memory), 32).node.health is Health.HEALTHY


def test_a_blind_probe_never_gives_a_hard_verdict_however_long():
    memory = BOTH
    for name in ("nvml", "kernel-log", "nics", "dcgm"):
        memory = after((name, Report(blind="silent"), 1), (name, Report(blind="silent"), 9 * DAY), memory=memory)
    assert not at(memory, 9 * DAY).node.verdict.hard


def test_a_probe_beyond_its_deadline_is_overdue_and_others_are_not():
    heard = {"nvml": 100.0, "dcgm": 100.0, "kernel-log": 129.0}
    assert overdue(heard, {"nvml": 30, "dcgm": 120, "kernel-log": 30}, 131) == {"nvml": 31}
    assert overdue(heard, {"nvml": math.inf}, 1e9) == {}


def test_the_agent_doubts_a_probe_whose_runner_hangs_and_believes_it_again(tmp_path):
    nics = Report(states=States(readable=frozenset({"nic:mlx5_0"})))
    agent = Agent(
        Store(tmp_path), msgspec.structs.replace(RULES, clear_dwell_seconds=0), {"nics": 60.0}, lambda _: None
    )
    agent.take("nics", nics)
    agent.doubt(time.monotonic() + 59)
    assert agent.known().judgement.node.health is Health.HEALTHY
    agent.doubt(time.monotonic() + 61)
    known = agent.known()
    assert known.judgement.node.health is Health.UNKNOWN
    assert "probe nics: silent for 61 s" in known.memory.findings[0].line
    assert REGISTRY.get_sample_value("outrider_nic_score", {"nic": "mlx5_0"}) == 100
    agent.take("nics", nics)
    assert agent.known().judgement.node.health is Health.HEALTHY


# --- NICs ---


def test_a_lost_nic_counts_among_those_that_are_left():
    nics = frozenset({f"nic:mlx5_{number}" for number in range(8)})
    well = after(("nics", Report(states=States(readable=nics)), 0), memory=BOTH)
    assert len(well.nics) == 8
    lost = state("gpu/lost", SubjectKind.NIC, "mlx5_3", "nics", 5)  # any code that takes the whole score
    report = Report(states=States(bad=(lost,), readable=nics - {"nic:mlx5_3"}))
    judgement = at(after(("nics", report, 5), memory=well), 5)
    assert (judgement.node.score, judgement.nics["mlx5_3"].score) == (88, 0)
    assert {opinion.score for opinion in judgement.gpus.values()} == {100}


def test_a_nic_that_was_taken_out_leaves_the_list():
    nics = frozenset({"nic:mlx5_0", "nic:mlx5_1"})
    memory = after(("nics", Report(states=States(readable=nics)), 0), memory=BOTH)
    memory = after(("nics", Report(states=States(readable=nics - {"nic:mlx5_1"})), DAY), memory=memory)
    assert memory.nics == ["mlx5_0"]


# --- restarts and reboots ---


def test_a_state_of_any_probe_is_in_doubt_after_a_reboot_and_what_was_concluded_is_not():
    suspect = after(
        *(("kubelet", held(f"pod-{number}"), number * 100) for number in (1, 2)),
        memory=BOTH,
    )
    suspect = after(
        ("kubelet", held("pod-1"), 300),
        ("kernel-log", said("xid/31", sequence=1, at=310), 310),
        ("kubelet", held("pod-2"), 320),
        ("kernel-log", said("xid/31", sequence=2, at=330), 330),
        ("dcgm", Report(states=States(bad=(state("remap/failure", SubjectKind.GPU, "GPU-0", "dcgm", 340),))), 340),
        ("kernel-log", booted("boot-2"), 400),
        memory=suspect,
    )
    assert codes(suspect) == {"gpu/suspect", "xid/31", "monitor/optional-blind"}
    assert suspect.holders == {}
    assert not at(suspect, 400).node.verdict.hard


def test_states_of_a_probe_that_was_switched_off_do_not_stay():
    down = state("nvlink/inactive", SubjectKind.GPU, "GPU-0", "dcgm", 0)
    memory = after(
        ("dcgm", Report(states=States(bad=(down,)), blind="half blind"), 1),
        ("kernel-log", said("xid/79", sequence=1, at=2), 2),
        memory=BOTH,
    )
    assert codes(resumed(memory, {"nvml", "kernel-log", "dcgm"}, RULES)) == codes(memory)
    assert codes(resumed(memory, {"nvml", "kernel-log"}, RULES)) == {"xid/79"}


def test_a_reset_that_the_driver_tells_of_repairs_what_a_reset_can():
    memory = after(("kernel-log", said("xid/95", "xid/154.1", sequence=1, at=10), 10), memory=BOTH)
    assert at(memory, 11).node.verdict is Verdict.RESET
    memory = after(("kernel-log", said("xid/154.0", sequence=9, at=300), 300), memory=memory)
    assert at(memory, 300).node.verdict is Verdict.NONE


records = st.lists(
    st.tuples(st.sampled_from(["xid/31", "xid/95", "xid/63", "xid/999"]), st.sampled_from(["GPU-0", "GPU-1"])),
    min_size=1,
    max_size=30,
)


@given(records, st.lists(st.tuples(st.integers(1, 8), st.booleans(), st.booleans()), max_size=20))
def test_kills_at_any_moment_lose_no_finding_and_double_none(tmp_path_factory, log, steps):
    """Each step reads some records, may save, may be killed: then the saved memory goes on and the log is read anew."""
    store = Store(tmp_path_factory.mktemp("state"))
    memory, read = store.load(), 0

    def reading(upto: int) -> Memory:
        """All records from the beginning of the log on, as a probe that starts anew gives them."""
        sightings = tuple(
            Sighting(place, state(code, SubjectKind.GPU, uuid, "kernel-log", place))
            for place, (code, uuid) in enumerate(log[:upto])
        )
        return absorb(
            memory, "kernel-log", Report(sightings=sightings, position=KernelPosition("b", upto - 1)), NOW, RULES
        )

    for number, saves, killed in [*steps, (len(log), True, False)]:
        read = min(len(log), read + number)
        memory = reading(read)
        if saves:
            store.save(memory)
        if killed:
            memory, read = store.load(), 0
    memory = reading(len(log))
    counts = {(one.code, one.subject_id): one.count for one in memory.findings}
    assert counts == {record: log.count(record) for record in set(log)}


def test_a_burst_that_was_merged_within_a_report_counts_in_full_and_once():
    burst = msgspec.structs.replace(state("xid/95", SubjectKind.GPU, "GPU-0", "kernel-log", 1), count=5000)
    report = Report(sightings=(Sighting(6000, burst),), position=KernelPosition("b", 6000))
    memory = after(("kernel-log", report, 1), ("kernel-log", report, 2), memory=BOTH)
    assert [evidence.count for evidence in memory.findings] == [5000]


def test_everything_remembered_is_saved_and_read_back_to_the_letter(tmp_path):
    memory = after(("kubelet", held("pod-1"), 3.5 * DAY), memory=broken_and_repaired(3))
    memory = after(("kernel-log", said("xid/31", sequence=1, at=3.6 * DAY, boot="boot-3"), 3.6 * DAY), memory=memory)
    assert all((memory.offenders, memory.accusations, memory.holders, memory.low))
    store = Store(tmp_path)
    store.save(memory)
    assert store.load() == memory
    for field in ("offenders", "accusations", "holders", "low", "nics"):
        assert worth_saving(memory, msgspec.structs.replace(memory, **{field: type(getattr(memory, field))()})) == bool(
            getattr(memory, field)
        )


def test_a_quiet_report_moves_nothing_in_the_memory():
    memory = broken_and_repaired(3)
    again = after(("kernel-log", booted("boot-3"), 3 * DAY), ("dcgm", Report(), 3 * DAY + 1), memory=memory)
    assert msgspec.structs.replace(again, sequence=memory.sequence) == memory


@pytest.mark.parametrize("years", [-1, 1])
def test_a_clock_that_is_set_wrong_and_right_again_keeps_nothing_for_ever(years):
    """All was seen while the clock was a year off; then it is right."""
    wrong = years * 365 * DAY
    off = after(
        ("nvml", gpus(0, 1), wrong),
        ("kubelet", held("pod-1"), wrong),
        ("kernel-log", said("xid/31", "xid/48", sequence=1, at=wrong + 1), wrong + 1),
        ("kubelet", held("pod-2"), wrong + 2),
        ("kernel-log", said("xid/31", sequence=3, at=wrong + 3), wrong + 3),
        ("nvml", gpus(0, 1, remap_failure=True), wrong + 4),
        ("nvml", gpus(0, 1), wrong + 5),
    )
    assert {"gpu/suspect", "xid/31", "remap/failure"} <= codes(off)
    memory = after(("nvml", gpus(0, 1), 0), memory=off)
    assert at(memory, 2).verdicts["xid/48", SubjectKind.GPU, "GPU-0"] is Verdict.RESET  # it has settled
    later = after(*(("nvml", gpus(0, 1), 31 + part * 2 * DAY) for part in range(9)), memory=memory)
    assert codes(later) == {"xid/48"}
    booted_again = after(("kernel-log", booted("boot-2"), 17 * DAY), ("nvml", gpus(0, 1), 17 * DAY), memory=later)
    assert (codes(booted_again), booted_again.offenders, booted_again.accusations) == (set(), [], [])


# --- what is published ---


def test_the_status_names_nics_incidents_and_who_has_a_gpu():
    nics = Report(states=States(readable=frozenset({"nic:mlx5_0"})))
    memory = after(
        ("nics", nics, 0),
        ("kubelet", held("pod-1"), 1),
        ("kernel-log", said("xid/95", "xid/48", "xid/45", sequence=1, at=2), 2),
        memory=BOTH,
    )
    existing = GPUNode(metadata=ObjectMeta(name="n"))
    status = status_of(memory, at(memory, 60), [], existing, NOW + 60, {"pod-1": "team/train-0"})
    assert [nic.name for nic in status.nics] == ["mlx5_0"]
    assert [(one.lead, one.members) for one in status.incidents] == [("xid/95", ["xid/45", "xid/48"])]
    assert [gpu.held_by for gpu in status.gpus] == ["team/train-0", ""]
    written = status_body(existing, status)["status"]
    assert (written["nics"][0]["score"], written["incidents"][0]["subjectId"]) == (100, "GPU-0")


def test_the_state_file_and_the_status_stay_small_whatever_happens(tmp_path):
    variants = tuple(range(256))
    flood = tuple(
        Sighting(
            number,
            msgspec.structs.replace(
                state(f"xid/{1000 + number}", SubjectKind.GPU, "GPU-0", "kernel-log", 1),
                line="x" * 512,
                variants=variants,
            ),
        )
        for number in range(2000)
    )
    nics = frozenset(f"nic:mlx5_{number}" for number in range(500))
    memory = after(
        ("kernel-log", Report(sightings=flood, position=KernelPosition("b", 2000)), 1),
        ("nics", Report(states=States(readable=nics)), 1),
        memory=BOTH,
    )
    Store(tmp_path).save(memory)
    assert (tmp_path / "memory.json").stat().st_size < 400_000
    status = status_of(memory, at(memory, 2), [], GPUNode(metadata=ObjectMeta(name="n")), NOW)
    assert len(msgspec.json.encode(status)) < 200_000
    assert (len(status.findings), len(status.incidents), len(status.nics)) == (128, 32, 64)
