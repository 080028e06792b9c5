"""Which nodes a pod's volumes allow, as kube-scheduler's VolumeBinding and VolumeZone see it. Pure.

Bound claims tie the pod to where their volume is; unbound ones with WaitForFirstConsumer to where a volume waits for
them, or may be made; any other unbound claim keeps the pod off every node until it is bound.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from outrider.api.meta import ObjectMeta
from outrider.api.storage import (
    CLASS_ANNOTATION,
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from outrider.workloads.quantities import BadQuantity, milli
from scheduler_plugin.cluster.selectors import any_term_matches, label_selector, listed

# Names of the volume controller (component-helpers, storage/volume) and of classes without a provisioner.
_BOUND: Final = "pv.kubernetes.io/bind-completed"
_SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_NO_PROVISIONER: Final = ("", "kubernetes.io/no-provisioner")
READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"

_ZONES: Final = {  # labels of a volume that must be on its node (volumezone/volume_zone.go), with today's names
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}


T = TypeVar("T", PersistentVolumeClaim, PersistentVolume, StorageClass)


class Storage(msgspec.Struct, frozen=True):
    """Claims by namespace/name, volumes and classes by name."""

    claims: Mapping[str, PersistentVolumeClaim] = {}
    volumes: Mapping[str, PersistentVolume] = {}
    classes: Mapping[str, StorageClass] = {}

    def reach(self, namespace: str, claims: Iterable[str]) -> "Reach":
        """Return where a pod with these claims can go."""
        return _reach(self, [(name, self.claims.get(f"{namespace}/{name}")) for name in claims])


class Stock:
    """Claims, volumes and classes as informers deliver them."""

    def __init__(self) -> None:
        self._claims: dict[str, PersistentVolumeClaim] = {}
        self._volumes: dict[str, PersistentVolume] = {}
        self._classes: dict[str, StorageClass] = {}
        self._storage: Storage | None = None

    def keep_claim(self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        """Take a change of a claim."""
        self._keep(self._claims, old, new)

    def keep_volume(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        """Take a change of a volume."""
        self._keep(self._volumes, old, new)

    def keep_class(self, old: StorageClass | None, new: StorageClass | None) -> None:
        """Take a change of a class."""
        self._keep(self._classes, old, new)

    def storage(self) -> Storage:
        """Return all of them as they are now; what was returned before stays as it was."""
        if self._storage is None:
            self._storage = Storage(dict(self._claims), dict(self._volumes), dict(self._classes))
        return self._storage

    def _keep(self, known: dict[str, T], old: T | None, new: T | None) -> None:
        if old is not None:
            known.pop(old.metadata.key, None)
        if new is not None:
            known[new.metadata.key] = new
        self._storage = None


class Reach(msgspec.Struct, frozen=True):
    """Where the volumes of a pod allow it. ``problem`` says why nowhere, empty where somewhere."""

    problem: str = ""
    bound: tuple[PersistentVolume, ...] = ()
    open: tuple["OpenClaim", ...] = ()
    exclusive: tuple[str, ...] = ()
    """Claims that one pod at a time may use (ReadWriteOncePod)."""

    @property
    def kind(self) -> object:
        """What makes two pods interchangeable as far as their volumes go."""
        return self.problem, tuple(one.metadata.name for one in self.bound), tuple(one.kind for one in self.open)

    def allows(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether the node reaches every volume."""
        if self.problem or not all(_reaches(volume, name, labels) for volume in self.bound):
            return False
        taken: set[str] = set()
        return all(one.found(name, labels, taken) for one in self.open)


class OpenClaim(msgspec.Struct, frozen=True):
    """A claim that its first pod gets bound: to one of the volumes that wait for it, or to one made for it."""

    selected_node: str
    waiting: tuple[PersistentVolume, ...]
    made_by: StorageClass | None

    @property
    def kind(self) -> object:
        """What makes two claims interchangeable."""
        waiting = tuple(volume.metadata.name for volume in self.waiting)
        return self.selected_node, waiting, self.made_by.metadata.name if self.made_by else ""

    def found(self, name: str, labels: Mapping[str, str], taken: set[str]) -> bool:
        """Return whether the node has a volume for the claim, or may get one; add it to those taken."""
        if self.selected_node:
            return self.selected_node == name and self._made(labels)
        for volume in self.waiting:
            if volume.metadata.name not in taken and _reaches(volume, name, labels):
                taken.add(volume.metadata.name)
                return True
        return self._made(labels)

    def _made(self, labels: Mapping[str, str]) -> bool:
        if self.made_by is None:
            return False
        terms = self.made_by.allowed_topologies
        return not terms or any(
            term.match_label_expressions
            and all(labels.get(one.key) in one.values for one in term.match_label_expressions)
            for term in terms
        )


