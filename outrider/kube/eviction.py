"""Eviction of one pod as it was seen: by UID, and only where it still is."""

from typing import Any

from outrider.kube.client import Client
from outrider.kube.errors import NotFound
from outrider.kube.kinds import PODS


async def evict(client: Client, namespace: str, name: str, uid: str, node: str) -> None:
    """Evict the pod of this UID if it is on ``node`` ("": not bound yet).

    The pod is read first: the API server tries an eviction whose UID does not match for ten seconds before it says so.
    Raises NotFound where the pod is gone, was replaced, or is elsewhere; TooManyRequests where a PodDisruptionBudget
    forbids it; KubeError.
    """
    pod = await client.get(PODS, name, namespace)
    if (pod.metadata.uid, pod.spec.node_name) != (uid, node):
        raise NotFound(f"pod {namespace}/{name} with uid {uid} is not on {node or 'no node'} any more", 404)
    await client.create(PODS, eviction(namespace, name, uid), namespace, "eviction", name)


def eviction(namespace: str, name: str, uid: str) -> dict[str, Any]:
    """Return the body of policy/v1 Eviction. The API server evicts only the pod of this UID."""
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": uid}},
    }
