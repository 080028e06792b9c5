"""The probe of active diagnostics: runs ``dcgmi diag`` once for each request on the node's GPUNode.

A run takes seconds to hours, so it goes on beside the readings. What it found stands until a later run passes, the node
boots, or judging lets it go; it is never told a second time, so a repair that was seen otherwise is not undone.
"""

import asyncio
import time
from typing import Final

from node_agent.config import Config
from node_agent.probes import programs
from node_agent.probes.registry import Surroundings, probe
from node_agent.probes.report import Report, States
from node_agent.readings.diagnostics import (
    LIMIT_SECONDS,
    SOURCE,
    Result,
    no_result,
    read_request,
    refusal,
    result,
    running,
)
from outrider.api.gpunode import Diagnostic, DiagnosticRequest, DiagnosticState, GPUNode
from outrider.api.names import RUN_DIAGNOSTIC_ANNOTATION

_OUTPUT_BYTES: Final = 4 * 1024 * 1024  # of 16 GPUs at level 4: well under 1 MiB


class DiagnosticProbe:
    """See the module."""

    period_seconds = 30.0
    timeout_seconds = 30.0

    def __init__(self, config: Config) -> None:
        self.wake: asyncio.Event | None = asyncio.Event()
        self._dcgmi = config.dcgmi_path
        self._around: Surroundings | None = None
        self._run: asyncio.Task[None] | None = None
        self._state: Diagnostic | None = None
        self._result: Result | None = None
        self._told = False

    def attach(self, around: Surroundings) -> None:
        """See Attached."""
        self._around = around
        around.on_gpunode(self._gpunode_changed)

    def _gpunode_changed(self, old: GPUNode | None, new: GPUNode | None) -> None:
        before, after = (one.metadata.annotations.get(RUN_DIAGNOSTIC_ANNOTATION) if one else None for one in (old, new))
        if before != after and self.wake is not None:
            self.wake.set()

    async def read(self) -> Report:
        """Start what is asked for, and return where it stands."""
        around = self._around
        if around is None:
            return Report()
        if self._state is None:
            self._take_up(around.diagnostic())
        if self._run is None:
            self._answer(around)
        return Report(diagnostic=self._state, states=self._states(around))

    def _take_up(self, known: Diagnostic | None) -> None:
        """Go on with what was known before a restart of the agent, which ended what ran."""
        self._state = known
        if known is not None and known.state is DiagnosticState.RUNNING:
            self._end(no_result(known, "broken off: the agent was restarted while it ran", time.time()))

    def _answer(self, around: Surroundings) -> None:
        now = time.time()
        try:
            request = read_request(around.gpunode())
        except ValueError as error:
            if self._state is None or self._state.message != str(error):
                self._end(no_result(Diagnostic(), str(error), now))
            return
        if request is None or (self._state is not None and self._state.id == request.id):
            return
        self._state = running(request, now)
        if why := refusal(request, self._dcgmi, around.pods()):
            self._end(no_result(self._state, why, now))
        else:
            self._run = asyncio.create_task(self._diagnose(around, request, self._state), name="dcgmi diag")

    async def _diagnose(self, around: Surroundings, request: DiagnosticRequest, started: Diagnostic) -> None:
        command = [self._dcgmi, "diag", "-r", str(request.level), "-j"]
        limit = LIMIT_SECONDS[request.level]
        ran = await programs.run(command, seconds=limit, output_max=_OUTPUT_BYTES, environment={})
        self._end(result(started, ran, around.inventory(), time.time()))

    def _end(self, ended: Result) -> None:
        self._run, self._result, self._state, self._told = None, ended, ended.diagnostic, False
        if self.wake is not None:
            self.wake.set()

    def _states(self, around: Surroundings) -> States | None:
        """Return what the last run found, after the first time only what judging still keeps of it."""
        if self._result is None:
            return None
        kept = {evidence.key for evidence in around.findings() if evidence.source == SOURCE}
        bad = tuple(evidence for evidence in self._result.bad if evidence.key in kept or not self._told)
        self._told = True
        return States(bad=bad, readable=self._result.passed)

    async def close(self) -> None:
        """End a diagnostic that runs."""
        if self._run is not None:
            self._run.cancel()
            await asyncio.gather(self._run, return_exceptions=True)


@probe("dcgm-diag")
def _build(config: Config) -> DiagnosticProbe:
    return DiagnosticProbe(config)
