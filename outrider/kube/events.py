"""Events that users see in `kubectl describe`: what happened, where, what to do next."""

import hashlib
import logging
import time
from collections.abc import Callable
from typing import Final

from cachetools import TTLCache

from outrider.api.event import Event, EventSource, ObjectReference
from outrider.api.meta import ObjectMeta
from outrider.api.times import rfc3339
from outrider.kube.client import Client
from outrider.kube.errors import AlreadyExists, KubeError
from outrider.kube.kinds import EVENTS, Kind, Object, T
from outrider.kube.metrics import EVENTS_LOST

_LOG: Final = logging.getLogger(__name__)
_DEDUPE_SECONDS: Final = 900
_REMEMBERED: Final = 4096
_MESSAGE_BYTES: Final = 1024  # limit of core/v1 Event


class EventRecorder:
    """Writes events. The same object, reason and message are written once in 15 minutes, restarts included."""

    def __init__(self, client: Client, component: str, *, clock: Callable[[], float] = time.time) -> None:
        self._client = client
        self._component = component
        self._clock = clock
        self._seen: TTLCache[str, None] = TTLCache(_REMEMBERED, _DEDUPE_SECONDS, timer=clock)

    async def emit(self, obj: T, kind: Kind[T], *, reason: str, message: str, warning: bool = False) -> None:
        """Write one event about ``obj``; one that can't be written is logged and counted, never raised."""
        key = _digest(obj.metadata.uid or obj.metadata.name, self._component, reason, message)
        if key in self._seen:
            return
        self._seen[key] = None
        event = self._event(obj, kind, key, "Warning" if warning else "Normal", reason, message)
        try:
            await self._client.create(EVENTS, event, event.metadata.namespace)
        except AlreadyExists:
            return  # written before our restart, or by another replica
        except KubeError as error:
            self._seen.pop(key, None)
            EVENTS_LOST.inc()
            details = {"object": event.metadata.name, "reason": reason, "text": message, "problem": str(error)}
            _LOG.warning("event not written", extra=details)

    def _event(self, obj: Object, kind: Kind[T], key: str, severity: str, reason: str, message: str) -> Event:
        now = self._clock()
        window = _digest(key, str(int(now / _DEDUPE_SECONDS)))
        return Event(
            metadata=ObjectMeta(name=f"{obj.metadata.name}.{window}", namespace=obj.metadata.namespace or "default"),
            involved_object=_reference(obj, kind),
            source=EventSource(component=self._component),
            reporting_component=self._component,
            type=severity,
            reason=reason,
            message=message.encode()[:_MESSAGE_BYTES].decode(errors="ignore"),
            count=1,
            first_timestamp=rfc3339(now),
            last_timestamp=rfc3339(now),
        )


def _reference(obj: Object, kind: Kind[T]) -> ObjectReference:
    return ObjectReference(
        api_version=kind.api_version,
        kind=kind.name,
        name=obj.metadata.name,
        namespace=obj.metadata.namespace,
        uid=obj.metadata.uid,
        resource_version=obj.metadata.resource_version,
    )


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
