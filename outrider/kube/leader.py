"""Leader election by a Lease: at most one process works at a time."""

import time
from collections.abc import Awaitable, Callable

from outrider.kube.client import Client


class LeaderElector:
    """Skeleton."""

    def __init__(  # noqa: PLR0913
        self,
        client: Client,
        lease: str,
        namespace: str,
        identity: str,
        *,
        lease_seconds: float = 15.0,
        renew_deadline_seconds: float = 10.0,
        retry_seconds: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        raise NotImplementedError(
            client, lease, namespace, identity, lease_seconds, renew_deadline_seconds, retry_seconds, clock
        )

    @property
    def is_leader(self) -> bool:
        """True while the lease is held."""
        raise NotImplementedError

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Elect for ever."""
        raise NotImplementedError(work)
