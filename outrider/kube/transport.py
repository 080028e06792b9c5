"""Requests to the API server. The only importer of ``kubernetes``, which reads kubeconfigs for us, and no models.

It is imported only where there is a kubeconfig to read: pods have a service account (credentials.py). Its request
method is not used: it knows one number as timeout, which a watch can't live with, and it encodes bodies again. Bytes go
from aiohttp to msgspec.
"""

import asyncio
import os
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from outrider import __version__
from outrider.kube import wire
from outrider.kube.client import EVERYTHING, Client, Page, PatchType, Selector, WatchEvent
from outrider.kube.credentials import HOST_VARIABLE, Credentials, ServiceAccount
from outrider.kube.errors import Conflict, Gone, NoCredentials, NotFound, Unreachable
from outrider.kube.kinds import LEASES, Kind, T
from outrider.kube.metrics import REQUEST_SECONDS

_CONNECT_SECONDS: Final = 5.0
_REQUEST: Final = aiohttp.ClientTimeout(total=10.0, sock_connect=_CONNECT_SECONDS)
# The API server tries an eviction again for 10 seconds where the pod changed, or has another UID than the wanted one.
_EVICTION: Final = aiohttp.ClientTimeout(total=15.0, sock_connect=_CONNECT_SECONDS)
# A bookmark comes about once a minute, so a stream that is silent for longer than this is dead.
_WATCH: Final = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=70.0)
_WATCH_SECONDS: Final = 290  # the API server ends the stream then; below the five minutes of many load balancers
_IN_FLIGHT: Final = 32  # requests at a time; more wait their turn before their time limit starts
_CHUNK_OBJECTS: Final = 500  # per list request, as client-go: bounds the answer at some 10 MB of nodes
_BROKEN: Final = (aiohttp.ClientError, TimeoutError, OSError)


@asynccontextmanager
async def connect(
    field_manager: str, *, kubeconfig: Path | None = None, dry_run: bool = False
) -> AsyncIterator[Client]:
    """Yield a client: of the pod's service account, else of ``kubeconfig``, $KUBECONFIG or ~/.kube/config.

    ``field_manager`` names the writer in managedFields. With ``dry_run`` the API server checks every write and stores
    none, so a leader election needs a client of its own. Raises NoCredentials.
    """
    in_cluster = kubeconfig is None and HOST_VARIABLE in os.environ
    credentials = ServiceAccount(os.environ) if in_cluster else await _kubeconfig(kubeconfig)
    async with session(credentials, field_manager, dry_run=dry_run) as client:
        yield client


@asynccontextmanager
async def session(credentials: Credentials, field_manager: str, *, dry_run: bool = False) -> AsyncIterator[Client]:
    """Yield a client with these credentials; see ``connect``."""
    connector = aiohttp.TCPConnector(ssl=credentials.tls, limit=0)
    # An uncompressed answer costs less than inflating it: the API server is in the same network.
    headers = {"User-Agent": f"outrider/{__version__} ({field_manager})", "Accept-Encoding": "identity"}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as pool:
        yield Transport(pool, credentials, field_manager, dry_run=dry_run)


def _find(path: Path | None) -> None:
    """Raise NoCredentials, with the places looked at, where there is no kubeconfig: the library only logs that."""
    named = [str(path)] if path else os.environ.get("KUBECONFIG", "").split(os.pathsep)
    files = [os.path.expanduser(file) for file in named if file] or [os.path.expanduser("~/.kube/config")]
    if not any(map(os.path.exists, files)):
        raise NoCredentials(f"no kubeconfig at {' or '.join(files)}; set KUBECONFIG to a file that names your cluster")


async def _kubeconfig(path: Path | None) -> Credentials:
    _find(path)
    try:
        from kubernetes.aio import config
        from kubernetes.aio.client import ApiClient, Configuration

        configuration = Configuration()
        await config.load_kube_config(  # type: ignore[no-untyped-call] # theirs
            None if path is None else str(path), client_configuration=configuration, persist_config=False
        )
        async with ApiClient(configuration) as api:
            return _Kubeconfig(configuration, api.rest_client.ssl_context)
    except Exception as error:  # the loader checks nothing: a bent file raises whatever it comes upon
        where = path or "service account or kubeconfig"
        problem = str(error) or type(error).__name__
        raise NoCredentials(f"{where}: {problem}; set KUBECONFIG to a file that names your cluster") from error


class _Kubeconfig:
    """Credentials from a kubeconfig, as the library keeps them fresh."""

    def __init__(self, configuration: Any, tls: ssl.SSLContext) -> None:
        self._configuration = configuration
        self.root = configuration.host.rstrip("/")
        self.tls = tls
        self.proxy: str | None = configuration.proxy
        self.server_name: str | None = configuration.tls_server_name

    async def authorization(self) -> str:
        """See Credentials."""
        try:
            token = (await self._configuration.auth_settings()).get("BearerToken")
        except Exception as error:  # a command or a provider that gives tokens may fail in any way
            raise Unreachable(f"kubeconfig: no token: {str(error) or type(error).__name__}") from error
        return token["value"].strip() if token and token["value"] else ""


