"""The kinds that Outrider reads and writes: their REST paths and the structs they decode to."""

from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar
from urllib.parse import quote

from outrider.api.admission import MutatingWebhookConfiguration
from outrider.api.coordination import Lease
from outrider.api.core import Job, Node, Pod, PyTorchJob
from outrider.api.event import Event
from outrider.api.gangplacement import GangPlacement
from outrider.api.gpunode import GPUNode
from outrider.api.meta import ObjectMeta
from outrider.api.names import GROUP, VERSION
from outrider.api.remediation import Remediation
from outrider.api.resource import DeviceTaintRule, ResourceSlice
from outrider.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from outrider.api.trainingpolicy import TrainingPolicy


class Object(Protocol):
    """Anything with Kubernetes metadata."""

    @property
    def metadata(self) -> ObjectMeta:
        """Name, namespace, UID and version."""
        ...


T = TypeVar("T", bound=Object)


@dataclass(frozen=True)
class Kind(Generic[T]):
    """A REST resource and the struct that its objects decode to."""

    struct: type[T]
    plural: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True

    @property
    def name(self) -> str:
        """The kind's name as in manifests, such as Pod."""
        return self.struct.__name__

    @property
    def api_version(self) -> str:
        """The apiVersion as in manifests, such as v1 or outrider.dev/v1alpha1."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of a collection, an object or its subresource; names are quoted, whatever they hold.

        Raises ValueError where an object of a namespaced kind is named without its namespace.
        """
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self.plural}/{name}: a namespaced object needs its namespace")
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{quote(namespace, safe='')}" if namespace and self.namespaced else ""
        return "/".join(part for part in (f"{root}{scope}/{self.plural}", quote(name, safe=""), subresource) if part)


PODS: Final = Kind(Pod, "pods")
NODES: Final = Kind(Node, "nodes", namespaced=False)
LEASES: Final = Kind(Lease, "leases", group="coordination.k8s.io")
EVENTS: Final = Kind(Event, "events")
WEBHOOK_CONFIGURATIONS: Final = Kind(
    MutatingWebhookConfiguration,
    "mutatingwebhookconfigurations",
    group="admissionregistration.k8s.io",
    namespaced=False,
)
JOBS: Final = Kind(Job, "jobs", group="batch")
PYTORCHJOBS: Final = Kind(PyTorchJob, "pytorchjobs", group="kubeflow.org")
RESOURCESLICES: Final = Kind(ResourceSlice, "resourceslices", group="resource.k8s.io", namespaced=False)
DEVICETAINTRULES: Final = Kind(DeviceTaintRule, "devicetaintrules", group="resource.k8s.io", namespaced=False)
GPUNODES: Final = Kind(GPUNode, "gpunodes", group=GROUP, version=VERSION, namespaced=False)
GANGPLACEMENTS: Final = Kind(GangPlacement, "gangplacements", group=GROUP, version=VERSION)
REMEDIATIONS: Final = Kind(Remediation, "remediations", group=GROUP, version=VERSION, namespaced=False)
TRAININGPOLICIES: Final = Kind(TrainingPolicy, "trainingpolicies", group=GROUP, version=VERSION, namespaced=False)
PERSISTENTVOLUMES: Final = Kind(PersistentVolume, "persistentvolumes", namespaced=False)
PERSISTENTVOLUMECLAIMS: Final = Kind(PersistentVolumeClaim, "persistentvolumeclaims")
STORAGECLASSES: Final = Kind(StorageClass, "storageclasses", group="storage.k8s.io", namespaced=False)
