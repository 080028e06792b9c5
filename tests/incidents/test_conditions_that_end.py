"""Conditions that never clear keep good nodes out for days: here each ends by itself once its cause is gone."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from outrider.api.gpunode import Health, Verdict
from testbed.nvml.state import NvmlState, Value
from testbed.xid_lines import off_bus_lines, recovery_line, xid_line
from tests.incidents.machine import Machine, Switch
from tests.node_agent.sysfs_tree import hgx

FAULTY = 2
HOUR = 3600.0


@dataclass(frozen=True)
class Damage:
    """Lines about one GPU, and what undoes them."""

    lines: Callable[[Machine], list[str]]
    verdict: Verdict
    reset: bool = False
    """A reset that the driver tells of is enough; else it takes a reboot."""


def xid(code: int, detail: str | None = None) -> Callable[[Machine], list[str]]:
    return lambda machine: [xid_line(machine.bus(FAULTY), code, detail)]


DAMAGE = {
    "79": Damage(lambda machine: off_bus_lines(machine.bus(FAULTY), "S"), Verdict.REBOOT),
    "95": Damage(xid(95), Verdict.RESET, reset=True),
    "119": Damage(xid(119), Verdict.RESET, reset=True),
    "74": Damage(xid(74, "NVLink: fatal error detected on link 3(0x10000, 0x0, 0x0)"), Verdict.RESET, reset=True),
    "48 with 94": Damage(lambda machine: xid(48)(machine) + xid(94)(machine), Verdict.RESTART_APP, reset=True),
    "154 asks for a reboot": Damage(lambda machine: [recovery_line(machine.bus(FAULTY), 0, 2)], Verdict.REBOOT),
    "154 asks for a reset": Damage(lambda machine: [recovery_line(machine.bus(FAULTY), 0, 1)], Verdict.RESET, True),
    "kernel words": Damage(
        lambda machine: [f"NVRM: GPU {machine.bus(FAULTY).lower()}: GPU has fallen off the bus."],
        Verdict.REBOOT,
    ),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
async def test_damage_that_the_log_told_of_ends_with_the_repair_and_never_before(switch_on: Switch, damage: Damage):
    machine = await switch_on().look()
    machine.kernel(*damage.lines(machine))
    await machine.look()
    assert machine.judgement.gpus[machine.uuid(FAULTY)].verdict is damage.verdict
    await machine.restart()
    await machine.look(8, seconds=24 * HOUR)  # neither time nor a restart of the agent heals it
    assert machine.judgement.gpus[machine.uuid(FAULTY)].verdict is damage.verdict
    assert bool(machine.taint) is damage.verdict.hard
    if damage.reset:
        machine.kernel(recovery_line(machine.bus(FAULTY), 1, 0))
    else:
        await machine.reboot()
    await machine.look(2)
    assert (machine.ill, machine.taint) == ({}, None)
    await machine.look(seconds=8 * 24 * HOUR)
    assert (machine.verdict, machine.score) == (Verdict.NONE, 100)


@dataclass(frozen=True)
class State:
    """What NVML shows while a condition lasts."""

    code: str
    values: dict[str, Value] = field(default_factory=dict)
    node: dict[str, Value] = field(default_factory=dict)


STATES = [
    State("gpu/lost", {"call.all.error": 15}),
    State("gpu/reset-required", {"call.all.error": 16}),
    State("remap/pending", {"remap.pending": 1}),
    State("ecc/uncorrected", {"ecc.volatile.uncorrected": 3}),
    State("recovery/1", {"recovery.action": 1}),
    State("nvlink/inactive", {"nvlink.3.state": 0}),
    State("pcie/width", {"pcie.width": 4}),
    State("thermal/slowdown", {"temperature.gpu": 89, "temperature.margin": -2}),
    State("nvml/mismatch", node={"init.error": 18}),
    State("nvml/init", node={"init.error": 999}),
]


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.code)
async def test_a_state_ends_by_itself_half_a_minute_after_it_is_over_and_lasts_as_long_as_it_lasts(
    switch_on: Switch, library: NvmlState, state: State
):
    machine = await switch_on(library=library).look()
    library.set_gpu(FAULTY, dict(state.values))
    library.change(dict(state.node))
    if state.node:
        await machine.restart()
    await machine.look()
    assert [code for code, _ in machine.found] == [state.code]
    await machine.look(3, seconds=8 * 24 * HOUR)
    assert [code for code, _ in machine.found] == [state.code]
    library.set_gpu(FAULTY, dict.fromkeys(state.values))
    library.change(dict.fromkeys(state.node))
    await machine.look()
    assert [code for code, _ in machine.found] == [state.code], "one good reading is no proof"
    await machine.look(4)
    assert (machine.found, machine.score, machine.taint) == ([], 100, None)


async def test_a_pending_row_remap_ends_with_the_reset_that_makes_it(switch_on: Switch, library: NvmlState):
    machine = await switch_on(library=library).look()
    machine.kernel(xid_line(machine.bus(FAULTY), 63))
    library.set_gpu(FAULTY, {"remap.pending": 1, "remap.uncorrected": 1})
    await machine.look(2)
    assert machine.found == [("remap/pending", machine.uuid(FAULTY)), ("xid/63", machine.uuid(FAULTY))]
    assert len(machine.judgement.incidents) == 1, "one row, told twice"
    assert (machine.verdict, machine.taint) == (Verdict.WATCH, None)
    library.set_gpu(FAULTY, {"remap.pending": 0})
    machine.kernel(recovery_line(machine.bus(FAULTY), 1, 0))
    await machine.look(5)
    assert ("remap/pending", machine.uuid(FAULTY)) not in machine.found
    assert machine.score == 100


async def test_a_port_that_flaps_three_times_in_twelve_hours_stops_new_work_and_comes_back_when_quiet(
    switch_on: Switch, tmp_path: Path
):
    host = hgx(tmp_path / "host")
    machine = await switch_on(host=host).look(3, seconds=5)
    for _ in range(3):
        host.down("mlx5_5")
        await machine.look(6, seconds=5)
        host.up("mlx5_5")
        await machine.look(12, seconds=5)
        await machine.look(6, seconds=600)
    assert machine.found == [("nic/flapping", "mlx5_5/1")]
    assert (machine.verdict, machine.taint, machine.ill) == (Verdict.NO_NEW_WORK, None, {})
    others = {name: nic.health for name, nic in machine.judgement.nics.items() if name != "mlx5_5"}
    assert others == {f"mlx5_{number}": Health.HEALTHY for number in range(8) if number != 5}
    assert {opinion.score for opinion in machine.judgement.gpus.values()} == {100}
    await machine.restart()
    await machine.look(80, seconds=600)  # thirteen quiet hours
    assert (machine.found, machine.score) == ([], 100)


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x62:0x65:1860)",
        "NVRM: GPU 0000:3b:00.0: krcWatchdogInit: NV_ERR_RESET_REQUIRED",
    ],
)
async def test_a_gpu_that_could_not_be_used_is_well_once_it_is_read_well_for_a_while(switch_on: Switch, line: str):
    machine = await switch_on().look()
    machine.kernel(line)
    await machine.look(3)
    assert machine.verdict.severity >= Verdict.NO_NEW_WORK.severity
    await machine.look()
    assert (machine.found, machine.taint) == ([], None)
    machine.kernel(line)
    machine.gpus[FAULTY] = msgspec.structs.replace(machine.gpus[FAULTY], errors={"nvmlDeviceGetName": 999})
    await machine.look(20)
    assert machine.ill == {machine.uuid(FAULTY): Verdict.RESET}
