"""Faults that no line of the log tells of, or that a check of another kind passes: found on their part alone."""

import json

import pytest

from node_agent.probes.programs import Ran
from node_agent.probes.report import Report, States
from node_agent.readings.diagnostics import result, running
from outrider.api.gpunode import DiagnosticRequest, DiagnosticState, Health, Verdict
from testbed.nvml.state import NvmlState, Value
from tests.incidents.machine import Machine, Switch, readings

FAULTY = 2
BUSY: dict[str, Value | None] = {"utilization": "97 60", "clock.sm": 1980, "clock.event_reasons": 0}
IDLE: dict[str, Value | None] = {"utilization": "0 0", "clock.sm": 345, "clock.event_reasons": 1}


def neighbours(machine: Machine) -> set[tuple[int, Health]]:
    gpus = machine.judgement.gpus
    return {(gpus[machine.uuid(gpu)].score, gpus[machine.uuid(gpu)].health) for gpu in range(8) if gpu != FAULTY}


WELL = {(100, Health.HEALTHY)}


async def test_a_link_at_half_speed_for_hours_of_training_is_found_although_nothing_logs_it(
    switch_on: Switch, library: NvmlState
):
    machine = await switch_on(library=library).look()
    library.change({f"gpu.{key}": value for key, value in BUSY.items()})
    library.set_gpu(FAULTY, {"pcie.generation": 2})
    await machine.look(2)
    assert machine.found == [("pcie/generation", machine.uuid(FAULTY))]
    await machine.look(209, seconds=60)  # three and a half hours
    (finding,) = machine.memory.findings
    assert (finding.code, finding.subject_id, finding.count) == ("pcie/generation", machine.uuid(FAULTY), 1)
    assert finding.last_seen - finding.first_seen > 3.4 * 3600
    assert (machine.verdict, machine.taint, machine.ill) == (Verdict.NO_NEW_WORK, None, {})
    assert (machine.judgement.gpus[machine.uuid(FAULTY)].score, neighbours(machine)) == (60, WELL)
    assert machine.log.read_text().count("\n") == 1, "nothing but the driver's start"
    library.set_gpu(FAULTY, {"pcie.generation": 5})
    assert (await machine.look(5)).score == 100


async def test_links_that_slow_down_while_nothing_runs_are_no_fault(switch_on: Switch, library: NvmlState):
    machine = await switch_on(library=library).look()
    for generation in (1, 2, 1, 4, 1, 5, 1):
        library.change({f"gpu.{key}": value for key, value in {**IDLE, "pcie.generation": generation}.items()})
        await machine.look(2, seconds=1)
        assert machine.found == []


async def test_a_link_with_half_its_lanes_is_found_while_nothing_runs(switch_on: Switch, library: NvmlState):
    machine = await switch_on(library=library).look()
    library.set_gpu(FAULTY, {**IDLE, "pcie.width": 8, "pcie.generation": 1})
    await machine.look()
    assert machine.found == [("pcie/width", machine.uuid(FAULTY))]
    assert (machine.taint, neighbours(machine)) == (None, WELL)


@pytest.mark.parametrize(
    ("values", "code", "verdict"),
    [
        ({"call.all.error": 15}, "gpu/lost", Verdict.REBOOT),
        ({"call.all.error": 999}, "gpu/unreadable", Verdict.NO_NEW_WORK),
    ],
    ids=["answers that it is lost", "answers nothing that is known"],
)
async def test_a_gpu_off_the_bus_without_an_xid_is_named(
    switch_on: Switch, library: NvmlState, values: dict[str, Value | None], code: str, verdict: Verdict
):
    machine = await switch_on(library=library).look()
    library.set_gpu(FAULTY, values)
    await machine.look()
    assert machine.found == [(code, machine.uuid(FAULTY))]
    assert machine.judgement.gpus[machine.uuid(FAULTY)].verdict is verdict
    assert machine.ill == ({machine.uuid(FAULTY): verdict} if verdict.hard else {})
    assert neighbours(machine) == WELL


async def test_a_gpu_that_a_reboot_does_not_bring_back_is_named(switch_on: Switch, library: NvmlState):
    machine = await switch_on(library=library).look()
    library.set_gpu(FAULTY, {"dropped_at_init": 1})
    await machine.reboot()
    await machine.look()
    assert machine.found == [("gpu/missing", machine.uuid(FAULTY))]
    assert (machine.verdict, machine.taint) == (Verdict.NO_NEW_WORK, None)  # the driver may still list them one by one
    await machine.look()
    assert machine.ill == {machine.uuid(FAULTY): Verdict.REBOOT}
    assert (machine.taint, neighbours(machine)) == ("gpu-missing", WELL)


