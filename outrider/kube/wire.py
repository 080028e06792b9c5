"""From the API server's bytes to structs and errors: pure, so every answer it can give is tested without one.

An object that does not decode is never an error of the whole answer: it is logged, counted and left out.
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic

import msgspec

from outrider.api.meta import ObjectMeta, Resource
from outrider.kube import errors
from outrider.kube.client import EventType, WatchEvent
from outrider.kube.kinds import Kind, T
from outrider.kube.metrics import UNDECODABLE

_LOG: Final = logging.getLogger(__name__)
_UNDECODABLE: Final = (msgspec.MsgspecError, RecursionError)  # the latter for nesting without end
_MESSAGE_LIMIT: Final = 1000  # characters; some answers repeat the whole object


class Status(Resource, frozen=True, kw_only=True):
    """The API server's answer where it is not the object: mostly an error."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0


class _ListMeta(Resource, frozen=True, kw_only=True):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(Resource, frozen=True, kw_only=True):
    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None


class _Line(Resource, frozen=True, kw_only=True):
    type: str
    object: msgspec.Raw


class _Named(Resource, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()


@dataclass(frozen=True)
class Chunk(Generic[T]):
    """One answer to a list request; ``continue_`` is the token of the next one, empty at the end."""

    resource_version: str
    continue_: str
    items: list[T] = field(default_factory=list)
    invalid: dict[str, str] = field(default_factory=dict)


def decode_object(kind: Kind[T], body: bytes) -> T:
    """Return the object. Raises Invalid, naming the field, where it does not decode."""
    try:
        return msgspec.json.decode(body, type=kind.struct)
    except _UNDECODABLE as error:
        raise errors.Invalid(f"{kind.plural}: the API server's answer does not decode: {error}") from error


def decode_list(kind: Kind[T], body: bytes) -> Chunk[T]:
    """Return one chunk of a list. Raises KubeError for a body that is no list."""
    try:
        answer = msgspec.json.decode(body, type=_List)
    except _UNDECODABLE as error:
        raise errors.KubeError(f"{kind.plural}: the answer to a list does not decode: {error}") from error
    chunk: Chunk[T] = Chunk(answer.metadata.resource_version, answer.metadata.continue_)
    decoder = msgspec.json.Decoder(kind.struct)
    for raw in answer.items or ():
        try:
            chunk.items.append(_kept(kind, decoder.decode(raw)))
        except _UNDECODABLE as error:
            chunk.invalid[_report(kind, raw, error).key] = str(error)
    return chunk


def decode_line(kind: Kind[T], line: bytes) -> WatchEvent[T]:
    """Return the event of one line of a watch. Raises Gone and other KubeErrors for an ERROR line."""
    try:
        event = msgspec.json.decode(line, type=_Line)
        if event.type == "ERROR":
            raise error_of(0, bytes(event.object), {}, f"watch {kind.plural}")
        kind_of_event = EventType(event.type)
    except (*_UNDECODABLE, ValueError) as error:
        raise errors.KubeError(f"watch {kind.plural}: a line does not decode: {error}") from error
    if kind_of_event is EventType.BOOKMARK:
        return WatchEvent(kind_of_event, _metadata(event.object))
    try:
        decoded = _kept(kind, msgspec.json.decode(event.object, type=kind.struct))
    except _UNDECODABLE as error:
        metadata = _report(kind, event.object, error)
        return WatchEvent(EventType.INVALID, metadata, problem=str(error))
    return WatchEvent(kind_of_event, decoded.metadata, decoded)


def _kept(kind: Kind[T], decoded: T) -> T:
    return kind.keep(decoded) if kind.keep else decoded


def _report(kind: Kind[T], raw: msgspec.Raw, error: Exception) -> ObjectMeta:
    metadata = _metadata(raw)
    UNDECODABLE.labels(kind.plural).inc()
    details = {"resource": kind.plural, "object": metadata.key, "problem": str(error)}
    _LOG.warning("ignored an object that does not decode: correct the named field", extra=details)
    return metadata


def _metadata(raw: msgspec.Raw) -> ObjectMeta:
    try:
        return msgspec.json.decode(raw, type=_Named).metadata
    except _UNDECODABLE:
        return ObjectMeta()


def is_status(body: bytes) -> bool:
    """Return True for an answer that is a Status instead of the object."""
    return _status(body).kind == "Status"


def _status(body: bytes) -> Status:
    try:
        return msgspec.json.decode(body, type=Status)
    except _UNDECODABLE:  # a proxy's HTML page, or an object whose status is no text
        return Status(message=body[:_MESSAGE_LIMIT].decode(errors="replace"))


_BY_CODE: Final[Mapping[int, type[errors.KubeError]]] = {
    400: errors.Invalid,
    401: errors.Forbidden,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    410: errors.Gone,
    422: errors.Invalid,
}


def error_of(code: int, body: bytes, headers: Mapping[str, str], request: str) -> errors.KubeError:
    """Return the error that says what the API server said to ``request``. A code of 0: take the Status's own."""
    status = _status(body)
    code = code or status.code
    message = f"{request}: {status.message[:_MESSAGE_LIMIT] or 'no message'} (HTTP {code} {status.reason})".rstrip()
    if code == 429:
        return errors.TooManyRequests(message, code, _retry_after(headers))
    if code == 409 and status.reason == "AlreadyExists":
        return errors.AlreadyExists(message, code)
    return _BY_CODE.get(code, errors.KubeError)(message, code)


def _retry_after(headers: Mapping[str, str]) -> float:
    try:
        return max(0.0, float(headers.get("Retry-After", "1")))
    except ValueError:  # RFC 9110 allows a date; the API server never sends one
        return 1.0


async def lines(chunks: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    """Cut a stream of bytes into lines of any length, without their line ends; a last half line is dropped."""
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line.strip():
                yield line
