"""One episode for what many nodes share, none for each of them; and never an act on a guess."""

import pytest
from fleet import ENFORCE, Fleet, replace
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.api.gpunode import Verdict
from outrider.api.meta import ObjectMeta
from outrider.api.remediation import (
    ActionMode,
    DomainRef,
    Phase,
    Remediation,
    RemediationSpec,
    Step,
    StepName,
    StepState,
)
from outrider.api.times import rfc3339
from outrider.health.domains import Outlook
from remediation.config import Budget, Config
from remediation.domain_episodes import Patience
from remediation.episodes import base_name, nonsense
from remediation.notices import Notice, Subject, notices

RESET, REBOOT, REPLACE, WATCH = Verdict.RESET, Verdict.REBOOT, Verdict.REPLACE, Verdict.WATCH


def open_all(fleet: Fleet) -> list[str]:
    """Try to open an episode on every node. Returns the nodes that got one."""
    return [name for name in fleet.gpu_nodes if fleet.open(name)]


def hit_rack(fleet: Fleet, numbers: range, code: str = "xid/145", verdict: Verdict = RESET) -> Fleet:
    for number in numbers:
        fleet.find(f"r0-{number}", code, verdict, ago=30 - number / 10)
    return fleet


def struck_rack(config: Config = ENFORCE) -> Fleet:
    """Sixteen nodes in a rack with NVLink trouble on twelve, and another rack that is well."""
    return hit_rack(Fleet(config).add_rack("r0", 16).add_rack("r1", 16), range(12))


def test_a_switch_fault_on_77_nodes_opens_one_episode_and_harms_no_node():
    fleet = Fleet(Config(mode=ActionMode.ENFORCE, budget=Budget(max_nodes=100, max_percent=100)))
    fleet.add_rack("r0", 80).add_rack("r1", 80)
    fleet.add_job("train", *(f"r0-{number}" for number in range(80)))
    hit_rack(fleet, range(77))
    hit_rack(fleet, range(77), "xid/45", WATCH)
    assert open_all(fleet) == []
    for _ in range(5):
        (episode,) = fleet.look_at_domains()
    assert (episode.spec.domain, episode.spec.cause) == (DomainRef(level="rack", name="r0"), "domain/fabric")
    assert episode.metadata.name.startswith("rack-r0-")
    state = episode.status.domain
    assert state is not None
    assert (state.affected, state.members, len(state.nodes), state.score) == (77, 80, 77, 4)
    assert "rack r0: 77 of 80 nodes show NVLink trouble (xid/145, xid/45)" in episode.status.message
    assert "Next: look at the NVLink switches and the fabric manager of rack r0" in episode.status.message
    assert fleet.acted == []
    assert not any(one.spec.taints for one in fleet.nodes.values())


def test_672_teardowns_from_three_faults_open_three_episodes_on_the_guilty_nodes():
    fleet = Fleet()
    for rack in range(18):
        fleet.add_rack(f"r{rack}", 16)
    for number, name in enumerate(fleet.gpu_nodes):
        fleet.find(name, "xid/45", WATCH, ago=20 + number / 100)
    fleet.find("r0-5", "xid/79", REBOOT, ago=30)
    fleet.find("r7-8", "xid/95", RESET, ago=30)
    fleet.find("r15-10", "xid/74", RESET, ago=30)
    assert open_all(fleet) == ["r0-5", "r7-8", "r15-10"]
    assert fleet.look_at_domains() == []


def test_a_rack_of_silent_agents_is_told_and_never_acted_on():
    fleet = Fleet().add_rack("r0", 16).add_rack("r1", 16)
    fleet.wait(90, *(f"r0-{number}" for number in range(16)))
    (episode,) = fleet.look_at_domains()
    assert episode.spec.cause == "domain/silence"
    assert "Silence is no fault of hardware" in episode.status.message
    assert "spec.cancel" not in episode.status.message
    assert open_all(fleet) == []


def test_a_node_with_a_fault_of_its_own_gets_its_own_episode():
    fleet = struck_rack()
    fleet.find("r0-3", "remap/failure", REPLACE, ago=30)
    assert open_all(fleet) == ["r0-3"]


def test_the_node_that_reported_the_switch_gets_its_own_episode_and_is_named():
    fleet = Fleet().add_rack("r0", 16).add_rack("r1", 16)
    hit_rack(fleet, range(16), "xid/45", WATCH)
    fleet.find("r0-4", "sxid/22003", RESET, ago=31)
    assert open_all(fleet) == ["r0-4"]
    (episode,) = fleet.look_at_domains()
    assert "Guilty by its own word: r0-4." in episode.status.message
    assert "the fabric manager of r0-4" in episode.status.message


