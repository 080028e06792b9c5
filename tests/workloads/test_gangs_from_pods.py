import pytest

from outrider.api.core import Job, JobSpec, Pod
from outrider.api.kubeflow import PyTorchJob, ReplicaSpec, TrainingJobSpec
from outrider.api.meta import ObjectMeta, OwnerReference
from outrider.workloads import gang_of, rank_of, size_of

INDEX = "batch.kubernetes.io/job-completion-index"


def owned_by(
    api_version: str,
    kind: str,
    *,
    controller: bool = True,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> Pod:
    owner = OwnerReference(api_version=api_version, kind=kind, name="train", uid="u-1", controller=controller)
    meta = ObjectMeta(name="train-0", owner_references=[owner], labels=labels or {}, annotations=annotations or {})
    return Pod(metadata=meta)


def replica(kind: str, index: str) -> Pod:
    labels = {"training.kubeflow.org/replica-type": kind, "training.kubeflow.org/replica-index": index}
    return owned_by("kubeflow.org/v1", "PyTorchJob", labels=labels)


def pytorchjob(**replicas: int | None) -> PyTorchJob:
    return PyTorchJob(
        spec=TrainingJobSpec(
            pytorch_replica_specs={role: ReplicaSpec(replicas=count) for role, count in replicas.items()}
        )
    )


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [("batch/v1", "Job"), ("kubeflow.org/v1", "PyTorchJob"), ("batch.volcano.sh/v1alpha1", "Job")],
)
def test_a_pod_belongs_to_the_job_that_controls_it(api_version: str, kind: str) -> None:
    owner = gang_of(owned_by(api_version, kind))
    assert owner is not None
    assert (owner.kind, owner.name, owner.uid) == (kind, "train", "u-1")


@pytest.mark.parametrize(("api_version", "kind"), [("apps/v1", "ReplicaSet")])
def test_a_pod_of_another_kind_of_owner_is_on_its_own(api_version: str, kind: str) -> None:
    assert gang_of(owned_by(api_version, kind)) is None


def test_an_owner_that_is_not_the_controller_makes_no_gang() -> None:
    assert gang_of(owned_by("batch/v1", "Job", controller=False)) is None
    assert gang_of(Pod()) is None


def test_the_completion_index_is_the_rank_as_label_or_annotation() -> None:
    assert rank_of(owned_by("batch/v1", "Job", labels={INDEX: "3"})) == 3
    assert rank_of(owned_by("batch/v1", "Job", annotations={INDEX: "0"})) == 0


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "٣", "9" * 20])
def test_a_nonsense_index_is_no_rank(text: str) -> None:
    assert rank_of(owned_by("batch/v1", "Job", labels={INDEX: text})) is None


def test_the_master_of_a_pytorchjob_comes_first() -> None:
    owner = pytorchjob(Master=1, Worker=2)
    pods = [replica("master", "0"), replica("worker", "0"), replica("worker", "1")]
    assert [rank_of(pod, owner) for pod in pods] == [0, 1, 2]
    assert [rank_of(pod) for pod in pods] == [0, 1, 2]


def test_workers_without_a_master_count_from_zero() -> None:
    assert rank_of(replica("worker", "0"), pytorchjob(Worker=2)) == 0


@pytest.mark.parametrize(
    ("parallelism", "completions", "pods"), [(3, 3, 3), (4, 2, 2), (4, None, 4), (None, None, 1), (2, 10, 2)]
)
def test_a_job_runs_the_smaller_of_parallelism_and_completions(
    parallelism: int | None, completions: int | None, pods: int
) -> None:
    assert (
        size_of(Job(spec=JobSpec(parallelism=parallelism, completions=completions, completion_mode="Indexed"))).pods
        == pods
    )


def test_a_pytorchjob_runs_all_its_replicas() -> None:
    assert size_of(pytorchjob(Master=1, Worker=3)).pods == 4
    assert size_of(pytorchjob(Worker=None)).pods == 1


def test_a_size_that_cannot_be_told_says_why() -> None:
    assert size_of(None).unknown
    assert size_of(Job(spec=JobSpec(parallelism=0))).unknown
    assert size_of(PyTorchJob()).unknown
