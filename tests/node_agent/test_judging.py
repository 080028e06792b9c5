import msgspec
import pytest

from node_agent.judging import Rules, absorb, conclude
from node_agent.memory import Announced, Memory
from node_agent.probes.nvml_wire import Failed, GPUReading, Snapshot
from node_agent.probes.report import KernelPosition, Report, Sighting
from node_agent.state import Store, worth_saving
from outrider.api.gpunode import Health, SubjectKind, Verdict
from outrider.health.catalogue import load
from outrider.health.findings import seen

NOW = 1_800_000_000.0
RULES = Rules(catalogue=load(), clear_dwell_seconds=30, expected_gpus=0)


def gpu(index: int, **values) -> GPUReading:
    names = {"uuid": f"GPU-{index}", "pci_address": f"00000000:{index:02x}:00", "links_active": 18}
    return GPUReading(index=index, **{**names, **values})


def snapshot(*gpus: GPUReading) -> Report:
    return Report(snapshot=Snapshot(gpus=list(gpus), driver_version="580"))


def logged(*codes: str, boot: str = "boot-1", first: int = 0, subject_id: str = "GPU-0", restarted=False) -> Report:
    sightings = tuple(
        Sighting(first + place, seen(code, NOW, subject=SubjectKind.GPU, subject_id=subject_id, source="kernel-log"))
        for place, code in enumerate(codes)
    )
    position = KernelPosition(boot, first + len(codes) - 1 if codes else -1, restarted)
    return Report(sightings=sightings, position=position)


def after(*steps: tuple[str, Report, float], memory: Memory | None = None) -> Memory:
    memory = memory or Memory()
    for name, report, seconds in steps:
        memory = absorb(memory, name, report, NOW + seconds, RULES)
    return memory


def codes(memory: Memory) -> dict[str, str]:
    return {evidence.code: evidence.subject_id for evidence in memory.findings}


HEALTHY = snapshot(gpu(0), gpu(1))


def test_a_healthy_node_is_judged_healthy():
    judgement = conclude(after(("nvml", HEALTHY, 0)), NOW, RULES)
    assert (judgement.node.health, judgement.node.score, len(judgement.gpus)) == (Health.HEALTHY, 100, 2)


def test_a_gpu_known_by_its_address_gets_its_uuid_once_nvml_tells():
    memory = after(("kernel-log", logged("xid/79", subject_id="pci:00000000:01:00"), 0))
    assert codes(memory) == {"xid/79": "pci:00000000:01:00"}
    assert codes(after(("nvml", HEALTHY, 1), memory=memory)) == {"xid/79": "GPU-1"}


def test_the_kernel_log_itself_can_tell_the_uuid():
    report = msgspec.structs.replace(
        logged("xid/79", subject_id="pci:00000000:07:00"), addresses={"pci:00000000:07:00": "GPU-7"}
    )
    assert codes(after(("kernel-log", report, 0))) == {"xid/79": "GPU-7"}


def test_records_that_were_taken_in_before_a_restart_are_not_counted_again():
    memory = after(("kernel-log", logged("xid/79", "xid/31"), 0))
    again = after(("kernel-log", logged("xid/79", "xid/31", "xid/31"), 5), memory=memory)
    assert {evidence.code: evidence.count for evidence in again.findings} == {"xid/79": 1, "xid/31": 2}


def test_a_log_that_begins_anew_in_the_same_boot_is_taken_in():
    memory = after(("kernel-log", logged("xid/31", first=500), 0))
    assert "xid/79" not in codes(after(("kernel-log", logged("xid/79"), 5), memory=memory))
    assert "xid/79" in codes(after(("kernel-log", logged("xid/79", restarted=True), 5), memory=memory))


def test_a_state_told_before_a_reboot_holds_new_work_back_until_it_is_read_again():
    sick = snapshot(gpu(0, recovery_action=2), gpu(1))
    before = after(("kernel-log", logged(), 0), ("nvml", sick, 1))
    assert conclude(before, NOW + 1, RULES).node.verdict.hard
    rebooted = after(("kernel-log", logged(boot="boot-2"), 60), memory=before)
    doubted = conclude(rebooted, NOW + 60, RULES).node
    assert (doubted.health, doubted.verdict) == (Health.UNKNOWN, Verdict.NO_NEW_WORK)
    well = after(("nvml", HEALTHY, 61), ("nvml", HEALTHY, 92), memory=rebooted)
    assert conclude(well, NOW + 92, RULES).node.health is Health.HEALTHY
    assert conclude(after(("nvml", sick, 61), memory=rebooted), NOW + 61, RULES).node.verdict.hard


