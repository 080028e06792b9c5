# ruff: noqa: ARG002, ASYNC110 - the signatures are the protocol's; in simulated time polling costs nothing
"""Leases in memory with Kubernetes' optimistic concurrency, for elections in simulated time.

The same elections run against the real API server in test_leader_election_on_a_real_api_server.py; only here can time
be made to jump and answers be lost at will.
"""

import asyncio
from typing import Any

import msgspec

from outrider.api.coordination import Lease
from outrider.kube.errors import AlreadyExists, Conflict, NotFound, Unreachable


class LeaseStore:
    """The stored lease, shared by all candidates of a test."""

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.working: set[object] = set()  # candidates whose work runs now
        self._version = 0

    def put(self, lease: Lease) -> Lease:
        self._version += 1
        metadata = msgspec.structs.replace(lease.metadata, resource_version=str(self._version))
        self.lease = msgspec.structs.replace(lease, metadata=metadata)
        return self.lease


class LeaseClient:
    """One candidate's way to the store: slow, cut, or losing answers, as the test says."""

    def __init__(self, store: LeaseStore, latency_seconds: float = 0.01) -> None:
        self._store = store
        self.latency_seconds = latency_seconds
        self.reachable = True
        self.hangs = False
        self.loses_answers = False

    async def get(self, kind: Any, name: str, namespace: str = "") -> Lease:
        await self._travel()
        if self._store.lease is None:
            raise NotFound(name, 404)
        return await self._answer(self._store.lease)

    async def create(self, kind: Any, body: Lease, namespace: str = "", subresource: str = "", name: str = "") -> Lease:
        await self._travel()
        if self._store.lease is not None:
            raise AlreadyExists(name, 409)
        return await self._answer(self._store.put(body))

    async def replace(self, kind: Any, name: str, body: Lease, namespace: str = "", subresource: str = "") -> Lease:
        await self._travel()
        if self._store.lease is None:
            raise NotFound(name, 404)
        if body.metadata.resource_version != self._store.lease.metadata.resource_version:
            raise Conflict(name, 409)
        return await self._answer(self._store.put(body))

    async def _travel(self) -> None:
        await asyncio.sleep(self.latency_seconds)
        while self.hangs:
            await asyncio.sleep(0.5)
        if not self.reachable:
            raise Unreachable("connection refused")

    async def _answer(self, lease: Lease) -> Lease:
        await asyncio.sleep(self.latency_seconds)
        if self.loses_answers:
            raise Unreachable("connection reset")
        return lease
