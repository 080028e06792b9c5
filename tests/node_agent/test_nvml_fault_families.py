"""Every fault that NVML can show, put in below the library: found on the faulty part alone, judged, and over again."""

from dataclasses import dataclass, field

import pytest

from outrider.api.gpunode import Health, Verdict
from testbed import nvml
from testbed.nvml.state import Value
from tests.node_agent.nvml_scene import CATALOGUE, Scene

NONE, WATCH, NO_WORK = Verdict.NONE, Verdict.WATCH, Verdict.NO_NEW_WORK
RESET, REBOOT, REPLACE = Verdict.RESET, Verdict.REBOOT, Verdict.REPLACE
BUSY = {"utilization": "97 60", "clock.sm": 1980, "clock.event_reasons": 0}
A100 = {  # a board that tells temperatures as thresholds, not as margin
    "temperature.margin": None,
    "temperature.tlimit.slowdown": None,
    "temperature.slowdown": 89,
    "temperature.gpu_max": 85,
    "temperature.memory_max": 95,
}
V100 = {"retired.pages": "0 0", "retired.pending": 0}
FAULTY = 2


@dataclass(frozen=True)
class Family:
    code: str
    verdict: Verdict
    values: dict[str, Value] = field(default_factory=dict)
    """Values of the faulty GPU."""
    rising: dict[str, int] = field(default_factory=dict)
    """Counters of the faulty GPU that rise by so much between two readings."""
    board: dict[str, Value | None] = field(default_factory=dict)
    """Values of all GPUs from the start on."""
    profile: str = "h100"
    link: int | None = None
    readings: int = 2
    """After how many readings, ten seconds apart, it is found at the latest."""