async def test_gpus_that_a_starting_driver_lists_one_after_the_other_are_not_missing(switch_on: Switch):
    machine = await switch_on().look()
    await machine.reboot()
    for listed in (3, 8, 8, 8, 8, 8):
        machine.gpus = readings(listed)
        await machine.look()
        assert (machine.ill, machine.taint) == ({}, None)
    assert machine.found == []


async def test_a_gpu_off_the_bus_in_three_lines_without_an_xid_is_named(switch_on: Switch):
    machine = await switch_on().look()
    device = machine.bus(FAULTY).lower()
    machine.kernel(
        f"NVRM: The NVIDIA GPU {device}",
        "NVRM: (PCI ID: 10de:2330) installed in this system has",
        "eth0: Link is Up - 200Gbps/Full",
        "NVRM: fallen off the bus and is not responding to commands.",
    )
    await machine.look()
    assert machine.found == [("kernel/off-bus", machine.uuid(FAULTY))]
    assert machine.ill == {machine.uuid(FAULTY): Verdict.REBOOT}
    assert neighbours(machine) == WELL


@pytest.mark.parametrize("word", ["Uncorrected", "Uncorrectable"])
async def test_a_pcie_error_in_either_wording_names_the_gpu_behind_the_address(switch_on: Switch, word: str):
    machine = await switch_on().look()
    device = f"0000:{machine.bus(FAULTY).lower().partition(':')[2]}"
    machine.kernel(
        f"pcieport 0000:1a:01.0: AER: {word} (Fatal) error received: {device}",
        f"nvidia {device}: PCIe Bus Error: severity={word} (Fatal), type=Transaction Layer, (Receiver ID)",
    )
    await machine.look()
    assert machine.found == [("kernel/aer-fatal", machine.uuid(FAULTY))]
    assert (machine.verdict, machine.taint, neighbours(machine)) == (Verdict.NO_NEW_WORK, None, WELL)


def diagnostic(*serials: str) -> bytes:
    """What dcgmi diag writes where all tests passed on all GPUs."""
    passed = [{"entity_group": "GPU", "entity_id": gpu, "status": "Pass", "warnings": []} for gpu in range(8)]
    tests = [{"name": name, "results": passed} for name in ("software", "pcie", "memory")]
    entities = [{"entity_id": gpu, "serial_num": serial} for gpu, serial in enumerate(serials)]
    root = {"test_categories": [{"category": "Hardware", "tests": tests}]}
    return json.dumps(
        {"DCGM Diagnostic": root, "entity_groups": [{"entity_group": "GPU", "entities": entities}]}
    ).encode()


async def test_a_diagnostic_that_passes_clears_no_link_that_is_down(switch_on: Switch, library: NvmlState):
    machine = await switch_on(library=library).look()
    library.set_gpu(FAULTY, {"nvlink.3.state": 0, "nvlink.11.state": 0})
    await machine.look()
    output = diagnostic(*(record.serial for record in machine.memory.inventory))
    started = running(DiagnosticRequest(id="proof", level=2), machine.now)
    end = result(started, Ran(status=0, output=output, problem=""), machine.memory.inventory, machine.now)
    assert end.diagnostic.state is DiagnosticState.PASSED
    for _ in range(5):
        states = States(bad=end.bad, readable=end.passed)
        machine.take("dcgm-diag", Report(diagnostic=end.diagnostic, states=states))
        await machine.look()
    assert machine.found == [("nvlink/inactive", machine.uuid(FAULTY))]
    assert machine.verdict is Verdict.NO_NEW_WORK
    assert (machine.judgement.gpus[machine.uuid(FAULTY)].score, neighbours(machine)) == (50, WELL)
    assert (machine.status.gpus[FAULTY].links_active, machine.status.gpus[FAULTY].links_total) == (16, 18)


async def test_a_fabric_that_is_complete_but_failed_is_named_on_each_gpu_that_it_fails(
    switch_on: Switch, library: NvmlState
):
    machine = await switch_on(library=library).look()
    library.set_gpu(FAULTY, {"fabric.state": 3, "fabric.status": 23})  # completed, with "insufficient resources"
    await machine.look()
    assert machine.found == [("fabric/failed", machine.uuid(FAULTY))]
    assert (machine.verdict, machine.taint, neighbours(machine)) == (Verdict.NO_NEW_WORK, None, WELL)
    library.change({f"gpu.{gpu}.fabric.status": 23 for gpu in range(8)})
    await machine.look()
    assert machine.found == sorted(("fabric/failed", machine.uuid(gpu)) for gpu in range(8))
    assert len(machine.judgement.incidents) == 1, "the fabric is one part"
    assert machine.taint is None
