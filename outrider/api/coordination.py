"""coordination.k8s.io/v1 Lease: who leads, and until when."""

from outrider.api.meta import ObjectMeta, Resource, Root, Timestamp


class LeaseSpec(Resource, frozen=True, kw_only=True):
    """The holder's claim. An empty holder means that the lease is free."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: Timestamp | None = None
    renew_time: Timestamp | None = None
    lease_transitions: int = 0


class Lease(Root, frozen=True, kw_only=True):
    """A lease."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()
    api_version: str = "coordination.k8s.io/v1"
    kind: str = "Lease"
