"""Events that users see in `kubectl describe`."""

import time
from collections.abc import Callable

from outrider.kube.client import Client
from outrider.kube.kinds import Kind, T


class EventRecorder:
    """Skeleton."""

    def __init__(self, client: Client, component: str, *, clock: Callable[[], float] = time.time) -> None:
        raise NotImplementedError(client, component, clock)

    async def emit(self, obj: T, kind: Kind[T], *, reason: str, message: str, warning: bool = False) -> None:
        """Write one event."""
        raise NotImplementedError(obj, kind, reason, message, warning)
