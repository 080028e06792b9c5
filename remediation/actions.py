"""Carries out the ladder's actions. Each is conditional on what was seen and safe to repeat."""

import logging
from typing import Any, Final

from outrider.api.core import Node
from outrider.api.names import CHECKPOINT_REQUEST_ANNOTATION
from outrider.health.taint import taint_of
from outrider.kube.client import Client, PatchType
from outrider.kube.errors import Conflict, NotFound, TooManyRequests
from outrider.kube.eviction import evict
from outrider.kube.kinds import NODES, PODS
from remediation.decisions import Action, AddTaint, Evict, RequestCheckpoint
from remediation.metrics import ACTIONS

_LOG: Final = logging.getLogger(__name__)


async def perform(client: Client, action: Action) -> str:
    """Take one action. Returns why it could not be taken yet, empty where it was.

    An object that is gone, or was replaced by another of its name, needs no action. Raises KubeError.
    """
    outcome = "done"
    try:
        await _act(client, action)
    except (NotFound, Conflict) as error:
        outcome = "moot"
        _LOG.info("nothing to act on", extra={"action": repr(action), "problem": str(error)})
    except TooManyRequests as error:
        outcome = "refused"
        return _refused(action, error)
    finally:
        ACTIONS.labels(type(action).__name__, outcome).inc()
    return ""


async def _act(client: Client, action: Action) -> None:
    match action:
        case AddTaint():
            await _add_taint(client, action)
        case RequestCheckpoint():
            body = {"metadata": {"uid": action.uid, "annotations": {CHECKPOINT_REQUEST_ANNOTATION: action.value}}}
            await client.patch(PODS, action.pod, body, PatchType.MERGE, action.namespace)
        case Evict():
            await evict(client, action.namespace, action.pod, action.uid, action.node)
    _LOG.info("acted", extra={"action": repr(action)})


async def _add_taint(client: Client, action: AddTaint) -> None:
    node = await client.get(NODES, action.node)
    if taint_of(node) is not None:
        return
    await client.patch(NODES, action.node, taint_patch(node, action), PatchType.JSON)


def taint_patch(node: Node, action: AddTaint) -> list[dict[str, Any]]:
    """Return the JSON patch that appends the taint, valid only for the version of the node that was read."""
    taint = {"key": action.taint.key, "value": action.taint.value, "effect": action.taint.effect}
    append = {"op": "add", "path": "/spec/taints/-", "value": taint}
    first = {"op": "add", "path": "/spec/taints", "value": [taint]}
    version = {"op": "add", "path": "/metadata/resourceVersion", "value": node.metadata.resource_version}
    return [version, append if node.spec.taints else first]


def _refused(action: Action, error: TooManyRequests) -> str:
    if isinstance(action, Evict):
        return f"eviction of {action.namespace}/{action.pod} was refused, it is tried again: {error}"
    return f"the API server asks to slow down: {error}"
