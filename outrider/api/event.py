"""core/v1 Event: what happened to an object, as `kubectl describe` shows it."""

from outrider.api.meta import ObjectMeta, Resource, Root, Timestamp


class ObjectReference(Resource, frozen=True, kw_only=True):
    """The object that an event is about."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class EventSource(Resource, frozen=True, kw_only=True):
    """Who reports."""

    component: str = ""


class Event(Root, frozen=True, kw_only=True):
    """An event."""

    metadata: ObjectMeta = ObjectMeta()
    involved_object: ObjectReference = ObjectReference()
    source: EventSource = EventSource()
    type: str = "Normal"
    reason: str = ""
    message: str = ""
    count: int = 0
    first_timestamp: Timestamp | None = None
    last_timestamp: Timestamp | None = None
    reporting_component: str = ""
    api_version: str = "v1"
    kind: str = "Event"
