r"""Forms of saved kernel logs: what dmesg, journalctl, syslog daemons and /dev/kmsg write, one line at a time.

    dmesg                 [  123.456789] text          (also -r, and with the printing thread or processor behind)
    dmesg -T              [Mon Dec  1 10:00:00 2025] text
    dmesg -e, -H          [Dec 1 10:00] text or [Nov30 10:00] text, then [  +0.000012] text, which has no time
    dmesg -d              [  123.456789 <    0.000012>] text, also with -T; [<    0.000012>] text has no time either
    dmesg --time-format iso, and this with microseconds behind a comma
    dmesg -x              kern  :warn  : before any of these, and before a text without time (-t)
    journalctl, syslog    Dec 01 10:00:00 host kernel: text, and the forms short-precise, short-iso, short-iso-precise,
                          short-full, short-unix, short-monotonic; a second time in brackets is left out
    journalctl -o json    one object a line
    /dev/kmsg             4,1234,123456789,-;text
    nothing               text

What pdsh, clush and the like gather (``host: line``) has any of these forms behind the host's name.

Only the journal, syslog, ``dmesg -r`` and ``-x``, and /dev/kmsg tell who wrote a line; there, what is not the kernel's
is left out. In the other forms a line counts if it begins as a driver's line does. A line that begins with a blank
goes on where the line before it was: what a program wrote over several lines can't pass for the kernel's.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from outrider.health.kernel import records

LINE_BYTES: Final = 64 * 1024  # more of one line is not looked at
_KERNEL: Final = "kernel"
_USER_PRIORITY: Final = 8  # facility 1 and above
_DAY_SECONDS: Final = 86_400.0
_LEAP_YEARS: Final = 9  # 29 February comes back after eight at the latest
_LATEST: Final = 253_402_300_800  # the year 10000

# A program's name begins with a letter, or "nvidia 0000:3b:00.0: ..." would be the line of a program called 0000.
_WRITER: Final = (
    r"(?:(?P<host>[\w.-]{1,253}) (?P<who>[A-Za-z_(][^\s:\[]{0,127})(?P<pid>\[[^\]\s]{1,20}\])?|(?P<lone>kernel)):"
)
_MONOTONIC_WRITER: Final = (
    r"(?P<host>[\w.-]{1,253}) (?:(?P<lone>kernel)|(?P<who>[A-Za-z_(][^\s:\[]{0,127})\[\d{1,9}\]):"
)
_TEXT: Final = r" ?(?P<text>.*)"
_PRIORITY: Final = r"(?:<(?P<priority>\d{1,4})>)?"
_DECODED: Final = r"(?:(?P<facility>[a-z0-9]{1,9})\s{0,6}:[a-z]{1,6}\s{0,6}: )?"  # dmesg -x
_FACILITY: Final = "kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp"
_DELTA: Final = r"(?: <\s{0,12}\d{1,12}\.\d{1,9}>)?"
_UPTIME: Final = rf"\[\s{{0,9}}(?P<uptime>\d{{1,12}}\.\d{{1,9}}){_DELTA}\](?:\[\s{{0,9}}[TC]\d{{1,9}}\])?"
_NAME: Final = r"[^\W_]{1,12}\.?"  # of a day or month, in the language of whoever wrote the log
_MONTH: Final = rf"{_NAME}\s{{1,2}}\d{{1,2}}"
_ISO: Final = r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}"
_ZONE: Final = r"(?:Z|[+-]\d{2}:?\d{2})?"
_FORMS: Final = tuple(
    re.compile(form, re.DOTALL)
    for form in (
        rf"{_PRIORITY}{_UPTIME} {_MONOTONIC_WRITER}{_TEXT}",
        rf"{_PRIORITY}{_UPTIME}{_TEXT}",
        rf"{_DECODED}{_UPTIME}{_TEXT}",
        rf"{_DECODED}\[(?P<ctime>{_NAME} {_MONTH} \d{{2}}:\d{{2}}:\d{{2}} \d{{4}}){_DELTA}\]{_TEXT}",
        rf"{_DECODED}\[(?P<minute>{_NAME}\s{{0,2}}\d{{1,2}} \d{{2}}:\d{{2}})\]{_TEXT}",
        rf"{_DECODED}\[(?:\s{{0,12}}\+|<\s{{0,12}})\d{{1,12}}\.\d{{1,9}}>?\]{_TEXT}",
        rf"{_PRIORITY}(?P<month>{_MONTH} \d{{2}}:\d{{2}}:\d{{2}}(?:\.\d{{1,9}})?) {_WRITER}{_TEXT}",
        rf"(?P<month>{_MONTH} \d{{2}}:\d{{2}}:\d{{2}}(?:\.\d{{1,9}})?){_TEXT}",
        rf"(?P<iso>{_ISO}(?:\.\d{{1,9}})?{_ZONE}) {_WRITER}{_TEXT}",
        rf"{_DECODED}(?P<iso>{_ISO}(?:[.,]\d{{1,9}})?{_ZONE}){_TEXT}",
        rf"{_NAME} (?P<full>{_ISO}(?:\.\d{{1,9}})?) (?P<zone>[\w+-]{{1,8}}) {_WRITER}{_TEXT}",
        rf"kernel: (?:{_UPTIME} )?(?P<text>.*)",
        rf"(?P<facility>{_FACILITY})\s{{0,6}}:[a-z]{{1,6}}\s{{0,6}}: (?P<text>.*)",  # dmesg -xt
        rf"(?P<unix>\d{{9,11}}\.\d{{1,9}}) {_WRITER}{_TEXT}",
    )
)
_GATHERED: Final = re.compile(
    r"(?P<host>[\w.-]{1,253}):\s{1,4}(?P<line>(?:<\d|\[\s{0,9}[\d+<]|\[[^\W\d_]{1,12}\.? |\d{4}-\d|\d,).*)", re.DOTALL
)
_COLOUR: Final = re.compile(r"\x1b\[[\d;]{0,20}[mK]")  # dmesg and journalctl may colour what they print
_DAY_BEHIND_MONTH: Final = re.compile(r"(?<=[^\W\d_])\d")  # dmesg -e writes Nov30
_SECOND_TIME: Final = re.compile(rf"{_UPTIME} ")


class SavedLine(msgspec.Struct, frozen=True):
    """One line of a saved log. ``host`` is empty where the form has none."""

    message: str
    host: str = ""
    from_kernel: bool = True
    """True also where the form does not tell who wrote the line."""
    seconds: float | None = None
    """Since 1970, where the line has a time of the calendar."""
    uptime_seconds: float | None = None
    """Since the boot, where the line has only that."""


class SavedLog:
    """Reads lines in order. ``now`` (seconds since 1970) decides the year of lines that have none."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._before = SavedLine("")

    def read(self, raw: bytes) -> SavedLine:
        """Return what the line is; one that fits no form is the text of a kernel message without time and host."""
        text = raw[:LINE_BYTES].decode("utf-8", "replace").strip("\r\n\ufeff")
        if "\x1b" in text:
            text = _COLOUR.sub("", text)
        if text[:1].isspace() and self._before.host:
            return msgspec.structs.replace(self._before, message=text.lstrip())
        self._before = line = self._read(text.lstrip(), raw)
        return line

    def _read(self, text: str, raw: bytes) -> SavedLine:
        if (line := self._formed(text, raw)) is not None:
            return line
        gathered = _GATHERED.match(text)
        line = self._formed(gathered["line"], gathered["line"].encode()) if gathered else None
        if gathered is None or line is None:
            return SavedLine(text)
        return line if line.host else msgspec.structs.replace(line, host=gathered["host"])

    def _formed(self, text: str, raw: bytes) -> SavedLine | None:
        if text.startswith("{") and (entry := _journal_entry(text)) is not None:
            return entry
        if (record := records.parse(raw)) is not None:
            return SavedLine(record.message, "", record.from_kernel, None, record.uptime_seconds)
        match = next((match for form in _FORMS if (match := form.match(text))), None)
        return self._line(match.groupdict()) if match else None

    def _line(self, fields: dict[str, str | None]) -> SavedLine:
        text, who, uptime = fields["text"] or "", fields.get("who"), fields.get("uptime")
        from_kernel = (
            who in (None, _KERNEL)
            and not fields.get("pid")  # a program that calls itself kernel
            and int(fields.get("priority") or 0) < _USER_PRIORITY
            and fields.get("facility") in (None, "kern")
        )
        seconds = self._seconds(fields)
        if who or fields.get("lone") or seconds is not None:
            text = _SECOND_TIME.sub("", text, count=1)
        return SavedLine(text, fields.get("host") or "", from_kernel, seconds, float(uptime) if uptime else None)

    def _seconds(self, fields: dict[str, str | None]) -> float | None:
        form = next((name for name in _TIMES if fields.get(name)), None)
        if form is None:
            return None
        written = fields[form] or ""
        try:
            seconds = _TIMES[form](f"{written}+00:00" if fields.get("zone") == "UTC" else written, self._now)
        except (ValueError, OverflowError):
            return None
        return seconds if 0 <= seconds < _LATEST else None


