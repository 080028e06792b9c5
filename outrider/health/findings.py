"""Evidence: what was seen, how often, since when. Merging is symmetric, so the order of arrival never matters."""

import zlib
from collections.abc import Iterable, Mapping
from typing import Annotated, Final

import msgspec

from outrider.api.gpunode import FINDINGS_MAX, LINE_MAX, SubjectKind
from outrider.health.catalogue import Catalogue

NIC_OWNER: Final = "nic:"
VARIANTS_MAX: Final = 256  # different messages told apart within one finding
_ADDRESS: Final = "pci:"  # marks a subject that is known by its PCI address only
Key = tuple[str, SubjectKind, str]
# Checked where evidence is read back from disk: what a custom resource can't hold would stop all reports of the node.
Time = Annotated[float, msgspec.Meta(ge=0, lt=253_402_300_800)]  # seconds since 1970, up to the year 9999
Count = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
Told = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Variants = Annotated[tuple[int, ...], msgspec.Meta(max_length=VARIANTS_MAX)]


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of thing seen on one subject. Times are seconds since 1970."""

    code: str
    subject: SubjectKind = SubjectKind.NODE
    subject_id: str = ""
    first_seen: Time
    last_seen: Time
    count: Count = 1
    line: str = ""
    source: str = ""
    """Name of the probe that saw it: only its good readings can clear a state."""
    good_since: float | None = None
    """For states: since when the probe reads the subject without seeing this any more."""
    unit: str = ""
    """Part of the subject that failed last, such as "GPC 1 TPC 2". No part of the key: a storm stays one finding."""
    variants: Variants = ()
    """Numbers (``variant_of``) of the different messages seen, sorted: at most VARIANTS_MAX, the smallest."""
    lines: Told = 0
    """How often the kernel log told of it, where an NVML event may tell of the same."""
    events: Told = 0
    """How often an NVML event told of it. The two tell of the same things: the larger number is in ``count``."""
    job: str = ""
    """UID of the job, else of the pod, that held the GPU when this was last seen; empty where nobody knows."""

    @property
    def distinct(self) -> int:
        """How many different messages were seen; exact below VARIANTS_MAX, which stands for itself and all above."""
        return max(1, len(self.variants))

    @property
    def key(self) -> Key:
        """What makes two pieces of evidence the same finding."""
        return (self.code, self.subject, self.subject_id)

    @property
    def owner(self) -> str:
        """What is scored by the evidence: the UUID of a GPU for it and its links, nic:NAME, empty for the node."""
        unit = self.subject_id.split("/")[0]
        if self.subject is SubjectKind.NIC:
            return f"{NIC_OWNER}{unit}"
        return unit if self.subject in (SubjectKind.GPU, SubjectKind.LINK) else ""


Findings = Mapping[Key, Evidence]


def seen(
    code: str,
    now: float,
    *,
    subject: SubjectKind = SubjectKind.NODE,
    subject_id: str = "",
    line: str = "",
    source: str,
    unit: str = "",
) -> Evidence:
    """Return the evidence of one look at ``now``; the line is clipped to what the custom resource holds."""
    return Evidence(
        code=code,
        subject=subject,
        subject_id=subject_id,
        first_seen=now,
        last_seen=now,
        line=line[:LINE_MAX],
        source=source,
        unit=unit,
    )


def variant_of(message: str) -> int:
    """Return a number, alike for equal messages: the sender leaves out what differs by time only, such as a time."""
    return zlib.crc32(message.encode("utf-8", "surrogatepass"))


def join(one: Evidence, other: Evidence) -> Evidence:
    """Return both as one finding: counts added, the longest span, the latest line. Symmetric and associative.

    What the kernel log and NVML's events told is added up apart, since they tell of the same things.
    """
    latest = max(one, other, key=lambda evidence: (evidence.last_seen, evidence.line, evidence.unit, evidence.job))
    return msgspec.structs.replace(
        latest,
        first_seen=min(one.first_seen, other.first_seen),
        last_seen=max(one.last_seen, other.last_seen),
        count=_told_alone(one) + _told_alone(other) + max(one.lines + other.lines, one.events + other.events),
        lines=one.lines + other.lines,
        events=one.events + other.events,
        good_since=None,
        variants=_union(one.variants, other.variants),
    )


def _told_alone(evidence: Evidence) -> int:
    """What neither the kernel log nor an event of NVML told."""
    return evidence.count - max(evidence.lines, evidence.events)


def _union(one: Variants, other: Variants) -> Variants:
    """Keeping the smallest makes the bounded union symmetric and associative too."""
    if not other or one == other:
        return one
    return tuple(sorted({*one, *other})[:VARIANTS_MAX])


def merge(findings: Findings, new: Iterable[Evidence]) -> dict[Key, Evidence]:
    """Return the findings with new evidence added."""
    merged = dict(findings)
    for evidence in new:
        known = merged.get(evidence.key)
        merged[evidence.key] = evidence if known is None else join(known, evidence)
    return merged


def bounded(findings: Findings, catalogue: Catalogue, limit: int = FINDINGS_MAX) -> dict[Key, Evidence]:
    """Return at most ``limit`` findings: the gravest, then the latest. A flood of trifles never pushes out a fault."""
    if len(findings) <= limit:
        return dict(findings)

    def importance(evidence: Evidence) -> tuple[int, float, float, Key]:
        row = catalogue.of(evidence.code)
        return (row.verdict.severity, row.weight, evidence.last_seen, evidence.key)

    kept = sorted(findings.values(), key=importance, reverse=True)[:limit]
    return {evidence.key: evidence for evidence in kept}


def renamed(findings: Iterable[Evidence], names: Mapping[str, str]) -> list[Evidence]:
    """Return the evidence with addresses replaced by names: a GPU first known by its PCI address gets its UUID.

    ``names`` maps ``pci:00000000:3b:00`` to a GPU's UUID and, with the function, ``pci:00000000:b3:00.1`` to a NIC's
    name. A line about a PCI device of unknown kind, kept for the node, becomes one about the GPU or NIC that it is.
    """
    return [_renamed(evidence, names) if _ADDRESS in evidence.subject_id else evidence for evidence in findings]


def _renamed(evidence: Evidence, names: Mapping[str, str]) -> Evidence:
    address, slash, part = evidence.subject_id.partition("/")
    device, function, _ = address.partition(".")
    exact = names.get(address)
    name = exact or names.get(device)
    if not name:
        return evidence
    subject = evidence.subject
    if subject is SubjectKind.NODE:
        subject = SubjectKind.NIC if exact and function else SubjectKind.GPU
    return msgspec.structs.replace(evidence, subject=subject, subject_id=f"{name}{slash}{part}")
