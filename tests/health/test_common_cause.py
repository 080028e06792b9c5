"""When many nodes are in trouble at once, what they share is named; what only looks so is not."""

import msgspec
import pytest
from fleets import HARD, LEVELS, NOW, STALE_SECONDS, Cluster, finding, unknown
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.api.gpunode import Finding, GPUNodeStatus, Verdict
from outrider.health import causes
from outrider.health.catalogue import load
from outrider.health.causes import SharedCause, shared_cause
from outrider.health.crashes import crashes
from outrider.health.domains import judge_domains
from outrider.topology import Domain, domains_of, levels_from


def test_a_switch_fault_seen_on_77_nodes_is_one_suspect_domain():
    cluster = Cluster.of(800, leaf=16, rack=80)
    cluster.add(range(77), "xid/145", spread=0.05)
    cluster.add(range(77), "xid/45", spread=0.05)
    (suspect,) = cluster.judge().suspects
    assert (str(suspect.domain), suspect.cause, len(suspect.nodes)) == ("rack r0", SharedCause.FABRIC, 77)
    assert suspect.codes == ("xid/145", "xid/45")
    assert suspect.culprits == ()
    assert suspect.score == round(100 * (1 - 77 / 80))
    outlook = cluster.judge()
    assert all(outlook.suspect_of(f"n{one}", cluster.status(f"n{one}")) == suspect for one in range(77))
    assert outlook.suspect_of("n78", cluster.status("n78")) is None


def test_nodes_that_only_echo_a_switch_fault_belong_to_it():
    cluster = Cluster.of(160, rack=80)
    cluster.add(range(5), "xid/145")
    cluster.add(range(5, 77), "xid/45")
    (suspect,) = cluster.judge().suspects
    assert (str(suspect.domain), len(suspect.nodes)) == ("rack r0", 77)
    assert suspect.score == round(100 * (1 - (5 + 0.2 * 72) / 80))


def test_the_node_that_reports_the_switch_is_named_and_keeps_its_own_episode():
    cluster = Cluster.of(144, clique=18)
    cluster.add([20], "sxid/22003", verdict=Verdict.REBOOT)
    cluster.add(range(18, 36), "xid/45")
    (suspect,) = cluster.judge().suspects
    assert str(suspect.domain) == "nvlink-domain uuid.1"
    assert suspect.culprits == ("n20",)
    assert not suspect.explains("n20", cluster.status("n20"))


def test_a_corrected_error_of_a_switch_explains_no_teardowns():
    cluster = Cluster.of(144, clique=18)
    cluster.add([20], "sxid/11012", verdict=Verdict.WATCH)
    cluster.add(range(18, 36), "xid/45")
    assert cluster.judge().suspects == ()


def test_where_most_nodes_report_the_switch_it_belongs_to_the_domain():
    cluster = Cluster.of(144, clique=18)
    cluster.add(range(18), "sxid/22003", verdict=Verdict.RESET)
    assert cluster.judge().suspects[0].culprits == ()


@pytest.mark.parametrize("size", [288, 2000])
def test_672_teardowns_on_288_nodes_from_three_faults_accuse_no_domain(size):
    cluster = Cluster.of(size, leaf=16, rack=8, clique=16)
    for number in range(288):
        cluster.add([number], "xid/45", ago=30 + number / 100, count_of=2 + (number < 96))
    cluster.add([5], "xid/79")
    cluster.add([120], "xid/95")
    cluster.add([250], "xid/74")
    assert sum(found.count for found in cluster.all("xid/45")) == 672
    outlook = cluster.judge()
    assert outlook.suspects == ()
    hard = [name for name, status in cluster.statuses.items() if status.verdict.hard]
    assert hard == ["n5", "n120", "n250"]
    assert all(outlook.suspect_of(name, cluster.status(name)) is None for name in hard)


def test_one_bad_link_under_a_job_of_the_whole_nvlink_domain_accuses_no_domain():
    cluster = Cluster.of(36, clique=18, rack=18)
    cluster.add([3], "xid/74")
    cluster.add(range(18), "xid/45")
    assert cluster.judge().suspects == ()


