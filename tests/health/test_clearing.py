import msgspec
import pytest
from evidence import CATALOGUE, NOW, on_gpu, on_nic, on_node
from hypothesis import given
from hypothesis import strategies as st

from outrider.api.gpunode import SubjectKind
from outrider.health.catalogue import Clears
from outrider.health.clearing import (
    GONE_SECONDS,
    after_absence,
    after_boot,
    after_reading,
    after_reset,
    after_switch_off,
    after_time,
)
from outrider.health.findings import Evidence, bounded, merge, renamed
from outrider.health.judge import judge

DWELL = 30.0
LINK = on_gpu("nvlink/inactive", ago=0)


def reading(findings, bad, readable, seconds):
    later = [msgspec.structs.replace(one, last_seen=NOW + seconds) for one in bad]
    return after_reading(findings, "test", later, readable, NOW + seconds, DWELL)


def test_a_state_clears_after_the_dwell_of_good_readings():
    findings = reading({}, [LINK], {"GPU-a", ""}, 0)
    findings = reading(findings, [], {"GPU-a", ""}, 1)
    findings = reading(findings, [], {"GPU-a", ""}, 30.9)
    assert list(findings) == [LINK.key]
    assert reading(findings, [], {"GPU-a", ""}, 31) == {}


def test_silence_about_the_gpu_starts_the_dwell_anew():
    findings = reading(reading({}, [LINK], {"GPU-a"}, 0), [], {"GPU-a"}, 1)
    findings = reading(findings, [], {"GPU-b", ""}, 20)
    findings = reading(findings, [], {"GPU-a"}, 31)
    assert list(reading(findings, [], {"GPU-a"}, 60)) == [LINK.key]
    assert reading(findings, [], {"GPU-a"}, 61) == {}


def test_a_state_that_lasts_counts_once_and_one_that_returns_counts_again():
    findings = reading({}, [LINK], {"GPU-a"}, 0)
    findings = reading(findings, [LINK], {"GPU-a"}, 5)
    assert (findings[LINK.key].count, findings[LINK.key].last_seen) == (1, NOW + 5)
    findings = reading(findings, [], {"GPU-a"}, 6)
    assert reading(findings, [LINK], {"GPU-a"}, 7)[LINK.key].count == 2


def test_a_clock_that_is_set_back_leaves_no_state_that_began_in_the_future():
    before = msgspec.structs.replace(LINK, first_seen=NOW + 86400, last_seen=NOW + 86400)
    seen_again = reading({before.key: before}, [LINK], {"GPU-a"}, 5)
    known = after_time(seen_again, CATALOGUE, NOW + 5)[LINK.key]
    assert (known.first_seen, known.last_seen) == (NOW + 5, NOW + 5)


def test_a_reading_of_one_probe_clears_nothing_that_another_saw():
    logged = on_node("monitor/blind", source="monitor:kernel-log")
    findings = after_reading({logged.key: logged}, "test", [], {""}, NOW + 100, 0)
    assert list(findings) == [logged.key]


def test_a_reboot_clears_damage_and_leaves_what_reading_or_time_clears():
    known = merge({}, [on_gpu("xid/79"), on_gpu("xid/31"), on_gpu("remap/failure"), on_gpu("xid/154.2")])
    assert {key[0] for key in after_boot(known, CATALOGUE)} == {"xid/31", "remap/failure"}


def test_time_forgets_what_no_longer_costs_half_a_point():
    known = merge({}, [on_gpu("xid/31", ago=0), on_gpu("xid/79", ago=0)])
    assert set(after_time(known, CATALOGUE, NOW + 3600)) == set(known)
    assert [key[0] for key in after_time(known, CATALOGUE, NOW + 86400)] == ["xid/79"]


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, DWELL - 0.1)), max_size=20))
def test_a_state_that_toggles_faster_than_the_dwell_stays_one_finding_with_a_count(toggles):
    findings, seconds = reading({}, [LINK], {"GPU-a"}, 0), 0.0
    for returns, (bad_for, good_for) in enumerate(toggles, start=1):
        for bad, pause in (([], good_for), ([LINK], bad_for)):
            findings = reading(findings, bad, {"GPU-a"}, seconds)
            judgement = judge(findings.values(), {"GPU-a": "GPU 0"}, NOW + seconds, CATALOGUE)
            assert judgement.node.verdict is CATALOGUE.of(LINK.code).verdict
            seconds += pause
        assert findings[LINK.key].count == 1 + returns


@given(st.sampled_from(CATALOGUE.codes), st.integers(1, 1000))
def test_recovery_brings_back_what_the_fault_took(code, count):
    fault = on_gpu(code, ago=0, count=count)
    row = CATALOGUE.of(code)
    after = {
        Clears.BOOT: lambda: after_boot({fault.key: fault}, CATALOGUE),
        Clears.TIME: lambda: after_time({fault.key: fault}, CATALOGUE, NOW + 12 * (row.half_life_seconds or 0)),
        Clears.RECOVERY: lambda: reading(reading({fault.key: fault}, [], {"GPU-a"}, 1), [], {"GPU-a"}, 1 + DWELL),
    }[row.clears]()
    judgement = judge(after.values(), {"GPU-a": "GPU 0"}, NOW, CATALOGUE)
    assert (after, judgement.node.score, judgement.incidents) == ({}, 100, ())


