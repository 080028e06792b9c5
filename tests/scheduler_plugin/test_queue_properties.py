"""What must hold whatever arrives, ends and breaks, and in whatever order."""

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler_plugin.planner.advance import advance
from scheduler_plugin.planner.deliver import placement_with
from tests.scheduler_plugin.builders import NOW, RULES
from tests.scheduler_plugin.simulation import GPUS, Simulation, Work

NODES = 8
LONGEST = 120.0  # seconds that a job runs at most
PATIENCE = 600.0
PATIENT = msgspec.structs.replace(RULES, patience_seconds=PATIENCE)

jobs = st.builds(
    dict,
    pods=st.integers(1, NODES),
    gpus=st.sampled_from([4, 8]),
    seconds=st.sampled_from([20.0, 60.0, LONGEST]),
    priority=st.sampled_from([0, 0, 10, 100]),
    after=st.integers(0, 3),
)
EMPTY = Simulation(4)
SLOW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def arrive(simulation: Simulation, number: int, job: dict) -> None:
    simulation.arrive(Work(f"j{number}", job["pods"], job["gpus"], job["seconds"], job["priority"]))


def check(simulation: Simulation) -> None:
    """Two gangs are never on one GPU, neither bound nor planned."""
    over = {node: gpus for node, gpus in simulation.used().items() if gpus > GPUS}
    assert not over, over


def nothing_is_held(simulation: Simulation) -> None:
    snapshot = simulation.world.publish()
    held = {name: dict(view.holds) for name, view in snapshot.nodes.items() if any(map(any, view.holds.values()))}
    assert not held, held


def drain(simulation: Simulation, rounds: int) -> None:
    """Let the jobs end that are there."""
    for _ in range(rounds):
        if all(work.ended for work in simulation.work.values()):
            return
        simulation.round()
        check(simulation)


@SLOW
@given(st.lists(jobs, min_size=1, max_size=12))
def test_without_faults_every_gang_starts_whole_and_none_waits_for_ever(arrivals: list[dict]) -> None:
    simulation = Simulation(NODES, rules=PATIENT)
    for number, job in enumerate(arrivals):
        for _ in range(job["after"]):
            simulation.round()
        arrive(simulation, number, job)
        simulation.round()
        check(simulation)
        for uid, work in simulation.work.items():
            assert simulation.bound(uid) in (0, work.pods) or work.ended, "part of a gang is bound"
    drain(simulation, rounds=1 + int((PATIENCE + LONGEST * len(arrivals) * 2) / 10))
    assert all(work.ended for work in simulation.work.values()), simulation.steps[-3:]
    nothing_is_held(simulation)


@SLOW
@given(st.lists(jobs, min_size=2, max_size=8), st.data())
def test_faults_leave_neither_two_gangs_on_a_gpu_nor_anything_held(arrivals: list[dict], data: st.DataObject) -> None:
    simulation = Simulation(NODES, rules=msgspec.structs.replace(PATIENT, gang_preemption=data.draw(st.booleans())))
    broken: set[str] = set()
    for number, job in enumerate(arrivals):
        arrive(simulation, number, job)
        simulation.round()
        check(simulation)
        node = f"n{data.draw(st.integers(0, NODES - 1))}"
        if node in broken:
            simulation.heal(node)
            broken.discard(node)
        elif len(broken) < 2:
            before = {pod.metadata.uid: pod.spec.node_name for pod in simulation.pods.values() if pod.spec.node_name}
            simulation.fail(node)
            broken.add(node)
            simulation.round()
            stayed = {uid: at for uid, at in before.items() if at != node and uid in simulation.pods}
            assert all(simulation.pods[uid].spec.node_name == at for uid, at in stayed.items()), "a survivor moved"
        check(simulation)
    for node in broken:
        simulation.heal(node)
    drain(simulation, rounds=1 + int((PATIENCE + LONGEST * len(arrivals) * 3) / 10))
    assert all(work.ended for work in simulation.work.values()), simulation.steps[-3:]
    nothing_is_held(simulation)


def test_small_gangs_that_keep_coming_do_not_delay_a_big_one() -> None:
    simulation = Simulation(NODES)
    for number in range(4):
        simulation.arrive(Work(f"first{number}", 2, seconds=LONGEST - 20 * number))
    simulation.round()
    simulation.arrive(Work("big", NODES, seconds=60.0))
    for number in range(24):
        simulation.arrive(Work(f"small{number}", 1, seconds=LONGEST))
        simulation.round()
        check(simulation)
    big = simulation.work["job-big"]
    assert big.began is not None
    assert big.began - big.arrived <= LONGEST + 20


