import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.api.core import Container, Pod, PodSpec, ResourceRequirements
from outrider.workloads import GPU, BadQuantity, gpus_of, milli, requests_of


def container(gpus: str = "", cpu: str = "", *, sidecar: bool = False) -> Container:
    amounts = {name: amount for name, amount in ((GPU, gpus), ("cpu", cpu)) if amount}
    return Container(resources=ResourceRequirements(requests=amounts), restart_policy="Always" if sidecar else None)


@pytest.mark.parametrize(
    ("text", "thousandths"),
    [("8", 8000), ("500m", 500), ("1.5", 1500), ("2Gi", 2 * 2**30 * 1000), ("1e3", 1_000_000), ("3k", 3_000_000),
     ("1E", 10**21), ("1u", 1), ("0", 0), ("-1", -1000), (".5", 500)],
)  # fmt: skip
def test_a_quantity_is_read_exactly_and_rounded_up(text: str, thousandths: int) -> None:
    assert milli(text) == thousandths


@pytest.mark.parametrize("text", ["", "eight", "8 ", "8Gib", "0x8", "1e", "NaN", "9" * 1000])
def test_what_is_no_quantity_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(BadQuantity, match="not a quantity"):
        milli(text)


@given(st.integers(0, 10**15))
def test_a_whole_number_is_a_thousand_thousandths(number: int) -> None:
    assert milli(str(number)) == number * 1000


def test_containers_add_up_and_init_containers_run_in_turn() -> None:
    spec = PodSpec(containers=[container("4"), container("2")], init_containers=[container("8"), container("1")])
    assert gpus_of(Pod(spec=spec)) == 8


def test_a_sidecar_runs_beside_all_that_follow_it() -> None:
    spec = PodSpec(containers=[container("4")], init_containers=[container("1", sidecar=True), container("4")])
    assert gpus_of(Pod(spec=spec)) == 5
    late = PodSpec(containers=[container("1")], init_containers=[container("1", sidecar=True), container("4")])
    assert gpus_of(Pod(spec=late)) == 5


def test_a_limit_alone_counts_as_the_request() -> None:
    limited = Container(resources=ResourceRequirements(limits={GPU: "8"}))
    assert gpus_of(Pod(spec=PodSpec(containers=[limited]))) == 8


def test_what_is_not_asked_for_is_absent() -> None:
    assert requests_of(Pod(spec=PodSpec(containers=[container("0", "500m")]))) == {"cpu": 500}
    assert gpus_of(Pod()) == 0
