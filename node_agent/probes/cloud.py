"""The cloud probe: asks the metadata service of the machine for notices. Off unless the configuration names a cloud."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from node_agent.config import Config
from node_agent.probes.registry import probe
from node_agent.probes.report import Report
from node_agent.readings.cloud_notices import (
    CloudWatch,
    Malformed,
    Notice,
    aws_events,
    aws_rebalance,
    aws_spot,
    azure_events,
    gcp_event,
    gcp_preempted,
    gcp_upcoming,
    oci_instance,
)

if TYPE_CHECKING:
    import aiohttp

_ENDPOINT: Final = "http://169.254.169.254"  # link-local: the same at all four
_ANSWER_SECONDS: Final = 5.0
_ANSWER_BYTES: Final = 64 * 1024
_TOKEN_SECONDS: Final = 3600
_TOKEN_PATH: Final = "/latest/api/token"  # noqa: S105 - a path
_AWS_PATHS: Final = (
    ("/latest/meta-data/events/maintenance/scheduled", aws_events),
    ("/latest/meta-data/spot/instance-action", aws_spot),
    ("/latest/meta-data/events/recommendations/rebalance", aws_rebalance),
)
_GOOGLE: Final = {"Metadata-Flavor": "Google"}
_AZURE: Final = {"Metadata": "true"}
_ORACLE: Final = {"Authorization": "Bearer Oracle"}


class Unreadable(Exception):
    """The metadata service gives no answer that can be used."""


class Metadata:
    """Asks the metadata service."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint.rstrip("/") or _ENDPOINT
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, path: str, headers: Mapping[str, str], method: str = "GET") -> str | None:
        """Return the text of an answer, None where there is none (404). Raises Unreadable."""
        import aiohttp

        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS)
            self._session = aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar())
        try:
            async with self._session.request(
                method, self._endpoint + path, headers=headers, allow_redirects=False
            ) as answer:
                return await _text(answer, path)
        except TimeoutError as error:
            raise Unreadable(f"{path}: no answer within {_ANSWER_SECONDS:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unreadable(f"{path}: {error or type(error).__name__}") from error

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None


async def _text(answer: "aiohttp.ClientResponse", path: str) -> str | None:
    if answer.status == 404:
        return None
    if answer.status != 200:
        raise Unreadable(f"{path}: HTTP status {answer.status}")
    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > _ANSWER_BYTES:
            raise Unreadable(f"{path}: more than {_ANSWER_BYTES} bytes")
    return body.decode("utf-8", "replace")


class _AWS:
    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._token, self._until = "", 0.0

    async def __call__(self) -> list[Notice]:
        headers = {"X-aws-ec2-metadata-token": await self._current_token()}
        try:
            answers = [await _read(self._metadata, path, headers, parse) for path, parse in _AWS_PATHS]
        except Unreadable:
            self._until = 0.0  # the token may be the reason
            raise
        return [notice for notices in answers for notice in notices]

    async def _current_token(self) -> str:
        """Return a token of IMDSv2, asked for anew at half of its life."""
        if time.monotonic() >= self._until:
            wish = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_SECONDS)}
            token = (await self._metadata.ask(_TOKEN_PATH, wish, "PUT") or "").strip()
            if not (token.isascii() and token.isprintable() and token):
                raise Unreadable(f"{_TOKEN_PATH}: no token")
            self._token, self._until = token, time.monotonic() + _TOKEN_SECONDS / 2
        return self._token


class _Azure:
    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._name = ""

    async def __call__(self) -> list[Notice]:
        if not self._name:
            path = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
            self._name = (await self._metadata.ask(path, _AZURE) or "").strip()
        if not self._name:
            raise Unreadable("the metadata service does not tell the machine's name")
        path = "/metadata/scheduledevents?api-version=2020-07-01"
        return await _read(self._metadata, path, _AZURE, lambda text: azure_events(text, self._name))


def _gcp(metadata: Metadata) -> Callable[[], Awaitable[list[Notice]]]:
    root = "/computeMetadata/v1/instance"

    async def ask() -> list[Notice]:
        return [
            *await _read(metadata, f"{root}/maintenance-event", _GOOGLE, gcp_event),
            *await _read(metadata, f"{root}/upcoming-maintenance?alt=json", _GOOGLE, gcp_upcoming),
            *await _read(metadata, f"{root}/preempted", _GOOGLE, gcp_preempted),
        ]

    return ask


def _oci(metadata: Metadata) -> Callable[[], Awaitable[list[Notice]]]:
    async def ask() -> list[Notice]:
        return await _read(metadata, "/opc/v2/instance/", _ORACLE, oci_instance)

    return ask


_CLOUDS: Final[Mapping[str, Callable[[Metadata], Callable[[], Awaitable[list[Notice]]]]]] = {
    "aws": _AWS,
    "azure": _Azure,
    "gcp": _gcp,
    "oci": _oci,
}


async def _read(
    metadata: Metadata, path: str, headers: Mapping[str, str], parse: Callable[[str], list[Notice]]
) -> list[Notice]:
    text = await metadata.ask(path, headers)
    if text is None:
        return []
    try:
        return parse(text)
    except Malformed as error:
        raise Unreadable(f"{path}: {error}") from error


class CloudProbe:
    """Asks one cloud for notices."""

    wake: asyncio.Event | None = None
    timeout_seconds = 5 * _ANSWER_SECONDS

    def __init__(self, config: Config) -> None:
        self.period_seconds = config.cloud_period_seconds
        self._metadata = Metadata(config.cloud_endpoint)
        self._ask = _CLOUDS[config.cloud](self._metadata)
        self._watch = CloudWatch(config.cloud_notice_seconds)

    async def read(self) -> Report:
        """Return the notices. A metadata service that does not answer is a finding of its own, never a crash."""
        try:
            notices = await self._ask()
        except Unreadable as problem:
            return Report(states=self._watch.failed(str(problem), time.time()))
        return Report(states=self._watch.judge(notices, time.time()))

    async def close(self) -> None:
        """Close the connections."""
        await self._metadata.close()


@probe("cloud")
def _build(config: Config) -> CloudProbe | None:
    return CloudProbe(config) if config.cloud else None
