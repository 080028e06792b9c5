"""The probe of users' own checks: a folder of executable files, each run at its own period as an unprivileged user.

Each runs in its own task, a few at a time, so one that hangs delays the others by its time limit at worst, and hides
none. What a check found stands until the check itself says otherwise: one that breaks does not clear it.
"""

import asyncio
import errno
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import yaml

from node_agent.config import Config
from node_agent.probes import programs
from node_agent.probes.aside import Aside, StillReading
from node_agent.probes.registry import Surroundings, probe
from node_agent.probes.report import Report, States
from node_agent.readings.checks import Answer, CheckSettings, judge, name_of, settings_of, speaks_for, unknown
from outrider.health.findings import Evidence

_TOGETHER: Final = 4  # checks that run at the same time: the node's processors belong to its jobs
_OUTPUT_BYTES: Final = 64 * 1024
_LOOK_SECONDS: Final = 5.0  # the folder may be on a file system that hangs
_SETTINGS_BYTES: Final = 64 * 1024
_CHECKS_MAX: Final = 64  # findings are bounded too
# The kubelet makes the folder of a ConfigMap's volume 0777, and ..data in it, where the files are, 0755.
_OPEN_FOLDER: Final = "checks not run: everybody may change the folder; chmod o-w it (of a volume, name its ..data)"
_FOLDER: Final = "folder"  # stands for the folder itself in the code of a finding


_Listed = tuple[Path, CheckSettings, str]
"""File and settings of a check, and why it may not be run."""


class _Check(msgspec.Struct, kw_only=True):
    """A check as the probe knows it between readings."""

    path: Path
    settings: CheckSettings = CheckSettings()
    refused: str = ""
    due: float = 0.0
    """On the monotonic clock, in seconds."""
    standing: list[Evidence] = []
    """What it found when it last gave a usable answer."""
    silence: Evidence | None = None
    run: asyncio.Task[None] | None = None

    @property
    def bad(self) -> Iterator[Evidence]:
        yield from self.standing
        if self.silence is not None:
            yield self.silence


class ChecksProbe:
    """Keeps the checks going and tells what they said last."""

    period_seconds = 10.0
    timeout_seconds = 30.0

    def __init__(self, config: Config) -> None:
        self._folder = Path(config.checks_dir)
        self._uid = config.checks_uid
        self.wake: asyncio.Event | None = asyncio.Event()
        self._slots = asyncio.Semaphore(_TOGETHER)
        self._aside = Aside[dict[str, _Listed]]()
        self._checks: dict[str, _Check] = {}
        self._around: Surroundings | None = None

    def attach(self, around: Surroundings) -> None:
        """See Attached."""
        self._around = around

    async def read(self) -> Report:
        """Start what is due, and return what all checks said last."""
        problem = await self._look(self._folder)
        for name, check in self._checks.items():
            self._start(name, check)
        bad = [evidence for check in self._checks.values() for evidence in check.bad]
        if problem:
            bad.append(unknown(_FOLDER, problem, time.time()))
        return Report(states=States(bad=tuple(bad), readable=frozenset({"", *self._gpus()})))

    def _gpus(self) -> set[str]:
        return {record.uuid for record in self._around.inventory()} if self._around else set()

    async def _look(self, folder: Path) -> str:
        """Bring the checks in line with the folder; return what is wrong with the folder itself."""
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                found = await self._aside.run(lambda: _listed(folder))
        except (TimeoutError, StillReading):
            return f"{folder}: gives no answer"
        except OSError as error:
            return f"{folder}: {error.strerror}"
        for name in self._checks.keys() - found.keys():
            self._forget(name)
        for name, (path, settings, refused) in found.items():
            check = self._checks.setdefault(name, _Check(path=path, standing=self._remembered(name)))
            if (check.path, check.settings, check.refused) != (path, settings, refused):
                check.path, check.settings, check.refused, check.due = path, settings, refused, 0.0
        return ""

    def _remembered(self, name: str) -> list[Evidence]:
        findings = self._around.findings() if self._around else ()
        return [evidence for evidence in findings if speaks_for(name, evidence)]

    def _forget(self, name: str) -> None:
        check = self._checks.pop(name)
        if check.run is not None:
            check.run.cancel()

    def _start(self, name: str, check: _Check) -> None:
        now = time.monotonic()
        if check.due > now or check.run is not None:
            return
        check.due = now + check.settings.period_seconds
        if check.refused:
            check.silence = unknown(name, check.refused, time.time())
        else:
            check.run = asyncio.create_task(self._run(name, check), name=f"check {name}")

    async def _run(self, name: str, check: _Check) -> None:
        try:
            async with self._slots:
                ran = await programs.run(
                    [str(check.path)],
                    seconds=check.settings.timeout_seconds,
                    output_max=_OUTPUT_BYTES,
                    uid=self._uid,
                    environment={"NODE_NAME": os.environ.get("NODE_NAME", "")},
                )
            _take(check, judge(name, check.settings, ran, self._gpus(), time.time()))
        finally:
            check.run = None
            if self.wake is not None:
                self.wake.set()

    async def close(self) -> None:
        """End all checks."""
        running = [check.run for check in self._checks.values() if check.run is not None]
        for run in running:
            run.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _take(check: _Check, answer: Answer) -> None:
    if answer.usable:
        check.standing = [answer.evidence] if answer.evidence else []
        check.silence = None
    else:
        check.silence = answer.evidence


def _listed(folder: Path) -> dict[str, _Listed]:
    """Return the checks in a folder by name, with their settings and why one may not be run.

    Raises OSError, also for a folder that everybody may change: a check in it could be anybody's.
    """
    if folder.stat().st_mode & stat.S_IWOTH:
        raise PermissionError(errno.EPERM, _OPEN_FOLDER)
    files = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".") and path.suffix != ".yaml"]
    listed: dict[str, _Listed] = {}
    for path in files[:_CHECKS_MAX]:
        if path.is_file():
            name = name_of(path.name)
            settings, problem = _settings(path.with_suffix(".yaml"))
            twin = f"{listed[name][0].name} and {path.name} have the same name" if name in listed else ""
            listed[name] = (path, settings, twin or _refused(path) or problem)
    return listed


def _refused(path: Path) -> str:
    mode = path.stat().st_mode
    if mode & stat.S_IWOTH:
        return f"not run: everybody may change {path}; chmod o-w it"
    return "" if mode & 0o111 else f"not run: {path} is not executable; chmod +x it, or keep other files elsewhere"


def _settings(path: Path) -> tuple[CheckSettings, str]:
    try:
        with path.open("rb") as file:
            return settings_of(yaml.safe_load(file.read(_SETTINGS_BYTES))), ""
    except FileNotFoundError:
        return CheckSettings(), ""
    except (OSError, yaml.YAMLError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        return CheckSettings(), f"not run: {path.name}: {' '.join(str(error).split())}"


@probe("checks")
def _build(config: Config) -> ChecksProbe | None:
    return ChecksProbe(config) if config.checks_dir else None
