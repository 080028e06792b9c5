"""The agent's centre: takes reports in, judges, keeps the memory saved, and has changes published."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from node_agent.judging import Rules, absorb, conclude, noted, resumed
from node_agent.memory import Announced, Memory
from node_agent.metrics import FINDINGS, GPU_SCORE, NIC_SCORE, NODE_SCORE, NODE_VERDICT
from node_agent.probes.report import Report
from node_agent.publishing.publisher import Known
from node_agent.state import Store, worth_saving
from outrider.api.core import Pod
from outrider.api.gpunode import RankState, Verdict
from outrider.health.catalogue import Catalogue
from outrider.health.due import due_seconds
from outrider.health.judge import Judgement
from outrider.workloads import job_uid_of

_LOG: Final = logging.getLogger(__name__)
_WATCH_SECONDS: Final = 5.0  # how late a probe's silence may be noticed
_LOGGED_MAX: Final = 16  # new findings of one report that get a line each in the agent's own log
_PAUSE_SECONDS: Final = 0.25  # between two judgements, or two savings, of more of the same
_CURSOR_SECONDS: Final = 10.0  # how much harmless kernel log is read again after a crash


class Agent:
    """Holds the memory. ``changed(force)`` is called after each change that others should see."""

    def __init__(
        self,
        store: Store,
        rules: Rules,
        probes: Mapping[str, float],
        changed: Callable[[bool], None],
        pods: Callable[[], Iterable[Pod]] = tuple,
    ) -> None:
        """Load what was saved. ``probes`` maps each probe to the longest time between two of its reports, seconds."""
        self._store = store
        self._rules = rules
        self._silent = set(probes)
        self._deadlines = probes
        self._heard = dict.fromkeys(probes, time.monotonic())
        self._changed = changed
        self._pods = pods
        self._memory = self._saved = resumed(store.load(), probes, rules)
        self._judgement = conclude(self._memory, time.time(), rules)
        self._ranks: list[RankState] = []
        self._holders: dict[str, str] | None = None
        self._unsaved = asyncio.Event()
        self._judged = asyncio.Event()
        self._judged_at, self._stale = float("-inf"), False
        _measure(self._memory, self._judgement, rules.catalogue)

    @property
    def memory(self) -> Memory:
        """All that is known now."""
        return self._memory

    @property
    def catalogue(self) -> Catalogue:
        """What codes mean now."""
        return self._rules.catalogue

    def use_catalogue(self, catalogue: Catalogue) -> None:
        """Judge everything by another catalogue from now on: the user's overrides changed."""
        self._rules = msgspec.structs.replace(self._rules, catalogue=catalogue)
        self._judge()
        self._changed(False)

    def known(self) -> Known | None:
        """Return what to publish; None until every probe has spoken, so that a start never looks like a recovery.

        What is grave does not wait for a probe that hangs.
        """
        if self._silent and not self._judgement.node.verdict.hard:
            return None
        return Known(
            memory=self._memory,
            judgement=self._judgement,
            ranks=self._ranks,
            catalogue=self._rules.catalogue,
            holders=self._holders,
            complete=not self._silent,
        )

    def waits_for(self) -> set[str]:
        """Return the probes that have not reported yet."""
        return set(self._silent)

    def take(self, name: str, report: Report) -> None:
        """Take in the report of a probe."""
        self._heard[name] = time.monotonic()
        self._take(name, report)

    def _take(self, name: str, report: Report) -> None:
        first = name in self._silent
        self._silent.discard(name)
        if report.holders is not None:
            self._holders = report.holders
        jobs = jobs_of(self._pods()) if report.sightings or report.events else {}
        before, self._memory = self._memory, absorb(self._memory, name, report, time.time(), self._rules, jobs)
        if msgspec.structs.replace(self._memory, sequence=before.sequence) == before and not first:
            return  # nothing but harmless log lines: most reports, so they must cost next to nothing
        if not first and _shape(before) == _shape(self._memory) and self._judged_lately():
            return
        judged = self._judge()
        _log_new(before, self._memory)
        if judged or first or self._memory.diagnostic != before.diagnostic:
            self._changed(False)

    def _judged_lately(self) -> bool:
        """True where more of the same can wait for its judgement a moment, which judge_on then makes."""
        if time.monotonic() - self._judged_at >= _PAUSE_SECONDS:
            return False
        if not self._stale:
            self._stale = True
            self._judged.set()
        return True

    def take_ranks(self, ranks: list[RankState], urgent: bool) -> None:
        """Take in the states of all ranks on the node; urgent ones are published at once, the others too, once."""
        self._ranks = ranks
        self._changed(not urgent)

    def announced(self, announced: Announced) -> None:
        """Remember what users were told."""
        self._memory = msgspec.structs.replace(self._memory, announced=announced)
        self._unsaved.set()

    def _judge(self) -> bool:
        self._stale, self._judged_at = False, time.monotonic()
        before, now = self._judgement, time.time()
        self._judgement = conclude(self._memory, now, self._rules)
        self._memory = noted(self._memory, self._judgement, now)
        if worth_saving(self._saved, self._memory):
            self._unsaved.set()
        self._judged.set()
        if before == self._judgement:
            return False
        _measure(self._memory, self._judgement, self._rules.catalogue)
        if before.node != self._judgement.node:
            opinion = self._judgement.node
            details = {"verdict": opinion.verdict, "score": opinion.score, "reason": opinion.reason}
            _LOG.info("verdict", extra={**details, "health": opinion.health, "text": self._judgement.message})
        return True

    async def judge_on(self) -> None:
        """Judge whenever time alone may have changed the judgement, until cancelled."""
        while True:
            self._judged.clear()
            seconds = due_seconds(self._memory.findings, time.time(), self._rules.catalogue)
            try:
                async with asyncio.timeout(min(seconds, _PAUSE_SECONDS) if self._stale else seconds):
                    await self._judged.wait()
            except TimeoutError:
                if self._judge():
                    self._changed(False)

    async def watch_on(self) -> None:
        """Look for probes that have fallen silent, until cancelled."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            self.doubt(time.monotonic())

    def doubt(self, now: float) -> None:
        """Take each probe for blind that is silent beyond its deadline at ``now`` (monotonic): its runner hangs too."""
        for name, seconds in overdue(self._heard, self._deadlines, now).items():
            self._take(name, Report(blind=f"silent for {seconds:.0f} s"))

    async def save_on(self) -> None:
        """Save the memory whenever a restart would lose something, and once in a while its place in the log."""
        while True:
            try:
                async with asyncio.timeout(_CURSOR_SECONDS):
                    await self._unsaved.wait()
            except TimeoutError:
                if self._memory.sequence == self._saved.sequence:
                    continue
            self._unsaved.clear()
            await self._save()
            await asyncio.sleep(_PAUSE_SECONDS)  # a storm is saved some times a second: the kernel log has the rest

    async def _save(self) -> None:
        memory = self._memory
        try:
            await asyncio.to_thread(self._store.save, memory)
        except OSError as error:
            _LOG.warning("memory not saved: a restart may lose evidence", extra={"problem": str(error)})
            await asyncio.sleep(_CURSOR_SECONDS)
            self._unsaved.set()
            return
        self._saved = memory


def overdue(heard: Mapping[str, float], deadlines: Mapping[str, float], now: float) -> dict[str, float]:
    """Return the seconds of silence of each probe that is beyond its deadline; all times of one monotonic clock."""
    silences = {name: now - heard[name] for name in deadlines}
    return {name: seconds for name, seconds in silences.items() if seconds > deadlines[name]}


def jobs_of(pods: Iterable[Pod]) -> dict[str, str]:
    """Return the UID of the job of each pod that runs, by the pod's UID: its controller's, or its own where alone."""
    return {pod.metadata.uid: _job(pod) for pod in pods if not pod.finished}


def _job(pod: Pod) -> str:
    controller = pod.metadata.controller()
    return job_uid_of(pod) or (controller.uid if controller else pod.metadata.uid)


def _shape(memory: Memory) -> tuple[object, ...]:
    """What a report must leave alone to be more of the same: which findings there are, on which hardware."""
    keys = {evidence.key for evidence in memory.findings}
    return (keys, memory.inventory, memory.boot_id, memory.diagnostic)


def _log_new(before: Memory, after: Memory) -> None:
    """Write a line for each finding that was not there before; a storm of different ones is cut short."""
    known = {evidence.key for evidence in before.findings}
    new = [evidence for evidence in after.findings if evidence.key not in known]
    for evidence in new[:_LOGGED_MAX]:
        where = {"subject": evidence.subject, "subject_id": evidence.subject_id, "probe": evidence.source}
        _LOG.info("finding", extra={"code": evidence.code, **where, "line": evidence.line})
    if len(new) > _LOGGED_MAX:
        _LOG.info("more findings", extra={"count": len(new) - _LOGGED_MAX})


def _measure(memory: Memory, judgement: Judgement, catalogue: Catalogue) -> None:
    NODE_SCORE.set(judgement.node.score)
    for verdict in Verdict:
        NODE_VERDICT.labels(verdict).set(1 if judgement.node.verdict is verdict else 0)
    GPU_SCORE.clear()  # a GPU that was swapped leaves no score behind
    for uuid, opinion in judgement.gpus.items():
        GPU_SCORE.labels(uuid).set(opinion.score)
    NIC_SCORE.clear()
    for name, opinion in judgement.nics.items():
        NIC_SCORE.labels(name).set(opinion.score)
    FINDINGS.clear()
    for evidence in memory.findings:
        FINDINGS.labels(code_label(evidence.code, catalogue)).inc()


def code_label(code: str, catalogue: Catalogue) -> str:
    """Return the code as a metric's label: one that no row knows counts as SOURCE/other, so that labels are bounded."""
    return code if code in catalogue else f"{code.partition('/')[0]}/other"
