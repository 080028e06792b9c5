import pytest

from outrider.api.core import Pod
from outrider.api.meta import ObjectMeta, OwnerReference
from remediation.episodes import job_name
from tests.workloads.recorded import read


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("job/indexed", "job-indexed"),
        ("jobset/replicas", "jobset-replicas"),
        ("trainjob/torch", "train-torch"),
        ("leaderworkerset/created", "lws-created"),
        ("mpijob/launcher-works", "mpi-launcher-works"),
    ],
)
def test_a_pod_is_told_by_its_job_not_by_what_its_controller_made_for_it(case: str, name: str) -> None:
    assert {job_name(pod) for pod in read(case).typed()} == {name}


def test_a_pod_of_an_unknown_kind_goes_by_its_controller() -> None:
    owner = OwnerReference(api_version="example.com/v1", kind="Thing", name="thing", uid="u", controller=True)
    assert job_name(Pod(metadata=ObjectMeta(owner_references=[owner]))) == "thing"
    assert job_name(Pod()) == ""