FAMILIES = [
    # presence: the code table of NVML's answers
    Family("gpu/lost", REBOOT, {"call.all.error": 15}, readings=1),
    Family("gpu/lost", REBOOT, {"call.GetRemappedRows.error": 15}, readings=1),
    Family("gpu/unreadable", NO_WORK, {"call.all.error": 999}, readings=1),
    Family("gpu/unreadable", NO_WORK, {"call.GetPowerUsage.error": 1234}, readings=1),
    Family("gpu/unreadable", NO_WORK, {"call.GetPowerUsage.error": 10}, readings=1),
    Family("gpu/reset-required", RESET, {"call.all.error": 16}, readings=1),
    Family("gpu/no-access", NO_WORK, {"call.all.error": 4}, readings=1),
    Family("gpu/power-cable", NO_WORK, {"call.GetHandleByIndex.error": 8}, readings=1),
    Family("gpu/irq", NO_WORK, {"call.GetHandleByIndex.error": 11}, readings=1),
    Family("gpu/slow", WATCH, {"call.GetPowerUsage.delay_ms": 2100}),
    *(
        Family(f"recovery/{action}", verdict, {"recovery.action": action}, readings=1)
        for action, verdict in enumerate((RESET, REBOOT, NO_WORK, RESET, NO_WORK, RESET, REBOOT, NO_WORK), start=1)
    ),
    # memory
    Family("ecc/uncorrected", WATCH, {"ecc.volatile.uncorrected": 3}, readings=1),
    Family("ecc/corrected-rate", WATCH, rising={"ecc.volatile.corrected": 400}),
    Family("ecc/sram-threshold", REPLACE, {"sram.threshold_exceeded": 1}, readings=1),
    Family("ecc/off", WATCH, {"ecc.mode": "0 0"}, readings=1),
    Family("ecc/pending", WATCH, {"ecc.mode": "1 0"}, readings=1),
    Family("remap/failure", REPLACE, {"remap.failure": 1}, readings=1),
    Family("remap/pending", WATCH, {"remap.pending": 1, "remap.uncorrected": 1}, readings=1),
    Family("remap/uncorrectable", NO_WORK, {"remap.uncorrected": 512}, readings=1),
    Family("remap/banks-none", NO_WORK, {"remap.histogram": "2558 0 0 1 1"}, readings=1),
    Family("remap/banks-low", WATCH, {"remap.histogram": "2559 0 0 1 0"}, readings=1),
    Family("pages/pending", WATCH, {"retired.pending": 1}, board=V100, readings=1),
    Family("pages/many", WATCH, {"retired.pages": "0 16"}, board=V100, readings=1),
    Family("pages/limit", NO_WORK, {"retired.pages": "60 3"}, board=V100, readings=1),
    Family("memory/repair-pending", WATCH, {"repair.pending": "1 0"}, readings=1),
    Family("memory/unrepairable", NO_WORK, {"memory.unrepairable": 1}, readings=1),
    Family("gpu/inforom", WATCH, {"call.GetInforomVersion.error": 14}, readings=1),
    # PCIe
    Family("pcie/width", NO_WORK, {"pcie.width": 8}, readings=1),
    Family("pcie/generation", NO_WORK, {"pcie.generation": 2, **BUSY}),
    Family("pcie/slot", WATCH, {"pcie.max_width": 8, "pcie.width": 8}, board={"pcie.max_width": 16}),
    Family("pcie/replays", WATCH, rising={"pcie.replays": 40}),
    Family("pcie/fatal", WATCH, rising={"pcie.fatal": 1}),
    # NVLink 4, then 5
    Family("nvlink/inactive", NO_WORK, {"nvlink.3.state": 0}, readings=1),
    Family("nvlink/crc", WATCH, rising={"nvlink.7.crc_flit": 1}, link=7),
    Family("nvlink/crc-rate", NO_WORK, rising={"nvlink.7.crc_flit": 5000}, link=7),
    Family("nvlink/replay", WATCH, rising={"nvlink.0.replay": 1}, link=0),
    Family("nvlink/recovery", WATCH, rising={"nvlink.17.recovery": 1}, link=17),
    Family("nvlink/replay", WATCH, rising={"nvlink.replay": 1}),
    Family("nvlink/recovery-failed", NO_WORK, rising={"nvlink.5.recoveries_failed": 1}, link=5, profile="gb200"),
    Family("nvlink/recovery", WATCH, rising={"nvlink.5.recovery_events": 1}, link=5, profile="gb200"),
    Family("nvlink/errors", WATCH, rising={"nvlink.5.malformed_packets": 1}, link=5, profile="gb200"),
    Family("nvlink/ber", NO_WORK, {"nvlink.5.effective_ber": 0x30B}, link=5, profile="gb200", readings=1),
    Family("nvlink/inactive", NO_WORK, {"nvlink.3.state": 0}, profile="gb200", readings=1),
    Family("nvlink/speed", WATCH, {"nvlink.5.speed_mbps": 26562}, link=5, profile="gb200", readings=1),
    Family("c2c/inactive", NO_WORK, {"field.171.3": 0}, profile="gb200", readings=1),
    # fabric
    Family("fabric/incomplete", NO_WORK, {"fabric.state": 2}, readings=1),
    Family("fabric/incomplete", NO_WORK, {"fabric.state": 9}, readings=1),
    Family("fabric/failed", NO_WORK, {"fabric.status": 23}, readings=1),
    Family("fabric/clique", NO_WORK, {"fabric.clique": 7}, profile="gb200", readings=1),
    Family("fabric/degraded-bandwidth", NO_WORK, {"fabric.health_mask": 0x1A9}, profile="gb200", readings=1),
    Family("fabric/route-unhealthy", NO_WORK, {"fabric.health_mask": 0x19A}, profile="gb200", readings=1),
    Family("fabric/route-recovery", WATCH, {"fabric.health_mask": 0x1A6}, profile="gb200", readings=1),
    Family("fabric/access-timeout", NO_WORK, {"fabric.health_mask": 0x16A}, profile="gb200", readings=1),
    Family("fabric/config", NO_WORK, {"fabric.health_mask": 0x5AA}, profile="gb200", readings=1),
    Family("fabric/manager", WATCH, {"fabric.health_mask": 0x81AA}, profile="gb200", readings=1),
    Family("fabric/unhealthy", NO_WORK, {"fabric.health_summary": 2}, readings=1),
    Family("fabric/limited", WATCH, {"fabric.health_summary": 3}, readings=1),
    # speed
    Family("clocks/hw-thermal", NO_WORK, {"clock.event_reasons": 0x48}),
    Family("clocks/power-brake", NO_WORK, {"clock.event_reasons": 0x88}),
    Family("clocks/hw-slowdown", NO_WORK, {"clock.event_reasons": 0x8}),
    Family("clocks/sw-thermal", WATCH, {"clock.event_reasons": 0x20}),
    Family("clocks/low", WATCH, {**BUSY, "clock.sm": 900}),
    Family("thermal/hot", WATCH, {"temperature.gpu": 87, "temperature.margin": 0}, readings=1),
    Family("thermal/slowdown", NO_WORK, {"temperature.gpu": 89, "temperature.margin": -2}, readings=1),
    Family("thermal/hot", WATCH, {"temperature.gpu": 85}, board=A100, readings=1),
    Family("thermal/slowdown", NO_WORK, {"temperature.gpu": 90}, board=A100, readings=1),
    Family("thermal/memory", WATCH, {"temperature.memory": 97}, readings=1),
    Family("power/over-limit", WATCH, {"power.usage_mw": 760_000}),
    Family("power/limit", WATCH, {"power.limit_mw": 500_000}, readings=1),
    # modes
    Family("mode/persistence", WATCH, {"persistence_mode": 0}, readings=1),
    Family("mode/compute-prohibited", NO_WORK, {"compute_mode": 2}, readings=1),
    Family("mig/pending", WATCH, {"mig.mode": "0 1"}, readings=1),
    Family("mig/differs", WATCH, {"mig.mode": "1 1"}, readings=1),
]
LASTING = {"pcie/slot"}  # of what is read anew only every few minutes