@pytest.mark.parametrize("code", [code for code in CATALOGUE.codes if CATALOGUE.of(code).clears is Clears.RECOVERY])
def test_no_state_stays_for_ever_where_its_probe_or_its_part_is_gone(code):
    state = on_gpu(code, ago=0)
    known = {state.key: state}
    assert after_switch_off(known, CATALOGUE, {"kernel-log"}) == {}
    assert after_switch_off(known, CATALOGUE, {"test"}) == known
    seen_by_its_probe = {"", "GPU-a"}
    assert after_absence(known, "test", seen_by_its_probe, CATALOGUE, NOW + 1e6) == known
    assert after_absence(known, "test", {""}, CATALOGUE, NOW + GONE_SECONDS - 1) == known
    assert after_absence(known, "test", {""}, CATALOGUE, NOW + GONE_SECONDS) == {}


def test_what_only_lines_and_events_tell_never_waits_for_a_reading():
    told_once = [code for code in CATALOGUE.codes if code.startswith(("xid/", "sxid/", "kernel/"))]
    assert {code for code in told_once if CATALOGUE.of(code).clears is Clears.RECOVERY} == set()
    overridden = on_gpu("remap/failure")
    assert after_boot({overridden.key: overridden}, CATALOGUE, events={"test"}) == {}


def test_a_drill_of_a_reset_ends_the_drills_and_nothing_real():
    drill = "outrider-drill: NVRM: Xid"
    real, drilled = on_gpu("xid/95", ago=60), on_gpu("xid/119", ago=60, line=drill)
    told = merge({}, [real, drilled, on_gpu("xid/154.0", ago=30, line=drill)])
    assert {key[0] for key in after_reset(told, CATALOGUE)} == {"xid/95", "xid/154.0"}


def test_damage_is_repaired_by_the_reset_that_the_driver_tells_of_and_only_that_before_it():
    damage = [on_gpu(code, ago=60) for code in ("xid/95", "xid/94", "xid/63", "xid/154.1", "xid/79", "xid/64")]
    later, neighbour = on_gpu("xid/119", ago=10), on_gpu("xid/95", "GPU-b", ago=60)
    link = Evidence(
        code="xid/74", subject=SubjectKind.LINK, subject_id="GPU-a/3", first_seen=NOW - 60, last_seen=NOW - 60
    )
    known = merge({}, [*damage, later, neighbour, link])
    assert after_reset(known, CATALOGUE) == known
    told = merge(known, [on_gpu("xid/154.0", ago=30)])
    left = {(key[0], key[2]) for key in after_reset(told, CATALOGUE)}
    stays = {("xid/79", "GPU-a"), ("xid/64", "GPU-a"), ("xid/119", "GPU-a"), ("xid/95", "GPU-b")}
    assert left == {*stays, ("xid/154.0", "GPU-a")}


def test_what_costs_nothing_is_shown_for_one_half_life():
    weightless = [code for code in CATALOGUE.codes if CATALOGUE.of(code).weight == 0]
    fading = [on_gpu(code, ago=0) for code in weightless if CATALOGUE.of(code).half_life_seconds]
    for known in fading:
        half_life = CATALOGUE.of(known.code).half_life_seconds or 0
        assert after_time({known.key: known}, CATALOGUE, NOW + half_life - 1)
        assert not after_time({known.key: known}, CATALOGUE, NOW + half_life)


def test_a_flood_of_trifles_never_pushes_out_a_fault():
    fault = on_gpu("xid/79", ago=1e6)
    flood = [on_gpu(f"xid/{1000 + number}", ago=0) for number in range(500)]
    kept = bounded(merge({}, [fault, *flood]), CATALOGUE, limit=128)
    assert len(kept) == 128
    assert fault.key in kept


def test_a_gpu_known_by_its_address_gets_its_uuid_and_its_findings_join():
    known = merge({}, [on_gpu("xid/79", "pci:0000:19:00", ago=9), on_gpu("xid/79", "GPU-a", ago=5)])
    (joined,) = merge({}, renamed(known.values(), {"pci:0000:19:00": "GPU-a"})).values()
    assert (joined.subject_id, joined.count, joined.first_seen, joined.last_seen) == ("GPU-a", 2, NOW - 9, NOW - 5)


def test_a_line_about_a_pci_device_becomes_one_about_the_gpu_link_or_nic_that_it_is():
    names = {"pci:0000:19:00": "GPU-a", "pci:0000:b3:00.1": "mlx5_1"}
    link = Evidence(code="xid/74", subject=SubjectKind.LINK, subject_id="pci:0000:19:00/5", first_seen=1, last_seen=1)
    lines = [
        link,
        on_node("kernel/aer-fatal", subject_id="pci:0000:19:00.0"),
        on_node("kernel/aer-fatal", subject_id="pci:0000:b3:00.1"),
        on_nic("kernel/nic-health", "pci:0000:b3:00.1"),
        on_node("kernel/aer-fatal", subject_id="pci:0000:00:01.0"),
    ]
    assert [(one.subject, one.subject_id) for one in renamed(lines, names)] == [
        (SubjectKind.LINK, "GPU-a/5"),
        (SubjectKind.GPU, "GPU-a"),
        (SubjectKind.NIC, "mlx5_1"),
        (SubjectKind.NIC, "mlx5_1"),
        (SubjectKind.NODE, "pci:0000:00:01.0"),
    ]
