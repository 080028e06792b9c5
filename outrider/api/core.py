"""Kubernetes' own objects, in the fields that Outrider reads. Writes go out as patches, so nothing is lost."""

from typing import Any

from outrider.api.meta import ObjectMeta, Resource


class NamedReference(Resource, frozen=True, kw_only=True):
    """An entry that has a name: a scheduling gate, an image, a claim."""

    name: str = ""


class ResourceRequirements(Resource, frozen=True, kw_only=True):
    """Quantities as the API server writes them ("8", "500m")."""

    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class Container(Resource, frozen=True, kw_only=True):
    """A container, as far as placement needs it."""

    name: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str | None = None


class Toleration(Resource, frozen=True, kw_only=True):
    """A taint that the pod accepts."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class PodSpec(Resource, frozen=True, kw_only=True):
    """Placement half of a pod's spec."""

    node_name: str = ""
    scheduler_name: str = ""
    scheduling_gates: list[NamedReference] = []
    containers: list[Container] = []
    init_containers: list[Container] = []
    node_selector: dict[str, str] = {}
    affinity: dict[str, Any] = {}
    tolerations: list[Toleration] = []
    priority: int | None = None
    volumes: list[NamedReference] = []
    resource_claims: list[NamedReference] = []


class StatusCondition(Resource, frozen=True, kw_only=True):
    """Condition of a pod or node."""

    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""


class PodStatus(Resource, frozen=True, kw_only=True):
    """Where the pod stands."""

    phase: str = ""
    reason: str = ""
    conditions: list[StatusCondition] = []


class Pod(Resource, frozen=True, kw_only=True):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def key(self) -> str:
        """namespace/name, as users write it."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def finished(self) -> bool:
        """True once no container will run again, so that its resources are free."""
        return self.status.phase in ("Succeeded", "Failed")


class Taint(Resource, frozen=True, kw_only=True):
    """A node's refusal of pods that do not tolerate it."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


class NodeSpec(Resource, frozen=True, kw_only=True):
    """Taints and cordon."""

    taints: list[Taint] = []
    unschedulable: bool = False


class NodeStatus(Resource, frozen=True, kw_only=True):
    """Capacity and conditions."""

    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    conditions: list[StatusCondition] = []


class Node(Resource, frozen=True, kw_only=True):
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class JobSpec(Resource, frozen=True, kw_only=True):
    """batch/v1 Job, as far as its gang's size needs it."""

    parallelism: int | None = None
    completions: int | None = None


class Job(Resource, frozen=True, kw_only=True):
    """A batch/v1 Job."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()


class ReplicaSpec(Resource, frozen=True, kw_only=True):
    """One role of a PyTorchJob."""

    replicas: int | None = None


class PyTorchJobSpec(Resource, frozen=True, kw_only=True):
    """kubeflow.org/v1 PyTorchJob, as far as its gang's size needs it."""

    pytorch_replica_specs: dict[str, ReplicaSpec] = {}


class PyTorchJob(Resource, frozen=True, kw_only=True):
    """A kubeflow.org/v1 PyTorchJob (training-operator)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PyTorchJobSpec = PyTorchJobSpec()
