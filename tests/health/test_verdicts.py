import msgspec
import pytest
from evidence import CATALOGUE, GPU_NAMES, NOW, evidences, on_gpu, on_node
from hypothesis import given
from hypothesis import strategies as st

from outrider.api.gpunode import Health, SubjectKind, Verdict
from outrider.health.advice import next_step
from outrider.health.findings import Evidence, merge
from outrider.health.judge import Judgement, judge


def judged(*findings: Evidence, now: float = NOW) -> Judgement:
    return judge(merge({}, findings).values(), GPU_NAMES, now, CATALOGUE)


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        ("xid/79", Verdict.REBOOT),
        ("xid/48", Verdict.RESET),
        ("xid/95", Verdict.RESET),
        ("xid/64", Verdict.REPLACE),
        ("xid/63", Verdict.WATCH),
        ("xid/74", Verdict.RESET),
        ("xid/119", Verdict.RESET),
        ("xid/120", Verdict.RESET),
        ("xid/13", Verdict.RESTART_APP),
        ("xid/31", Verdict.RESTART_APP),
        ("xid/43", Verdict.RESTART_APP),
        ("xid/45", Verdict.WATCH),
        ("xid/94", Verdict.RESTART_APP),
        ("remap/failure", Verdict.REPLACE),
        ("remap/pending", Verdict.WATCH),
        ("nvlink/inactive", Verdict.NO_NEW_WORK),
        ("gpu/lost", Verdict.REBOOT),
        ("gpu/missing", Verdict.NO_NEW_WORK),
        ("recovery/1", Verdict.RESET),
        ("recovery/2", Verdict.REBOOT),
        ("recovery/3", Verdict.NO_NEW_WORK),
        ("recovery/4", Verdict.RESET),
        ("recovery/5", Verdict.NO_NEW_WORK),
        ("recovery/6", Verdict.RESET),
        ("recovery/7", Verdict.REBOOT),
        ("recovery/8", Verdict.NO_NEW_WORK),
        ("xid/154", Verdict.NO_NEW_WORK),
    ],
)
def test_each_code_leads_to_its_verdict(code, verdict):
    judgement = judged(on_gpu(code))
    assert judgement.gpus["GPU-a"].verdict is verdict
    assert judgement.node.verdict is verdict
    assert judgement.node.reason == code
    assert judgement.gpus["GPU-b"].verdict is Verdict.NONE


def test_the_message_names_the_gpu_what_happened_and_what_to_do_next():
    message = judged(on_gpu("xid/79", "GPU-b")).message
    assert message.startswith("GPU 1: the GPU no longer answers on PCIe")
    assert "(xid/79)" in message
    assert "Next: reboot the node" in message


def test_a_missing_gpu_is_gone_once_a_second_reading_misses_it_too():
    once = on_gpu("gpu/missing", ago=600)
    assert judged(once).node.verdict is Verdict.NO_NEW_WORK
    assert "Next: wait for the next reading, which must show it too; then reboot" in judged(once).message
    twice = msgspec.structs.replace(once, last_seen=once.last_seen + 5)
    assert judged(twice).node.verdict is Verdict.REBOOT


@pytest.mark.parametrize(
    ("code", "subject", "subject_id", "place"),
    [
        ("xid/149", SubjectKind.LINK, "GPU-b/8", "GPU 1, NVLink 8"),
        ("xid/79", SubjectKind.GPU, "pci:00000000:3b:00", "GPU at 00000000:3b:00"),
        ("sxid/22003", SubjectKind.NODE, "pci:00000000:c1:00/46", "device at 00000000:c1:00, port 46"),
        ("kernel/fs-error", SubjectKind.NODE, "sda1", "sda1"),
        ("monitor/blind", SubjectKind.NODE, "kernel-log", "kernel-log"),
        ("nic/port-down", SubjectKind.NIC, "mlx5_0/1", "nic:mlx5_0, port 1"),
    ],
)
def test_the_message_names_the_part(code, subject, subject_id, place):
    one = Evidence(code=code, subject=subject, subject_id=subject_id, first_seen=NOW, last_seen=NOW)
    assert judged(one, now=NOW + 60).message.startswith(f"{place}: ")


