"""Fleets: what many nodes show of one or a few faults. No healthy node is isolated, and the guilty parts are named."""

from node_agent.probes.nvml_wire import Failed
from outrider.api.gpunode import Health, Verdict
from outrider.api.meta import ObjectMeta
from outrider.api.remediation import DomainRef
from testbed.xid_lines import xid_line
from tests.incidents.machine import Machine, Switch
from tests.remediation.fleet import Fleet, GPUNode

FATAL_145 = "RLW_SRC_TRACK Fatal XC0 i0 Link 05 (0x00000007 0x00000001 0x00000000 0x00000000 0x00000000 0x00000000)"
ASK_145 = "RLW_SRC_TRACK Nonfatal XC1 i0 Link 12 (0x040988e2 0x00000008 0x00000000 0x00000000 0x00000000 0x00000000)"
TORN_DOWN = "Ch 00000010"
DEAD_LINK = "NVLink: fatal error detected on link 3(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"


async def published(machines: dict[str, Machine], rack: int) -> Fleet:
    """Return the cluster as remediation sees it half a minute later: ``rack`` nodes in each rack."""
    fleet = Fleet(now=max(machine.now for machine in machines.values()) + 20)
    for number in range(0, len(machines), rack):
        fleet.add_rack(f"r{number // rack}", rack)
    for machine in machines.values():
        await machine.look()
        fleet.gpu_nodes[machine.name] = GPUNode(metadata=ObjectMeta(name=machine.name), status=machine.status)
        await machine.close()  # hundreds of open logs are more than one machine may watch
    fleet.add_job("train", *machines)
    return fleet


def opened(fleet: Fleet) -> list[str]:
    return [name for name in fleet.gpu_nodes if fleet.open(name)]


async def test_672_teardowns_on_288_nodes_after_three_faults_isolate_the_three_guilty_nodes(switch_on: Switch):
    machines = {f"r{node // 16}-{node % 16}": switch_on(f"r{node // 16}-{node % 16}") for node in range(288)}
    for number, machine in enumerate(machines.values()):
        torn_down = 2 + (number < 96)
        machine.kernel(*(xid_line(machine.bus(gpu), 45, f"Ch {gpu:08x}") for gpu in range(torn_down)))
    machines["r0-5"].kernel(xid_line(machines["r0-5"].bus(3), 79))
    machines["r7-8"].kernel(xid_line(machines["r7-8"].bus(5), 95))
    machines["r15-10"].kernel(xid_line(machines["r15-10"].bus(6), 74, DEAD_LINK))

    fleet = await published(machines, rack=16)

    counts = [one.count for machine in machines.values() for one in machine.memory.findings if one.code == "xid/45"]
    assert sum(counts) == 672
    guilty = {"r0-5": "xid-79", "r7-8": "xid-95", "r15-10": "xid-74.hardware"}
    assert {name: machine.taint for name, machine in machines.items() if machine.taint} == guilty
    assert machines["r0-5"].ill == {machines["r0-5"].uuid(3): Verdict.REBOOT}
    assert machines["r7-8"].ill == {machines["r7-8"].uuid(5): Verdict.RESET}
    assert machines["r15-10"].ill == {machines["r15-10"].uuid(6): Verdict.RESET}
    assert machines["r15-10"].leads() == [("xid/74.hardware", f"{machines['r15-10'].uuid(6)}/3")]
    others = [machine for name, machine in machines.items() if name not in guilty]
    assert {(machine.verdict, machine.ill == {}) for machine in others} == {(Verdict.WATCH, True)}
    assert min(machine.score for machine in others) >= 98
    assert opened(fleet) == list(guilty)
    assert fleet.look_at_domains() == []


async def test_a_switch_fault_of_one_rack_seen_on_77_nodes_is_one_episode_of_the_rack(switch_on: Switch):
    machines = {f"r{node // 80}-{node % 80}": switch_on(f"r{node // 80}-{node % 80}") for node in range(160)}
    struck = [machine for name, machine in machines.items() if name.startswith("r0-")][:77]
    for number, machine in enumerate(struck):
        detail = FATAL_145 if number < 20 else ASK_145
        machine.kernel(xid_line(machine.bus(4), 145, detail), xid_line(machine.bus(4), 45, TORN_DOWN))

    fleet = await published(machines, rack=80)

    broken_links = {machine.name for machine in struck[:20]}
    assert {name for name, machine in machines.items() if machine.taint} == broken_links
    assert all(machine.ill == {machine.uuid(4): Verdict.RESET} for machine in struck[:20])
    assert all(not machine.verdict.hard for machine in struck[20:])
    untouched = [machine for machine in machines.values() if machine not in struck]
    assert {(machine.score, tuple(machine.found)) for machine in untouched} == {(100, ())}
    assert opened(fleet) == [], "the rack has the fault, not its nodes"
    (episode,) = fleet.look_at_domains()
    assert (episode.spec.domain, episode.spec.cause) == (DomainRef(level="rack", name="r0"), "domain/fabric")
    fleet.run(episode.metadata.name)
    state = fleet.episodes[episode.metadata.name].status.domain
    assert state is not None
    assert (state.affected, state.members, state.culprits) == (77, 80, [])
    assert (fleet.acted, fleet.evicted()) == ([], set())


CONTAINED, UNCONTAINED, NO_ROW_LEFT = (48, 63, 94), (48, 95, 45), (48, 64)


async def test_memory_errors_of_months_isolate_the_boards_that_asked_for_it_and_no_other(switch_on: Switch):
    """Counts of 608 H100s in production (2503.11901): 14 contained and 19 uncontained errors, 8 failed row remaps."""
    machines = {f"r0-{node}": switch_on(f"r0-{node}") for node in range(76)}
    bursts = [CONTAINED] * 14 + [UNCONTAINED] * 19 + [NO_ROW_LEFT] * 8
    for number, burst in enumerate(bursts):
        machine = machines[f"r0-{number}"]
        machine.kernel(*(xid_line(machine.bus(number % 8), code) for code in burst))

    fleet = await published(machines, rack=76)

    assert [machine.verdict for machine in machines.values()] == [
        *[Verdict.RESTART_APP] * 14,
        *[Verdict.RESET] * 19,
        *[Verdict.REPLACE] * 8,
        *[Verdict.NONE] * 35,
    ]
    struck = list(machines.values())[:41]
    assert {len(machine.judgement.incidents) for machine in struck} == {1}, "one error, however many codes tell of it"
    assert [machine.leads()[0][1] for machine in struck] == [machine.uuid(n % 8) for n, machine in enumerate(struck)]
    hard = [machine.name for machine in struck[14:]]
    assert [machine.name for machine in machines.values() if machine.taint] == hard
    assert opened(fleet) == hard


async def test_a_roll_out_that_blinds_all_agents_isolates_no_node_and_is_told_as_silence(switch_on: Switch):
    machines = {f"r{node // 16}-{node % 16}": switch_on(f"r{node // 16}-{node % 16}") for node in range(64)}
    for machine in machines.values():
        await machine.look()
        machine.failed = Failed(call="nvmlInit", code=18, text="Driver/library version mismatch")

    fleet = await published(machines, rack=16)

    assert {machine.judgement.node.health for machine in machines.values()} == {Health.UNKNOWN}
    assert not any(machine.taint for machine in machines.values())
    assert opened(fleet) == []
    assert {episode.spec.cause for episode in fleet.look_at_domains()} == {"domain/silence"}
    for episode in list(fleet.episodes):
        fleet.run(episode)
    assert (fleet.acted, fleet.evicted()) == ([], set())
