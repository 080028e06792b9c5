"""Blindness: a monitor that sees nothing has found nothing. The node is Unknown, never isolated, and heals."""

import pytest

from node_agent.probes.report import Report
from node_agent.readings.dcgm import DCGMWatch, read_page
from outrider.api.gpunode import GPUNode, Health, Verdict
from outrider.api.meta import ObjectMeta
from testbed.nvml.state import NvmlState
from testbed.xid_lines import xid_line
from tests.incidents.machine import CATALOGUE, Machine, Switch
from tests.remediation.fleet import Fleet

BLANK = "9223372036854775794"
DAY = 86_400.0


def episodes(machine: Machine) -> bool:
    """Tell whether remediation would do anything to the node, a moment after it was reported."""
    fleet = Fleet(now=machine.now + 5)
    fleet.add_nodes("m").add_job("train", "m")
    fleet.gpu_nodes["m"] = GPUNode(metadata=ObjectMeta(name="m"), status=machine.status)
    return fleet.open("m") is not None


def is_left_alone(machine: Machine) -> bool:
    return not machine.verdict.hard and machine.taint is None and machine.ill == {} and not episodes(machine)


def dcgm_page(machine: Machine, value: object, energy: object) -> str:
    lines = []
    for gpu in range(8):
        labels = f'gpu="{gpu}",UUID="{machine.uuid(gpu)}"'
        fields = {
            "SM_CLOCK": value,
            "XID_ERRORS": value,
            "ROW_REMAP_PENDING": value,
            "TOTAL_ENERGY_CONSUMPTION": energy,
        }
        lines += [f"DCGM_FI_DEV_{name}{{{labels}}} {text}" for name, text in fields.items()]
    return "\n".join([*lines, ""])


class DCGM:
    """The exporter's page, read every half minute."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._watch, self._energy = machine, DCGMWatch(), 0

    def shows(self, value: object, times: int = 5) -> None:
        for _ in range(times):
            machine = self._machine
            machine.seconds += 30
            self._energy += 1000
            page = dcgm_page(machine, value, BLANK if value == BLANK else self._energy)
            memory = machine.memory
            states = self._watch.judge(
                read_page(page, {}), memory.inventory, memory.findings, CATALOGUE, machine.seconds, machine.now
            )
            machine.take("dcgm", Report(states=states))


BLINDNESS = {
    "every call hangs": {"call.all.hang": 1},
    "every start fails": {"init.error": 999},
    "no driver": {"init.error": 9},
    "driver and library differ": {"init.error": 18},
    "no GPU is listed": {"init.error": 28},
}


@pytest.mark.parametrize("values", BLINDNESS.values(), ids=BLINDNESS)
async def test_a_healthy_node_whose_nvml_is_blind_is_unknown_for_days_and_never_isolated(
    switch_on: Switch, library: NvmlState, values: dict[str, int]
):
    machine = switch_on(library=library)
    assert (await machine.look()).score == 100
    library.change(values)
    await machine.restart()  # the library is loaded anew, as after its driver was updated
    await machine.look(3)
    await machine.look(3, seconds=3 * DAY)
    assert machine.judgement.node.health is Health.UNKNOWN
    assert machine.verdict is Verdict.NO_NEW_WORK
    assert is_left_alone(machine)
    assert len(machine.memory.inventory) == 8
    library.change(dict.fromkeys(values))
    await machine.look(11)
    assert (machine.judgement.node.health, machine.score, machine.found) == (Health.HEALTHY, 100, [])


async def test_a_log_that_can_not_be_read_is_unknown_and_isolates_nothing(switch_on: Switch):
    machine = await switch_on().look()
    machine.log.unlink()
    with pytest.raises(FileNotFoundError):
        await machine.look()
    machine.take("kernel-log", Report(blind="FileNotFoundError: kmsg"))
    assert machine.judgement.node.health is Health.UNKNOWN
    assert is_left_alone(machine)


async def test_dcgm_that_goes_blank_on_all_gpus_is_neither_health_nor_a_fault(switch_on: Switch):
    machine = await switch_on().look()
    dcgm = DCGM(machine)
    dcgm.shows(0)
    assert machine.found == []
    dcgm.shows(BLANK)
    assert machine.found == [("dcgm/blank", machine.uuid(gpu)) for gpu in range(8)]
    assert machine.judgement.node.health is Health.HEALTHY, "NVML still sees all GPUs"
    assert is_left_alone(machine)
    dcgm.shows(0)
    assert machine.found == []


async def test_a_gpu_whose_gsp_hangs_is_named_while_dcgm_goes_blank_for_all(switch_on: Switch, library: NvmlState):
    machine = await switch_on(library=library).look()
    dcgm = DCGM(machine)
    dcgm.shows(0)
    machine.kernel(xid_line(machine.bus(3), 119))
    library.set_gpu(3, {"call.all.hang": 1})
    await machine.look()
    dcgm.shows(BLANK)
    assert machine.ill == {machine.uuid(3): Verdict.RESET}
    assert ("monitor/blind", machine.uuid(3)) in machine.found
    assert machine.leads()[0] == ("xid/119", machine.uuid(3))
    healthy = [gpu for gpu, opinion in machine.judgement.gpus.items() if not opinion.verdict.hard]
    assert len(healthy) == 7
    assert all(machine.judgement.gpus[gpu].score >= 85 for gpu in healthy)


async def test_a_gpu_whose_calls_hang_without_a_word_in_the_log_is_unknown_alone(switch_on: Switch, library: NvmlState):
    machine = await switch_on(library=library).look()
    library.set_gpu(3, {"call.all.hang": 1})
    await machine.look(2)
    assert machine.found == [("monitor/blind", machine.uuid(3))]
    unknown = [gpu for gpu, opinion in machine.judgement.gpus.items() if opinion.health is Health.UNKNOWN]
    assert unknown == [machine.uuid(3)]
    assert is_left_alone(machine)


@pytest.mark.parametrize(("code", "finding"), [(999, "gpu/unreadable"), (16, "gpu/reset-required"), (15, "gpu/lost")])
async def test_one_gpu_that_fails_when_the_agent_starts_hides_no_other(
    switch_on: Switch, library: NvmlState, code: int, finding: str
):
    library.set_gpu(3, {"call.all.error": code, "call.GetHandleByIndex.error": code})
    machine = await switch_on(library=library).look()
    ((found, subject),) = machine.found
    assert found == finding
    assert subject not in {machine.uuid(gpu) for gpu in range(8) if gpu != 3}
    watched = {gpu: one.score for gpu, one in machine.judgement.gpus.items() if gpu != subject}
    assert watched == {machine.uuid(gpu): 100 for gpu in range(8) if gpu != 3}
    library.set_gpu(5, {"remap.failure": 1})
    await machine.look()
    assert ("remap/failure", machine.uuid(5)) in machine.found
    assert machine.ill[machine.uuid(5)] is Verdict.REPLACE
    library.set_gpu(5, {"remap.failure": None})
    library.set_gpu(3, {"call.all.error": None, "call.GetHandleByIndex.error": None})
    await machine.look(11)
    assert (machine.found, machine.score, len(machine.memory.inventory)) == ([], 100, 8)


async def test_a_gpu_that_failed_before_and_at_the_start_is_named_by_its_uuid(switch_on: Switch, library: NvmlState):
    machine = await switch_on(library=library).look()
    await machine.restart()
    library.set_gpu(3, {"call.all.error": 999, "call.GetHandleByIndex.error": 999})
    await machine.look()
    assert machine.found == [("gpu/unreadable", machine.uuid(3))]
    assert is_left_alone(machine)
