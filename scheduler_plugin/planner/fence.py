"""Keeps a planner that leads no more from writing: every write asks right before it is sent.

A write already under way then meets the conditions that it carries: the version of the placement that it was decided
on, the UID and the gate of the pod. Should one still come through, it names nodes in a placement that the next leader
reads like any other; of two plans for one GPU the later gang's is made anew (``case``).
"""

from collections.abc import AsyncGenerator, Callable
from typing import Any

from outrider.kube.client import EVERYTHING, Client, Page, PatchType, Selector, WatchEvent
from outrider.kube.errors import KubeError
from outrider.kube.kinds import Kind, T


class NotLeading(KubeError):
    """Another planner may lead by now, so nothing is written."""


class FencedClient:
    """A client whose writes raise NotLeading unless ``leading`` says, at that moment, that the lease is ours."""

    def __init__(self, client: Client, leading: Callable[[], bool]) -> None:
        self._client, self._leading = client, leading

    def _check(self) -> None:
        if not self._leading():
            raise NotLeading("the lease is not ours any more")

    async def get(self, kind: Kind[T], name: str, namespace: str = "") -> T:
        """As the client's."""
        return await self._client.get(kind, name, namespace)

    async def list(self, kind: Kind[T], selector: Selector = EVERYTHING) -> Page[T]:
        """As the client's."""
        return await self._client.list(kind, selector)

    def watch(
        self, kind: Kind[T], resource_version: str, selector: Selector = EVERYTHING
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """As the client's."""
        return self._client.watch(kind, resource_version, selector)

    async def create(self, kind: Kind[T], body: Any, namespace: str = "", subresource: str = "", name: str = "") -> T:
        """As the client's. Raises NotLeading."""
        self._check()
        return await self._client.create(kind, body, namespace, subresource, name)

    async def replace(self, kind: Kind[T], name: str, body: Any, namespace: str = "", subresource: str = "") -> T:
        """As the client's. Raises NotLeading."""
        self._check()
        return await self._client.replace(kind, name, body, namespace, subresource)

    async def patch(
        self, kind: Kind[T], name: str, body: Any, patch_type: PatchType, namespace: str = "", subresource: str = ""
    ) -> T:
        """As the client's. Raises NotLeading."""
        self._check()
        return await self._client.patch(kind, name, body, patch_type, namespace, subresource)

    async def delete(self, kind: Kind[T], name: str, namespace: str = "", uid: str = "") -> None:
        """As the client's. Raises NotLeading."""
        self._check()
        await self._client.delete(kind, name, namespace, uid)
