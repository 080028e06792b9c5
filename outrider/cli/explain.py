"""`outrider explain xid 119`: what the fault catalogue knows about a code, and what it makes of a log line. Pure."""

import difflib
import re
from typing import Final

import msgspec
from rich.console import RenderableType
from rich.table import Table

from outrider.api.gpunode import Verdict
from outrider.health import nvlink5
from outrider.health.catalogue import (
    RECOVERY_PREFIX,
    XID_PREFIX,
    XID_RECOVERY_PREFIX,
    Catalogue,
    Clears,
    Fault,
    FaultClass,
    Reach,
)
from outrider.health.clearing import reset_repairs
from outrider.health.decoding import decode
from outrider.health.judge import COMPANION_SECONDS
from outrider.health.kernel.reader import KernelReader
from outrider.health.kernel.words import Happening

_LINE: Final = re.compile(r"(S?)Xid\s{0,4}\([^)]{0,128}\)\s{0,4}:\s{0,4}(\d{1,6})(?!\d)")
_NO_CODE: Final = "is no code: try xid 119, sxid 20034, nvlink/inactive, or a line of the kernel log"
_NUMBER: Final = re.compile(r"(?:(s?xid)[\s/:_-]{0,4})?(\d{1,6}(?:\.[\w*]{1,64})?)", re.IGNORECASE)
_DIGITS: Final = re.compile(r"\d{1,6}")
_NUMBERED: Final = re.compile(r"(?:s?xid|recovery)/\d{1,6}(?:\.\w{1,64})?")
_SHARED: Final = (
    "is no code of a fault: nodes of one domain share the trouble that it names. See kubectl get remediations"
)
_NEAREST: Final = 4  # codes offered in the place of one that does not exist
_TEXT_TOLD: Final = 200
_XID: Final = re.compile(r"xid/(\d{1,6})")


class CodeError(ValueError):
    """The words name no code; the text says how one looks."""


class NoSuchCodeError(ValueError):
    """What is written as a code is none that Outrider has; the text names the nearest ones."""