def test_an_unknown_code_is_kept_and_only_watched():
    judgement = judged(on_gpu("xid/9999"))
    assert judgement.verdicts[on_gpu("xid/9999").key] is Verdict.WATCH
    assert judgement.node.health is Health.HEALTHY


@given(st.integers(1, 100_000))
def test_contained_errors_never_drain_a_node(count):
    judgement = judged(on_gpu("xid/94", count=count), on_gpu("xid/63", count=count))
    assert not judgement.node.verdict.hard


@given(st.lists(st.sampled_from(["monitor/blind", "nvml/init", "gpu/unreadable", "gpu/count"]), min_size=1))
def test_silence_lowers_the_score_stops_new_work_and_is_never_hard(codes):
    judgement = judged(*(on_gpu(code) if code == "gpu/unreadable" else on_node(code) for code in codes))
    assert judgement.node.verdict is Verdict.NO_NEW_WORK
    assert judgement.node.score <= 50
    assert judgement.node.health in (Health.UNKNOWN, Health.DEGRADED)


def test_a_blind_monitor_makes_every_gpu_unknown_but_hides_no_fault():
    judgement = judged(on_node("monitor/blind", subject_id="nvml"), on_gpu("xid/79"))
    assert judgement.gpus["GPU-a"].health is Health.UNHEALTHY
    assert judgement.gpus["GPU-b"].health is Health.UNKNOWN
    assert judgement.node.health is Health.UNHEALTHY


def test_the_drivers_own_advice_is_believed_before_the_code_table():
    assert judged(on_gpu("xid/119"), on_gpu("recovery/2")).node.verdict is Verdict.REBOOT
    softer = judged(on_gpu("xid/79"), on_gpu("xid/154.1"))
    assert (softer.node.verdict, softer.node.reason) == (Verdict.RESET, "xid/154.1")


def test_advice_without_a_firm_answer_does_not_soften_the_code_table():
    assert judged(on_gpu("xid/79"), on_gpu("recovery/3")).node.verdict is Verdict.REBOOT
    assert judged(on_gpu("xid/79"), on_gpu("recovery/99")).node.verdict is Verdict.REBOOT


def test_advice_says_nothing_about_what_came_later():
    assert judged(on_gpu("xid/79", ago=60), on_gpu("xid/154.1", ago=100)).node.verdict is Verdict.RESET
    assert judged(on_gpu("xid/79", ago=60), on_gpu("xid/154.1", ago=86400)).node.verdict is Verdict.REBOOT


def test_the_detail_of_a_message_is_believed_before_the_bare_code():
    bare, detail = on_gpu("xid/74", ago=60), on_gpu("xid/74.minor", ago=58)
    assert judged(bare).node.verdict is Verdict.RESET
    assert not judged(bare, detail).node.verdict.hard
    assert judged(on_gpu("xid/74", ago=86400), detail).node.verdict is Verdict.RESET
    assert judged(bare, on_gpu("xid/74.minor", "GPU-b", ago=58)).node.verdict is Verdict.RESET


def test_the_driver_is_believed_before_the_detail():
    judgement = judged(on_gpu("xid/74.hardware"), on_gpu("recovery/2"))
    assert (judgement.node.verdict, judgement.node.reason) == (Verdict.REBOOT, "recovery/2")


def test_advice_for_one_gpu_says_nothing_about_another():
    assert judged(on_gpu("xid/79", "GPU-a"), on_gpu("recovery/1", "GPU-b")).node.verdict is Verdict.REBOOT


def test_the_latest_xid_154_takes_the_place_of_those_before_it():
    asked, done = on_gpu("xid/154.2", ago=50), on_gpu("xid/154.0", ago=10)
    assert judged(asked).node.verdict is Verdict.REBOOT
    assert judged(asked, done).node.verdict is Verdict.NONE


def test_a_row_remap_failure_outlives_milder_advice_of_the_driver():
    assert judged(on_gpu("remap/failure"), on_gpu("recovery/1")).node.verdict is Verdict.REPLACE


