"""Lemons: boards that fail after each repair are named by their serial; programs that fail again are no boards."""

import msgspec

from node_agent.probes.nvml_wire import Failed
from outrider.api.gpunode import Verdict
from testbed.xid_lines import off_bus_lines, xid_line
from tests.incidents.machine import Machine, Switch

FAULTY = 2
DAY = 86_400.0


async def fail_and_reboot(machine: Machine) -> None:
    machine.kernel(*off_bus_lines(machine.bus(FAULTY), "S"))
    await machine.look()
    assert machine.ill[machine.uuid(FAULTY)].severity >= Verdict.REBOOT.severity
    await machine.reboot()
    await machine.look(5)


async def test_a_lemon_is_found_over_reboots_and_its_neighbours_are_not_blamed(switch_on: Switch):
    machine = await switch_on().look()
    for _ in range(2):
        await fail_and_reboot(machine)
        assert (machine.found, machine.taint) == ([], None)
        await machine.look(seconds=DAY)
    await fail_and_reboot(machine)
    assert machine.found == [("gpu/repeat-offender", machine.uuid(FAULTY))]
    assert (machine.verdict, machine.taint) == (Verdict.NO_NEW_WORK, None)
    for _ in range(2):
        await machine.look(seconds=DAY)
        await fail_and_reboot(machine)
    assert machine.ill == {machine.uuid(FAULTY): Verdict.REPLACE}
    assert machine.taint == "gpu-lemon"
    (offender,) = machine.status.offenders
    assert (offender.serial, offender.episodes, offender.reason) == (f"m-{FAULTY}", 5, "kernel/off-bus")
    assert {one.score for gpu, one in machine.judgement.gpus.items() if gpu != machine.uuid(FAULTY)} == {100}
    await machine.look(seconds=8 * DAY)
    await machine.look(5)
    assert (machine.found, machine.taint, machine.status.offenders) == ([], None, [])


async def test_a_swapped_board_takes_the_blame_along(switch_on: Switch):
    machine = await switch_on().look()
    for _ in range(5):
        await fail_and_reboot(machine)
    assert machine.ill == {machine.uuid(FAULTY): Verdict.REPLACE}
    other = switch_on("new").gpus[FAULTY]
    machine.gpus = [*machine.gpus[:FAULTY], other, *machine.gpus[FAULTY + 1 :]]
    await machine.reboot()
    await machine.look(6)
    assert (machine.ill, machine.taint, machine.score) == ({}, None, 100)


async def test_a_program_that_fails_for_days_makes_no_board_a_lemon(switch_on: Switch):
    machine = await switch_on().look()
    for _ in range(6):
        machine.kernel(*(xid_line(machine.bus(gpu), code) for gpu in range(8) for code in (13, 31, 43, 45)))
        await machine.look()
        assert (machine.verdict, machine.taint, machine.ill) == (Verdict.RESTART_APP, None, {})
        await machine.look(seconds=DAY)
    assert machine.status.offenders == []


async def test_a_storm_of_one_programs_faults_accuses_no_gpu(switch_on: Switch):
    machine = await switch_on().look()
    machine.kernel(*(xid_line(machine.bus(number % 8), 31) for number in range(4000)))
    await machine.look()
    assert {one.count for one in machine.memory.findings} == {500}
    assert (machine.verdict, machine.taint, machine.ill) == (Verdict.RESTART_APP, None, {})


async def test_a_fault_of_a_new_board_is_not_told_of_the_one_that_was_in_its_slot(switch_on: Switch):
    machine = await switch_on().look()
    new = msgspec.structs.replace(machine.gpus[FAULTY], uuid="GPU-m-new", serial="m-new")
    machine.gpus = [*machine.gpus[:FAULTY], new, *machine.gpus[FAULTY + 1 :]]
    machine.failed = Failed(call="nvmlInit_v2", code=9, text="the driver starts")
    await machine.reboot()
    machine.kernel(xid_line(machine.bus(FAULTY), 95))
    await machine.look()
    assert machine.ill == {"pci:00000000:3b:00": Verdict.RESET}
    machine.failed = None
    await machine.look()
    assert machine.ill == {"GPU-m-new": Verdict.RESET}


async def test_a_disk_in_a_machine_with_fewer_and_other_boards_misses_none_of_the_old_ones(switch_on: Switch):
    machine = await switch_on().look()
    machine.gpus = switch_on("smaller").gpus[:4]
    await machine.reboot()
    await machine.look()
    assert (machine.found, machine.taint, machine.score) == ([], None, 100)
    machine.gpus = machine.gpus[:3]
    await machine.look()
    assert machine.found == [("gpu/missing", "GPU-smaller-3")]