def name(family: Family) -> str:
    return f"{family.code}-{family.profile}" + ("-board" if family.board else "")


@pytest.fixture
async def scene(request, tmp_path, monkeypatch):
    family = request.param
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    state = nvml.install(tmp_path, family.profile, seed="node")
    state.change({f"gpu.{key}": value for key, value in family.board.items()})
    scene = Scene(state)
    if family.code in LASTING:
        state.set_gpu(FAULTY, family.values)
    else:
        assert (await scene.read()).node.health is Health.HEALTHY
    yield scene, family
    await scene.probe.close()


async def suffer(scene: Scene, family: Family):
    before = {key: int(scene.state.get(FAULTY, key) or 0) for key in family.rising}
    scene.state.set_gpu(FAULTY, family.values)
    for reading in range(1, family.readings + 1):
        scene.state.set_gpu(FAULTY, {key: before[key] + rise * reading for key, rise in family.rising.items()})
        await scene.read()
    return before


@pytest.mark.parametrize("scene", FAMILIES, indirect=True, ids=name)
async def test_a_fault_is_found_on_its_part_judged_and_over_again(scene):
    scene, family = scene
    before = await suffer(scene, family)
    guilty = scene.uuid(FAULTY)
    assert scene.codes() == {family.code: guilty if family.link is None else f"{guilty}/{family.link}"}
    judgement = scene.judged()
    row = CATALOGUE.of(family.code)
    opinion = judgement.gpus.pop(guilty)
    assert (opinion.verdict, opinion.score) == (family.verdict, round(100 * (1 - row.weight)))
    assert opinion.health is not Health.HEALTHY or family.verdict is WATCH
    assert {(other.health, other.score) for other in judgement.gpus.values()} == {(Health.HEALTHY, 100)}
    if family.code in LASTING:
        return
    scene.state.set_gpu(FAULTY, dict.fromkeys({**family.values, **before}))
    judgement = await scene.until_healthy()
    assert (judgement.node.health, judgement.node.score, scene.codes()) == (Health.HEALTHY, 100, {})


def test_every_code_that_the_readings_emit_has_a_row_and_a_test():
    tested = {family.code for family in FAMILIES}
    families = {
        "ecc",
        "remap",
        "pages",
        "memory",
        "pcie",
        "nvlink",
        "c2c",
        "fabric",
        "clocks",
        "thermal",
        "mode",
        "mig",
    }
    rows = {code for code in CATALOGUE.codes if code.split("/")[0] in families}
    assert rows - tested == {"ecc/uncorrected-before"}  # an event, tested with reboots