def test_a_job_that_dies_beyond_the_domain_gives_it_no_echoes():
    cluster = Cluster.of(144, clique=18)
    cluster.add(range(4), "xid/145")
    cluster.add(range(36), "xid/45")
    assert cluster.judge().suspects == ()


def test_a_leaf_switch_is_suspected_where_all_its_nodes_lost_their_port():
    cluster = Cluster.of(512, leaf=16, rack=16)
    cluster.add(range(32, 48), "nic/port-down", spread=1.0)
    assert cluster.blamed() == [("leaf s0/l2", "network")]
    assert cluster.judge().scores[Domain("leaf", "s0/l2")] == 0


def test_a_rack_that_is_the_whole_cluster_is_named_as_the_rack():
    cluster = Cluster.of(8, leaf=8, rack=8)
    cluster.labels = {name: {"outrider.dev/rack": "r0"} for name in cluster.labels}
    cluster.add(range(8), "nic/port-down")
    assert cluster.blamed() == [("rack r0", "network")]


def test_a_rack_that_loses_power_is_suspected_as_a_rack():
    cluster = Cluster.of(64, leaf=16, rack=16)
    cluster.add(range(16, 25), "xid/79")
    cluster.add(range(20, 30), "gpu/missing")
    assert cluster.blamed() == [("rack r1", "power")]


def test_a_spine_is_suspected_only_where_its_leaves_together_point_to_it():
    cluster = Cluster.of(256, leaf=4)
    cluster.add(range(32), "nic/port-down")
    assert cluster.blamed() == [("spine s0", "network")]
    one = Cluster.of(256, leaf=4)
    one.add([0, 1, 2, 3, 6], "nic/port-down")
    assert one.blamed() == [("leaf s0/l0", "network")]
    two = Cluster.of(256, leaf=4)
    two.add(range(8), "nic/port-down")
    assert two.blamed() == [("leaf s0/l0", "network"), ("leaf s0/l1", "network")]


def test_trouble_everywhere_accuses_the_whole_cluster_and_no_leaf():
    cluster = Cluster.of(64, leaf=4)
    cluster.add(range(60), "nvlink/inactive", spread=0.5)
    assert cluster.blamed() == [("the whole cluster", "fabric")]


def test_trouble_spread_thinly_accuses_nobody():
    cluster = Cluster.of(64, leaf=4)
    cluster.add(range(0, 64, 4), "nic/port-down")
    cluster.add([1, 2, 5], "nic/port-down")
    assert cluster.blamed() == [("leaf s0/l0", "network")]
    cluster.add(range(2, 64, 4), "nic/port-down")
    assert cluster.blamed() == [("the whole cluster", "network")]
    thin = Cluster.of(64, leaf=4)
    thin.add([*range(0, 64, 4), 1, *range(5, 64, 12)], "nic/port-down")
    assert thin.blamed() == []


def test_a_leaf_where_things_are_hardly_worse_than_elsewhere_is_not_the_cause():
    cluster = Cluster.of(60, leaf=6)
    cluster.add([0, 1, 2], "nic/port-down")
    assert cluster.blamed() == [("leaf s0/l0", "network")]
    cluster.add([number for leaf in range(1, 10) for number in (6 * leaf, 6 * leaf + 1)], "nic/port-down")
    assert cluster.blamed() == []


def test_a_network_leaf_is_no_switch_of_nvlink_and_gets_no_echoes():
    cluster = Cluster.of(64, leaf=16)
    cluster.add(range(5), "xid/145")
    cluster.add(range(5, 16), "xid/45")
    assert cluster.blamed() == []


@pytest.mark.parametrize(("spread", "blamed"), [(30.0, True), (90.0, False)])
def test_only_what_begins_within_the_window_has_a_common_cause(spread, blamed):
    cluster = Cluster.of(64, leaf=4)
    cluster.add(range(4), "nic/port-down", ago=600, spread=spread)
    assert bool(cluster.judge().suspects) is blamed


def test_faults_of_different_kinds_have_no_common_cause():
    cluster = Cluster.of(64, leaf=4)
    for number, code in enumerate(["nic/port-down", "xid/79", "xid/145", "remap/failure"]):
        cluster.add([number], code)
    assert cluster.judge().suspects == ()


