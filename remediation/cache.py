"""The controller's informers, and one snapshot of them with our own latest writes laid over."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

from outrider.api.core import Node, Pod
from outrider.api.gangplacement import GangPlacement
from outrider.api.gpunode import GPUNode
from outrider.api.names import JOB_UID_LABEL
from outrider.api.remediation import Remediation
from outrider.api.trainingpolicy import TrainingPolicy
from outrider.kube.client import Client, Selector
from outrider.kube.informer import Informer
from outrider.kube.kinds import GANGPLACEMENTS, GPUNODES, NODES, PODS, REMEDIATIONS, TRAININGPOLICIES
from remediation.world import World

_GANGS: Final = Selector(labels=JOB_UID_LABEL)


class Cache:
    """Local copies of everything the ladder looks at."""

    def __init__(self, client: Client) -> None:
        self.gpu_nodes: Informer[GPUNode] = Informer(client, GPUNODES)
        self.nodes: Informer[Node] = Informer(client, NODES)
        self.pods: Informer[Pod] = Informer(client, PODS, _GANGS)
        self.placements: Informer[GangPlacement] = Informer(client, GANGPLACEMENTS)
        self.remediations: Informer[Remediation] = Informer(client, REMEDIATIONS)
        self.policies: Informer[TrainingPolicy] = Informer(client, TRAININGPOLICIES)
        self._written: dict[str, Remediation] = {}
        self.remediations.subscribe(self._seen)

    def _all(self) -> tuple[Informer[Any], ...]:
        return (self.gpu_nodes, self.nodes, self.pods, self.placements, self.remediations, self.policies)

    async def run(self) -> None:
        """Keep all copies fresh until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self._all():
                group.create_task(informer.run())

    async def synced(self) -> None:
        """Return once every informer has listed."""
        for informer in self._all():
            await informer.synced.wait()

    @property
    def complete(self) -> bool:
        """True once every informer has listed."""
        return all(informer.synced.is_set() for informer in self._all())

    @property
    def staleness_seconds(self) -> float:
        """Silence of the most silent watch, in seconds."""
        return max(informer.staleness_seconds for informer in self._all())

    def wrote(self, episode: Remediation) -> None:
        """Remember an episode that we wrote, until the watch brings that version or a later one."""
        self._written[episode.metadata.name] = episode
        if (current := self.remediations.get(episode.metadata.name)) is not None:
            self._seen(None, current)

    def forget(self, name: str) -> None:
        """Trust the watch alone again, after a write that met a newer version."""
        self._written.pop(name, None)

    def _seen(self, old: Remediation | None, current: Remediation | None) -> None:
        if current is None:
            self.forget(old.metadata.name if old else "")
            return
        ours = self._written.get(current.metadata.name)
        if ours is not None and not _newer(ours, current):
            del self._written[current.metadata.name]

    def world(self, gpu_nodes: Iterable[GPUNode] = ()) -> World:
        """Return a snapshot; ``gpu_nodes`` read live replace their copies."""
        return World(
            gpu_nodes={**self.gpu_nodes.items, **{node.metadata.name: node for node in gpu_nodes}},
            nodes=dict(self.nodes.items),
            pods=dict(self.pods.items),
            placements=dict(self.placements.items),
            remediations={**self.remediations.items, **self._written},
            policies=dict(self.policies.items),
        )

    def on_change(self, call: Callable[[Any, Any], None]) -> None:
        """Call ``call(old, new)`` at each change of what may move an episode on."""
        for informer in (self.gpu_nodes, self.nodes, self.pods, self.remediations):
            informer.subscribe(call)


def _newer(ours: Remediation, theirs: Remediation) -> bool:
    """Compare resource versions as whole numbers, which Kubernetes guarantees to be ordered (KEP-5504)."""
    return int(ours.metadata.resource_version) > int(theirs.metadata.resource_version)