def test_hard_findings_of_the_log_stay_until_the_boot_id_changes():
    memory = after(("kernel-log", logged("xid/79"), 0), ("nvml", HEALTHY, 1), ("nvml", HEALTHY, 1e6))
    assert conclude(memory, NOW + 1e6, RULES).node.verdict is Verdict.REBOOT
    memory = after(("kernel-log", logged(boot="boot-2"), 1e6), memory=memory)
    assert conclude(memory, NOW + 1e6, RULES).node.verdict is Verdict.NONE


def test_a_state_read_through_nvml_clears_after_the_dwell_and_not_while_nvml_is_silent():
    memory = after(("nvml", snapshot(gpu(0, recovery_action=2), gpu(1)), 0), ("nvml", HEALTHY, 1))
    assert conclude(memory, NOW, RULES).node.verdict is Verdict.REBOOT
    silent = after(("nvml", Report(blind="no answer"), 20), ("nvml", HEALTHY, 40), memory=memory)
    assert "recovery/2" in codes(silent)
    assert "recovery/2" not in codes(after(("nvml", HEALTHY, 70), memory=silent))


def test_a_blind_probe_makes_the_node_unknown_until_it_has_seen_for_the_dwell():
    memory = after(("nvml", HEALTHY, 0), ("nvml", Report(blind="NVML gave no answer for 5 s"), 1))
    judgement = conclude(memory, NOW + 1, RULES)
    assert (judgement.node.health, judgement.node.verdict) == (Health.UNKNOWN, Verdict.NO_NEW_WORK)
    assert {opinion.health for opinion in judgement.gpus.values()} == {Health.UNKNOWN}
    memory = after(("nvml", HEALTHY, 2), ("nvml", HEALTHY, 32), memory=memory)
    assert conclude(memory, NOW + 32, RULES).node.health is Health.HEALTHY


def test_one_blind_probe_does_not_clear_the_blindness_of_another():
    memory = after(("kernel-log", Report(blind="gone"), 0), ("nvml", HEALTHY, 1), ("nvml", HEALTHY, 100))
    assert codes(memory) == {"monitor/blind": "kernel-log"}


def test_nvml_that_does_not_start_loses_no_gpu_and_heals():
    failed = Report(snapshot=Snapshot(failed=Failed("nvmlInit", 9, "Driver Not Loaded")))
    memory = after(("nvml", HEALTHY, 0), ("nvml", failed, 1))
    assert conclude(memory, NOW, RULES).node.health is Health.UNKNOWN
    assert len(memory.inventory) == 2
    assert codes(after(("nvml", HEALTHY, 2), ("nvml", HEALTHY, 32), memory=memory)) == {}


def test_a_gpu_that_was_swapped_is_forgotten_and_one_that_is_missing_is_not():
    swapped = after(("nvml", HEALTHY, 0), ("nvml", snapshot(gpu(0), gpu(1, uuid="GPU-new")), 1))
    assert ([record.uuid for record in swapped.inventory], codes(swapped)) == (["GPU-0", "GPU-new"], {})
    missing = after(("nvml", HEALTHY, 0), ("nvml", snapshot(gpu(0)), 1), ("nvml", snapshot(gpu(0)), 1e6))
    assert codes(missing) == {"gpu/missing": "GPU-1"}
    back = after(("nvml", HEALTHY, 1e6), ("nvml", HEALTHY, 1e6 + 30), memory=missing)
    assert codes(back) == {}


def test_a_gpu_without_a_name_on_a_node_that_is_new_to_us_is_still_shown():
    memory = after(("nvml", snapshot(gpu(0), GPUReading(index=1, errors={"nvmlDeviceGetHandleByIndex": 15})), 0))
    assert codes(memory) == {"gpu/lost": "index:1"}


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"links_active": 0, "links_inactive": list(range(12)), "model": "NVIDIA A100 80GB PCIe"}, False),
        ({"links_active": 0, "links_inactive": list(range(12)), "model": "NVIDIA A100-SXM4-80GB"}, True),
        ({"links_active": 12, "links_inactive": [12, 13], "model": "NVIDIA H100 NVL"}, False),
        ({"links_active": 17, "links_inactive": [4], "fabric_state": 3}, True),
    ],
)
def test_inactive_links_are_a_fault_only_where_links_should_be_up(values, fault):
    assert ("nvlink/inactive" in codes(after(("nvml", snapshot(gpu(0, **values)), 0)))) == fault


def test_a_bridge_that_was_up_and_no_longer_is_is_a_fault():
    up = snapshot(gpu(0, links_active=12, model="NVIDIA H100 NVL"))
    down = snapshot(gpu(0, links_active=8, links_inactive=[0, 1, 2, 3], model="NVIDIA H100 NVL"))
    assert codes(after(("nvml", up, 0), ("nvml", down, 1))) == {"nvlink/inactive": "GPU-0"}


def test_a_storm_stays_within_bounds():
    report = logged(*[f"xid/{1000 + number}" for number in range(2000)], *["xid/95"] * 5000)
    memory = after(("kernel-log", report, 0))
    assert len(memory.findings) == 128
    assert codes(memory)["xid/95"] == "GPU-0"


