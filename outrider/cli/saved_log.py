"""`outrider scan --kernel-log`: judges saved kernel logs as the node agent judges the live one.

Reads a stream of any length in bounded memory. Lines are grouped by the host that they name, and each host is judged
for itself; a log without host names is one node.
"""

import re
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from outrider.api.gpunode import LINE_MAX, SubjectKind, Verdict
from outrider.health.advice import OVER, next_step
from outrider.health.catalogue import Catalogue, load
from outrider.health.clearing import after_boot, after_reset
from outrider.health.findings import Evidence, Findings, Key, merge
from outrider.health.judge import judge
from outrider.health.kernel.bursts import Bursts
from outrider.health.kernel.devices import ADDRESS_PREFIX
from outrider.health.kernel.reader import KernelReader, worth_reading
from outrider.health.kernel.records import DRILL
from outrider.health.kernel.saved import LINE_BYTES, SavedLine, SavedLog
from outrider.health.kernel.words import Naming, Said
from outrider.health.start import all_failed

EXIT_NOTHING: Final = 0
EXIT_SOFT: Final = 1
EXIT_ERROR: Final = 2
EXIT_HARD: Final = 3
_CHUNK_BYTES: Final = 1024 * 1024
_HOSTS_MAX: Final = 4096
_OTHER_HOSTS: Final = "(other hosts)"
_DISTINCT_MAX: Final = 1_000_000  # different lines remembered in all: some 60 MB
_SETTLED_SECONDS: Final = 60.0  # a saved log has ended: nothing is left to wait for
_SOURCE: Final = "kernel-log"
_BOOT: Final = "Linux version "  # opens the first line of each boot
_BOOT_BYTES: Final = _BOOT.encode()
_NAMES_DRIVER: Final = re.compile(r"NVRM: |S?Xid\s{0,4}\(")
_READ: Final = re.compile(rf"NVRM: |nvidia-nvswitch\d{{1,4}}: |{DRILL}")  # begins the driver's lines, and rehearsals
# How files begin that hold a log and are no text: gzip, bzip2, xz, zstd, lz4, zip, the journal's own, UTF-16.
_NO_TEXT: Final = (
    *(b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"PK\x03\x04"),
    *(b"LPKSHHRH", b"\xff\xfe", b"\xfe\xff"),
)


class NoTextError(OSError):
    """The log is there, and can't be read as text: what it holds must not pass for nothing."""


class ScanFinding(msgspec.Struct, frozen=True, rename="camel"):
    """One finding of a saved log. Times are RFC 3339, or null where the log has none of the calendar."""

    node: str
    code: str
    kind: SubjectKind
    subject: str
    """PCI address or UUID of the GPU, with /N its NVLink N; adapter or part of the node; empty for the node."""
    gpu_uuid: str | None
    unit: str
    count: int
    distinct: int
    first_seen: str | None
    last_seen: str | None
    first_uptime_seconds: float | None
    last_uptime_seconds: float | None
    verdict: Verdict
    meaning: str
    advice: str
    evidence: str