def test_two_nodes_are_a_coincidence_however_small_their_leaf():
    cluster = Cluster.of(64, leaf=2)
    cluster.add(range(2), "nic/port-down")
    assert cluster.judge().suspects == ()
    assert cluster.judge().scores == {}


def test_an_event_that_comes_back_counts_by_its_last_time_and_a_state_by_its_first():
    again = Cluster.of(64, leaf=4)
    again.add(range(4), "xid/79", ago=86400, spread=7200, last=NOW - 5)
    assert again.blamed() == [("leaf s0/l0", "power")]
    standing = Cluster.of(64, leaf=4)
    standing.add(range(4), "nic/port-down", ago=86400, spread=7200, last=NOW - 5)
    assert standing.judge().suspects == ()


def test_a_node_that_joins_later_belongs_to_the_suspect_domain():
    cluster = Cluster.of(64, leaf=4)
    cluster.add(range(3), "xid/79", ago=900)
    cluster.add([3], "xid/79", ago=10)
    (suspect,) = cluster.judge().suspects
    assert suspect.explains("n3", cluster.status("n3"))


@pytest.mark.parametrize("code", ["remap/failure", "xid/64", "nic/port-down"])
def test_a_node_with_hard_evidence_of_its_own_is_not_explained(code):
    cluster = Cluster.of(64, rack=16)
    cluster.add(range(16), "xid/145")
    cluster.add([3], code, verdict=Verdict.REPLACE)
    (suspect,) = cluster.judge().suspects
    assert suspect.explains("n2", cluster.status("n2"))
    assert not suspect.explains("n3", cluster.status("n3"))


@pytest.mark.parametrize("code", ["xid/154.1", "recovery/1", "gpu/reset-required"])
def test_the_drivers_advice_goes_with_the_trouble_that_it_is_about(code):
    cluster = Cluster.of(64, rack=16)
    cluster.add(range(16), "xid/145", verdict=Verdict.WATCH)
    cluster.add([3, 20], code, verdict=Verdict.RESET)
    cluster.add([4], code, verdict=Verdict.RESET, ago=7200)
    cluster.findings["n5"] = []
    cluster.add([5], "xid/45")
    cluster.add([5], code, verdict=Verdict.RESET)
    outlook = cluster.judge()
    assert outlook.suspect_of("n5", cluster.status("n5")) is None, "an echo alone is no witness"
    assert outlook.suspect_of("n3", cluster.status("n3")) is not None
    assert outlook.suspect_of("n4", cluster.status("n4")) is None
    assert outlook.suspect_of("n20", cluster.status("n20")) is None


def test_a_fault_from_before_the_common_cause_is_the_nodes_own():
    cluster = Cluster.of(64, rack=16)
    cluster.add(range(1, 16), "xid/145")
    cluster.add([0], "xid/145", ago=7200)
    (suspect,) = cluster.judge().suspects
    assert not suspect.explains("n0", cluster.status("n0"))


def test_a_rack_that_falls_silent_is_never_a_hardware_incident():
    cluster = Cluster.of(64, rack=16)
    cluster.silence(range(16, 32), ago=90)
    (suspect,) = cluster.judge().suspects
    assert (str(suspect.domain), suspect.cause, suspect.hardware) == ("leaf s0/l1", SharedCause.SILENCE, False)
    assert suspect.score == 50
    cluster.add(range(16, 32), "xid/79", ago=80)
    outlook = cluster.judge()
    blind = next(one for one in outlook.suspects if one.cause is SharedCause.SILENCE)
    assert not any(blind.explains(name, cluster.status(name)) for name in blind.nodes)


def test_blind_probes_and_unknown_health_are_silence_too():
    cluster = Cluster.of(16, leaf=4)
    cluster.add(range(2), "monitor/blind")
    cluster.add([2], "nvml/init")
    statuses = cluster.statuses
    statuses["n3"] = unknown(statuses["n3"])
    (suspect,) = judge_domains(statuses, cluster.places, NOW, STALE_SECONDS).suspects
    assert (suspect.cause, len(suspect.nodes)) == (SharedCause.SILENCE, 4)