def _iso(written: str, _now: float) -> float:
    time = datetime.fromisoformat(written.replace(",", "."))
    return time.timestamp()


def _ctime(written: str, _now: float) -> float:
    return datetime.strptime(written, "%a %b %d %H:%M:%S %Y").astimezone().timestamp()


def _without_year(written: str, form: str, now: float) -> float:
    """A log has no future: what would be later than a day from now is of the year before."""
    year = datetime.fromtimestamp(now, UTC).year
    for candidate in range(year, year - _LEAP_YEARS, -1):  # 29 February is in few of them
        with suppress(ValueError):
            seconds = datetime.strptime(f"{candidate} {written}", f"%Y {form}").astimezone().timestamp()
            if seconds <= now + _DAY_SECONDS:
                return seconds
    raise ValueError(written)


def _month(written: str, now: float) -> float:
    return _without_year(written, "%b %d %H:%M:%S.%f" if "." in written else "%b %d %H:%M:%S", now)


def _minute(written: str, now: float) -> float:
    return _without_year(_DAY_BEHIND_MONTH.sub(r" \g<0>", written, count=1), "%b %d %H:%M", now)


def _unix(written: str, _now: float) -> float:
    return float(written)


_TIMES: Final[dict[str, Callable[[str, float], float]]] = {
    "iso": _iso,
    "full": _iso,
    "month": _month,
    "ctime": _ctime,
    "minute": _minute,
    "unix": _unix,
}


def _journal_entry(text: str) -> SavedLine | None:
    try:
        entry: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(entry, dict) or "MESSAGE" not in entry:
        return None
    message = entry["MESSAGE"]
    if isinstance(message, list):  # what is no text comes as numbers of bytes
        message = bytes(byte for byte in message if isinstance(byte, int) and 0 <= byte < 256).decode(
            "utf-8", "replace"
        )
    stamp = entry.get("_SOURCE_REALTIME_TIMESTAMP") or entry.get("__REALTIME_TIMESTAMP") or ""
    return SavedLine(
        str(message or ""),
        str(entry.get("_HOSTNAME") or ""),
        entry.get("_TRANSPORT") == _KERNEL,
        int(stamp) / 1e6 if isinstance(stamp, str) and stamp.isdecimal() and len(stamp) < 18 else None,
    )
