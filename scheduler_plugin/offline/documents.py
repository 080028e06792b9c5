"""Kubernetes manifests as documents with fields read by path: a wrong one is named, with what it should be. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import yaml

from outrider.words import one_line

MOST_PODS: Final = 16384  # ranks that a GangPlacement holds
_LONGEST: Final = 4 << 20  # characters of a manifest; etcd takes no object above 1.5 MiB
_MOST_VALUES: Final = 1_000_000  # aliases of YAML can make a few lines into more than any memory
_DEEPEST: Final = 64
_SHOWN: Final = 300  # characters of what a parser says, which may quote the manifest


class BadManifest(ValueError):
    """A manifest that can't be understood; the text names the document and the field, and what to write instead."""


class Document(msgspec.Struct, frozen=True):
    """One object of a manifest, or a part of it; ``where`` says in messages what it is."""

    body: Mapping[str, Any]
    where: str

    @property
    def group_kind(self) -> tuple[str, str]:
        """API group and kind."""
        return self.text("apiVersion").rpartition("/")[0], self.text("kind")

    @property
    def name(self) -> str:
        """Name of the object; manifests that only have a generateName get one as the API server makes it."""
        meta = self.part("metadata")
        return meta.text("name") or (meta.text("generateName") + "new" if meta.text("generateName") else "unnamed")

    def text(self, field: str) -> str:
        """Return a field that holds text, empty where it is absent. Raises BadManifest."""
        value = self.body.get(field)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise BadManifest(f"{self.where}.{field}: {_shown(value)} is no text: put it in quotes")
        return value

    def count(self, field: str, default: int) -> int:
        """Return a field that holds a number of pods. Raises BadManifest."""
        value = self.body.get(field)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_PODS:
            raise BadManifest(f"{self.where}.{field}: {_shown(value)} is no number of pods: write 0 to {MOST_PODS}")
        return value

    def part(self, *path: str) -> "Document":
        """Return what is at a path, an empty part where it is absent. Raises BadManifest."""
        here = self
        for field in path:
            value = here.body.get(field)
            if value is not None and not isinstance(value, dict):
                raise BadManifest(f"{here.where}.{field}: {_shown(value)} should hold fields")
            here = Document(value or {}, f"{here.where}.{field}")
        return here

    def parts(self, field: str) -> list["Document"]:
        """Return the entries of a list. Raises BadManifest."""
        value = self.body.get(field)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            raise BadManifest(f"{self.where}.{field}: {_shown(value)} should be a list of entries with fields")
        return [Document(entry, f"{self.where}.{field}[{index}]") for index, entry in enumerate(value)]

    def needed(self, *path: str) -> "Document":
        """Return what is at a path. Raises BadManifest where nothing is."""
        part = self.part(*path)
        if not part.body:
            raise BadManifest(f"{part.where}: is missing; `kubectl explain` shows what belongs there")
        return part


def documents(text: str) -> list[Document]:
    """Return the objects of a manifest, those of lists one by one. Raises BadManifest."""
    if len(text) > _LONGEST:
        raise BadManifest(f"the manifest is longer than {_LONGEST >> 20} MiB: give the job alone")
    try:
        bodies = [body for body in yaml.safe_load_all(text) if body is not None]
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        raise BadManifest(f"the manifest is no YAML or JSON: {one_line(error)[:_SHOWN]}") from None
    _bounded(bodies)
    found = [one for number, body in enumerate(bodies, 1) for one in _objects(body, f"document {number}")]
    if not found:
        raise BadManifest("the manifest holds no object: give the file that you would give to kubectl create -f")
    return found


def _objects(body: object, where: str) -> Iterator[Document]:
    if not isinstance(body, dict):
        raise BadManifest(f"{where}: {_shown(body)} is no Kubernetes object: it needs apiVersion, kind and metadata")
    whole = Document(body, where)
    kind = whole.text("kind")
    if not kind or not whole.text("apiVersion"):
        raise BadManifest(f"{where}: apiVersion and kind are needed, such as apiVersion: batch/v1 and kind: Job")
    if kind.endswith("List"):
        for item in whole.parts("items"):
            yield from _objects(item.body, item.where)
    else:
        named = whole.part("metadata").text("name")
        yield Document(body, f"{kind} {named}" if named else f"{where}, {kind}")


def _bounded(value: object) -> None:
    """Refuse names of fields that are no text, text that is none, and what aliases make: depth, or too many values."""
    left, queue = _MOST_VALUES, [(value, 0)]
    while queue:
        here, depth = queue.pop()
        left -= 1
        if left < 0 or depth > _DEEPEST:
            raise BadManifest("the manifest's aliases make it too large or too deep: write it out")
        if isinstance(here, dict):
            if odd := [name for name in here if not isinstance(name, str)]:
                raise BadManifest(f"the manifest has a field called {_shown(odd[0])}: put its name in quotes")
            queue += ((entry, depth + 1) for pair in here.items() for entry in pair)
        elif isinstance(here, str):
            _check_text(here)
        elif isinstance(here, Sequence) and not isinstance(here, bytes):
            queue += ((entry, depth + 1) for entry in here)


def _check_text(text: str) -> None:
    """Refuse half a surrogate pair, which YAML's escapes can write and no API server takes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadManifest(f"the manifest has {_shown(text[error.start])}, which is no character: remove it") from None


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
