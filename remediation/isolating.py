"""First rung: no new work on the sick node, proven by the taint itself. Running pods go on. Pure.

Where the agent keeps each sick GPU apart by a DeviceTaintRule, the node needs no taint.
"""

from typing import Final

from outrider.api.remediation import StepName, StepState
from outrider.health.taint import taint_for
from remediation.decisions import Action, AddTaint
from remediation.rungs import Context, Outcome, Rung


def _assess(context: Context) -> Outcome | None:
    if context.node not in context.world.nodes:
        return Outcome(StepState.SKIPPED, f"node {context.node} no longer exists: nothing can land on it")
    if isolated := context.world.isolated_gpus(context.node):
        gpus = ", ".join(f"GPU {gpu.index}" for gpu in isolated)
        return Outcome(StepState.DONE, f"DeviceTaintRules keep new pods off {gpus} of {context.node}")
    taint = context.world.taint(context.node)
    if taint is None:
        return None
    return Outcome(StepState.DONE, f"taint {taint.key}={taint.value}:{taint.effect} is on {context.node}")


def _actions(context: Context) -> tuple[Action, ...]:
    if _agents_turn(context) > 0:
        return ()
    return (AddTaint(context.node, taint_for(context.episode.spec.cause)),)


def _waiting(context: Context) -> str:
    if _agents_turn(context) > 0:
        return f"giving the agent on {context.node} {context.config.taint_wait_seconds:g} s to taint it"
    return f"tainting {context.node}, since its agent has not"


def _agents_turn(context: Context) -> float:
    return context.config.taint_wait_seconds - context.seconds_in(StepName.ISOLATE)


ISOLATE: Final = Rung(name=StepName.ISOLATE, assess=_assess, actions=_actions, waiting=_waiting, poll_seconds=1.0)
