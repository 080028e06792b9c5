"""The fault catalogue: what a code means, what to do about it, how much of the score it costs."""

from collections.abc import Container, Mapping
from enum import StrEnum
from importlib import resources
from typing import Annotated, Any, Final

import msgspec
import yaml

from outrider.api.gpunode import Verdict

RECOVERY_PREFIX: Final = "recovery/"  # NVML's reading of the driver's recovery action; the number follows
XID_RECOVERY_PREFIX: Final = "xid/154."  # the same from the kernel's Xid 154 line
XID_PREFIX: Final = "xid/"
_FOLDER: Final = resources.files(__package__).joinpath("faults")
_TABLES: Final = ("faults", "recovery_actions")
_MEMO_MAX: Final = 1024  # unlisted codes whose row is remembered: a flood of them is judged again and again
LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C one is ten times as fast, where it was built


class CatalogueError(ValueError):
    """The catalogue contradicts itself or its schema; the text names the row and the field."""


class Clears(StrEnum):
    """How a finding ends."""

    BOOT = "boot"
    RECOVERY = "recovery"
    TIME = "time"


class FaultClass(StrEnum):
    """What kind of event a driver's code stands for (NVIDIA's Xid catalogue, Fabric Manager guide)."""

    APP = "app-fault"
    TRANSIENT = "transient"
    COLLATERAL = "collateral"
    INFORMATIONAL = "informational"
    ENVIRONMENT = "environment"
    CONTAINED_MEMORY = "contained-memory"
    GPU_RESET = "gpu-reset"
    REBOOT = "reboot"
    HARDWARE = "hardware"
    LINK = "link"
    RECOVERY_STATE = "recovery-state"
    UNUSED = "unused"


class Reach(StrEnum):
    """What running work an event takes along."""

    NOTHING = "nothing"
    PROCESS = "process"
    GPU = "gpu"
    NODE = "node"
    FABRIC = "fabric"
    DEPENDS = "depends"


Text = Annotated[str, msgspec.Meta(min_length=1)]
Weight = Annotated[float, msgspec.Meta(ge=0, le=1)]
HalfLife = Annotated[float, msgspec.Meta(gt=0, le=3_153_600_000)]  # seconds; at most 100 years


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row: the judgement of one code."""

    meaning: Text
    verdict: Verdict
    weight: Weight
    clears: Clears
    source: Text
    advice: Text
    half_life_seconds: HalfLife | None = None
    decided_by: tuple[str, ...] = ()
    """Codes that say more: beside one of them the row only asks to watch."""
    settle_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    blind: bool = False
    """Silence that hides faults: it makes its subject Unknown, and is never a hard verdict."""
    silent: bool = False
    """Silence about what others see too: nothing is Unknown for it, and it is never a hard verdict either."""
    firm: bool = False
    """Firm advice of the driver: it replaces the verdict of the code table for its GPU."""
    name: str = ""
    """The driver's own name of the code; empty where there is none."""
    fault_class: FaultClass | None = None
    fatal_to: Reach | None = None


