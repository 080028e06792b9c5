"""Reads the cluster into a snapshot."""

import asyncio
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from outrider import __version__
from outrider.api.meta import ObjectMeta, Resource
from outrider.api.names import SCHEDULER_CONFIG
from outrider.api.times import rfc3339
from outrider.kube.client import Client
from outrider.kube.errors import Forbidden, NotFound
from outrider.kube.kinds import NODES, PODS, Kind
from outrider.kube.transport import connect
from outrider.words import one_line
from scheduler_plugin.config import Config
from scheduler_plugin.offline.saved import VERSION, Saved, key, kinds, settings_of, slim

_MANAGER: Final = "outrider-cli"
_NEEDED: Final = (NODES, PODS)  # no cluster lacks them: without them there is no answer


class _ConfigMap(Resource, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}


_CONFIGMAPS: Final = Kind(_ConfigMap, "configmaps")


async def take(kubeconfig: Path | None, release_namespace: str, settings: Config | None) -> Saved:
    """Return the cluster as it is now, with ``settings`` or those of the planner that is installed.

    Raises KubeError, BadSnapshot.
    """
    async with connect(_MANAGER, kubeconfig=kubeconfig) as client:
        notes: list[str] = []
        config = settings or await _installed(client, release_namespace, notes)
        known = kinds()
        pages = await asyncio.gather(*(_listed(client, kind, notes) for kind in known))
        return Saved(
            version=VERSION,
            taken=rfc3339(time.time()),
            outrider=__version__,
            settings=config,
            objects={key(kind): page for kind, page in zip(known, pages, strict=True) if page},
            notes=notes,
        )


async def _installed(client: Client, namespace: str, notes: list[str]) -> Config:
    try:
        found = await client.get(_CONFIGMAPS, SCHEDULER_CONFIG, namespace)
    except (NotFound, Forbidden) as error:
        notes.append(f"built-in settings hold, since the planner's could not be read: {one_line(error)}")
        return Config()
    return settings_of(found.data.get("config.yaml", "{}"))


async def _listed(client: Client, kind: Kind[Any], notes: list[str]) -> list[msgspec.Raw]:
    try:
        page = await client.list(kind)
    except NotFound:  # a kind that this cluster has not
        return []
    except Forbidden as error:
        if kind in _NEEDED:
            raise
        notes.append(f"{key(kind)} left out: {one_line(error)}")
        return []
    if page.invalid and kind in _NEEDED:
        notes.append(f"{key(kind)}: {len(page.invalid)} could not be read and are left out")
    return slim(page.items)