def test_an_agent_that_never_reported_is_not_silent():
    places = {f"n{one}": (Domain("leaf", "l"),) for one in range(4)}
    outlook = judge_domains({name: GPUNodeStatus() for name in places}, places, NOW, STALE_SECONDS)
    assert outlook.suspects == ()
    assert outlook.scores == {}


def test_nodes_that_fail_together_wait_a_moment_for_the_others_and_a_lone_one_does_not():
    cluster = Cluster.of(64, leaf=8)
    cluster.add([3], "xid/79", ago=2)
    assert cluster.judge().gathering == frozenset()
    cluster.add([4], "xid/79", ago=1)
    assert cluster.judge().gathering == {"n3", "n4"}
    cluster.now += 20
    assert cluster.judge().gathering == frozenset()


def test_nodes_far_apart_do_not_wait_for_each_other():
    cluster = Cluster.of(128, leaf=8)
    cluster.add([3, 100], "xid/79", ago=1)
    assert cluster.judge().gathering == frozenset()


# Crashes of a program


@pytest.mark.parametrize("code", ["xid/13", "xid/31", "xid/43"])
def test_a_program_that_fails_on_all_nodes_of_its_job_at_once_is_an_incident_of_the_application(code):
    cluster = Cluster.of(256, leaf=16, rack=16, clique=16)
    cluster.add([16], code)
    cluster.add(range(16, 32), "xid/45")
    outlook = cluster.judge()
    assert outlook.suspects == ()
    assert outlook.scores == {}
    (crash,) = crashes(cluster.statuses, {"team/train": {f"n{one}" for one in range(16, 32)}}, NOW)
    assert (crash.job, len(crash.nodes), crash.codes) == ("team/train", 16, (code, "xid/45"))


@pytest.mark.parametrize(("code", "verdict"), [("xid/95", Verdict.RESET), ("nvlink/inactive", Verdict.WATCH)])
def test_a_crash_beside_a_hardware_fault_is_not_put_down_to_the_program(code, verdict):
    cluster = Cluster.of(32)
    cluster.add(range(8), "xid/31")
    job = {"team/train": [f"n{one}" for one in range(8)]}
    assert crashes(cluster.statuses, job, NOW)
    cluster.add([4], code, verdict=verdict)
    assert crashes(cluster.statuses, job, NOW) == ()


@pytest.mark.parametrize(
    ("nodes", "ago", "spread"),
    [(range(1), 5.0, 0.0), (range(4), 5.0, 0.0), (range(8), 100.0, 10.0), (range(8), 3600.0, 0.0)],
    ids=["one node", "half of the job", "minutes apart", "long ago"],
)
def test_what_is_not_a_crash_of_the_whole_job_just_now_is_no_incident(nodes, ago, spread):
    cluster = Cluster.of(32)
    cluster.add(nodes, "xid/31", ago=ago, spread=spread)
    assert crashes(cluster.statuses, {"team/train": [f"n{one}" for one in range(8)]}, NOW) == ()


def test_teardowns_alone_say_nothing_of_the_program():
    cluster = Cluster.of(32)
    cluster.add(range(8), "xid/45")
    assert crashes(cluster.statuses, {"team/train": [f"n{one}" for one in range(8)]}, NOW) == ()


# Places


def test_a_node_is_in_the_domains_that_its_labels_name_and_in_the_cluster():
    labels = {"outrider.dev/rack": "r1", "topology.kubernetes.io/zone": "z", "network.topology.nvidia.com/leaf": "l"}
    assert [str(domain) for domain in domains_of("n1", labels, LEVELS)] == [
        "rack r1",
        "zone z",
        "leaf z/l",
        "the whole cluster",
    ]
    assert domains_of("n1", {}, LEVELS) == (Domain("cluster", ""),)


def test_a_rack_that_is_also_a_level_of_the_network_is_one_domain():
    labels = {"outrider.dev/rack": "r1"}
    found = domains_of("n1", labels, levels_from("", ["outrider.dev/rack"]))
    assert found == (Domain("rack", "r1"), Domain("cluster", ""))


# For any evidence