class Explained(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is known about a code."""

    code: str
    known: bool
    name: str
    meaning: str
    fault_class: FaultClass | None
    fatal_to: Reach | None
    verdict: Verdict
    weight: float
    clears: str
    advice: str
    source: str
    belief: list[str]
    """What else has a say in the verdict, in the order in which it is believed."""
    line: str
    """What the line that was given says beyond the code; empty without one."""
    variants: list[str]
    """More exact codes, which lines of this one may get."""


def code_of(words: list[str], driver: str = "") -> tuple[str, str]:
    """Return the code that words such as ["xid", "119"] name, and what a line among them says. Raises CodeError.

    Also read: 119, Xid119 and xid-119, which is how the taint of a node writes it.
    """
    text = " ".join(words).strip()
    if alone := _NUMBER.fullmatch(text):
        return f"{(alone[1] or 'xid').lower()}/{_plain(alone[2])}", ""
    if found := _LINE.search(text):
        source, number, line = f"{found[1]}xid".lower(), found[2], text[found.end() :]
    else:
        source, number, line = [*text.replace("/", " ", 1).split(maxsplit=2), "", "", ""][:3]
        source = source.lower()
    if source in ("xid", "sxid") and number:
        return _numbered(source, number, line, driver)
    if line:
        return _code_in(text, driver)
    if not number and "-" not in source:
        raise CodeError(f"'{text[:_TEXT_TOLD]}' {_NO_CODE}")
    return f"{source}/{number}" if number else source, ""


def _numbered(source: str, number: str, line: str, driver: str) -> tuple[str, str]:
    if not _DIGITS.fullmatch(number):
        raise CodeError(f"'{number[:_TEXT_TOLD]}' is no number of an {source}, such as {source} 79")
    if line.strip().isdecimal():
        raise CodeError(f"'{line.strip()[:_TEXT_TOLD]}' is one number too many: one code at a time, such as xid 79")
    if source == "xid" and line:
        decoded = decode(int(number), line, driver)
        return decoded.code, decoded.detail
    return f"{source}/{int(number)}", ""


def _plain(number: str) -> str:
    """Return the number without zeros ahead of it: 0119.reset is 119.reset."""
    digits, dot, more = number.partition(".")
    return f"{int(digits)}{dot}{more}"


def known_code(catalogue: Catalogue, code: str) -> str:
    """Return the code itself, or the one that a taint's value such as nvlink-inactive stands for.

    A number of an Xid, an SXid or a recovery action that no row lists is a code too: drivers may get new ones. Raises
    NoSuchCodeError for every other code that no row lists.
    """
    if catalogue.listed(code) is not None or _NUMBERED.fullmatch(code):
        return code
    written = {other.replace("/", "-"): other for other in catalogue.codes}
    if (meant := written.get(code.replace("/", "-"))) is not None:
        return meant
    if code.startswith(("domain/", "domain-")):
        raise NoSuchCodeError(f"'{code[:_TEXT_TOLD]}' {_SHARED}")
    raise NoSuchCodeError(f"there is no code '{code[:_TEXT_TOLD]}'{_nearest(catalogue, code[:_TEXT_TOLD])}")


def _nearest(catalogue: Catalogue, code: str) -> str:
    near = difflib.get_close_matches(code, catalogue.codes, _NEAREST)
    parts = {part for part in re.split(r"[/.-]", code.lower()) if len(part) > 1}
    near += [other for other in catalogue.codes if other not in near and parts & set(re.split(r"[/.-]", other))]
    return f"; near it are {', '.join(near[:_NEAREST])}" if near else ""


def _code_in(text: str, driver: str) -> tuple[str, str]:
    """Return what a line of the kernel log says, with or without the time and host before it."""
    for message in (text, text.partition("kernel: ")[2], text.partition("] ")[2]):
        reader = KernelReader(driver)
        said = [*reader.read(message, 0.0), *reader.flush()]
        if happening := next((one for one in said if isinstance(one, Happening)), None):
            return happening.code, happening.line
    raise CodeError(f"'{text[:_TEXT_TOLD]}' {_NO_CODE}")


def explain_code(catalogue: Catalogue, code: str, line: str = "") -> Explained:
    """Return what the catalogue knows about the code."""
    row = catalogue.of(code)
    return Explained(
        code=code,
        known=catalogue.listed(code) is not None,
        name=row.name,
        meaning=row.meaning,
        fault_class=row.fault_class,
        fatal_to=row.fatal_to,
        verdict=row.verdict,
        weight=row.weight,
        clears=_clears(code, row),
        advice=row.advice,
        source=catalogue.sources.get(row.source, row.source),
        belief=_belief(code, row, known=catalogue.listed(code) is not None),
        line=line,
        variants=[other for other in catalogue.codes if other.startswith(f"{code}.")],
    )


def _clears(code: str, row: Fault) -> str:
    if row.half_life_seconds is not None:
        return f"fades: half of its weight is left after {_duration(row.half_life_seconds)}"
    if row.clears is Clears.RECOVERY:
        return "goes when it has read well for a while (the chart's nodeAgent.clearDwellSeconds)"
    undone = code.startswith(XID_PREFIX) and reset_repairs(row)
    return f"stays until the node has booted again{', or until the driver takes its advice back' if undone else ''}"


def _duration(seconds: float) -> str:
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:g} {name}"
    return f"{seconds:g} s"


def _belief(code: str, row: Fault, *, known: bool) -> list[str]:
    says = []
    if code.startswith((RECOVERY_PREFIX, XID_RECOVERY_PREFIX)):
        firm = "it takes the place of every Xid's verdict" if row.firm else "it adds to what the Xids say"
        says.append(f"the driver's own recovery action is believed first: {firm}")
    elif code.startswith(XID_PREFIX):
        says.append("the driver's own recovery action (NVML, Xid 154) is believed before this")
        says += _detailed(code)
    if row.decided_by:
        codes = ", ".join(row.decided_by)
        says.append(
            f"beside one of {codes} (within {COMPANION_SECONDS:g} s) that one decides, and this is only watched"
        )
    if row.settle_seconds:
        why = "it has to be seen again" if row.clears is Clears.RECOVERY else "what comes with it may decide"
        says.append(f"for the first {row.settle_seconds:g} s it only keeps new work away: {why}")
    if row.blind or row.silent:
        says.append("it is silence, so it never leads to a reset, reboot or replacement")
    if not known:
        says.append("no row lists this code: it is recorded and shown, and nothing is done about it")
    return says


def _detailed(code: str) -> list[str]:
    found = _XID.match(code)
    number = int(found[1]) if found else 0
    if number == 74:
        return ["the registers in its line are believed before its number"]
    if number in nvlink5.XIDS:
        return ["the words in its line are believed before its number; the driver's version tells how to read them"]
    return []


def explained_lines(answer: Explained) -> RenderableType:
    """Return the answer for people."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    table.add_row(answer.code, answer.name or ("" if answer.known else "not in the catalogue"))
    for label, text in _facts(answer):
        table.add_row(label, text)
    return table


def _facts(answer: Explained) -> list[tuple[str, str]]:
    kind = f"{answer.fault_class}; running work lost: {answer.fatal_to}" if answer.fault_class else ""
    facts = [
        ("Meaning", answer.meaning),
        ("Line", answer.line),
        ("Kind", kind),
        ("Verdict", answer.verdict),
        ("Score", f"one fresh occurrence takes {100 * answer.weight:g} of 100 points"),
        ("Clears", answer.clears),
        ("Next", answer.advice),
        ("Source", answer.source),
        *(("Belief" if number == 0 else "", text) for number, text in enumerate(answer.belief)),
        ("More exact", ", ".join(answer.variants)),
    ]
    return [(label, text) for label, text in facts if text]
