"""Kubernetes' own objects, in the fields that Outrider reads. Writes go out as patches, so nothing is lost."""

from typing import Any

import msgspec

from outrider.api.meta import ObjectMeta, Resource


class NamedReference(Resource, frozen=True, kw_only=True):
    """An entry that has a name: a scheduling gate, an image, a claim."""

    name: str = ""


class ResourceRequirements(Resource, frozen=True, kw_only=True):
    """Quantities as the API server writes them ("8", "500m")."""

    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class ContainerPort(Resource, frozen=True, kw_only=True):
    """A port of the node that a container wants for itself; ``host_port`` 0 wants none."""

    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class Container(Resource, frozen=True, kw_only=True):
    """A container, as far as placement needs it."""

    name: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str | None = None
    ports: list[ContainerPort] = []


class Toleration(Resource, frozen=True, kw_only=True):
    """A taint that the pod accepts."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class ClaimReference(Resource, frozen=True, kw_only=True):
    """Names a PersistentVolumeClaim of the pod's namespace."""

    claim_name: str = ""


class Volume(NamedReference, frozen=True, kw_only=True):
    """A pod's volume, as far as it ties the pod to nodes. ``ephemeral`` is a claim made for this pod alone."""

    persistent_volume_claim: ClaimReference | None = None
    ephemeral: dict[str, Any] | None = None


class SchedulingGroup(Resource, frozen=True, kw_only=True):
    """Names the PodGroup (scheduling.k8s.io) that the pod is scheduled with."""

    pod_group_name: str | None = None


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
    preemption_policy: str = ""
    volumes: list[Volume] = []
    resource_claims: list[NamedReference] = []
    overhead: dict[str, str] = {}
    resources: ResourceRequirements | None = None
    host_network: bool = False
    topology_spread_constraints: list[dict[str, Any]] = []
    scheduling_group: SchedulingGroup | None = None


class StatusCondition(Resource, frozen=True, kw_only=True):
    """Condition of a pod or node."""

    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""


class Termination(Resource, frozen=True, kw_only=True):
    """How a container ended."""

    exit_code: int = 0
    reason: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class ContainerState(Resource, frozen=True, kw_only=True):
    """What a container does; only its end is read."""

    terminated: Termination | None = None


class ContainerStatus(Resource, frozen=True, kw_only=True):
    """How a container fares, and how it ended before its last restart."""

    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class PodStatus(Resource, frozen=True, kw_only=True):
    """Where the pod stands. ``nominated_node_name`` is where preemption makes room for it."""

    phase: str = ""
    reason: str = ""
    conditions: list[StatusCondition] = []
    nominated_node_name: str = ""
    container_statuses: list[ContainerStatus] = []
    start_time: str | None = None


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


class Owner(Resource, frozen=True, kw_only=True):
    """An object whose pods may form a gang. Each kind adds the fields that tell the gang's size and order."""

    metadata: ObjectMeta = ObjectMeta()


class PodTemplate(Resource, frozen=True, kw_only=True):
    """What a controller creates pods from."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class JobSpec(Resource, frozen=True, kw_only=True):
    """batch/v1 Job, as far as its gang's size needs it."""

    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = "NonIndexed"
    template: PodTemplate = PodTemplate()


class Job(Owner, frozen=True, kw_only=True):
    """A batch/v1 Job."""

    spec: JobSpec = JobSpec()


class StatefulSetOrdinals(Resource, frozen=True, kw_only=True):
    """Number of the first pod."""

    start: int = 0


class StatefulSetSpec(Resource, frozen=True, kw_only=True):
    """apps/v1 StatefulSet, as far as its gang's size needs it."""

    replicas: int | None = None
    pod_management_policy: str = "OrderedReady"
    ordinals: StatefulSetOrdinals | None = None
    template: PodTemplate = PodTemplate()


class StatefulSet(Owner, frozen=True, kw_only=True):
    """An apps/v1 StatefulSet."""

    spec: StatefulSetSpec = StatefulSetSpec()
