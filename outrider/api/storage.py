"""Volumes, in the fields that tie a pod to nodes: PersistentVolume, PersistentVolumeClaim, StorageClass."""

from typing import Any, Final

from outrider.api.meta import ObjectMeta, Resource

WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"
# Class of claims and volumes from before the field existed; it still wins over the field.
CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"


class VolumeNodeAffinity(Resource, frozen=True, kw_only=True):
    """Nodes that can reach a volume; ``required`` is a NodeSelector."""

    required: dict[str, Any] | None = None


class ObjectReference(Resource, frozen=True, kw_only=True):
    """Names the claim that a volume is bound to or kept for."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class PersistentVolumeSpec(Resource, frozen=True, kw_only=True):
    """What a volume offers, and where."""

    capacity: dict[str, str] = {}
    access_modes: list[str] = []
    storage_class_name: str = ""
    volume_mode: str = "Filesystem"
    claim_ref: ObjectReference | None = None
    node_affinity: VolumeNodeAffinity | None = None


class Phase(Resource, frozen=True, kw_only=True):
    """Status of a volume or claim."""

    phase: str = ""


class PersistentVolume(Resource, frozen=True, kw_only=True):
    """A volume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: Phase = Phase()


class StorageRequest(Resource, frozen=True, kw_only=True):
    """How much a claim asks for."""

    requests: dict[str, str] = {}


class PersistentVolumeClaimSpec(Resource, frozen=True, kw_only=True):
    """What a claim asks for; ``volume_name`` once it is bound or asks for one volume."""

    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str = "Filesystem"
    access_modes: list[str] = []
    resources: StorageRequest = StorageRequest()
    selector: dict[str, Any] | None = None


class PersistentVolumeClaim(Resource, frozen=True, kw_only=True):
    """A claim of a namespace."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: Phase = Phase()


class TopologyRequirement(Resource, frozen=True, kw_only=True):
    """A label that nodes must carry with one of the values."""

    key: str = ""
    values: list[str] = []


class TopologyTerm(Resource, frozen=True, kw_only=True):
    """Requirements that all hold; terms are alternatives."""

    match_label_expressions: list[TopologyRequirement] = []


class StorageClass(Resource, frozen=True, kw_only=True):
    """How volumes of the class come about, and where they can."""

    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: list[TopologyTerm] = []