class _Action(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    meaning: str
    verdict: Verdict
    weight: Annotated[float, msgspec.Meta(ge=0, le=1)]
    firm: bool
    advice: str

    def fault(self, clears: Clears) -> Fault:
        return Fault(
            meaning=self.meaning,
            verdict=self.verdict,
            weight=self.weight,
            clears=clears,
            source="nvml",
            advice=self.advice,
            firm=self.firm,
        )


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    unknown: Fault
    faults: dict[str, Fault]
    recovery_actions: dict[str, _Action]
    sources: dict[str, str] = {}


class Catalogue:
    """Looks codes up; every code has an answer."""

    def __init__(self, rows: Mapping[str, Fault], unknown: Fault, sources: Mapping[str, str]) -> None:
        self.sources = sources
        """What the words stand for that rows name as their source."""
        self._rows = dict(rows)
        self._unknown = unknown
        self._memo: dict[str, Fault] = {}

    def with_rows(self, rows: Mapping[str, Fault]) -> "Catalogue":
        """Return the catalogue with rows added, or put in the place of those of the same code."""
        return Catalogue({**self._rows, **rows}, self._unknown, self.sources)

    def __contains__(self, code: object) -> bool:
        return code in self._rows

    @property
    def codes(self) -> list[str]:
        """All listed codes, sorted."""
        return sorted(self._rows)

    def of(self, code: str) -> Fault:
        """Return the row of a code, of one that is not listed the row ``unknown``."""
        row = self._rows.get(code) or self._memo.get(code)
        if row is None:
            row = self.listed(code) or self._unknown
            if len(self._memo) >= _MEMO_MAX:
                self._memo.clear()
            self._memo[code] = row
        return row

    def listed(self, code: str) -> Fault | None:
        """Return the row of a code, its own or one for many codes; None for a code that is not known."""
        row = self._rows.get(code) or self._rows.get(_wildcard(code))
        if row is not None:
            return row
        for prefix in (RECOVERY_PREFIX, XID_RECOVERY_PREFIX):
            if code.startswith(prefix):
                return self._rows[f"{prefix}other"]
        return None


def _wildcard(code: str) -> str:
    """Return the key of the row for all codes whose middle part users choose: check/*.warning of check/disk.warning."""
    source, slash, name = code.partition("/")
    _, dot, kind = name.partition(".")
    return f"{source}/*{dot}{kind}" if slash else ""


def parse(*texts: str) -> Catalogue:
    """Return the catalogue of YAML texts that each hold a part of it. Raises CatalogueError."""
    try:
        raw = _joined([yaml.load(text, LOADER) for text in texts])  # noqa: S506 - the C form of the safe loader
        document = msgspec.convert(raw, _Document)
    except yaml.YAMLError as error:
        raise CatalogueError(f"fault catalogue: {error}") from error
    except msgspec.ValidationError as error:
        raise CatalogueError(f"fault catalogue: {_first_wrong_row(raw) or error}") from error
    _check(document)
    rows = dict(document.faults)
    for number, action in document.recovery_actions.items():
        rows[f"{RECOVERY_PREFIX}{number}"] = action.fault(Clears.RECOVERY)
        rows[f"{XID_RECOVERY_PREFIX}{number}"] = action.fault(Clears.BOOT)
    return Catalogue(rows, document.unknown, document.sources)


def load() -> Catalogue:
    """Return the catalogue that comes with Outrider."""
    files = sorted(_FOLDER.iterdir(), key=lambda file: file.name)
    return parse(*(file.read_text("utf-8") for file in files if file.name.endswith(".yaml")))


def _joined(parts: list[Any]) -> Any:
    """Return the parts as one document: rows of all, keys as texts; a part that is no mapping is left to the schema."""
    whole: dict[str, Any] = {}
    for part in parts:
        if not isinstance(part, dict):
            return part
        for key, value in part.items():
            rows = (
                {str(code): row for code, row in value.items()} if key in _TABLES and isinstance(value, dict) else value
            )
            twice = sorted(set(rows) & set(whole.get(key, {}))) if isinstance(rows, dict) else []
            if twice and key in _TABLES:
                raise CatalogueError(f"fault catalogue: {twice[0]}: has two rows")
            whole[key] = {**whole.get(key, {}), **rows} if isinstance(rows, dict) else rows
    return whole


def _first_wrong_row(raw: Any) -> str:
    """Return code and mistake of the first row that breaks the schema, which msgspec itself does not name."""
    rows = raw.get("faults") if isinstance(raw, dict) else None
    for code, row in rows.items() if isinstance(rows, dict) else ():
        try:
            msgspec.convert(row, Fault)
        except msgspec.ValidationError as error:
            return f"{code}: {error}"
    return ""


def _check(document: _Document) -> None:
    if document.version != 1:
        raise CatalogueError(f"fault catalogue: version {document.version} is not known, only 1")
    if document.unknown.verdict not in (Verdict.NONE, Verdict.WATCH):
        raise CatalogueError("fault catalogue: unknown: an unknown code must not lead to action")
    if "other" not in document.recovery_actions:
        raise CatalogueError("fault catalogue: recovery_actions: the row 'other' is missing")
    for code, fault in {**document.faults, "unknown": document.unknown}.items():
        if problem := contradiction(fault, document.faults):
            raise CatalogueError(f"fault catalogue: {code}: {problem[0]}: {problem[1]}")


def contradiction(fault: Fault, known: Container[str]) -> tuple[str, str] | None:
    """Return the key of a row that contradicts the others, and why; None where all go together.

    ``known`` holds the codes that ``decided_by`` may name.
    """
    if (fault.clears is Clears.TIME) != (fault.half_life_seconds is not None):
        return "half_life_seconds", "goes with clears: time, and only with it"
    if (fault.blind or fault.silent) and fault.verdict.hard:
        return "verdict", "silence must not lead to a hard verdict"
    if fault.verdict.hard and fault.clears is Clears.TIME:
        return "verdict", "a hard verdict does not fade with time"
    stranger = next((code for code in fault.decided_by if code not in known), None)
    return ("decided_by", f"names {stranger}, which has no row") if stranger else None
