"""Evictions: of pods that can't start where they are pinned, and of whole gangs for others of higher priority.

Each names the pod's UID, so that the pod that took its place is never hit; disruption budgets hold. What is refused or
interrupted is asked for again by the gang's next step.
"""

import logging
from collections.abc import Iterable
from typing import Final

from outrider.api.core import Pod
from outrider.api.gangplacement import Victim
from outrider.kube.client import Client
from outrider.kube.errors import Conflict, NotFound, TooManyRequests
from outrider.kube.eviction import eviction
from outrider.kube.kinds import PODS
from scheduler_plugin.cluster.members import gone

_LOG: Final = logging.getLogger(__name__)


async def evict_pods(client: Client, pods: Iterable[Pod], why: str) -> list[Pod]:
    """Evict the pods that are still the same; return those that were."""
    return [
        pod for pod in pods if await _evict(client, pod.metadata.namespace, pod.metadata.name, pod.metadata.uid, why)
    ]


async def displace(client: Client, victims: Iterable[Victim], why: str) -> list[Victim]:
    """Evict every pod of the gangs; return those gangs of which a pod was evicted now."""
    moved = []
    for victim in victims:
        pods = zip(victim.pods, victim.pod_uids, strict=False)
        if sum([await _evict(client, victim.namespace, name, uid, why) for name, uid in pods]):
            moved.append(victim)
    return moved


async def _evict(client: Client, namespace: str, name: str, uid: str, why: str) -> bool:
    """Evict one pod. It is read first: the API server tries an eviction of another UID for ten seconds."""
    details = {"pod": f"{namespace}/{name}", "why": why}
    try:
        pod = await client.get(PODS, name, namespace)
        if pod.metadata.uid != uid or gone(pod):
            return False
        await client.create(PODS, eviction(namespace, name, uid), namespace, "eviction", name)
    except (NotFound, Conflict):
        return False
    except TooManyRequests as error:
        _LOG.warning("pod not evicted yet, tried again", extra={**details, "problem": str(error)})
        return False
    _LOG.warning("pod evicted", extra=details)
    return True