def test_neighbours_that_fail_at_once_wait_until_it_is_clear_whether_the_cause_is_shared():
    fleet = Fleet().add_rack("r0", 16)
    fleet.find("r0-1", "xid/79", REBOOT)
    assert open_all(fleet) == ["r0-1"]
    fleet.wait(1)
    fleet.find("r0-2", "xid/79", REBOOT)
    assert open_all(fleet) == []
    fleet.wait(10)
    assert open_all(fleet) == ["r0-2"]


def test_an_episode_that_began_before_its_rack_was_suspect_is_held():
    fleet = Fleet().add_rack("r0", 16).add_rack("r1", 16).add_job("train", "r0-1", "r1-0")
    fleet.find("r0-1", "xid/145", RESET)
    name = fleet.open("r0-1").metadata.name
    fleet.run(name)
    fleet.wait(fleet.config.taint_wait_seconds)
    fleet.run(name)
    before = list(fleet.acted)
    hit_rack(fleet, range(12))
    fleet.wait(600)
    held = fleet.run(name)
    assert fleet.acted == before
    assert "put down to rack r0, where many nodes show NVLink trouble at once" in held.status.message
    for number in range(2, 12):
        fleet.repaired(f"r0-{number}")
    fleet.train(5)
    fleet.run(name)
    fleet.wait(120)
    fleet.run(name)
    assert fleet.evicted() == {("p1", "r0-1")}


def test_a_person_lifts_the_suspicion_and_the_nodes_get_episodes_of_their_own():
    fleet = struck_rack()
    (episode,) = fleet.look_at_domains()
    assert open_all(fleet) == []
    fleet.episodes[episode.metadata.name] = replace(episode, spec=replace(episode.spec, cancel=True))
    (ended,) = fleet.look_at_domains()
    assert ended.status.phase is Phase.CANCELLED
    assert len(open_all(fleet)) == 12
    fleet.wait(3600)
    assert len(fleet.look_at_domains()) == 1


def test_trouble_that_begins_after_a_cancelled_episode_is_suspected_anew():
    fleet = struck_rack()
    (episode,) = fleet.look_at_domains()
    fleet.episodes[episode.metadata.name] = replace(episode, spec=replace(episode.spec, cancel=True))
    fleet.look_at_domains()
    for number in range(16):
        fleet.repaired(f"r0-{number}")
    fleet.wait(3600)
    hit_rack(fleet, range(16))
    names = [one.metadata.name for one in fleet.look_at_domains()]
    assert names == [episode.metadata.name, f"{episode.metadata.name}-2"]
    assert open_all(fleet) == []


def test_the_episode_ends_when_its_evidence_stays_away_and_not_before():
    fleet = struck_rack()
    fleet.look_at_domains()
    for number in range(8):
        fleet.repaired(f"r0-{number}")
    fleet.wait(10)
    (episode,) = fleet.look_at_domains()
    assert episode.status.phase is Phase.OPEN
    assert {one.type: one.status for one in episode.status.conditions} == {"Accepted": "True", "Suspect": "False"}
    fleet.wait(200)
    hit_rack(fleet, range(8))
    (episode,) = fleet.look_at_domains()
    assert {one.type: one.status for one in episode.status.conditions}["Suspect"] == "True"
    for number in range(16):
        fleet.repaired(f"r0-{number}")
    fleet.look_at_domains()
    fleet.wait(299)
    assert fleet.look_at_domains()[0].status.phase is Phase.OPEN
    fleet.wait(2)
    (episode,) = fleet.look_at_domains()
    assert episode.status.phase is Phase.RESOLVED


def test_a_wider_domain_takes_over_from_a_narrower_one():
    fleet = Fleet()
    for rack in range(4):
        fleet.add_rack(f"r{rack}", 4)
    hit_rack(fleet, range(4), "xid/79", REBOOT)
    (first,) = fleet.look_at_domains()
    for rack in range(1, 4):
        for number in range(4):
            fleet.find(f"r{rack}-{number}", "xid/79", REBOOT, ago=20)
    wide = {one.metadata.name: one for one in fleet.look_at_domains()}
    assert wide[first.metadata.name].status.phase is Phase.RESOLVED
    assert "explained by the whole cluster" in wide[first.metadata.name].status.message
    assert sum(one.status.phase is Phase.OPEN for one in wide.values()) == 1


@pytest.mark.parametrize("mode", list(ActionMode))
def test_no_mode_acts_on_a_suspect_domain(mode):
    fleet = struck_rack(Config(mode=mode))
    for _ in range(20):
        (episode,) = fleet.look_at_domains()
        fleet.wait(30)
    assert (episode.status.mode, episode.status.steps, fleet.acted) == (mode, [], [])