class _Lines:
    """Tells different lines apart, exactly up to ``_DISTINCT_MAX`` of them in all."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._counts: dict[tuple[str, Key], int] = {}

    def add(self, host: str, key: Key, line: str) -> None:
        """Remember that the line told of this on the host."""
        number = hash((host, key, line))
        if number not in self._seen and len(self._seen) < _DISTINCT_MAX:
            self._seen.add(number)
            self._counts[(host, key)] = self._counts.get((host, key), 0) + 1

    def move(self, host: str, before: Key, after: Key) -> None:
        """Count what was said of one subject for another: it is the same device."""
        if before != after and (count := self._counts.pop((host, before), 0)):
            self._counts[(host, after)] = self._counts.get((host, after), 0) + count

    def different(self, host: str, key: Key) -> int:
        """Return how many different lines told of this on the host."""
        return self._counts.get((host, key), 1)


class _Host:
    """What the log says about one host."""

    def __init__(self, name: str, lines: _Lines) -> None:
        self._bursts = Bursts(_SOURCE)
        self.uuids: dict[str, str] = {}
        self.dated = self.timed = False
        self._name, self._lines = name, lines
        self._reader = KernelReader()
        self._seconds = self._clock = 0.0
        self._early: list[Evidence] = []
        """What was found before the first line with a date, as of the date of that line: it was no later."""
        self._early_counts: dict[Key, int] = {}
        self._past: Findings = {}
        """All that was found before the last boot."""
        self._standing: Findings = {}
        """What of it outlives a boot."""

    def read(self, line: SavedLine) -> None:
        """Take in a line. Only where the log tells the times is it sure that a boot came after what was found."""
        later = self.dated and line.seconds is not None and line.seconds >= self._seconds
        if later and line.message.startswith(_BOOT):
            self._boot()
        if line.seconds is not None:
            self._date(line.seconds)
        elif line.uptime_seconds is not None and not self.dated:
            self._seconds, self.timed = line.uptime_seconds, True
        self._clock = line.uptime_seconds if line.uptime_seconds is not None else self._seconds
        if self._reader.overdue(self._clock):
            self.end()
        self._take(self._reader.read(line.message, self._clock), self._seconds)

    def times_of(self, known: Evidence) -> tuple[float | None, float | None]:
        """Return when it was first and last seen, None where no line tells."""
        if not (self.dated or self.timed):
            return None, None
        early = self._early_counts.get(known.key, 0)
        return None if early else known.first_seen, None if early == known.count else known.last_seen

    def _date(self, seconds: float) -> None:
        if not self.dated:
            found = list(self._evidence())
            self._early = [msgspec.structs.replace(one, first_seen=seconds, last_seen=seconds) for one in found]
            self._early_counts = {one.key: one.count for one in found}
        self._seconds, self.dated = seconds, True

    def end(self) -> None:
        """Take in what waits for further lines."""
        since = self._reader.waiting_since
        if since is not None:
            self._take(self._reader.flush(), max(0.0, self._seconds - (self._clock - since)))

    def found(self, catalogue: Catalogue) -> tuple[Findings, Findings]:
        """Return all that was found, and what of it still stands at the end of the log."""
        now = list(self._evidence())
        standing = merge(after_boot(self._standing, catalogue, (_SOURCE,)), now)
        return merge(self._past, now), after_reset(standing, catalogue)

    def _boot(self) -> None:
        before = list(self._evidence())
        self._past, self._standing, self._early = merge(self._past, before), merge(self._standing, before), []
        self._reader = KernelReader()

    def _evidence(self) -> Iterator[Evidence]:
        """Return what was found since the boot; a device whose kind the log told later than its fault is of it."""
        self.end()
        yield from self._early
        for _, known in self._bursts.take():
            if known.subject is not SubjectKind.NODE or not known.subject_id.startswith(ADDRESS_PREFIX):
                yield known
                continue
            kind, subject_id = self._reader.subject_of(known.subject_id)
            self._lines.move(self._name, known.key, (known.code, kind, subject_id))
            yield msgspec.structs.replace(known, subject=kind, subject_id=subject_id)

    def _take(self, words: Iterable[Said], now: float) -> None:
        for said in words:
            if isinstance(said, Naming):
                self.uuids[said.subject_id] = said.uuid
            else:
                self._bursts.add(said, now)
                self._lines.add(self._name, (said.code, said.subject, said.subject_id), said.line)


class Scan:
    """Reads saved logs and judges them. ``now`` (seconds since 1970) decides the year of lines that have none."""

    def __init__(self, catalogue: Catalogue, now: float, node: str = "") -> None:
        self._catalogue = catalogue
        self._node = node
        self._now = now
        self._hosts: dict[str, _Host] = {}
        self._lines = _Lines()
        self.unread = 0
        """Number of lines that name the GPU's driver or an Xid, and not as the driver writes it in a known form."""
        self.first_unread = ""

    def read(self, stream: BinaryIO) -> None:
        """Take in a log, line by line. Raises OSError, and NoTextError for what is no text."""
        saved, head = SavedLog(self._now), b""
        head_read = True
        for raw in _lines(stream):
            continues = raw[:1] in (b" ", b"\t")
            if not continues:
                head, head_read = raw, False
            of_journal = raw[:1] == b"{"  # such an object may spell its text as numbers
            if not of_journal and not worth_reading(raw) and _BOOT_BYTES not in raw:
                continue
            if continues and not head_read:
                saved.read(head)  # who wrote the line that goes on here
            head_read = True
            self._take(saved.read(raw))

    def _take(self, line: SavedLine) -> None:
        if not line.from_kernel:
            return
        if _NAMES_DRIVER.search(line.message) and not _READ.match(line.message):
            self.unread += 1
            self.first_unread = self.first_unread or line.message[:LINE_MAX]
        name = line.host or self._node
        if name not in self._hosts and len(self._hosts) >= _HOSTS_MAX:
            name = _OTHER_HOSTS
        if name not in self._hosts:
            self._hosts[name] = _Host(name, self._lines)
        self._hosts[name].read(line)

    def findings(self) -> list[ScanFinding]:
        """Return all findings, the gravest first."""
        found = [finding for name, host in self._hosts.items() for finding in self._judged(name, host)]
        return sorted(found, key=lambda one: (-one.verdict.severity, one.node, one.first_seen or "", one.code))

    def _judged(self, name: str, host: _Host) -> Iterator[ScanFinding]:
        findings, standing = host.found(self._catalogue)
        names = dict.fromkeys((known.owner for known in findings.values() if known.subject is SubjectKind.GPU), "")
        shared = all_failed(standing.values(), len({host.uuids.get(owner, owner) for owner in {*names, *host.uuids}}))
        findings, standing = merge(findings, shared), merge(standing, shared)
        latest = max((known.last_seen for known in findings.values()), default=0.0)
        judgement = judge(standing.values(), names, latest + _SETTLED_SECONDS, self._catalogue)
        for key, known in findings.items():
            verdict = judgement.verdicts.get(key)
            advice = (
                next_step(known.code, verdict, judgement.deciders.get(key, ""), self._catalogue) if verdict else OVER
            )
            yield self._finding(name, host, known, verdict or Verdict.NONE, advice)

    def _finding(self, name: str, host: _Host, known: Evidence, verdict: Verdict, advice: str) -> ScanFinding:
        row = self._catalogue.of(known.code)
        device, _, link = known.subject_id.partition("/")
        times = host.times_of(known)
        first, last = (None if one is None else _written(one) for one in times) if host.dated else (None, None)
        first_uptime, last_uptime = (None, None) if host.dated else times
        return ScanFinding(
            node=name,
            code=known.code,
            kind=known.subject,
            subject=_address(device, known.subject) + (f"/{link}" if link else ""),
            gpu_uuid=device if device.startswith("GPU-") else host.uuids.get(device),
            unit=known.unit,
            count=known.count,
            distinct=self._lines.different(name, known.key),
            first_seen=first,
            last_seen=last,
            first_uptime_seconds=first_uptime,
            last_uptime_seconds=last_uptime,
            verdict=verdict,
            meaning=row.meaning,
            advice=advice,
            evidence=known.line,
        )


