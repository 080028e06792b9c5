"""Which kinds are followed: an informer for each feeds the World, and tells how far its copy can be trusted."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from outrider.api.gangplacement import GangPlacement
from outrider.kube.client import Client
from outrider.kube.errors import Forbidden, KubeError, NotFound
from outrider.kube.informer import Informer
from outrider.kube.kinds import (
    GANGPLACEMENTS,
    GPUNODES,
    JOBS,
    NODES,
    OPTIONAL_OWNERS,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    PODS,
    REMEDIATIONS,
    STATEFULSETS,
    STORAGECLASSES,
    TRAININGPOLICIES,
    Kind,
)
from scheduler_plugin.cluster.thinning import Thinner
from scheduler_plugin.cluster.world import World
from scheduler_plugin.metrics import STALENESS_SECONDS

_LOG: Final = logging.getLogger(__name__)
# How often to look whether an optional kind has been installed. A gang whose owner is not known is placed as single
# pods some 10 seconds after it was made.
_ABSENT_SECONDS: Final = 5.0
_ABSENT: Final = (NotFound, Forbidden)
_MEASURE_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 1.0  # how soon stale data is noticed, and its end

Callback = Callable[[Any, Any], None]
Feed = Callable[[World, Any, Any], None]

# Kinds without which decisions are poorer but no guess, and what takes them into the World; snapshots hold them too.
HELPFUL: Final[Sequence[tuple[Kind[Any], Feed]]] = (
    (JOBS, World.on_job),
    (STATEFULSETS, World.on_job),
    (TRAININGPOLICIES, World.on_policy),
    (REMEDIATIONS, World.on_remediation),
    (PERSISTENTVOLUMES, World.on_volume),
    (PERSISTENTVOLUMECLAIMS, World.on_volume_claim),
    (STORAGECLASSES, World.on_storage_class),
)


class Following:
    """Informers of a World. ``vital`` kinds are those without which a decision would be a guess."""

    def __init__(self, client: Client, world: World) -> None:
        thinner = Thinner()
        self._client, self._world, self._on_owner = client, world, world.on_job
        self._vital = [
            self._informer(replace(NODES, keep=thinner.node), world.on_node),
            self._informer(replace(GPUNODES, keep=thinner.gpunode), world.on_gpunode),
            self._informer(GANGPLACEMENTS, self._on_placement),
            self._informer(replace(PODS, keep=thinner.pod), world.on_pod),
        ]
        self._helpful = [self._informer(kind, partial(feed, world)) for kind, feed in HELPFUL]

    def _informer(self, kind: Kind[Any], callback: Callback) -> Informer[Any]:
        informer = Informer(self._client, kind)
        informer.subscribe(callback)
        return informer

    def _on_placement(self, old: GangPlacement | None, new: GangPlacement | None) -> None:
        """Take a plan of another replica at once: the scheduler beside us may ask about its pods any moment."""
        self._world.on_placement(old, new)
        self._world.refresh()

    async def run(self) -> None:
        """Follow until cancelled, whatever happens to the API server or to a kind."""
        async with asyncio.TaskGroup() as group:
            for informer in [*self._vital, *self._helpful]:
                group.create_task(informer.run())
            for versions in OPTIONAL_OWNERS:
                group.create_task(self._follow_optional(versions))
            group.create_task(self._measure())

    async def synced(self) -> None:
        """Wait until every kind is listed, as far as it can be."""
        while self.missing():  # noqa: ASYNC110 - a kind may also turn out not to be there, which no event tells
            await asyncio.sleep(0.1)

    def missing(self) -> str | None:
        """Return what is still missing before filter can answer, None when nothing is.

        A vital kind must be listed. Of the others, one that can't be (not installed, no right to it) is done without.
        """
        open_ = [one for one in self._vital if not one.synced.is_set()]
        open_ += [one for one in self._helpful if not one.synced.is_set() and not isinstance(one.problem, _ABSENT)]
        if not open_:
            return None
        names = ", ".join(f"{one.resource} ({one.problem})" if one.problem else one.resource for one in open_)
        return f"not listed yet: {names}"

    async def fresh(self, lag_seconds: float) -> None:
        """Wait until the copies are not older than that."""
        while self.staleness_seconds > lag_seconds:  # noqa: ASYNC110 - time passes without any event
            await asyncio.sleep(_LOOK_SECONDS)

    async def stale(self, lag_seconds: float) -> None:
        """Wait until a vital copy is older than that."""
        while self.staleness_seconds <= lag_seconds:  # noqa: ASYNC110 - time passes without any event
            await asyncio.sleep(_LOOK_SECONDS)

    @property
    def staleness_seconds(self) -> float:
        """How old the copy of a vital kind may be at worst."""
        return max(one.staleness_seconds for one in self._vital)

    async def _measure(self) -> None:
        while True:
            for informer in [*self._vital, *self._helpful]:
                STALENESS_SECONDS.labels(informer.resource).set(informer.staleness_seconds)
            await asyncio.sleep(_MEASURE_SECONDS)

    async def _follow_optional(self, versions: Sequence[Kind[Any]]) -> None:
        """Follow the first version that the cluster serves; where it serves none, look again now and then."""
        while True:
            for kind in versions:
                if await self._served(kind):
                    await self._informer(kind, self._on_owner).run()
            await asyncio.sleep(_ABSENT_SECONDS)

    async def _served(self, kind: Kind[Any]) -> bool:
        try:
            await self._client.list(kind)
        except NotFound:
            return False
        except KubeError as error:
            _LOG.warning("can't list a kind of job", extra={"resource": kind.plural, "problem": str(error)})
            return False
        return True
