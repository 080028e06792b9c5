"""Keeps this node's DeviceTaintRules as they should be: one for each device of a sick GPU, none else.

Costs nothing while all GPUs are well: slices and rules are read only while a GPU has a hard verdict, and once after a
start and after that, to remove what is left.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

from node_agent.publishing.devices import Isolation, devices_of, labels_of
from outrider.api.core import Node
from outrider.api.resource import DeviceTaintRule
from outrider.kube.client import Client, PatchType, Selector
from outrider.kube.errors import AlreadyExists, Forbidden, NotFound
from outrider.kube.kinds import DEVICETAINTRULES, RESOURCESLICES

_LOG: Final = logging.getLogger(__name__)
_LOOK_AGAIN_SECONDS: Final = 600.0  # for an API that is not served: a cluster is upgraded once in months


class DeviceTaints:
    """The rules of one node. Its methods raise KubeError where the API server can't be asked now."""

    def __init__(self, client: Client, node: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._node = node
        self._clock = clock
        self._absent_until = float("-inf")
        self._clean = False
        self._selector = Selector(labels=",".join(f"{key}={value}" for key, value in labels_of(node).items()))

    async def devices(self, node: Node) -> dict[str, list[str]]:
        """Return the names of the DRA devices on each GPU by UUID; none where the cluster can't taint devices."""
        if self._clock() < self._absent_until:
            return {}
        try:
            await self._rules()
            page = await self._client.list(RESOURCESLICES, Selector(fields=f"spec.nodeName={self._node}"))
        except (NotFound, Forbidden) as error:
            self.absent(error)
            return {}
        return devices_of(page.items, node)

    async def apply(self, wanted: Isolation, *, may_remove: bool) -> tuple[list[str], list[str]]:
        """Bring the rules in line; return the names of those made or changed, and of those removed.

        Raises Forbidden or Invalid where the API server refuses a rule: then the node must be tainted instead.
        """
        if (self._clean and not wanted.rules) or self._clock() < self._absent_until:
            return [], []
        try:
            existing = await self._rules()
        except (NotFound, Forbidden) as error:
            self.absent(error)
            return [], []
        made = [name for name, rule in wanted.rules.items() if await self._put(rule, existing.get(name))]
        gone = sorted(existing.keys() - wanted.rules.keys() - wanted.kept) if may_remove else []
        for name in gone:
            await self._client.delete(DEVICETAINTRULES, name)
        self._clean = existing.keys() <= set(gone) and not wanted.rules
        return made, gone

    async def _rules(self) -> dict[str, DeviceTaintRule]:
        page = await self._client.list(DEVICETAINTRULES, self._selector)
        return {rule.metadata.name: rule for rule in page.items}

    async def _put(self, rule: DeviceTaintRule, existing: DeviceTaintRule | None) -> bool:
        if existing is None:
            self._clean = False
            try:
                await self._client.create(DEVICETAINTRULES, rule)
            except AlreadyExists:  # somebody took off our label: put it back, so that we find the rule to remove it
                await self._patch(rule)
            return True
        if existing.spec == rule.spec:
            return False
        await self._patch(rule)
        return True

    async def _patch(self, rule: DeviceTaintRule) -> None:
        taint = {"key": rule.spec.taint.key, "value": rule.spec.taint.value, "effect": rule.spec.taint.effect}
        body = {"metadata": {"labels": rule.metadata.labels}, "spec": {"taint": taint}}
        await self._client.patch(DEVICETAINTRULES, rule.metadata.name, body, PatchType.MERGE)

    def absent(self, error: Exception) -> None:
        """Taint no devices for a while: the API server has no such API, or refuses."""
        self._absent_until = self._clock() + _LOOK_AGAIN_SECONDS
        _LOG.info("single devices can't be tainted here, nodes will be", extra={"problem": str(error)})