def test_an_uncorrectable_error_waits_a_second_for_the_code_that_decides_it():
    alone = on_gpu("xid/48", ago=0.3)
    assert judged(alone).node.verdict is Verdict.NO_NEW_WORK
    assert judged(alone, now=NOW + 1).node.verdict is Verdict.RESET


@pytest.mark.parametrize(
    ("companion", "verdict"),
    [
        ("xid/94", Verdict.RESTART_APP),
        ("xid/95", Verdict.RESET),
        ("xid/64", Verdict.REPLACE),
        ("xid/63", Verdict.WATCH),
    ],
)
def test_the_companion_of_an_uncorrectable_error_decides(companion, verdict):
    assert judged(on_gpu("xid/48"), on_gpu(companion, ago=59.9)).node.verdict is verdict


def test_a_softened_error_is_not_told_to_be_repaired():
    assert "Next: move work off the GPU and reset it" in judged(on_gpu("xid/48")).message
    softened = judged(on_gpu("xid/48"), on_gpu("xid/63", ago=59.9)).message
    assert "(xid/48). The same fault shows as xid/63. Next: xid/63, seen with it, decides: nothing now" in softened


@pytest.mark.parametrize(
    ("code", "decider", "advice"),
    [
        ("xid/48", "xid/63", "xid/63, seen with it, decides: nothing now; a reset at the next idle moment"),
        ("xid/79", "xid/154.1", "xid/154.1, seen with it, decides: "),
        ("xid/13", "recovery/2", "recovery/2, seen with it, decides: reboot the node"),
        ("xid/154.2", "xid/154.0", "xid/154.0, the later one, decides: "),
    ],
)
def test_advice_is_that_of_the_code_which_decides(code, decider, advice):
    one, other = on_gpu(code), on_gpu(decider, ago=55)
    judgement = judged(one, other)
    assert judgement.deciders == {one.key: decider}
    assert next_step(code, judgement.verdicts[one.key], decider, CATALOGUE).startswith(advice)


def test_the_last_code_of_a_chain_gives_the_advice():
    detail, error, repaired = on_gpu("xid/172"), on_gpu("xid/48"), on_gpu("xid/63")
    judgement = judged(detail, error, repaired)
    assert judgement.deciders == {detail.key: "xid/63", error.key: "xid/63"}
    assert judgement.node.verdict is Verdict.WATCH


def test_advice_of_an_error_that_still_settles_says_what_is_waited_for():
    one = on_gpu("xid/48", ago=0.3)
    assert "Next: wait 1 s for what may decide; then move work off the GPU" in judged(one).message


@pytest.mark.parametrize("code", sorted(CATALOGUE.codes))
def test_a_finding_that_nothing_else_decides_about_has_the_advice_of_its_row(code):
    judgement = judged(msgspec.structs.replace(on_gpu(code, ago=120), last_seen=NOW - 60))
    assert judgement.deciders == {}
    assert next_step(code, judgement.verdicts[on_gpu(code).key], "", CATALOGUE) == CATALOGUE.of(code).advice


def test_a_fault_that_several_gpus_have_is_told_of_all_of_them():
    names = {f"GPU-{index}": f"GPU {index} (GPU-{index})" for index in range(12)}
    everywhere = [on_gpu("fabric/failed", uuid) for uuid in names]
    assert judge(everywhere, names, NOW, CATALOGUE).message.startswith("all 12 GPUs: ")
    three = [on_gpu("fabric/failed", f"GPU-{index}") for index in (10, 2, 0)]
    assert judge(three, names, NOW, CATALOGUE).message.startswith("3 GPUs: 0, 2, 10: ")
    alone = [on_gpu("fabric/failed", "GPU-2"), on_gpu("xid/13", "GPU-3")]
    assert judge(alone, names, NOW, CATALOGUE).message.startswith("GPU 2 (GPU-2): ")


def test_boards_that_are_known_by_address_only_are_named_by_it_when_several_fail():
    boards = [on_gpu("xid/79", f"pci:00000000:{bus}:00") for bus in ("3b", "1a")]
    assert judge(boards, {}, NOW, CATALOGUE).message.startswith("2 GPUs: at 00000000:1a:00, at 00000000:3b:00: ")


