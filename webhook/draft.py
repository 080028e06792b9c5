"""A JSON patch (RFC 6902) under construction: single additions, parents made only where they are absent.

Whole arrays are never replaced, so nothing that the user or another webhook wrote is rewritten.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Path = tuple[str | int, ...]
Operation = dict[str, Any]


class Draft:
    """Collects operations against ``pod``, which stays as it is."""

    def __init__(self, pod: Mapping[str, Any]) -> None:
        self._pod = pod
        self._made: set[Path] = set()
        self.patch: list[Operation] = []

    def put(self, path: Path, value: object) -> None:
        """Set a member of an object, present or not."""
        self._parent(path[:-1], {})
        self._add(path, value)

    def append(self, path: Path, item: object) -> None:
        """Add to the end of a list."""
        self._parent(path, [])
        self._add((*path, "-"), item)

    def _parent(self, path: Path, empty: object) -> None:
        if path not in self._made and self._find(path) is None:
            self._add(path, empty)
            self._made.add(path)

    def _find(self, path: Path) -> object:
        found: Any = self._pod
        for part in path:
            found = _member(found, part)
        return found

    def _add(self, path: Path, value: object) -> None:
        self.patch.append({"op": "add", "path": "".join(f"/{_escape(part)}" for part in path), "value": value})


def _member(container: object, part: str | int) -> object:
    if isinstance(container, Mapping):
        return container.get(part)
    if isinstance(container, Sequence) and isinstance(part, int):
        return container[part]
    return None


def _escape(part: str | int) -> str:
    return str(part).replace("~", "~0").replace("/", "~1")
