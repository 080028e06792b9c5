from evidence import CATALOGUE, NOW, on_gpu, on_node

from outrider.health.clearing import after_boot, after_reading, after_time
from outrider.health.findings import bounded, merge, renamed

DWELL = 30.0
LINK = on_gpu("nvlink/inactive", ago=0)


def reading(findings, bad, readable, seconds):
    later = [
        type(one)(**{**{f: getattr(one, f) for f in one.__struct_fields__}, "last_seen": NOW + seconds}) for one in bad
    ]
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
