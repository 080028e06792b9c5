"""The kubelet probe: compares the kubelet's count of GPUs with NVML's, and asks it which pod holds which GPU.

The kubelet is asked when pods of the node come, start or end, and once in a while; the rest of the time nothing runs.
"""

import asyncio
import time
from typing import Final

from node_agent.config import Config
from node_agent.probes.grpc_call import CallError, call
from node_agent.probes.registry import Surroundings, probe
from node_agent.probes.report import Report, States
from node_agent.readings.kubelet import BLACK_HOLE, UNADVERTISED, compare
from node_agent.readings.pod_resources import METHOD, BadMessage, holders, read_holdings
from outrider.api.core import Pod
from outrider.health.findings import Evidence, seen

_SOURCE: Final = "kubelet"
_ASK_SECONDS: Final = 300.0  # in case a change was missed
_ASKS: Final = 2  # after a change
_APART_SECONDS: Final = 1.0  # the kubelet answers ten calls at once and refuses more (pkg/kubelet/apis/podresources)
_FAILURES: Final = 2  # in a row until it is told: others may have used the calls up
_CALL_SECONDS: Final = 5.0
_ANSWER_BYTES: Final = 4 * 1024 * 1024  # gRPC's own limit


class KubeletProbe:
    """See the module."""

    period_seconds = 10.0
    timeout_seconds = 20.0

    def __init__(self, config: Config) -> None:
        self.wake: asyncio.Event | None = asyncio.Event()
        self._socket = config.pod_resources_socket
        self._mismatch_seconds = config.kubelet_mismatch_seconds
        self._around: Surroundings | None = None
        self._mismatch = ("", 0.0)
        self._ask_at = 0.0
        self._asks = 1
        self._asked_at = -_APART_SECONDS
        self._failures = 0
        self._unanswered: Evidence | None = None

    def attach(self, around: Surroundings) -> None:
        """See Attached."""
        self._around = around
        around.on_pods(self._pod_changed)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and new is not None and old.status.phase == new.status.phase:
            return
        self._ask_at, self._asks = self._asked_at + _APART_SECONDS, _ASKS
        if self.wake is not None:
            self.wake.set()

    async def read(self) -> Report:
        """Return both comparisons."""
        around, now = self._around, asyncio.get_running_loop().time()
        if around is None:
            return Report()
        held = await self._holders(around, now) if now >= self._ask_at else None
        bad = self._mismatches(around, now)
        if self._unanswered is not None:
            bad.append(self._unanswered)
        return Report(states=States(bad=tuple(bad), readable=frozenset({""})), holders=held)

    def _mismatches(self, around: Surroundings, now: float) -> list[Evidence]:
        """Return the mismatch that has lasted or was known; it stands while it can't be judged anew."""
        known = {evidence.code: evidence for evidence in around.findings() if evidence.source == _SOURCE}
        result = compare(around.node(), around.inventory(), around.findings())
        if not result.possible:
            return [known[code] for code in (BLACK_HOLE, UNADVERTISED) if code in known]
        code, since = self._mismatch
        if code != result.code:
            self._mismatch = (result.code, now)
            since = now
        lasts = now - since >= self._mismatch_seconds or result.code in known
        return [seen(result.code, time.time(), line=result.line, source=_SOURCE)] if result.code and lasts else []

    async def _holders(self, around: Surroundings, now: float) -> dict[str, str] | None:
        """Ask the kubelet. A pod that has just come may get its GPUs a moment later, so it is asked once more then."""
        if not self._socket:
            return None
        self._asks -= 1
        self._asked_at = now
        self._ask_at = now + (self.period_seconds if self._asks > 0 else _ASK_SECONDS)
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                holdings = read_holdings(await call(self._socket, METHOD, b"", answer_max=_ANSWER_BYTES))
        except FileNotFoundError:  # not mounted, or no kubelet of this kind: nothing to ask
            self._failures, self._unanswered = 0, None
            return None
        except (CallError, BadMessage, OSError, TimeoutError) as error:
            line = f"{self._socket}: {error or f'no answer within {_CALL_SECONDS:g} s'}"
            self._failures += 1
            if self._failures >= _FAILURES:
                self._unanswered = seen("kubelet/pod-resources", time.time(), line=line, source=_SOURCE)
            self._ask_at = now + self.period_seconds
            return None
        self._failures, self._unanswered = 0, None
        return holders(holdings, {pod.key: pod.metadata.uid for pod in around.pods() if not pod.finished})

    async def close(self) -> None:
        """Nothing is kept open."""


@probe("kubelet")
def _build(config: Config) -> KubeletProbe:
    return KubeletProbe(config)