def run(paths: Iterable[Path], node: str, *, as_json: bool, console: Console) -> int:
    """Judge the logs at the paths, - for standard input, print what was found and return the exit code."""
    scan = Scan(load(), time.time(), node)
    for path in paths:
        try:
            with _opened(path) as stream:
                scan.read(stream)
        except OSError as error:
            sys.stderr.write(f"outrider: {path}: {error.strerror or error}\n  nothing was judged: is the name right?\n")
            return EXIT_ERROR
    findings = scan.findings()
    if as_json:
        sys.stdout.write("".join(f"{msgspec.json.encode(finding).decode()}\n" for finding in findings))
    elif findings or not scan.unread:
        console.print(table(findings), soft_wrap=False)
    if scan.unread:
        sys.stderr.write(_told_unread(scan))
    return max(exit_code(finding.verdict for finding in findings), EXIT_SOFT if scan.unread else EXIT_NOTHING)


def _told_unread(scan: Scan) -> str:
    lines = "1 line names" if scan.unread == 1 else f"{scan.unread} lines name"
    return (
        f"outrider: {lines} the GPU's driver or an Xid in no form that is known, and was not judged: not a clean log\n"
        f"  first: {_printable(scan.first_unread)}\n"
        "  give the log as dmesg, journalctl or syslog wrote it; one line: outrider explain 'NVRM: Xid (...): ...'\n"
    )


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else "?" for one in text)


def exit_code(verdicts: Iterable[Verdict]) -> int:
    """Return 0 where nothing asks for anything, 1 for what is to be watched or kept from new work, 3 where hardware
    can't be trusted: reset, reboot or replace. 2 stays for wrong arguments and unreadable files.
    """
    gravest = max(verdicts, key=lambda verdict: verdict.severity, default=Verdict.NONE)
    if gravest is Verdict.NONE:
        return EXIT_NOTHING
    return EXIT_HARD if gravest.hard else EXIT_SOFT


def table(findings: list[ScanFinding]) -> RenderableType:
    """Return the findings for people: what and where, what it means, what to do next, and the line that shows it."""
    if not findings:
        return "Nothing found: no line that Outrider knows as a fault."
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("NODE", "ON", "CODE", "COUNT", "LAST SEEN", "VERDICT", "WHAT"):
        shown.add_column(column, overflow="fold")
    for one in findings:
        count = f"{one.count} ({one.distinct} different)" if one.count > 1 else "1"
        what = f"{one.meaning}\nNext: {one.advice}\n{one.evidence}"
        place = f"{one.subject} {one.unit}".strip() or "node"
        shown.add_row(*map(Text, (one.node or "-", place, one.code, count, _last(one), one.verdict, what)))
    return shown


def _last(finding: ScanFinding) -> str:
    uptime = finding.last_uptime_seconds
    return finding.last_seen or ("-" if uptime is None else f"{uptime:.3f} s after boot")


def _opened(path: Path) -> AbstractContextManager[BinaryIO]:
    if str(path) != "-":
        return path.open("rb")
    if sys.stdin is None:
        raise OSError("standard input is closed")
    return nullcontext(sys.stdin.buffer)


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield lines; of one that is longer than any real line, the beginning."""
    partial, begins = b"", True
    while chunk := stream.read(_CHUNK_BYTES):
        if begins and chunk.startswith(_NO_TEXT):
            raise NoTextError("is no text, perhaps compressed: unpack it first, such as with zcat or journalctl --file")
        begins = False
        *lines, partial = (partial + chunk).split(b"\n")
        yield from lines
        partial = partial[:LINE_BYTES] if len(partial) > LINE_BYTES else partial
    if partial:
        yield partial


def _address(device: str, kind: SubjectKind) -> str:
    """Return a PCI address as lspci -D writes it; other names as they are."""
    if not device.startswith(ADDRESS_PREFIX):
        return device
    address = device.removeprefix(ADDRESS_PREFIX)
    function = "" if "." in address or kind not in (SubjectKind.GPU, SubjectKind.LINK) else ".0"
    return (address.removeprefix("0000")) + function


def _written(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
