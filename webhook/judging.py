"""Tells people in each TrainingPolicy's conditions whether it is in force. Runs on the leader only."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

import msgspec

from outrider.api.meta import Condition
from outrider.api.reasons import ACCEPTED, INVALID_SPEC
from outrider.api.times import rfc3339
from outrider.api.trainingpolicy import TrainingPolicy
from outrider.kube.client import Client, PatchType
from outrider.kube.errors import KubeError
from outrider.kube.informer import Informer
from outrider.kube.kinds import TRAININGPOLICIES
from outrider.workloads import problem

_LOG: Final = logging.getLogger(__name__)
CHECK_SECONDS: Final = 2.0  # conditions are for people; no change of a policy waits for them


class Judge:
    """Writes Accepted conditions where they differ from what they should be."""

    def __init__(
        self, client: Client, policies: Informer[TrainingPolicy], *, clock: Callable[[], float] = time.time
    ) -> None:
        self._client = client
        self._policies = policies
        self._clock = clock

    async def run(self) -> None:
        """Judge every policy until cancelled; a write that fails is tried again at the next check."""
        while True:
            for policy in list(self._policies.items.values()):
                try:
                    await self.judge(policy)
                except KubeError as error:
                    details = {"policy": policy.metadata.name, "problem": str(error)}
                    _LOG.warning("condition not written, will try again", extra=details)
            await asyncio.sleep(CHECK_SECONDS)

    async def judge(self, policy: TrainingPolicy) -> None:
        """Write the policy's condition unless it is right already. Raises KubeError."""
        condition = accepted(policy, self._clock())
        if condition is None:
            return
        body = {
            "metadata": {"resourceVersion": policy.metadata.resource_version},
            "status": {"conditions": [msgspec.to_builtins(condition)]},
        }
        await self._client.patch(TRAININGPOLICIES, policy.metadata.name, body, PatchType.MERGE, subresource="status")


def accepted(policy: TrainingPolicy, now: float) -> Condition | None:
    """Return the Accepted condition that the policy should carry, None where it carries it already."""
    wrong = problem(policy.spec)
    status = "False" if wrong else "True"
    message = f"{wrong}; the policy is ignored until that is corrected" if wrong else "the policy is in force"
    old = next((condition for condition in policy.status.conditions if condition.type == ACCEPTED), None)
    if old and (old.status, old.message, old.observed_generation) == (status, message, policy.metadata.generation):
        return None
    return Condition(
        type=ACCEPTED,
        status=status,
        reason=INVALID_SPEC if wrong else ACCEPTED,
        message=message,
        last_transition_time=old.last_transition_time if old and old.status == status else rfc3339(now),
        observed_generation=policy.metadata.generation,
    )
