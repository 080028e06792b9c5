"""What Outrider asks of the Kubernetes API, as a protocol: transport.py answers it, components depend only on it."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Generic, Protocol

from outrider.api.meta import ObjectMeta
from outrider.kube.kinds import Kind, T


class PatchType(StrEnum):
    """Content types of PATCH."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class EventType(StrEnum):
    """Types of watch events. The API server's ERROR never reaches callers, it is raised; INVALID is our own."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"  # nothing changed; metadata.resource_version is where to resume
    INVALID = "INVALID"  # the object changed into something that does not decode


@dataclass(frozen=True)
class WatchEvent(Generic[T]):
    """One change. ``object`` is None for BOOKMARK and INVALID; ``problem`` names the field that made it INVALID."""

    type: EventType
    metadata: ObjectMeta
    object: T | None = None
    problem: str = ""


@dataclass(frozen=True)
class Page(Generic[T]):
    """A whole list (all chunks) and the version to watch from. ``invalid``: key of what did not decode -> why."""

    items: list[T]
    resource_version: str
    invalid: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Selector:
    """Server-side filters of list and watch."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""
    query: Mapping[str, str] = field(default_factory=dict)


EVERYTHING: Final = Selector()


class Client(Protocol):
    """The verbs. Every method raises a subclass of outrider.kube.errors.KubeError and nothing else of the library.

    Bodies are plain JSON-like values or msgspec structs. ``dry_run`` is the transport's own switch, not a parameter.
    """

    async def get(self, kind: Kind[T], name: str, namespace: str = "") -> T:
        """Return one object. Raises NotFound."""
        ...

    async def list(self, kind: Kind[T], selector: Selector = EVERYTHING) -> Page[T]:
        """Return all objects that the selector passes; those that do not decode are named in the page's ``invalid``."""
        ...

    def watch(
        self, kind: Kind[T], resource_version: str, selector: Selector = EVERYTHING
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """Yield changes after ``resource_version``. Raises Gone on 410, KubeError when the stream breaks."""
        ...

    async def create(self, kind: Kind[T], body: Any, namespace: str = "", subresource: str = "", name: str = "") -> T:
        """Create an object, or POST to a subresource such as pods/NAME/eviction. Raises AlreadyExists.

        Where the API server answers with a Status instead of the object, as it does to an eviction, the result holds
        only name and namespace. An eviction that a PodDisruptionBudget refuses raises TooManyRequests.
        """
        ...

    async def replace(self, kind: Kind[T], name: str, body: Any, namespace: str = "", subresource: str = "") -> T:
        """PUT: conditional on metadata.resourceVersion in the body. Raises Conflict."""
        ...

    async def patch(
        self, kind: Kind[T], name: str, body: Any, patch_type: PatchType, namespace: str = "", subresource: str = ""
    ) -> T:
        """Patch an object; conditional where the body holds metadata.resourceVersion or a JSON-patch test.

        Give plain values to a MERGE patch: a struct leaves out the fields that have their default, so it resets none.
        """
        ...

    async def delete(self, kind: Kind[T], name: str, namespace: str = "", uid: str = "") -> None:
        """Delete an object, only if its UID is the given one where given. An object already gone is no error."""
        ...
