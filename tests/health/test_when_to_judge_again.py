import msgspec
from hypothesis import given
from hypothesis import strategies as st

from outrider.api.gpunode import SubjectKind
from outrider.health.catalogue import Catalogue, load
from outrider.health.due import LONGEST_SECONDS, due_seconds
from outrider.health.findings import Evidence, seen
from outrider.health.judge import Judgement, judge

CATALOGUE = load()
NOW = 1_000_000.0
GPU = "GPU-1"


def evidence(code: str, age_seconds: float) -> Evidence:
    return seen(code, NOW - age_seconds, subject=SubjectKind.GPU, subject_id=GPU, source="test")


def judged(findings: list[Evidence], now: float, catalogue: Catalogue = CATALOGUE) -> Judgement:
    return judge(findings, {GPU: "GPU 1"}, now, catalogue)


def test_a_quiet_node_is_judged_every_few_seconds_only() -> None:
    assert due_seconds([], NOW, CATALOGUE) == LONGEST_SECONDS


def test_a_verdict_that_settles_is_judged_at_that_moment() -> None:
    code = next(code for code in CATALOGUE.codes if CATALOGUE.of(code).settle_seconds >= 1)
    young = evidence(code, CATALOGUE.of(code).settle_seconds - 0.5)
    assert abs(due_seconds([young], NOW, CATALOGUE) - 0.5) < 0.01


findings = st.lists(
    st.builds(
        lambda code, age, count: msgspec.structs.replace(evidence(code, age), count=count),
        st.sampled_from(CATALOGUE.codes),
        st.floats(0, 10_000),
        st.integers(1, 8),
    ),
    max_size=6,
    unique_by=lambda one: one.key,
)


@given(findings, st.floats(0, 0.999))
def test_no_verdict_changes_before_that(found: list[Evidence], share: float) -> None:
    left = due_seconds(found, NOW, CATALOGUE)
    assert judged(found, NOW + share * left).verdicts == judged(found, NOW).verdicts


@given(st.sampled_from(CATALOGUE.codes), st.floats(0, 10_000), st.floats(0, 0.999))
def test_no_shown_score_moves_by_more_than_a_point_before_that(code: str, age_seconds: float, share: float) -> None:
    found = [evidence(code, age_seconds)]
    then = NOW + share * due_seconds(found, NOW, CATALOGUE)
    assert abs(judged(found, then).node.score - judged(found, NOW).node.score) <= 1
