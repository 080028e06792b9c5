import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.api.core import Container, Pod, PodSpec, ResourceRequirements
from outrider.workloads.quantities import BadQuantity, milli
from outrider.workloads.resources import GPU, gpus_in, gpus_of, is_gpu, requests_of


def container(gpus: str = "", cpu: str = "", *, sidecar: bool = False) -> Container:
    amounts = {name: amount for name, amount in ((GPU, gpus), ("cpu", cpu)) if amount}
    return Container(resources=ResourceRequirements(requests=amounts), restart_policy="Always" if sidecar else None)


@pytest.mark.parametrize(
    ("text", "thousandths"),
    [("8", 8000), ("500m", 500), ("1.5", 1500), ("2Gi", 2 * 2**30 * 1000), ("1e3", 1_000_000), ("3k", 3_000_000),
     ("1P", 10**18), ("1E", 2**63 - 1), ("1u", 1), ("0", 0), ("-1", -1000), (".5", 500)],
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


@pytest.mark.parametrize(
    "name",
    ["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb", "amd.com/gpu", "gpu.intel.com/i915"],
)
def test_gpus_of_any_vendor_are_gpus(name: str) -> None:
    asked = Container(resources=ResourceRequirements(limits={name: "2"}))
    assert is_gpu(name)
    assert gpus_of(Pod(spec=PodSpec(containers=[asked]))) == 2


@pytest.mark.parametrize(
    "name", ["nvidia.com/gpumem", "volcano.sh/vgpu-memory", "gpu.intel.com/millicores", "gpu.intel.com/i915_monitoring"]
)
def test_shares_of_a_gpu_are_counted_but_are_no_gpus(name: str) -> None:
    asked = Container(resources=ResourceRequirements(limits={name: "20000"}))
    assert not is_gpu(name)
    assert requests_of(Pod(spec=PodSpec(containers=[asked]))) == {name: 20_000_000}


def test_people_may_list_the_resources_that_are_gpus() -> None:
    assert is_gpu("habana.ai/gaudi", ("habana.ai/*",))
    assert gpus_in({"habana.ai/gaudi": 3000, GPU: 1000}, ("habana.ai/*",)) == 3000


def test_what_the_pod_asks_for_as_a_whole_replaces_what_its_containers_ask_for() -> None:
    whole = ResourceRequirements(requests={"cpu": "2"}, limits={"memory": "1Ki", GPU: "9"})
    spec = PodSpec(containers=[container("4", "3")], resources=whole)
    assert requests_of(Pod(spec=spec)) == {GPU: 4000, "cpu": 2000, "memory": 1_024_000}


def test_the_overhead_of_the_runtime_comes_on_top() -> None:
    spec = PodSpec(containers=[container("4", "3")], overhead={"cpu": "250m", "memory": "1"})
    assert requests_of(Pod(spec=spec)) == {GPU: 4000, "cpu": 3250, "memory": 1000}


NAMES = st.sampled_from([GPU, "cpu", "memory", "nvidia.com/mig-1g.5gb", "x.example/thing", ""]) | st.text(max_size=30)


@given(st.dictionaries(NAMES, st.text(max_size=20) | st.sampled_from(["1", "500m", "-3", "1e9", "0"]), max_size=4))
def test_amounts_of_any_text_are_counted_or_refused_by_their_text(amounts: dict[str, str]) -> None:
    asked = Container(resources=ResourceRequirements(limits=amounts))
    spec = PodSpec(containers=[asked], init_containers=[asked], overhead=amounts)
    with contextlib.suppress(BadQuantity):
        assert all(amount > 0 for amount in requests_of(Pod(spec=spec)).values())
