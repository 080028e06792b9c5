"""Giving up a plan that does not bind: all of the gang is released, and it rests before it is planned again. Pure."""

import zlib
from typing import Final

from outrider.api.core import Pod
from outrider.api.times import parse_rfc3339
from outrider.kube.backoff import delay_seconds
from outrider.workloads import gated
from scheduler_plugin.planner.case import Case

_SPREAD: Final = 2**32  # values of a CRC


def hopeless(case: Case) -> bool:
    """Return whether the plan is to be given up: its time is over, a pod was refused, and nothing of the gang works.

    Bound pods that only wait for the others would keep their nodes from gangs that could run. Where some pod has no
    controller that would make it again, the gang keeps what it has. Single pods, whose gang's size nobody knows, do not
    wait for each other.
    """
    if case.size.unknown or not case.expired or case.running or not case.strays:
        return False
    return all(gated(pod) or pod.metadata.controller() is not None for pod in case.core)


def released(case: Case, *, before: float) -> tuple[Pod, ...]:
    """Return the pods made ``before`` that time which must go: a gate that was lifted can't be put back."""
    return tuple(pod for pod in case.core if not gated(pod) and pod.metadata.controller() and _made(pod) < before)


def _made(pod: Pod) -> float:
    try:
        return parse_rfc3339(pod.metadata.creation_timestamp or "")
    except ValueError:
        return float("-inf")


def pause_seconds(uid: str, attempts: int, base: float, cap: float) -> float:
    """Return how long a gang rests; spread by its UID, so that gangs that failed together do not come back in step.

    Nothing is drawn at random: the next leader must come to the same result.
    """
    unit = zlib.crc32(f"{uid}/{attempts}".encode()) / _SPREAD
    return delay_seconds(attempts, base=base, cap=cap, unit=unit)
