"""The fields of a pod that decide what is added to it. The patch itself works on the pod's raw JSON."""

from typing import Any, Final

from outrider.api.meta import Resource
from outrider.workloads import GPU, milli

_MIG_PREFIX: Final = "nvidia.com/mig-"  # resources of NVIDIA's device plugin with the mixed MIG strategy


class EnvVar(Resource, frozen=True, kw_only=True):
    """One entry of env; ``value_from`` is kept only to know that it is there."""

    name: str
    value: str | None = None
    value_from: Any = None


class VolumeMount(Resource, frozen=True, kw_only=True):
    """A mount."""

    name: str
    mount_path: str = ""


class Resources(Resource, frozen=True, kw_only=True):
    """Limits, where extended resources such as GPUs must stand; DRA claims."""

    limits: dict[str, str | int] | None = None
    claims: list[Any] | None = None


class ContainerView(Resource, frozen=True, kw_only=True):
    """A container."""

    name: str = ""
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[EnvVar] | None = None
    env_from: list[Any] | None = None
    volume_mounts: list[VolumeMount] | None = None
    resources: Resources | None = None

    @property
    def argv(self) -> list[str]:
        """Command and arguments as the kubelet joins them."""
        return [*(self.command or []), *(self.args or [])]

    @property
    def has_gpu(self) -> bool:
        """Whether it asks for a GPU, a MIG slice or a device claim. Raises BadQuantity."""
        resources = self.resources or Resources()
        wanted = (str(amount) for name, amount in (resources.limits or {}).items() if _is_gpu(name))
        return bool(resources.claims) or any(milli(amount) > 0 for amount in wanted)


class Volume(Resource, frozen=True, kw_only=True):
    """A volume."""

    name: str
    empty_dir: dict[str, Any] | None = None


class SecurityContext(Resource, frozen=True, kw_only=True):
    """The pod's own security context."""

    run_as_user: int | None = None


class Gate(Resource, frozen=True, kw_only=True):
    """A scheduling gate."""

    name: str


class SpecView(Resource, frozen=True, kw_only=True):
    """A pod's spec."""

    containers: list[ContainerView]
    init_containers: list[ContainerView] | None = None
    volumes: list[Volume] | None = None
    scheduler_name: str = ""
    scheduling_gates: list[Gate] | None = None
    node_name: str = ""
    security_context: SecurityContext | None = None

    @property
    def has_gpu(self) -> bool:
        """Whether any container asks for GPUs."""
        return any(container.has_gpu for container in [*self.containers, *(self.init_containers or [])])


class MetaView(Resource, frozen=True, kw_only=True):
    """Metadata, whose maps may be null in hand-made reviews."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class PodView(Resource, frozen=True, kw_only=True):
    """A pod as far as admission reads it."""

    spec: SpecView
    metadata: MetaView = MetaView()

    @property
    def labels(self) -> dict[str, str]:
        """Labels."""
        return self.metadata.labels or {}

    @property
    def annotations(self) -> dict[str, str]:
        """Annotations."""
        return self.metadata.annotations or {}


def _is_gpu(resource: str) -> bool:
    return resource == GPU or resource.startswith(_MIG_PREFIX)