class Transport:
    """The client, on one pool of connections. Use ``connect``."""

    def __init__(
        self, session: aiohttp.ClientSession, credentials: Credentials, field_manager: str, *, dry_run: bool
    ) -> None:
        self._session = session
        self._credentials = credentials
        self._turns = asyncio.Semaphore(_IN_FLIGHT)
        self._dry_run = dry_run
        self._write: dict[str, str] = {"fieldManager": field_manager} | ({"dryRun": "All"} if dry_run else {})

    async def get(self, kind: Kind[T], name: str, namespace: str = "") -> T:
        """See Client."""
        if name in ("", ".", ".."):  # a path with it would lead elsewhere
            raise NotFound(f"{kind.plural}: {name!r} names no object", 404)
        return wire.decode_object(kind, await self._request("GET", kind, kind.path(namespace, name)))

    async def list(self, kind: Kind[T], selector: Selector = EVERYTHING) -> Page[T]:
        """See Client. A consistent read: an old answer of another API server could undo what we have seen."""
        try:
            return await self._list(kind, selector, {"limit": str(_CHUNK_OBJECTS)})
        except Gone:  # the continue token outlived etcd's history: once more, in one piece
            return await self._list(kind, selector, {})

    async def _list(self, kind: Kind[T], selector: Selector, query: Mapping[str, str]) -> Page[T]:
        items: list[T] = []
        invalid: dict[str, str] = {}
        following: dict[str, str] = {}
        while True:
            asked = {**_query(selector), **query, **following}
            chunk = wire.decode_list(kind, await self._request("GET", kind, kind.path(selector.namespace), asked))
            items += chunk.items
            invalid |= chunk.invalid
            if not chunk.continue_:
                return Page(items, chunk.resource_version, invalid)
            following = {"continue": chunk.continue_}

    async def watch(
        self, kind: Kind[T], resource_version: str, selector: Selector = EVERYTHING
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """See Client. Ends without an error when the API server ends the stream after about five minutes."""
        query = _query(selector) | {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        path = kind.path(selector.namespace)
        async with self._open("GET", kind, path, query, limit=_WATCH) as response:
            await _check(response, f"watch {path}")
            async with aclosing(wire.lines(response.content.iter_any())) as stream:
                async for line in stream:
                    yield wire.decode_line(kind, line)

    async def create(self, kind: Kind[T], body: Any, namespace: str = "", subresource: str = "", name: str = "") -> T:
        """See Client."""
        path = kind.path(namespace, name, subresource)
        limit = _EVICTION if subresource == "eviction" else _REQUEST
        answer = await self._request("POST", kind, path, self._write, body, limit=limit)
        if subresource and wire.is_status(answer):
            answer = msgspec.json.encode({"metadata": {"name": name, "namespace": namespace}})
        return wire.decode_object(kind, answer)

    async def replace(self, kind: Kind[T], name: str, body: Any, namespace: str = "", subresource: str = "") -> T:
        """See Client."""
        path = kind.path(namespace, name, subresource)
        return wire.decode_object(kind, await self._request("PUT", kind, path, self._write, body))

    async def patch(
        self, kind: Kind[T], name: str, body: Any, patch_type: PatchType, namespace: str = "", subresource: str = ""
    ) -> T:
        """See Client. An APPLY takes fields over from other managers: what we apply, we own."""
        path = kind.path(namespace, name, subresource)
        query = self._write | ({"force": "true"} if patch_type is PatchType.APPLY else {})
        return wire.decode_object(kind, await self._request("PATCH", kind, path, query, body, patch_type))

    async def delete(self, kind: Kind[T], name: str, namespace: str = "", uid: str = "") -> None:
        """See Client. What the object owns is collected in the background."""
        body: dict[str, Any] = {"propagationPolicy": "Background"}
        body |= {"preconditions": {"uid": uid}} if uid else {}
        body |= {"dryRun": ["All"]} if self._dry_run else {}  # beside a body the API server ignores the query's
        try:
            await self._request("DELETE", kind, kind.path(namespace, name), body=body)
        except NotFound:
            return
        except Conflict:
            if not uid:
                raise  # with a UID it means: the object of that UID is gone, its name lives on

    async def _request(
        self,
        method: str,
        kind: Kind[T],
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        limit: aiohttp.ClientTimeout = _REQUEST,
    ) -> bytes:
        content = None if body is None else msgspec.json.encode(body)
        # A leader's renewal must not wait behind a burst of its own work.
        turn = nullcontext() if kind is LEASES else self._turns
        async with turn, self._open(method, kind, path, query, content, content_type, limit) as response:
            await _check(response, f"{method} {path}")
            return await response.read()

    @asynccontextmanager
    async def _open(
        self,
        method: str,
        kind: Kind[T],
        path: str,
        query: Mapping[str, str] | None = None,
        content: bytes | None = None,
        content_type: str = "application/json",
        limit: aiohttp.ClientTimeout = _REQUEST,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        verb = "WATCH" if limit is _WATCH else method
        observe = _stopwatch(verb, kind.plural)
        try:
            async with self._session.request(
                method,
                self._credentials.root + path,
                params=query,
                data=content,
                headers={"Content-Type": content_type, **await self._authorization()},
                timeout=limit,
                proxy=self._credentials.proxy,
                server_hostname=self._credentials.server_name,
            ) as response:
                observe(response.status)
                yield response
        except _BROKEN as error:
            observe(0)
            raise Unreachable(f"{verb} {path}: {str(error) or 'no answer in time'}") from error

    async def _authorization(self) -> dict[str, str]:
        value = await self._credentials.authorization()
        return {"Authorization": value} if value else {}


def _stopwatch(verb: str, resource: str) -> Callable[[int], None]:
    started = time.monotonic()
    return lambda code: REQUEST_SECONDS.labels(verb, resource, str(code)).observe(time.monotonic() - started)


async def _check(response: aiohttp.ClientResponse, request: str) -> None:
    if response.status >= 400:
        raise wire.error_of(response.status, await response.read(), response.headers, request)


def _query(selector: Selector) -> dict[str, str]:
    own = {"labelSelector": selector.labels, "fieldSelector": selector.fields}
    return {**selector.query, **{key: value for key, value in own.items() if value}}
