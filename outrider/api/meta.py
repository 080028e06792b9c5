"""Kubernetes metadata, in the fields that Outrider reads or writes."""

from typing import Annotated, Final

import msgspec

MESSAGE_MAX: Final = 1024  # characters of a status message that a custom resource holds

Timestamp = Annotated[str, msgspec.Meta(description="RFC 3339 time in UTC", extra={"format": "date-time"})]


class Resource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Base of all wire structs: immutable, camelCase names, absent fields left out, unknown fields ignored.

    The garbage collector passes over them: a tree read from JSON holds no cycle, and looking through those of a large
    cluster would stop the process for most of a second.
    """


class Root(Resource, frozen=True, kw_only=True, omit_defaults=False):
    """Base of the objects that Outrider writes whole: apiVersion and kind go out although they are defaults."""


class OwnerReference(Resource, frozen=True, kw_only=True):
    """Points from an object to its owner."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Resource, frozen=True, kw_only=True):
    """The part of metadata that Outrider uses."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []

    @property
    def key(self) -> str:
        """namespace/name, or the name of a cluster-scoped object, as users write it."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def controller(self) -> OwnerReference | None:
        """Return the owner that manages this object, if any."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class Condition(Resource, frozen=True, kw_only=True):
    """One entry of status.conditions (KEP-1623)."""

    type: str
    status: Annotated[str, msgspec.Meta(pattern="^(True|False|Unknown)$")]
    reason: str
    message: str = ""
    last_transition_time: Timestamp
    observed_generation: int = 0