def _reach(storage: Storage, wanted: Sequence[tuple[str, PersistentVolumeClaim | None]]) -> Reach:
    bound: list[PersistentVolume] = []
    waiting: list[OpenClaim] = []
    exclusive: list[str] = []
    for name, claim in wanted:
        place = _place(storage, name, claim)
        if isinstance(place, str):
            return Reach(place)
        if isinstance(place, PersistentVolume):
            bound.append(place)
        else:
            waiting.append(place)
        if claim is not None and READ_WRITE_ONCE_POD in claim.spec.access_modes:
            exclusive.append(name)
    return Reach("", tuple(bound), tuple(waiting), tuple(exclusive))


def _place(storage: Storage, name: str, claim: PersistentVolumeClaim | None) -> PersistentVolume | OpenClaim | str:
    """Return the claim's volume, how it gets one, or why it keeps the pod off every node."""
    if claim is None:
        return f"PersistentVolumeClaim {name} does not exist"
    if claim.metadata.deletion_timestamp is not None:
        return f"PersistentVolumeClaim {name} is being deleted"
    if claim.status.phase == "Lost":
        return f"PersistentVolumeClaim {name} has lost its volume"
    if claim.spec.volume_name and _BOUND in claim.metadata.annotations:
        volume = storage.volumes.get(claim.spec.volume_name)
        return volume if volume is not None else f"volume {claim.spec.volume_name} of claim {name} does not exist"
    return _open(storage, name, claim)


def _open(storage: Storage, name: str, claim: PersistentVolumeClaim) -> OpenClaim | str:
    class_name = _class_of(claim.metadata, claim.spec.storage_class_name)
    kind = storage.classes.get(class_name)
    if class_name and kind is None:
        return f"StorageClass {class_name} of claim {name} does not exist"
    if kind is None or kind.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER or claim.spec.volume_name:
        return f"PersistentVolumeClaim {name} is not bound yet"
    found = _matching(storage, class_name, claim)
    waiting = sorted(found, key=lambda one: (_size(one.spec.capacity), one.metadata.name))
    maker = None if kind.provisioner in _NO_PROVISIONER else kind
    return OpenClaim(claim.metadata.annotations.get(_SELECTED_NODE, ""), tuple(waiting), maker)


def _matching(storage: Storage, class_name: str, claim: PersistentVolumeClaim) -> Iterator[PersistentVolume]:
    """Yield the volumes that the claim may take: those kept for it, and free ones that are what it asks for."""
    for volume in storage.volumes.values():
        if _class_of(volume.metadata, volume.spec.storage_class_name) != class_name:
            continue
        kept_for = volume.spec.claim_ref
        if kept_for is not None:
            if (kept_for.namespace, kept_for.name) == (claim.metadata.namespace, claim.metadata.name):
                yield volume
        elif volume.status.phase == "Available" and _satisfies(volume, claim):
            yield volume


def _satisfies(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return whether a volume is what the claim asks for (component-helpers: FindMatchingVolume)."""
    offer, wish = volume.spec, claim.spec
    if wish.selector is not None and not label_selector(wish.selector).matches(volume.metadata.labels):
        return False
    alike = offer.volume_mode == wish.volume_mode and set(wish.access_modes) <= set(offer.access_modes)
    return alike and _size(offer.capacity) >= _size(wish.resources.requests)


def _class_of(meta: ObjectMeta, name: str | None) -> str:
    return meta.annotations.get(CLASS_ANNOTATION) or name or ""


def _size(amounts: Mapping[str, str]) -> int:
    try:
        return milli(amounts.get("storage", "0"))
    except BadQuantity:
        return 0


def _reaches(volume: PersistentVolume, name: str, labels: Mapping[str, str]) -> bool:
    required = volume.spec.node_affinity.required if volume.spec.node_affinity else None
    if required is not None and not any_term_matches(listed(required.get("nodeSelectorTerms")), name, labels):
        return False
    return _in_zone(volume.metadata.labels, labels)


def _in_zone(wanted: Mapping[str, str], labels: Mapping[str, Any]) -> bool:
    if not any(label in labels for label in _ZONES):
        return True  # a cluster in one zone may label no node
    return all(
        labels.get(key, labels.get(today)) in wanted[key].split("__") for key, today in _ZONES.items() if key in wanted
    )
