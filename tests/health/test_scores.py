import time

import pytest
from evidence import CATALOGUE, GPU_NAMES, NIC_NAMES, NOW, evidences, on_gpu, on_nic, on_node
from hypothesis import given
from hypothesis import strategies as st

from outrider.api.gpunode import Health, SubjectKind, Verdict
from outrider.health.findings import Evidence, merge
from outrider.health.judge import Judgement, judge


def judged(*findings: object, now: float = NOW, low: list[str] | None = None) -> Judgement:
    merged = merge({}, findings).values()  # type: ignore[arg-type]
    return judge(merged, GPU_NAMES, now, CATALOGUE, nics=NIC_NAMES, low=low or ())


def scores(judgement: Judgement) -> list[int]:
    gpus = [judgement.gpus[uuid].score for uuid in GPU_NAMES]
    return [judgement.node.score, *gpus, *(judgement.nics[name].score for name in NIC_NAMES)]


@given(st.lists(evidences, max_size=8), evidences)
def test_more_evidence_never_raises_a_score(before, more):
    for low, high in zip(scores(judged(*before, more)), scores(judged(*before)), strict=True):
        assert low <= high


@given(st.lists(evidences, max_size=6).flatmap(lambda known: st.tuples(st.just(known), st.permutations(known))))
def test_the_order_of_arrival_never_matters(orders):
    known, shuffled = orders
    assert judged(*known) == judged(*shuffled)
    assert merge({}, known) == merge({}, shuffled)


@given(st.lists(evidences, max_size=8))
def test_scores_stay_between_0_and_100_and_the_node_is_no_better_than_its_worst_gpu(known):
    node, *others = scores(judged(*known))
    assert 0 <= node <= min(others[: len(GPU_NAMES)])
    assert max(others) <= 100


@given(st.lists(evidences, max_size=8), st.floats(0, 1e7))
def test_time_alone_never_lowers_a_score(known, seconds):
    for before, after in zip(scores(judged(*known)), scores(judged(*known, now=NOW + seconds)), strict=True):
        assert before <= after


def test_a_node_without_findings_scores_100():
    assert set(scores(judged())) == {100}


def test_a_gpu_off_the_bus_scores_0_and_leaves_its_neighbour_at_100():
    judgement = judged(on_gpu("xid/79"))
    assert (judgement.gpus["GPU-a"].score, judgement.gpus["GPU-b"].score, judgement.node.score) == (0, 100, 0)


def test_an_application_fault_fades_with_its_half_life_and_damage_does_not():
    storm = on_gpu("xid/31", ago=0, count=1000)
    fresh, later = judged(storm), judged(storm, now=NOW + 2 * 21600)
    assert fresh.gpus["GPU-a"].score < later.gpus["GPU-a"].score < 100
    damaged = on_gpu("xid/95", ago=0)
    assert judged(damaged).gpus["GPU-a"].score == judged(damaged, now=NOW + 1e7).gpus["GPU-a"].score == 10


def test_evidence_about_the_node_lowers_the_node_and_no_gpu():
    node, *others = scores(judged(on_node("nonsense")))
    assert (node, set(others)) == (95, {100})


def test_the_example_of_the_documentation():
    """docs/concepts/health.md redoes this by hand."""
    judgement = judged(
        on_gpu("xid/94", count=4),
        on_gpu("xid/63"),
        on_gpu("remap/pending"),
        on_gpu("xid/31", ago=21600, count=2),
        on_node("monitor/optional-blind", subject_id="dcgm"),
        on_nic("nic/missing"),
    )
    assert judgement.gpus["GPU-a"].score == 33
    assert judgement.node.score == 28


@pytest.mark.parametrize(
    ("codes", "score"),
    [
        (["xid/119"], 10),
        (["xid/119", "xid/120"], 10),
        (["xid/119", "recovery/1"], 10),
        (["xid/119", "recovery/1", "xid/154.1", "xid/45", "gpu/unreadable"], 10),
        (["xid/94", "xid/63", "remap/pending", "ecc/uncorrected"], 70),
        (["xid/94", "xid/119"], 7),
    ],
)
def test_one_fault_that_many_codes_show_counts_once_and_two_faults_count_twice(codes, score):
    assert judged(*map(on_gpu, codes)).gpus["GPU-a"].score == score


def test_a_fabric_fault_seen_by_switch_and_gpu_counts_once_for_the_node():
    switch = next(code for code in CATALOGUE.codes if code.startswith("sxid/") and CATALOGUE.of(code).weight >= 0.5)
    weight = max(CATALOGUE.of(switch).weight, CATALOGUE.of("xid/74").weight)
    assert judged(on_node(switch), on_gpu("xid/74")).node.score == round(100 * (1 - weight))


def test_one_lost_nic_of_four_takes_a_quarter_of_the_nodes_score_and_nothing_of_a_gpu():
    lost = judged(on_nic("gpu/lost"))  # any code that takes the whole score
    assert (lost.node.score, lost.nics["mlx5_0"].score, lost.nics["mlx5_1"].score) == (75, 0, 100)
    assert {opinion.score for opinion in lost.gpus.values()} == {100}
    assert judged(*(on_nic("gpu/lost", name) for name in NIC_NAMES)).node.score == 0


def test_blind_nics_are_unknown_and_the_gpus_are_not():
    blind = Evidence(code="monitor/blind", subject=SubjectKind.NIC, first_seen=NOW, last_seen=NOW)
    judgement = judged(blind)
    assert {opinion.health for opinion in judgement.nics.values()} == {Health.UNKNOWN}
    assert {opinion.health for opinion in judgement.gpus.values()} == {Health.HEALTHY}
    assert (judgement.node.health, judgement.node.verdict) == (Health.UNKNOWN, Verdict.NO_NEW_WORK)
    assert set(judgement.nics) == set(NIC_NAMES)


def test_a_score_that_wavers_around_one_limit_does_not_flap():
    wavering = [on_gpu("nonsense", count=count) for count in (16, 8, 16, 8)]  # 77 and 81 points
    seen, low = [], []
    for evidence in wavering:
        judgement = judged(evidence, low=low)
        seen.append((judgement.gpus["GPU-a"].health, judgement.gpus["GPU-a"].score))
        low = judgement.low
    assert [health for health, _ in seen] == [Health.DEGRADED] * 4
    assert seen[1][1] >= 80
    well = judged(on_gpu("nonsense", count=4), low=low)
    assert (well.gpus["GPU-a"].health, well.low) == (Health.HEALTHY, [])


def test_judging_a_full_memory_costs_well_under_a_millisecond_of_a_free_core():
    codes = (CATALOGUE.codes * 2)[:128]
    findings = [on_gpu(code, f"GPU-{place % 8}", ago=place) for place, code in enumerate(codes)]
    names = {f"GPU-{index}": f"GPU {index}" for index in range(8)}
    spent = []
    for _ in range(20):
        started = time.process_time()
        judge(findings, names, NOW, CATALOGUE, nics=NIC_NAMES)
        spent.append(time.process_time() - started)
    assert min(spent) < 0.003  # three times what was measured: machines differ
