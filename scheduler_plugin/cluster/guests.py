"""What one pod means for others: its labels, host ports, claims, and whom it wants near or far. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from outrider.api.core import Pod
from outrider.workloads import gang_of
from scheduler_plugin.cluster.selectors import NOTHING, Selector, label_selector, listed, mapping, text, texts

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_EVERY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - what a pod asks for, not what is listened on
_NOTHING: Final[Mapping[str, int]] = {}
HOSTNAME: Final = "kubernetes.io/hostname"


class HostPort(msgspec.Struct, frozen=True):
    """A port of the node that a pod keeps for itself."""

    port: int
    protocol: str = "TCP"
    address: str = _EVERY_ADDRESS

    def meets(self, other: "HostPort") -> bool:
        """Return whether both can't be held at once (kube-scheduler: HostPortInfo.CheckConflict)."""
        same = self.port == other.port and self.protocol == other.protocol
        return same and (self.address == other.address or _EVERY_ADDRESS in (self.address, other.address))


class Term(msgspec.Struct, frozen=True):
    """A term of a pod's affinity or anti-affinity: pods that it selects, and the node label that makes them near."""

    key: str
    selector: Selector
    namespaces: tuple[str, ...] = ()
    """Empty for every namespace."""

    def selects(self, guest: "Guest") -> bool:
        """Return whether the term is about the pod."""
        return (not self.namespaces or guest.namespace in self.namespaces) and self.selector.matches(guest.labels)


class Spread(msgspec.Struct, frozen=True):
    """A topology spread constraint with DoNotSchedule, as kube-scheduler's PodTopologySpread reads it."""

    key: str
    selector: Selector = NOTHING
    max_skew: int = 1
    min_domains: int = 1
    by_affinity: bool = True
    by_taints: bool = False


class Guest(msgspec.Struct, frozen=True):
    """A pod as others see it.

    ``together`` and ``apart`` are its required pod affinity and anti-affinity, ``claims`` the names of its
    PersistentVolumeClaims. ``unmodelled`` says in words what kube-scheduler will look at and Outrider does not;
    ``leaving`` is true for a pod being deleted, ``there`` for one that has its node; ``gang`` is the UID of its gang,
    empty without one; ``asked`` is what it takes of its node, in thousandths.
    """

    uid: str
    gang: str = ""
    namespace: str = ""
    labels: Mapping[str, str] = {}
    ports: tuple[HostPort, ...] = ()
    together: tuple[Term, ...] = ()
    apart: tuple[Term, ...] = ()
    spread: tuple[Spread, ...] = ()
    claims: tuple[str, ...] = ()
    unmodelled: tuple[str, ...] = ()
    leaving: bool = False
    there: bool = False
    priority: int = 0
    asked: Mapping[str, int] = {}
    devices: bool = False
    """True where it claims devices by dynamic resource allocation."""

    @property
    def bonds(self) -> bool:
        """True where other pods decide which nodes the pod may use."""
        return bool(self.ports or self.together or self.apart or self.spread)


def guest_of(pod: Pod, asked: Mapping[str, int] = _NOTHING) -> Guest:
    """Return the pod as others see it."""
    meta, spec = pod.metadata, pod.spec
    affinity = spec.affinity
    return Guest(
        uid=meta.uid,
        gang=gang.uid if (gang := gang_of(pod)) else "",
        namespace=meta.namespace,
        labels=meta.labels,
        ports=_ports(pod),
        together=_terms(affinity.get("podAffinity"), meta.namespace) if affinity else (),
        apart=_terms(affinity.get("podAntiAffinity"), meta.namespace) if affinity else (),
        spread=tuple(_spreads(spec.topology_spread_constraints, meta.labels)),
        claims=tuple(_claims(pod)),
        unmodelled=tuple(_unmodelled(pod)),
        leaving=meta.deletion_timestamp is not None,
        there=bool(spec.node_name),
        priority=spec.priority or 0,
        asked=asked,
        devices=bool(spec.resource_claims),
    )


def _ports(pod: Pod) -> tuple[HostPort, ...]:
    sidecars = (one for one in pod.spec.init_containers if one.restart_policy == "Always")
    wanted = (port for one in (*pod.spec.containers, *sidecars) for port in one.ports)
    if pod.spec.host_network:  # the API server writes the same into hostPort
        return tuple(
            HostPort(port.host_port or port.container_port, port.protocol, port.host_ip or _EVERY_ADDRESS)
            for port in wanted
            if port.host_port or port.container_port
        )
    return tuple(
        HostPort(port.host_port, port.protocol, port.host_ip or _EVERY_ADDRESS) for port in wanted if port.host_port > 0
    )


def _terms(value: object, namespace: str) -> tuple[Term, ...]:
    terms = (mapping(one) for one in listed(mapping(value).get(_REQUIRED)))
    return tuple(
        Term(text(one.get("topologyKey")), label_selector(one.get("labelSelector")), _namespaces(one, namespace))
        for one in terms
    )


def _namespaces(term: Mapping[str, Any], own: str) -> tuple[str, ...]:
    """Return the namespaces that a term is about. A selector of namespaces is taken as all of them."""
    if isinstance(term.get("namespaceSelector"), Mapping):
        return ()
    return texts(term.get("namespaces")) or (own,)


def _spreads(constraints: Iterable[Mapping[str, Any]], labels: Mapping[str, str]) -> Iterator[Spread]:
    for one in constraints:
        if one.get("whenUnsatisfiable") != "DoNotSchedule":
            continue
        own = {key: labels[key] for key in texts(one.get("matchLabelKeys")) if key in labels}
        yield Spread(
            key=text(one.get("topologyKey")),
            selector=label_selector(one.get("labelSelector")).and_equal(own),
            max_skew=_number(one.get("maxSkew"), 1),
            min_domains=_number(one.get("minDomains"), 1),
            by_affinity=one.get("nodeAffinityPolicy") != "Ignore",
            by_taints=one.get("nodeTaintsPolicy") == "Honor",
        )


def _number(value: object, absent: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else absent


def _claims(pod: Pod) -> Iterator[str]:
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            yield volume.persistent_volume_claim.claim_name
        elif volume.ephemeral is not None:
            yield f"{pod.metadata.name}-{volume.name}"  # the name that the ephemeral volume controller gives


def _unmodelled(pod: Pod) -> Iterator[str]:
    if pod.spec.resource_claims:
        yield "resource claims (DRA)"
    if any(_selects_namespaces(term) for term in _raw_terms(pod.spec.affinity)):
        yield "pod affinity across namespaces chosen by label"
    if any(volume.ephemeral is not None or volume.persistent_volume_claim for volume in pod.spec.volumes):
        yield "limits of volumes per node"


def _raw_terms(affinity: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for kind in ("podAffinity", "podAntiAffinity"):
        yield from (mapping(one) for one in listed(mapping(affinity.get(kind)).get(_REQUIRED)))


def _selects_namespaces(term: Mapping[str, Any]) -> bool:
    return bool(mapping(term.get("namespaceSelector")))
