"""Requests to the API server. The only importer of ``kubernetes``, which gives us credentials and TLS, no models."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from outrider.kube.client import Client


@asynccontextmanager
async def connect(
    field_manager: str, *, kubeconfig: Path | None = None, dry_run: bool = False
) -> AsyncIterator[Client]:
    """Yield a client."""
    raise NotImplementedError(field_manager, kubeconfig, dry_run)
    yield