def test_suspects_settle_before_their_episode_opens():
    patience = Patience(settle_seconds=5)
    outlook = struck_rack().world.outlook
    assert patience.settled(outlook, 100) == []
    assert patience.seconds_left(102) == 3
    assert patience.settled(Outlook(), 103) == []
    assert patience.settled(outlook, 104) == []
    assert patience.settled(outlook, 109) == list(outlook.suspects)
    assert patience.seconds_left(109) == float("inf")


def test_patience_notices_once_that_the_suspects_changed():
    patience = Patience(settle_seconds=5)
    outlook = struck_rack().world.outlook
    assert [patience.changed(one) for one in (outlook, outlook, Outlook(), Outlook())] == [True, False, True, False]


def test_people_are_told_once_at_the_beginning_and_once_at_the_end():
    fleet = struck_rack(Config(mode=ActionMode.DRY_RUN))
    fleet.find("r0-4", "sxid/22003", RESET, ago=31)
    told: list[Notice] = []
    name = fleet.look_at_domains()[0].metadata.name
    fleet.episodes[name] = replace(fleet.episodes[name], status=replace(fleet.episodes[name].status, conditions=[]))
    for step in range(6):
        before = fleet.episodes[name].status
        fleet.look(name)
        told += notices(before, fleet.episodes[name], ())
        if step == 2:
            for number in range(16):
                fleet.repaired(f"r0-{number}")
        fleet.wait(150)
    assert [(one.subject, one.key, one.reason) for one in told] == [
        (Subject.EPISODE, name, "DomainSuspect"),
        (Subject.NODE, "r0-4", "DomainSuspect"),
        (Subject.EPISODE, name, "DomainCleared"),
        (Subject.NODE, "r0-4", "DomainCleared"),
    ]


@pytest.mark.parametrize(
    ("domain", "start"),
    [
        (DomainRef(level="leaf", name="eu/zone-a/s1/Leaf_3"), "leaf-leaf-3-"),
        (DomainRef(level="cluster"), "cluster-"),
        (DomainRef(level="nvlink-domain", name=f"{'a' * 200}.1"), "nvlink-domain-aaa"),
    ],
)
def test_the_name_of_an_episode_tells_its_domain(domain, start):
    name = base_name(RemediationSpec(cause="domain/fabric", domain=domain))
    assert name.startswith(start)
    assert len(name) <= 128


def test_an_episode_of_a_domain_with_steps_was_made_by_hand():
    fleet = struck_rack()
    (episode,) = fleet.look_at_domains()
    assert nonsense(episode) == ""
    step = Step(name=StepName.ISOLATE, state=StepState.RUNNING, started_at=rfc3339(fleet.now))
    bent = replace(episode, status=replace(episode.status, steps=[step]))
    fleet.episodes[episode.metadata.name] = bent
    refused = fleet.look(episode.metadata.name)
    assert refused.status.conditions[0].reason == "InvalidSpec"


def test_an_episode_made_by_hand_is_refused_and_keeps_no_real_one_from_opening():
    fleet = struck_rack()
    spec = RemediationSpec(cause="domain/fabric", domain=DomainRef(level="rack", name="r0"))
    fleet.episodes["mine"] = Remediation(metadata=ObjectMeta(name="mine"), spec=spec)
    fleet.look_at_domains()
    assert fleet.episodes["mine"].status.conditions[0].reason == "InvalidSpec"
    assert [one.metadata.name.startswith("rack-r0-") for one in fleet.look_at_domains()] == [False, True]


rows = st.lists(
    st.tuples(
        st.integers(0, 23),
        st.sampled_from(["xid/145", "xid/79", "nic/port-down", "remap/failure", "sxid/12028", "xid/45"]),
        st.sampled_from([RESET, REPLACE, WATCH]),
        st.floats(0, 300),
    ),
    max_size=30,
)


@given(rows=rows)
@settings(deadline=None, max_examples=60)
def test_whatever_is_found_a_sick_node_has_its_episode_or_a_suspect_that_explains_it(rows):
    fleet = Fleet().add_rack("r0", 8).add_rack("r1", 8).add_rack("r2", 8)
    names = list(fleet.gpu_nodes)
    for number, code, verdict, ago in rows:
        fleet.find(names[number], code, verdict, ago)
    fleet.wait(30)
    opened = set(open_all(fleet))
    fleet.look_at_domains()
    world = fleet.world
    for name, gpu_node in fleet.gpu_nodes.items():
        explained = world.outlook.suspect_of(name, gpu_node.status) is not None
        assert gpu_node.status.verdict.hard == (name in opened or explained)
        assert not (name in opened and explained)
    assert fleet.acted == []