def test_a_small_gang_passes_a_big_one_where_it_does_not_delay_it() -> None:
    simulation = Simulation(NODES)
    simulation.arrive(Work("running", 6, seconds=LONGEST))
    simulation.round()
    simulation.arrive(Work("big", 6, seconds=60.0))
    simulation.round()
    assert len(simulation.status("big").reservations[0].nodes) == 6
    simulation.arrive(Work("small", 1, seconds=1000.0))
    simulation.arrive(Work("wide", 3, seconds=60.0))
    simulation.round()
    assert simulation.work["job-small"].began is None, "2 nodes are free, and both are held for the big one"
    for _ in range(12):
        simulation.round()
    assert simulation.work["job-big"].began is not None


def test_the_next_gang_does_not_take_what_an_older_one_of_its_priority_waits_for_but_a_higher_one_does() -> None:
    simulation = Simulation(NODES)
    simulation.arrive(Work("running", 4, seconds=LONGEST))
    simulation.round()
    simulation.arrive(Work("big", 8))
    simulation.round()
    simulation.arrive(Work("equal", 4))
    simulation.round()
    assert simulation.work["job-equal"].began is None
    assert "it waits behind Job ml/big" in simulation.status("equal").message
    simulation.arrive(Work("urgent", 4, priority=100))
    simulation.round()
    assert simulation.work["job-urgent"].began is not None


def test_a_gang_of_low_priority_is_served_once_its_patience_is_over() -> None:
    simulation = Simulation(NODES, rules=PATIENT)
    simulation.arrive(Work("running", NODES, seconds=60.0, priority=100))
    simulation.round()
    simulation.arrive(Work("patient", NODES, seconds=60.0))
    for number in range(16):
        simulation.arrive(Work(f"urgent{number}", NODES, seconds=60.0, priority=100))
        simulation.round(50.0)
    patient = simulation.work["job-patient"]
    assert patient.began is not None
    assert patient.began - patient.arrived <= PATIENCE + 150


def test_a_quota_keeps_waiting_gangs_from_holding_the_cluster() -> None:
    simulation = Simulation(NODES, rules=msgspec.structs.replace(RULES, reservation_percent=50.0))
    simulation.arrive(Work("running", 6, seconds=LONGEST))
    simulation.round()
    simulation.arrive(Work("big", 6))
    simulation.round()
    assert simulation.status("big").reservations == []
    simulation.arrive(Work("small", 2))
    simulation.round()
    assert simulation.work["job-small"].began is not None


def test_whole_gangs_make_room_and_the_cheapest_one_does() -> None:
    rules = msgspec.structs.replace(RULES, gang_preemption=True)
    simulation = Simulation(NODES, rules=rules)
    simulation.arrive(Work("old", 4, seconds=1000.0))
    for _ in range(10):
        simulation.round()
    simulation.arrive(Work("new", 4, seconds=1000.0))
    simulation.round()
    simulation.arrive(Work("urgent", 4, priority=10))
    simulation.round()
    simulation.round()
    assert simulation.work["job-urgent"].began is not None
    assert simulation.bound("job-old") == 4
    assert simulation.bound("job-new") == 0
    assert simulation.status("urgent").preempting == []


@pytest.mark.parametrize("released", [0, 1, 2])
def test_a_plan_that_an_old_leader_still_wrote_for_the_same_nodes_doubles_nothing_in_the_end(released: int) -> None:
    simulation = Simulation(4)
    steps = {}
    for name in ("late", "other"):
        simulation.arrive(Work(name, 2))
        gang = simulation.world.gang(f"job-{name}")
        assert gang is not None
        steps[name] = gang, advance(gang, EMPTY.world.publish(), RULES, NOW)
    for gang, step in steps.values():  # each leader has seen nothing of the other's plan
        assert step.status is not None
        simulation.store(placement_with(gang, step.size, step.status))
    assert max(simulation.used().values()) == 2 * GPUS
    for pod, nodes in steps["late"][1].release[:released]:
        simulation.release(pod, nodes)
    for _ in range(2 if released == 0 else 12):  # a pin can't be moved: its pod is given up once its time is over
        simulation.round()
    assert all(work.began is not None for work in simulation.work.values())
    check(simulation)
