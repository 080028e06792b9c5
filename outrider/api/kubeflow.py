"""Kubeflow's training jobs (training-operator v1, mpi-operator v2), in the fields that tell a gang's size and order."""

from outrider.api.core import Owner, PodTemplate
from outrider.api.meta import Resource


class ReplicaSpec(Resource, frozen=True, kw_only=True):
    """One role of a job."""

    replicas: int | None = None
    template: PodTemplate = PodTemplate()


class ElasticPolicy(Resource, frozen=True, kw_only=True):
    """Bounds between which the number of workers may change."""

    min_replicas: int | None = None


class SchedulingPolicy(Resource, frozen=True, kw_only=True):
    """What the job asks of a gang scheduler."""

    min_available: int | None = None


class RunPolicy(Resource, frozen=True, kw_only=True):
    """How the job runs."""

    scheduling_policy: SchedulingPolicy | None = None


class TrainingJobSpec(Resource, frozen=True, kw_only=True):
    """A job's roles: each kind has a field of its own for them."""

    pytorch_replica_specs: dict[str, ReplicaSpec] = {}
    tf_replica_specs: dict[str, ReplicaSpec] = {}
    xgb_replica_specs: dict[str, ReplicaSpec] = {}
    paddle_replica_specs: dict[str, ReplicaSpec] = {}
    jax_replica_specs: dict[str, ReplicaSpec] = {}
    mpi_replica_specs: dict[str, ReplicaSpec] = {}
    elastic_policy: ElasticPolicy | None = None
    run_policy: RunPolicy = RunPolicy()
    launcher_creation_policy: str = ""

    @property
    def replica_specs(self) -> dict[str, ReplicaSpec]:
        """The roles, by name."""
        return {
            **self.pytorch_replica_specs,
            **self.tf_replica_specs,
            **self.xgb_replica_specs,
            **self.paddle_replica_specs,
            **self.jax_replica_specs,
            **self.mpi_replica_specs,
        }


class TrainingJob(Owner, frozen=True, kw_only=True):
    """What the kinds below have in common."""

    spec: TrainingJobSpec = TrainingJobSpec()


class PyTorchJob(TrainingJob, frozen=True, kw_only=True):
    """A kubeflow.org/v1 PyTorchJob."""


class TFJob(TrainingJob, frozen=True, kw_only=True):
    """A kubeflow.org/v1 TFJob."""


class XGBoostJob(TrainingJob, frozen=True, kw_only=True):
    """A kubeflow.org/v1 XGBoostJob."""


class PaddleJob(TrainingJob, frozen=True, kw_only=True):
    """A kubeflow.org/v1 PaddleJob."""


class JAXJob(TrainingJob, frozen=True, kw_only=True):
    """A kubeflow.org/v1 JAXJob."""


class MPIJob(TrainingJob, frozen=True, kw_only=True):
    """An MPIJob: kubeflow.org/v1 of training-operator, or kubeflow.org/v2beta1 of mpi-operator."""