def init_failed(*indices: int, apart: float = 0.0) -> list[tuple[str, Report, float]]:
    reports = [logged("kernel/init-failed", first=index, subject_id=f"GPU-{index}") for index in indices]
    return [
        ("kernel-log", at(report, index * apart), index * apart) for index, report in zip(indices, reports, strict=True)
    ]


def at(report: Report, seconds: float) -> Report:
    (sighting,) = report.sightings
    later = msgspec.structs.replace(sighting.evidence, first_seen=NOW + seconds, last_seen=NOW + seconds)
    return msgspec.structs.replace(report, sightings=(Sighting(sighting.sequence, later),))


def test_a_driver_that_can_start_none_of_the_gpus_is_one_finding_of_the_node_and_no_reset_of_each():
    memory = after(("nvml", HEALTHY, 0), *init_failed(0, 1, apart=50))
    for seconds in (50.5, 120, 3600):
        judgement = conclude(memory, NOW + seconds, RULES)
        assert (judgement.node.verdict, judgement.node.reason) == (Verdict.NO_NEW_WORK, "driver/init-failed")
        assert {opinion.verdict for opinion in judgement.gpus.values()} == {Verdict.WATCH}
        told = [(one.lead, one.members) for one in judgement.incidents]
        assert told == [("driver/init-failed", ("kernel/init-failed",))]
    assert "Next: check that driver, its firmware and the kernel fit" in judgement.message


def test_while_the_driver_still_tries_the_other_gpus_none_is_to_be_reset():
    memory = after(("nvml", HEALTHY, 0), *init_failed(0))
    assert conclude(memory, NOW + 59, RULES).node.verdict is Verdict.NO_NEW_WORK
    assert conclude(memory, NOW + 60, RULES).gpus["GPU-0"].verdict is Verdict.RESET


def test_gpus_that_fail_to_start_while_another_works_are_each_at_fault():
    memory = after(("nvml", snapshot(gpu(0), gpu(1), gpu(2)), 0), *init_failed(0, 1))
    assert conclude(memory, NOW + 60, RULES).node.verdict is Verdict.RESET


def test_gpus_that_fail_to_start_on_different_days_are_each_at_fault():
    memory = after(("nvml", HEALTHY, 0), *init_failed(0, 1, apart=86_400))
    judgement = conclude(memory, NOW + 86_500, RULES)
    assert {opinion.verdict for opinion in judgement.gpus.values()} == {Verdict.RESET}


def test_a_driver_that_starts_the_gpus_again_ends_the_finding_of_the_node():
    looks = [("nvml", HEALTHY, seconds) for seconds in (40, 80, 120)]
    assert codes(after(("nvml", HEALTHY, 0), *init_failed(0, 1), *looks)) == {}


def test_the_finding_of_all_gpus_outlives_a_reboot_by_no_more_than_the_dwell():
    memory = after(("nvml", HEALTHY, 0), *init_failed(0, 1), ("kernel-log", logged(boot="boot-2"), 100))
    assert "kernel/init-failed" not in codes(memory)
    assert codes(after(("nvml", HEALTHY, 101), ("nvml", HEALTHY, 140), memory=memory)) == {}


def test_the_memory_survives_a_restart_to_the_letter(tmp_path):
    memory = after(("kernel-log", logged("xid/79"), 0), ("nvml", HEALTHY, 1))
    memory = msgspec.structs.replace(memory, announced=Announced(Verdict.REBOOT, "xid/79"))
    store = Store(tmp_path / "new" / "folder")
    assert store.load() == Memory()
    store.save(memory)
    assert Store(tmp_path / "new" / "folder").load() == memory


BENT = '{"findings": [{"code": "xid/79", "first_seen": 1, "last_seen": 1, "count": 1, "source": "x", %s}]}'


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"[]", b'{"findings": [{}]}', b"\xff" * 100, b'{"x":' + b"[" * 100_000),
        *(
            (BENT % value).encode()
            for value in ('"last_seen": 1e300', '"first_seen": -1e300', '"count": 0', f'"count": {10**30}')
        ),
    ],
    ids=lambda content: content[-20:].decode("utf-8", "replace"),
)
def test_a_saved_memory_that_is_unusable_is_moved_aside(tmp_path, content):
    (tmp_path / "memory.json").write_bytes(content)
    assert Store(tmp_path).load() == Memory()
    assert (tmp_path / "memory.unusable").read_bytes() == content


def test_only_what_a_restart_would_lose_is_saved():
    memory = after(("nvml", snapshot(gpu(0, recovery_action=2)), 0))
    still = after(("nvml", snapshot(gpu(0, recovery_action=2)), 1), memory=memory)
    assert not worth_saving(memory, still)
    assert worth_saving(memory, after(("kernel-log", logged("xid/31"), 1), memory=memory))
