"""Leader election by a Lease: at most one process works at a time, whatever happens to the API server or the clocks.

Others may take the lease ``lease_seconds`` after they last saw it change. We count from the moment *before* we sent
the renewal that was confirmed, and cancel the work ``renew_deadline_seconds`` after it: the difference is the time the
work has to unwind.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from outrider.api.coordination import Lease
from outrider.api.meta import ObjectMeta
from outrider.kube.client import Client
from outrider.kube.errors import Conflict, KubeError, NotFound
from outrider.kube.kinds import LEASES
from outrider.kube.lease import Observation, claim, may_take, observe, release
from outrider.kube.metrics import LEADER

_LOG: Final = logging.getLogger(__name__)
_RELEASE_SECONDS: Final = 2.0  # of the shutdown grace, for giving the lease back


class LeaderElector:
    """One candidate. ``identity`` must be unique among processes that live at the same time (a pod's name is)."""

    def __init__(  # noqa: PLR0913 - three durations that belong together, each with its default
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
        wall_clock: Callable[[], float] = time.time,
        random_unit: Callable[[], float] = random.random,
    ) -> None:
        if not 0 < retry_seconds < renew_deadline_seconds < lease_seconds:
            raise ValueError("leader election needs 0 < retry_seconds < renew_deadline_seconds < lease_seconds")
        self._client = client
        self._name = lease
        self._namespace = namespace
        self._identity = identity
        self._lease_seconds = lease_seconds
        self._renew_deadline_seconds = renew_deadline_seconds
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._wall_clock = wall_clock  # only for the times that people read in the lease
        self._random_unit = random_unit
        self._seen: Observation | None = None
        self._confirmed = 0.0  # when the last claim that was confirmed had been sent
        self._leading = False
        self._gauge = LEADER.labels(lease)
        self._gauge.set(0)

    @property
    def is_leader(self) -> bool:
        """True while the lease is surely ours, by the clock and not by a task's progress: ask right before acting."""
        return self._leading and self._remaining_seconds() > 0

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Lead whenever possible, until cancelled. An exception of ``work`` releases the lease and is raised.

        ``work`` starts at each election won, and is cancelled when the lease can't be renewed in time. The next
        election begins only once it has ended.
        """
        while True:
            while not await self._attempt():
                await self._pause()
            self._become(leading=True)
            try:
                await self._lead(work)
            finally:
                self._become(leading=False)
                await self._release()
            await self._pause()

    def _become(self, *, leading: bool) -> None:
        self._leading = leading
        self._gauge.set(int(leading))
        details = {"lease": self._name, "identity": self._identity}
        _LOG.info("leading" if leading else "no longer leading", extra=details)

    def _remaining_seconds(self) -> float:
        return self._confirmed + self._renew_deadline_seconds - self._clock()

    async def _pause(self) -> None:
        await asyncio.sleep(self._retry_seconds * (0.75 + self._random_unit() / 2))

    async def _lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Work and renew until one of them ends; both have ended afterwards, even if we are cancelled ourselves."""
        tasks = (asyncio.ensure_future(work()), asyncio.ensure_future(self._renew_until_lost()))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await _ended(tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()

    async def _renew_until_lost(self) -> None:
        try:
            while (remaining := self._remaining_seconds()) > 0:
                async with asyncio.timeout(remaining):
                    await self._pause()
                    if not await self._attempt() and self._taken():
                        return
        except TimeoutError:
            return

    def _taken(self) -> bool:
        return self._seen is None or self._seen.lease.spec.holder_identity != self._identity

    async def _attempt(self) -> bool:
        """Take or renew the lease once. False: somebody else holds it, or the attempt failed, for whatever reason.

        One attempt may use half the time there is, so that a dead connection leaves time for a second one.
        """
        try:
            async with asyncio.timeout(self._renew_deadline_seconds / 2):
                return await self._claim()
        except Exception as error:  # noqa: BLE001 - whatever a renewal fails of, the work must be stopped in time
            problem = str(error) or type(error).__name__
            _LOG.warning("lease not claimed", extra={"lease": self._name, "problem": problem})
            return False

    async def _claim(self) -> bool:
        if not self._leading:
            await self._read()
        if self._seen is None:
            return await self._confirm(self._create)
        if not may_take(self._seen, self._identity, self._lease_seconds, self._clock()):
            return False
        try:
            return await self._confirm(self._replace)
        except (Conflict, NotFound):  # another leader wrote it, or we did and the answer was lost; or it was deleted
            await self._read()
            return False

    async def _confirm(self, write: Callable[[], Awaitable[Lease]]) -> bool:
        sent = self._clock()
        self._seen = observe(self._seen, await write(), self._clock())
        self._confirmed = sent
        return True

    async def _create(self) -> Lease:
        empty = Lease(metadata=ObjectMeta(name=self._name, namespace=self._namespace))
        return await self._client.create(LEASES, self._claimed(empty), self._namespace)

    async def _replace(self) -> Lease:
        current = self._seen.lease if self._seen else Lease()
        return await self._client.replace(LEASES, self._name, self._claimed(current), self._namespace)

    def _claimed(self, current: Lease) -> Lease:
        return claim(current, self._identity, self._lease_seconds, self._wall_clock())

    async def _read(self) -> None:
        try:
            lease = await self._client.get(LEASES, self._name, self._namespace)
        except NotFound:  # deleted by hand, maybe: its holder may go on until it notices
            if self._seen is not None and may_take(self._seen, self._identity, self._lease_seconds, self._clock()):
                self._seen = None
        else:
            self._seen = observe(self._seen, lease, self._clock())

    async def _release(self) -> None:
        """Give the lease back, so that the next leader need not wait. The work has ended; a failure costs only time."""
        if self._seen is None or self._taken():
            return
        freed = release(self._seen.lease, self._wall_clock())
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                await self._client.replace(LEASES, self._name, freed, self._namespace)
        except (KubeError, TimeoutError) as error:
            _LOG.info("lease not released", extra={"lease": self._name, "problem": str(error)})


async def _ended(tasks: Collection["asyncio.Future[None]"]) -> None:
    """Wait for cancelled tasks through further cancellations, which are raised afterwards."""
    waiting = asyncio.ensure_future(asyncio.wait(tasks))
    interrupted = False
    while not waiting.done():
        try:
            await asyncio.shield(waiting)
        except asyncio.CancelledError:
            interrupted = True
    if interrupted:
        raise asyncio.CancelledError
