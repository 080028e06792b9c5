"""Storms as single findings: equal happenings merged, with exact counts, while memory stays bounded."""

from typing import Final

from outrider.api.gpunode import LINE_MAX, SubjectKind
from outrider.health.findings import VARIANTS_MAX, Evidence, variant_of
from outrider.health.kernel.records import DRILL
from outrider.health.kernel.words import Happening

_UNITS_MAX: Final = 1024  # beyond it units of one GPU are no longer told apart
_KINDS_MAX: Final = 2048  # far more than a machine has parts that fail; beyond it lines are counted as a flood
_FLOOD: Final = "kernel/flood"
_VARIANTS_KEPT: Final = 4 * VARIANTS_MAX
_Kind = tuple[str, SubjectKind, str, str, bool]


class _Burst:
    """All happenings of one kind on one unit."""

    def __init__(self, first: Happening, now: float) -> None:
        self.first_seen = self.last_seen = now
        self.count = 0
        self.happening = first
        self.sequence = -1
        self._variants: set[int] = set()

    def add(self, happening: Happening, now: float, sequence: int) -> None:
        self.first_seen, self.last_seen = min(self.first_seen, now), max(self.last_seen, now)
        self.count += happening.count
        self.happening, self.sequence = happening, sequence
        self._variants.add(variant_of(happening.line))
        if len(self._variants) > _VARIANTS_KEPT:
            self._variants = set(sorted(self._variants)[:VARIANTS_MAX])

    def evidence(self, code: str, source: str) -> Evidence:
        latest = self.happening
        return Evidence(
            code=code,
            subject=latest.subject if code != _FLOOD else SubjectKind.NODE,
            subject_id=latest.subject_id if code != _FLOOD else "",
            first_seen=self.first_seen,
            last_seen=self.last_seen,
            count=self.count,
            line=latest.line[:LINE_MAX],
            source=source,
            unit=latest.unit,
            variants=tuple(sorted(self._variants)[:VARIANTS_MAX]),
        )


class Bursts:
    """Collects happenings until they are taken."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._bursts: dict[_Kind, _Burst] = {}

    def add(self, happening: Happening, now: float, sequence: int = -1) -> None:
        """Take in what happened at ``now`` (seconds since 1970); ``sequence`` is the number of its record."""
        drill = happening.line.startswith(DRILL)  # told apart, so that a drill never hides what is real
        key = (happening.code, happening.subject, happening.subject_id, happening.unit, drill)
        if key not in self._bursts and len(self._bursts) >= _UNITS_MAX:
            key = (*key[:3], "", drill)
        if key not in self._bursts and len(self._bursts) >= _KINDS_MAX:
            key = (_FLOOD, SubjectKind.NODE, "", "", False)
        if key not in self._bursts:
            self._bursts[key] = _Burst(happening, now)
        self._bursts[key].add(happening, now, sequence)

    @property
    def full(self) -> bool:
        """True where a further kind would only be counted: take what is there first."""
        return len(self._bursts) >= _KINDS_MAX

    def take(self) -> list[tuple[int, Evidence]]:
        """Return all that was collected, each with the number of its last record, and begin anew."""
        taken = [(burst.sequence, burst.evidence(key[0], self._source)) for key, burst in self._bursts.items()]
        self._bursts.clear()
        return taken
