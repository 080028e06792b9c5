"""How close a place is to others."""

from collections import Counter
from collections.abc import Iterable

from outrider.topology.domains import Path, natural
from scheduler_plugin.cluster.nodes import NodeView
from scheduler_plugin.placing.domains import weakness


class Nearness:
    """How close a place is to those already chosen: domains shared with each of them, summed."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._shared: Counter[Path] = Counter()
        self._known: dict[Path, int] = {}
        for path in paths:
            self.add(path)

    def add(self, path: Path) -> None:
        """Take one more place into account."""
        self._shared.update(path[:depth] for depth in range(1, len(path) + 1))
        self._known.clear()

    def __call__(self, path: Path) -> int:
        """Return the nearness of a place; higher is nearer."""
        if path not in self._known:
            self._known[path] = sum(self._shared[path[:depth]] for depth in range(1, len(path) + 1))
        return self._known[path]


def closest(view: NodeView, near: Nearness) -> tuple[object, ...]:
    """Return a sort key: nearest first, then healthiest, then the fullest, then by name."""
    return -near(view.place.near), weakness(view), view.free_gpus, natural(view.name)
