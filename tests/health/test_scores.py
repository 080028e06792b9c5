from evidence import CATALOGUE, GPU_NAMES, NOW, evidences, on_gpu, on_node
from hypothesis import given
from hypothesis import strategies as st

from outrider.health.findings import merge
from outrider.health.judge import Judgement, judge


def judged(*findings: object, now: float = NOW) -> Judgement:
    return judge(merge({}, findings).values(), GPU_NAMES, now, CATALOGUE)  # type: ignore[arg-type]


def scores(judgement: Judgement) -> list[int]:
    return [judgement.node.score, *(judgement.gpus[uuid].score for uuid in GPU_NAMES)]


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
    node, *gpus = scores(judged(*known))
    assert 0 <= node <= min(gpus)
    assert max(gpus) <= 100


def test_a_node_without_findings_scores_100():
    assert scores(judged()) == [100, 100, 100]


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
    assert scores(judged(on_node("sxid/12345"))) == [95, 100, 100]
