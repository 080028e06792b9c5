"""Tables and lines for people. Pure: rows in, rich renderables out."""

from collections.abc import Iterable
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from outrider.cli.checks import Check, healthy
from outrider.cli.status import DomainRow, EpisodeRow, JobRow, NodeRow, RankRow, Status, steps_line
from outrider.cli.why import Explanation
from outrider.cli.why_job import JobExplanation
from outrider.topology import Domain

_COLOURS: Final = {"Healthy": "green", "Degraded": "yellow", "Unhealthy": "red", "Unknown": "magenta"}
_PODS_SHOWN: Final = 64
_MARKS: Final = {True: ("✓", "green"), False: ("✗", "red"), None: ("?", "yellow")}


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def status_tables(status: Status) -> RenderableType:
    """Return the tables; an empty one says so in a line, but for suspect domains: those are rare."""
    suspects = [_domains(status.domains), ""] if status.domains else []
    return Group(*suspects, _nodes(status.nodes), "", _jobs(status.jobs), "", _episodes(status.episodes))


def _domains(rows: list[DomainRow]) -> RenderableType:
    table = _table("Suspect domains", "DOMAIN", "SCORE", "CAUSE", "NODES", "GUILTY", "MESSAGE")
    for row in rows:
        where = str(Domain(row.level, row.name))
        count = f"{row.affected}/{row.members}"
        table.add_row(where, str(row.score), row.cause, count, ", ".join(row.culprits) or "-", row.message)
    return table


def _nodes(rows: list[NodeRow]) -> RenderableType:
    if not rows:
        return "No GPU node reports yet. Next: outrider check"
    table = _table("GPU nodes", "NODE", "HEALTH", "SCORE", "VERDICT", "REASON", "GPUS", "TAINT", "MODE", "SEEN")
    for row in rows:
        seen = "never" if row.age_seconds is None else f"{row.age_seconds:.0f} s ago"
        health = Text(row.health, style=_COLOURS.get(row.health, ""))
        cells = (str(row.score), row.verdict, row.reason or "-", row.gpus, row.taint or "-", row.mode, seen)
        table.add_row(row.name, health, *cells)
    return table


def _jobs(rows: list[JobRow]) -> RenderableType:
    if not rows:
        return "No training job is managed yet. Next: kubectl label namespace NAME outrider.dev/enabled=true"
    table = _table("Jobs", "JOB", "STATE", "DOMAIN", "RANK", "POD", "NODE", "PHASE", "STEP", "CHECKPOINT")
    for row in rows:
        head = (f"{row.namespace}/{row.name}", row.state, row.domain or "-")
        for number, rank in enumerate(row.ranks):
            table.add_row(*(head if number == 0 else ("", "", "")), *_rank_cells(rank))
        if not row.ranks:
            table.add_row(*head, "-", row.message or "no pods")
    return table


def _rank_cells(rank: RankRow) -> tuple[str, ...]:
    number, step, saved = (str(value) if value >= 0 else "-" for value in (rank.rank, rank.step, rank.checkpoint_step))
    return number, rank.pod, rank.node or "-", rank.phase, step, saved


def _episodes(rows: list[EpisodeRow]) -> RenderableType:
    if not rows:
        return "No remediation episode."
    table = _table("Remediation", "EPISODE", "NODE", "CAUSE", "PHASE", "MODE", "STEPS", "MESSAGE")
    for row in rows:
        table.add_row(row.name, row.node, row.cause, row.phase, row.mode, steps_line(row.steps), row.message)
    return table


def explanation_lines(explanation: Explanation) -> RenderableType:
    """Return the facts under each other, then what to do next."""
    where = f" on {explanation.node}" if explanation.node else ""
    table = _table(f"{explanation.pod} is {explanation.phase}{where}", "ABOUT", "WHAT")
    for fact in explanation.facts:
        table.add_row(fact.topic, fact.text)
    return Group(table, "", Text(f"Next: {explanation.next_step}", style="bold"))


def job_lines(explanation: JobExplanation) -> RenderableType:
    """Return the facts under each other, then the pods, then what to do next."""
    within = f" within {explanation.domain}" if explanation.domain else ""
    table = _table(f"{explanation.job} is {explanation.state}{within}", "ABOUT", "WHAT")
    for fact in explanation.facts:
        table.add_row(fact.topic, fact.text)
    pods = _table("Pods", "RANK", "POD", "NODE", "PHASE", "GATE")
    for row in explanation.pods[:_PODS_SHOWN]:
        rank = str(row.rank) if row.rank >= 0 else "-"
        pods.add_row(rank, row.pod, row.node or "-", row.phase, "waits" if row.gated else "-")
    left = len(explanation.pods) - _PODS_SHOWN
    more = f"and {left} more: -o json lists all" if left > 0 else ""
    shown: list[RenderableType] = [pods, more] if explanation.pods else []
    return Group(table, "", *shown, Text(f"Next: {explanation.next_step}", style="bold"))


def check_lines(checks: Iterable[Check]) -> RenderableType:
    """Return a line for each check, a hint below each that did not pass, and the result."""
    checks = list(checks)
    lines = [line for check in checks for line in _check(check)]
    failed = sum(check.ok is False for check in checks)
    end = "all is well" if healthy(checks) else f"{failed} of {len(checks)} checks failed"
    return Group(*lines, "", Text(f"Result: {end}", style="bold"))


def _check(check: Check) -> list[Text]:
    mark, colour = _MARKS[check.ok]
    line = Text.assemble((mark, colour), f" {check.category}: {check.name}: {check.detail}")
    return [line, Text(f"    {check.hint}", style="italic")] if check.hint else [line]
