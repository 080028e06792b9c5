"""The overrides probe: puts the user's changes to the fault catalogue in force, and tells where they can't be used.

The file comes from a ConfigMap, which the kubelet replaces as a whole while the agent runs. A file with a mistake
changes nothing: the last good one stays in force, over restarts of the agent too.
"""

import asyncio
import logging
import time
from pathlib import Path
from typing import Final

from node_agent.config import Config
from node_agent.kept_file import KeptFile
from node_agent.probes.registry import Surroundings, probe
from node_agent.probes.report import Report, States
from outrider.health.catalogue import Catalogue
from outrider.health.findings import seen
from outrider.health.overrides import LENGTH_MAX, OverrideError, apply_overrides

CODE: Final = "catalogue/overrides"
_LOG: Final = logging.getLogger(__name__)
_SOURCE: Final = "overrides"


class OverridesProbe:
    """See the module."""

    period_seconds = 10.0
    timeout_seconds = 5.0
    wake: asyncio.Event | None = None

    def __init__(self, path: Path, state_dir: Path) -> None:
        self._path = path
        self._kept = KeptFile(state_dir / "overrides.json", str)
        self._around: Surroundings | None = None
        self._base: Catalogue | None = None
        self._content: bytes | None = None
        self._error = ""

    def attach(self, around: Surroundings) -> None:
        """See Attached."""
        self._around, self._base = around, around.catalogue()

    async def read(self) -> Report:
        """Return the file's mistake, if any. Raises OSError where the file is there and can't be read."""
        content = self._read()
        if content != self._content:
            self._take(content)
            self._content = content
        line = f"{self._path}: {self._error}"
        bad = (seen(CODE, time.time(), line=line, source=_SOURCE),) if self._error else ()
        return Report(states=States(bad=bad, readable=frozenset({""})))

    async def close(self) -> None:
        """Nothing is held."""

    def _read(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                return file.read(4 * LENGTH_MAX + 1)
        except FileNotFoundError:
            return b""  # the ConfigMap is optional

    def _take(self, content: bytes) -> None:
        try:
            text = _text(content)
            self._use(text)
        except OverrideError as error:
            self._error = str(error)
            _LOG.warning("overrides are not used", extra={"path": str(self._path), "problem": self._error})
            if self._content is None:
                self._use_kept()
        else:
            self._error = ""
            self._kept.keep(text, urgent=text, monotonic=time.monotonic())
            _LOG.info("overrides are in force", extra={"path": str(self._path), "characters": len(text)})

    def _use_kept(self) -> None:
        """Go on with the last good file from before a restart of the agent."""
        try:
            self._use(self._kept.read() or "")
        except OverrideError as error:
            _LOG.warning("kept overrides no longer fit the catalogue", extra={"problem": str(error)})

    def _use(self, text: str) -> None:
        if self._around is not None and self._base is not None:
            self._around.use_catalogue(apply_overrides(self._base, text))


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise OverrideError(content.count(b"\n", 0, error.start) + 1, "is no UTF-8") from error


@probe("overrides")
def _build(config: Config) -> OverridesProbe | None:
    path = config.catalogue_overrides_path
    return OverridesProbe(Path(path), Path(config.state_dir)) if path else None