CODES = [*HARD, "xid/45", "xid/31", "sxid/12028", "nic/port-down", "gpu/missing", "monitor/blind", "remap/failure", "x"]
SMALL = Cluster.of(12, leaf=4, rack=6, clique=3)
times = st.floats(NOW - 400, NOW + 10)
verdicts = st.sampled_from([None, Verdict.RESET])
found = st.builds(finding, st.sampled_from(CODES), times, verdict=verdicts, last=times)
given_findings = st.lists(st.tuples(st.sampled_from(sorted(SMALL.labels)), found), max_size=40)
silent = st.sets(st.sampled_from(sorted(SMALL.labels)))


def small(rows: list[tuple[str, Finding]], quiet: set[str] = frozenset()) -> Cluster:
    cluster = Cluster(SMALL.labels)
    for name, made in rows:
        cluster.findings.setdefault(name, []).append(made)
    cluster.observed = dict.fromkeys(quiet, NOW - 500)
    return cluster


@given(rows=given_findings, quiet=silent, seed=st.randoms())
@settings(deadline=None)
def test_the_order_of_arrival_is_irrelevant(rows, quiet, seed):
    expected = small(rows, quiet).judge()
    seed.shuffle(rows)
    cluster = small(rows, quiet)
    names = list(cluster.statuses)
    seed.shuffle(names)
    statuses = {name: cluster.status(name) for name in names}
    places = {name: cluster.places[name] for name in names}
    assert judge_domains(statuses, places, NOW, STALE_SECONDS) == expected


@given(rows=given_findings, more=given_findings, quiet=silent, quieter=silent)
@settings(deadline=None)
def test_more_evidence_never_raises_the_score_of_a_domain(rows, more, quiet, quieter):
    before = small(rows, quiet).judge().scores
    after = small(rows + more, quiet | quieter).judge().scores
    assert all(after.get(domain, 100) <= score for domain, score in before.items())


@given(rows=given_findings, quiet=silent)
@settings(deadline=None)
def test_every_suspect_is_struck_and_only_hardware_explains_a_hard_verdict(rows, quiet):
    cluster = small(rows, quiet)
    outlook = cluster.judge()
    assert all(0 <= score < 100 for score in outlook.scores.values())
    for suspect in outlook.suspects:
        assert len(suspect.nodes) >= 3
        assert len(suspect.nodes) >= suspect.members / 2
        assert any(shared_cause(code) is suspect.cause for code in suspect.codes)
    for name, status in cluster.statuses.items():
        if suspect := outlook.suspect_of(name, status):
            hard = {one.code for one in status.findings if one.verdict.hard}
            assert hard
            assert {shared_cause(code) for code in hard} == {suspect.cause}, "no advice among these codes"
            assert suspect.hardware


@given(code=st.text(max_size=30), first=st.text(max_size=30), last=st.text(max_size=30))
def test_findings_bent_by_hand_are_read_without_harm(code, first, last):
    bent = msgspec.structs.replace(finding("xid/79", NOW), code=code, first_seen=first, last_seen=last)
    cluster = small([(name, bent) for name in SMALL.labels])
    assert cluster.judge() == cluster.judge()
    crashes(cluster.statuses, {"a/b": list(SMALL.labels)}, NOW)


def test_every_code_of_the_table_is_one_that_the_catalogue_knows():
    catalogue = load()
    assert [code for code in causes._CODES if code != causes.SILENT_AGENT and code not in catalogue] == []


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("xid/145", SharedCause.FABRIC),
        ("xid/145.RLW", SharedCause.FABRIC),
        ("xid/", None),
        ("xid/١٤٥", None),
        ("xid/31", None),
        ("sxid/99999", SharedCause.FABRIC),
        ("xid/74.minor", SharedCause.FABRIC),
        ("nic/port-down", SharedCause.NETWORK),
        ("nic/pcie-width", None),
        ("nic/pcie-narrow", None),
        ("nic/receiver-not-ready", None),
        ("nic/efa-remote-errors", None),
        ("thermal/hot", SharedCause.POWER),
        ("clocks/power-brake", SharedCause.POWER),
        ("power/capped", None),
        ("monitor/blind", SharedCause.SILENCE),
        ("monitor/optional-blind", None),
        ("check/mine", None),
        ("", None),
    ],
)
def test_a_code_is_a_witness_of_its_cause(code, cause):
    assert shared_cause(code) is cause
