"""The kinds that Outrider reads and writes: their REST paths and the structs they decode to."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar
from urllib.parse import quote

from outrider.api.admission import MutatingWebhookConfiguration
from outrider.api.coordination import Lease
from outrider.api.core import Job, Node, Owner, Pod, StatefulSet
from outrider.api.event import Event
from outrider.api.gangplacement import GangPlacement
from outrider.api.gpunode import GPUNode
from outrider.api.jobset import JobSet
from outrider.api.kubeflow import JAXJob, MPIJob, PaddleJob, PyTorchJob, TFJob, XGBoostJob
from outrider.api.leaderworkerset import LeaderWorkerSet
from outrider.api.meta import ObjectMeta
from outrider.api.names import GROUP, VERSION
from outrider.api.podgroups import CoschedulingPodGroup, KaiPodGroup, PodGroup, VolcanoPodGroup
from outrider.api.policy import PodDisruptionBudget
from outrider.api.raycluster import RayCluster
from outrider.api.remediation import Remediation
from outrider.api.resource import DeviceTaintRule, ResourceSlice
from outrider.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from outrider.api.trainingpolicy import TrainingPolicy
from outrider.api.volcano import VolcanoJob


class Object(Protocol):
    """Anything with Kubernetes metadata."""

    @property
    def metadata(self) -> ObjectMeta:
        """Name, namespace, UID and version."""
        ...


T = TypeVar("T", bound=Object)


@dataclass(frozen=True)
class Kind(Generic[T]):
    """A REST resource and the struct that its objects decode to.

    ``keep`` thins out each object of a list or watch as soon as it is decoded, so that a large cluster is never in
    memory as a whole.
    """

    struct: type[T]
    plural: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    called: str = ""
    """The kind's name, where the struct has another because several groups have a kind of that name."""
    keep: Callable[[T], T] | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """The kind's name as in manifests, such as Pod."""
        return self.called or self.struct.__name__

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
PODDISRUPTIONBUDGETS: Final = Kind(PodDisruptionBudget, "poddisruptionbudgets", group="policy")
LEASES: Final = Kind(Lease, "leases", group="coordination.k8s.io")
EVENTS: Final = Kind(Event, "events")
WEBHOOK_CONFIGURATIONS: Final = Kind(
    MutatingWebhookConfiguration,
    "mutatingwebhookconfigurations",
    group="admissionregistration.k8s.io",
    namespaced=False,
)
JOBS: Final = Kind(Job, "jobs", group="batch")
STATEFULSETS: Final = Kind(StatefulSet, "statefulsets", group="apps")
PYTORCHJOBS: Final = Kind(PyTorchJob, "pytorchjobs", group="kubeflow.org")
TFJOBS: Final = Kind(TFJob, "tfjobs", group="kubeflow.org")
XGBOOSTJOBS: Final = Kind(XGBoostJob, "xgboostjobs", group="kubeflow.org")
PADDLEJOBS: Final = Kind(PaddleJob, "paddlejobs", group="kubeflow.org")
JAXJOBS: Final = Kind(JAXJob, "jaxjobs", group="kubeflow.org")
MPIJOBS: Final = Kind(MPIJob, "mpijobs", group="kubeflow.org", version="v2beta1")
MPIJOBS_V1: Final = Kind(MPIJob, "mpijobs", group="kubeflow.org")
JOBSETS: Final = Kind(JobSet, "jobsets", group="jobset.x-k8s.io", version="v1alpha2")
LEADERWORKERSETS: Final = Kind(LeaderWorkerSet, "leaderworkersets", group="leaderworkerset.x-k8s.io")
RAYCLUSTERS: Final = Kind(RayCluster, "rayclusters", group="ray.io")
VOLCANOJOBS: Final = Kind(VolcanoJob, "jobs", group="batch.volcano.sh", version="v1alpha1", called="Job")
PODGROUPS: Final = Kind(PodGroup, "podgroups", group="scheduling.k8s.io", version="v1beta1")
PODGROUPS_V1ALPHA3: Final = Kind(PodGroup, "podgroups", group="scheduling.k8s.io", version="v1alpha3")
COSCHEDULING_PODGROUPS: Final = Kind(
    CoschedulingPodGroup, "podgroups", group="scheduling.x-k8s.io", version="v1alpha1", called="PodGroup"
)
KAI_PODGROUPS: Final = Kind(KaiPodGroup, "podgroups", group="scheduling.run.ai", version="v2alpha2", called="PodGroup")
VOLCANO_PODGROUPS: Final = Kind(
    VolcanoPodGroup, "podgroups", group="scheduling.volcano.sh", version="v1beta1", called="PodGroup"
)
RESOURCESLICES: Final = Kind(ResourceSlice, "resourceslices", group="resource.k8s.io", namespaced=False)
DEVICETAINTRULES: Final = Kind(DeviceTaintRule, "devicetaintrules", group="resource.k8s.io", namespaced=False)
GPUNODES: Final = Kind(GPUNode, "gpunodes", group=GROUP, version=VERSION, namespaced=False)
GANGPLACEMENTS: Final = Kind(GangPlacement, "gangplacements", group=GROUP, version=VERSION)
REMEDIATIONS: Final = Kind(Remediation, "remediations", group=GROUP, version=VERSION, namespaced=False)
TRAININGPOLICIES: Final = Kind(TrainingPolicy, "trainingpolicies", group=GROUP, version=VERSION, namespaced=False)
PERSISTENTVOLUMES: Final = Kind(PersistentVolume, "persistentvolumes", namespaced=False)
PERSISTENTVOLUMECLAIMS: Final = Kind(PersistentVolumeClaim, "persistentvolumeclaims")
STORAGECLASSES: Final = Kind(StorageClass, "storageclasses", group="storage.k8s.io", namespaced=False)

# Kinds whose pods form gangs and that a cluster need not have. Of the versions of one kind the first that is served is
# followed.
OPTIONAL_OWNERS: Final[tuple[tuple[Kind[Any], ...], ...]] = (
    (JOBSETS,),
    (LEADERWORKERSETS,),
    (PYTORCHJOBS,),
    (TFJOBS,),
    (XGBOOSTJOBS,),
    (PADDLEJOBS,),
    (JAXJOBS,),
    (MPIJOBS, MPIJOBS_V1),
    (RAYCLUSTERS,),
    (VOLCANOJOBS,),
    (PODGROUPS, PODGROUPS_V1ALPHA3),
    (COSCHEDULING_PODGROUPS,),
    (KAI_PODGROUPS,),
    (VOLCANO_PODGROUPS,),
)
_OWNERS: Final[tuple[Kind[Any], ...]] = (JOBS, STATEFULSETS, *(versions[0] for versions in OPTIONAL_OWNERS))
_KIND_OF_OWNER: Final[Mapping[type[Owner], Kind[Any]]] = {kind.struct: kind for kind in _OWNERS}


def kind_of(owner: Owner) -> Kind[Any]:
    """Return the kind of an object whose pods form a gang; of several versions the newest."""
    return _KIND_OF_OWNER[type(owner)]
