"""Checks of users' own: what their exit codes and words mean, and what each may set. Pure.

Exit codes are those of monitoring plug-ins everywhere: 0 well, 1 warning, 2 critical, 3 unknown. Everything else, and
no end in time, is unknown too: a script that does not work says nothing about the node.
"""

import re
from collections.abc import Collection
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from node_agent.probes.programs import Ran
from outrider.api.gpunode import SubjectKind
from outrider.health.findings import Evidence, seen

SOURCE: Final = "checks"
PREFIX: Final = "check/"
WARNING: Final = ".warning"
UNKNOWN: Final = ".unknown"
_NAME_MAX: Final = 40
_KINDS: Final = {1: WARNING, 2: ""}
_NOT_A_NAME: Final = re.compile(r"[^a-z0-9]+")
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


Subject = Literal["node", "gpu"]
Gravest = Literal["watch", "no-new-work"]
_CHOICES: Final = {"subject": get_args(Subject), "verdict": get_args(Gravest)}


class CheckSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What the file NAME.yaml beside a check may hold."""

    period_seconds: Annotated[float, msgspec.Meta(ge=10, le=86_400)] = 60.0
    timeout_seconds: Annotated[float, msgspec.Meta(gt=0, le=600)] = 30.0
    subject: Subject = "node"
    """gpu: the first word of the check's line is the UUID of the GPU that it speaks of."""
    verdict: Gravest = "no-new-work"
    """The gravest that it may lead to; watch: critical counts as a warning."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a check said. ``usable``: it spoke about what it looks at, so that what it said before no longer holds."""

    usable: bool
    evidence: Evidence | None = None


def name_of(file_name: str) -> str:
    """Return the name that a check's codes carry: its file's without extension, small letters, digits and dashes."""
    stem = file_name.rpartition(".")[0] or file_name
    return _NOT_A_NAME.sub("-", stem.lower()).strip("-")[:_NAME_MAX].strip("-") or "unnamed"


def settings_of(content: Any) -> CheckSettings:
    """Return the settings in a decoded sidecar file. Raises msgspec.ValidationError: the field and what it can be."""
    try:
        return msgspec.convert({} if content is None else content, CheckSettings)
    except msgspec.ValidationError as error:
        words = str(error)
        field = next((field for field in _CHOICES if f"`$.{field}`" in words), "")
        raise msgspec.ValidationError(
            f"{words}: it can be {' or '.join(_CHOICES[field])}" if field else words
        ) from error


def judge(name: str, settings: CheckSettings, ran: Ran, gpus: Collection[str], now: float) -> Answer:
    """Return what one run of a check means."""
    if ran.status == 0:
        return Answer(usable=True)
    if ran.status not in _KINDS:
        return Answer(usable=False, evidence=unknown(name, _why_unknown(ran), now))
    kind = WARNING if settings.verdict == "watch" else _KINDS[ran.status]
    line = _line(ran) or f"exit code {ran.status} without a word"
    subject, subject_id = _subject(settings, line, gpus)
    code = f"{PREFIX}{name}{kind}"
    return Answer(
        usable=True, evidence=seen(code, now, subject=subject, subject_id=subject_id, line=line, source=SOURCE)
    )


def unknown(name: str, why: str, now: float) -> Evidence:
    """Return the evidence of a check that gave no usable answer."""
    return seen(f"{PREFIX}{name}{UNKNOWN}", now, line=f"check {name}: {why}", source=SOURCE)


def speaks_for(name: str, evidence: Evidence) -> bool:
    """True where the evidence is what the check of this name found, other than that it could not look."""
    return evidence.source == SOURCE and evidence.code in (f"{PREFIX}{name}", f"{PREFIX}{name}{WARNING}")


def _why_unknown(ran: Ran) -> str:
    words = f"; it said: {line}" if (line := _line(ran)) else ""
    if ran.status is None:
        return f"{ran.problem}{words}"
    if ran.status == 3:
        return _line(ran) or "exit code 3 without a word"
    how = f"ended by signal {-ran.status}" if ran.status < 0 else f"exit code {ran.status} is none of 0, 1, 2, 3"
    return f"{how}{words}"


def _line(ran: Ran) -> str:
    """The first line that holds anything."""
    text = ran.output.decode("utf-8", "replace")
    return next((line for raw in text.splitlines() if (line := " ".join(_UNPRINTABLE.sub(" ", raw).split()))), "")


def _subject(settings: CheckSettings, line: str, gpus: Collection[str]) -> tuple[SubjectKind, str]:
    first = line.split(maxsplit=1)[0].rstrip(":,")
    if settings.subject == "gpu" and first in gpus:
        return SubjectKind.GPU, first
    return SubjectKind.NODE, ""