def test_the_message_about_a_silent_gpu_says_what_did_not_answer():
    silent = on_gpu("monitor/blind", line="NVML calls on this GPU did not return within 10 s")
    assert "(monitor/blind). NVML calls on this GPU did not return within 10 s. Next:" in judged(silent).message


def test_a_companion_of_another_gpu_or_another_day_does_not_decide():
    assert judged(on_gpu("xid/48"), on_gpu("xid/94", "GPU-b")).node.verdict is Verdict.RESET
    assert judged(on_gpu("xid/48"), on_gpu("xid/94", ago=86400)).node.verdict is Verdict.RESET


@pytest.mark.parametrize(
    ("code", "companion"), [("xid/48", "xid/94"), ("xid/109", "xid/13"), ("xid/74", "xid/74.minor")]
)
@pytest.mark.parametrize("alone_days_ago", [[1], [3], [2, 1], [4, 3]])
def test_an_error_that_also_came_alone_is_not_softened_by_the_companion_of_another_day(code, companion, alone_days_ago):
    day = 86_400.0
    together = [on_gpu(code, ago=2.5 * day), on_gpu(companion, ago=2.5 * day)]
    alone = [on_gpu(code, ago=days * day) for days in alone_days_ago]
    assert judged(*together).node.verdict is not Verdict.RESET
    assert judged(*together, *alone).node.verdict is Verdict.RESET


def test_a_hard_verdict_stays_when_the_program_fails_again_before_and_after():
    stuck = [on_gpu("xid/13", ago=7200), on_gpu("xid/109", ago=3600)]
    assert judged(*stuck).node.verdict is Verdict.RESET
    assert judged(*stuck, on_gpu("xid/13", ago=60)).node.verdict is Verdict.RESET


def test_an_error_that_always_came_with_a_companion_stays_softened_and_a_new_one_waits_for_its_own():
    often = [on_gpu(code, ago=days * 86_400.0) for days in (1, 2, 3) for code in ("xid/48", "xid/94")]
    assert judged(*often).node.verdict is Verdict.RESTART_APP
    again = on_gpu("xid/48", ago=0.3)
    assert judged(*often, again).node.verdict is Verdict.NO_NEW_WORK
    assert judged(*often, again, on_gpu("xid/94", ago=0.1)).node.verdict is Verdict.RESTART_APP
    assert judged(*often, again, now=NOW + 1).node.verdict is Verdict.RESET


def test_a_restarting_program_does_not_hide_that_new_work_must_stay_away():
    assert judged(on_gpu("xid/13"), on_gpu("nvlink/inactive")).node.verdict is Verdict.NO_NEW_WORK


def test_the_first_of_equally_grave_findings_gives_the_reason_so_that_later_ones_do_not_change_it():
    first, later = on_gpu("xid/79", ago=60), on_gpu("gpu/lost", ago=1)
    assert judged(first).node.reason == judged(first, later).node.reason == "xid/79"
    assert judged(first, later, on_gpu("xid/64", ago=0)).node.reason == "xid/64"


def test_a_finding_on_a_gpu_that_is_not_in_the_inventory_still_counts():
    assert judged(on_gpu("xid/79", "pci:0000:19:00")).node.verdict is Verdict.REBOOT


@given(st.lists(evidences, max_size=8))
def test_every_finding_gets_a_verdict_and_the_node_the_gravest(known):
    judgement = judged(*known)
    assert set(judgement.verdicts) == {evidence.key for evidence in known}
    assert judgement.node.verdict.hard == any(verdict.hard for verdict in judgement.verdicts.values())


@pytest.mark.parametrize("code", ["xid/79", "xid/95", "kernel/off-bus"])
def test_a_line_about_a_gpu_that_names_none_keeps_new_work_away_and_touches_no_hardware(code):
    unnamed = Evidence(code=code, first_seen=NOW, last_seen=NOW)
    assert judge([unnamed], {"GPU-0": "GPU 0"}, NOW + 60, CATALOGUE).node.verdict is Verdict.NO_NEW_WORK
