"""The shape of a rung, and what all rungs use to read and write an episode's status. Pure."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from outrider.api.meta import MESSAGE_MAX
from outrider.api.remediation import (
    PROOF_MAX,
    AffectedJob,
    Remediation,
    RemediationStatus,
    Step,
    StepName,
    StepState,
)
from outrider.api.times import parse_rfc3339, rfc3339
from remediation.config import Config
from remediation.decisions import Action
from remediation.world import World


@dataclass(frozen=True)
class Context:
    """Everything a rung may know: the episode, the cluster, the settings, and now (seconds since 1970)."""

    episode: Remediation
    world: World
    config: Config
    now: float

    @property
    def node(self) -> str:
        """Name of the sick node."""
        return self.episode.spec.node

    @property
    def status(self) -> RemediationStatus:
        """What was recorded so far."""
        return self.episode.status

    def seconds_in(self, name: StepName) -> float:
        """Return the time since the rung began, 0 for one that did not."""
        step = step_of(self.status, name)
        return self.now - parse_rfc3339(step.started_at) if step else 0.0


@dataclass(frozen=True)
class Outcome:
    """How a rung ended, its proof, and what it learned about the jobs."""

    state: StepState
    proof: str
    jobs: tuple[AffectedJob, ...] | None = None


def _as_recorded(context: Context) -> RemediationStatus:
    return context.status


def _nothing(_: Context) -> tuple[Action, ...]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One rung: ``prepare`` when it begins, ``assess`` for proof or time-out, ``actions`` while it lasts.

    ``actions`` must be safe to repeat: they run again after every restart until ``assess`` sees their effect.
    ``waiting`` says in plain words what is missing; ``poll_seconds`` bounds the time to the next look.
    """

    name: StepName
    prepare: Callable[[Context], RemediationStatus] = _as_recorded
    assess: Callable[[Context], Outcome | None]
    actions: Callable[[Context], tuple[Action, ...]] = _nothing
    waiting: Callable[[Context], str]
    poll_seconds: float


def step_of(status: RemediationStatus, name: StepName) -> Step | None:
    """Return the record of a rung, None before it began."""
    return next((step for step in status.steps if step.name is name), None)


def with_message(status: RemediationStatus, message: str) -> RemediationStatus:
    """Return the status with a message cut to the length that the custom resource allows."""
    return msgspec.structs.replace(status, message=message[:MESSAGE_MAX])


def begin(status: RemediationStatus, name: StepName, now: float) -> RemediationStatus:
    """Return the status with a running step at its end."""
    step = Step(name=name, state=StepState.RUNNING, started_at=rfc3339(now))
    return msgspec.structs.replace(status, steps=[*status.steps, step])


def finish(status: RemediationStatus, name: StepName, outcome: Outcome, now: float) -> RemediationStatus:
    """Return the status with the rung's end, its proof and what it learned."""
    proof = outcome.proof[:PROOF_MAX]
    ended = [
        msgspec.structs.replace(step, state=outcome.state, finished_at=rfc3339(now), proof=proof)
        if step.name is name
        else step
        for step in status.steps
    ]
    jobs = status.jobs if outcome.jobs is None else list(outcome.jobs)
    return with_message(msgspec.structs.replace(status, steps=ended, jobs=jobs), outcome.proof)
