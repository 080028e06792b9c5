"""Kubeflow's jobs of replicaSpecs: training-operator's kinds and mpi-operator's MPIJob (v2beta1).

Labels: training-operator common_types.go; mpi-operator v2beta1 constants.go.
"""

from typing import Final

from outrider.api.core import Pod
from outrider.api.kubeflow import (
    JAXJob,
    MPIJob,
    PaddleJob,
    PyTorchJob,
    ReplicaSpec,
    TFJob,
    TrainingJob,
    TrainingJobSpec,
    XGBoostJob,
)
from outrider.workloads.kinds.family import Family, Place, controlled_by, number
from outrider.workloads.kinds.roles import Role, size_from
from outrider.workloads.model import GangRef, Size, named

_REPLICA_TYPE: Final = "training.kubeflow.org/replica-type"
_REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"
_JOB_NAME: Final = "training.kubeflow.org/job-name"
_JOB_ROLE: Final = "training.kubeflow.org/job-role"
_OPERATOR: Final = "training.kubeflow.org/operator-name"
_MPI_OPERATOR: Final = "mpi-operator"
_MPI_API_VERSION: Final = "kubeflow.org/v2beta1"
_LEADING: Final = ("launcher", "chief", "master")  # roles that hold rank 0, by every framework's convention
_WORKER: Final = "worker"
# Kinds whose workers count on from a leading replica that is nearly always there.
_LED_KINDS: Final = frozenset({"PyTorchJob", "XGBoostJob"})
_KINDS: Final[dict[tuple[str, str], type[TrainingJob]]] = {
    ("kubeflow.org", "PyTorchJob"): PyTorchJob,
    ("kubeflow.org", "TFJob"): TFJob,
    ("kubeflow.org", "XGBoostJob"): XGBoostJob,
    ("kubeflow.org", "PaddleJob"): PaddleJob,
    ("kubeflow.org", "JAXJob"): JAXJob,
    ("kubeflow.org", "MPIJob"): MPIJob,
}


def _gang(pod: Pod) -> GangRef | None:
    """Return the job. mpi-operator's launcher belongs to a Job of its own, so both halves go by the MPIJob's name."""
    labels = pod.metadata.labels
    if labels.get(_OPERATOR) == _MPI_OPERATOR and labels.get(_JOB_NAME):
        return named(_MPI_API_VERSION, "MPIJob", pod.metadata.namespace, labels[_JOB_NAME])
    return controlled_by(pod, _KINDS)


def _place(pod: Pod) -> Place:
    labels = pod.metadata.labels
    role = labels.get(_REPLICA_TYPE) or labels.get(_JOB_ROLE, "")
    index = number(labels.get(_REPLICA_INDEX))
    return Place(role.lower(), 0 if index is None and role.lower() == "launcher" else index)


def _rank_alone(pod: Pod) -> int | None:
    place, owner = _place(pod), pod.metadata.controller()
    if place.index is None:
        return None
    follows = owner is not None and owner.kind in _LED_KINDS and place.role not in _LEADING
    return place.index + 1 if follows else place.index


def _roles(job: TrainingJob) -> tuple[Role, ...]:
    """Leading roles first, then workers, then the rest: as RANK and the hostfile count them."""
    specs = {name.lower(): spec for name, spec in job.spec.replica_specs.items()}
    return tuple(_role(job.spec, name, specs[name]) for name in sorted(specs, key=_order))


def _role(spec: TrainingJobSpec, name: str, replica: ReplicaSpec) -> Role:
    pods = 1 if replica.replicas is None else max(replica.replicas, 0)
    elastic = spec.elastic_policy.min_replicas if spec.elastic_policy and name == _WORKER else None
    waits = name == "launcher" and spec.launcher_creation_policy == "WaitForWorkersReady"
    least = None if elastic is None else min(max(elastic, 0), pods)
    return Role(name, pods, replica.template, stage=1 if waits else 0, least=least)


def _order(name: str) -> tuple[int, str]:
    return (_LEADING.index(name) if name in _LEADING else len(_LEADING) + (name != _WORKER)), name


def _size(job: TrainingJob) -> Size:
    policy = job.spec.run_policy.scheduling_policy
    return size_from(_roles(job), policy.min_available if policy else None)


KUBEFLOW: Final = Family(
    owners=_KINDS,
    gang=_gang,
    marks=frozenset({_OPERATOR}),
    place=_place,
    rank_alone=_rank_alone,
    roles=_roles,
    size=_size,
)
