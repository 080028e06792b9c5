"""The cluster as the planner sees it, in one file: everything that its decisions depend on, and nothing else.

What the planner's structs do not hold is not in it: environment variables, commands, images and mounts of pods stay
out, and so do annotations of anybody who may put secrets there. Pure: bytes in, bytes out.
"""

import gzip
import io
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

from outrider.api.meta import Timestamp
from outrider.api.times import parse_rfc3339
from outrider.kube.kinds import (
    GANGPLACEMENTS,
    GPUNODES,
    JOBS,
    NODES,
    OPTIONAL_OWNERS,
    PODS,
    STATEFULSETS,
    Kind,
)
from scheduler_plugin.cluster.world import World
from scheduler_plugin.config import Config
from scheduler_plugin.following import HELPFUL, Feed
from scheduler_plugin.rules import Rules

VERSION: Final = 1
_LONGEST: Final = 1 << 30  # bytes, unpacked; 5,000 nodes with 20,000 pods are some 30 MB
_GZIP: Final = b"\x1f\x8b"
# Annotations that say how a pod is to be placed; kubectl keeps whole manifests in one of its own.
_KEPT: Final = ("outrider.dev", "k8s.io", "kubernetes.io", "kubeflow.org", "volcano.sh", "run.ai", "ray.io")
_LEFT_OUT: Final = ("kubectl.kubernetes.io",)
_LONGEST_ANNOTATION: Final = 1024  # characters


class BadSnapshot(ValueError):
    """A file that is no snapshot, or one of another version; the text says what is wrong and what to do."""


class Saved(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A snapshot of a cluster. ``objects`` by kind as "plural.group"; ``notes`` tell what could not be read."""

    kind: Literal["OutriderSnapshot"] = "OutriderSnapshot"
    version: int
    taken: Timestamp
    outrider: str = ""
    settings: Config = Config()
    objects: dict[str, list[msgspec.Raw]] = {}
    notes: list[str] = []

    @property
    def now(self) -> float:
        """When it was taken, in seconds since 1970."""
        return parse_rfc3339(self.taken)


class _Head(msgspec.Struct):
    kind: str = ""
    version: int = 0


def owner_kinds() -> list[Kind[Any]]:
    """Return the kinds whose pods form gangs, every version of each."""
    return [JOBS, STATEFULSETS, *_optional_owners()]


def _optional_owners() -> list[Kind[Any]]:
    return [kind for versions in OPTIONAL_OWNERS for kind in versions]


def kinds() -> list[Kind[Any]]:
    """Return all kinds in a snapshot: those that the planner's informers follow."""
    return [kind for kind, _ in feeds()]


def key(kind: Kind[Any]) -> str:
    """Return a kind's name in a snapshot, such as jobs.batch."""
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


def feeds() -> list[tuple[Kind[Any], Feed]]:
    """Return each kind with what takes it into the planner's view, pods last: what they belong to is known then."""
    return [
        (NODES, World.on_node),
        (GPUNODES, World.on_gpunode),
        *HELPFUL,
        *((kind, World.on_job) for kind in _optional_owners()),
        (GANGPLACEMENTS, World.on_placement),
        (PODS, World.on_pod),
    ]


def world_of(saved: Saved, rules: Rules) -> World:
    """Return the planner's own view of the saved cluster. Raises BadSnapshot that names the object."""
    world = World(rules, clock=lambda: saved.now)
    for kind, feed in feeds():
        for number, raw in enumerate(saved.objects.get(key(kind), [])):
            try:
                feed(world, None, msgspec.json.decode(raw, type=kind.struct))
            except msgspec.DecodeError as error:
                raise BadSnapshot(f"objects.{key(kind)}[{number}]: {error}: take the snapshot again") from None
    world.publish()
    return world


def slim(objects: Iterable[msgspec.Struct]) -> list[msgspec.Raw]:
    """Return objects as a snapshot holds them."""
    return [msgspec.Raw(msgspec.json.encode(_slim(msgspec.to_builtins(one)))) for one in objects]


def _slim(value: Any) -> Any:
    if isinstance(value, list):
        return [_slim(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    return {name: _kept(inner) if name == "annotations" else _slim(inner) for name, inner in value.items()}


def _kept(annotations: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: text
        for name, text in annotations.items()
        if isinstance(text, str) and len(text) <= _LONGEST_ANNOTATION and _is_about_placing(name)
    }


def _is_about_placing(name: str) -> bool:
    domain = name.partition("/")[0]
    ours = any(domain == one or domain.endswith(f".{one}") for one in _KEPT)
    return ours and domain not in _LEFT_OUT


def encode(saved: Saved, *, packed: bool) -> bytes:
    """Return the file's bytes, gzip-compressed where ``packed``."""
    data = msgspec.json.encode(saved)
    return gzip.compress(data, mtime=0) if packed else data


def decode(data: bytes) -> Saved:
    """Return the snapshot in a file's bytes, compressed or not. Raises BadSnapshot."""
    if data[:2] == _GZIP:
        data = _unpacked(data)
    if len(data) > _LONGEST:
        raise BadSnapshot(f"the snapshot is longer than {_LONGEST >> 20} MiB")
    _check_head(data)
    try:
        saved = msgspec.json.decode(data, type=Saved)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadSnapshot(f"the snapshot does not decode: {error}: take it again with `outrider snapshot`") from None
    except ValueError as error:  # settings refuse a topology that can't be used
        raise BadSnapshot(f"settings: {error}") from None
    _check_time(saved)
    return saved


def _check_head(data: bytes) -> None:
    try:
        head = msgspec.json.decode(data, type=_Head)
    except (msgspec.DecodeError, RecursionError):
        raise BadSnapshot("the file is no JSON object: give one that `outrider snapshot` wrote") from None
    if head.kind != "OutriderSnapshot":
        raise BadSnapshot(
            f"kind: {head.kind[:80]!r} is no OutriderSnapshot: give a file that `outrider snapshot` wrote"
        )
    if head.version != VERSION:
        way = "use the release that took the snapshot"
        raise BadSnapshot(f"version: this Outrider reads version {VERSION}, not {head.version}: {way}")


def _check_time(saved: Saved) -> None:
    try:
        parse_rfc3339(saved.taken)
    except ValueError:
        raise BadSnapshot(f"taken: {saved.taken[:80]!r} is no time: write it as 2026-01-31T12:00:00Z") from None


def _unpacked(data: bytes) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            return file.read(_LONGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise BadSnapshot(f"the file is no whole gzip file: {error}: copy it again") from None


def settings_of(text: str) -> Config:
    """Return the planner's settings from the text of its configuration file. Raises BadSnapshot."""
    try:
        return msgspec.yaml.decode(text, type=Config)
    except (msgspec.DecodeError, ValueError) as error:
        raise BadSnapshot(f"the planner's settings can't be used: {error}") from None
