"""The extender's HTTP side. Handlers read the body, call a pure decision on the last snapshot, and answer.

They never await the API server, so kube-scheduler, which waits for us pod by pod, never waits for it either.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from outrider.api import reasons
from outrider.api.core import Pod
from outrider.api.names import TRACEPARENT_ANNOTATION
from outrider.telemetry import traces
from outrider.workloads import BadQuantity
from scheduler_plugin.cluster.members import managed
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.extender import wire
from scheduler_plugin.extender.decide import Decision, decide
from scheduler_plugin.extender.metrics import REFUSED_NODES, REQUEST_SECONDS
from scheduler_plugin.extender.preempt import preempt
from scheduler_plugin.extender.prioritize import prioritize

_LOG: Final = logging.getLogger(__name__)
# Full Node objects take some 16 KiB each: room for the 5,000 nodes that Kubernetes supports in one cluster.
_LARGEST_BODY_BYTES: Final = 128 * 1024 * 1024
_SLOWEST_BYTES_PER_SECOND: Final = 32 * 1024 * 1024  # between two processes of a busy machine: more time for large ones
_BEHIND: Final = frozenset((reasons.NODE_NO_GPU, reasons.NODE_NOT_SEEN))
_REST_SECONDS: Final = 1.0  # after a wait for nothing: kube-scheduler stands still meanwhile

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Extender:
    """Answers filter, prioritize and preempt from the snapshot that ``snapshot`` returns at that moment.

    ``clock`` gives seconds since 1970; ``deadline_seconds`` bounds the wait for a request's body. While ``deserted``
    nobody keeps the snapshot up to date, and the answer is 503: another replica may plan what we do not hear of.
    ``lag_seconds`` is how long filter waits for news where kube-scheduler visibly knows more.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        *,
        deadline_seconds: float = 0.5,
        clock: Callable[[], float] = time.time,
        deserted: Callable[[], bool] = lambda: False,
        lag_seconds: float = 0.0,
    ) -> None:
        self._snapshot, self._deadline_seconds, self._clock = snapshot, deadline_seconds, clock
        self._deserted, self._lag_seconds = deserted, lag_seconds
        self._news, self._rests_until = asyncio.Event(), 0.0

    def on_news(self) -> None:
        """Take that the snapshot has changed."""
        self._news.set()
        self._news = asyncio.Event()

    def application(self) -> web.Application:
        """Return the application to serve."""
        application = web.Application(client_max_size=_LARGEST_BODY_BYTES, middlewares=[_answer_errors])
        application.router.add_post("/filter", self.filter)
        application.router.add_post("/prioritize", self.prioritize)
        application.router.add_post("/preempt", self.preempt)
        return application

    async def filter(self, request: web.Request) -> web.Response:
        """Answer an ExtenderArgs with an ExtenderFilterResult."""
        args, pod = self._args(await self._body(request))
        names = wire.node_names(args)
        if not managed(pod):
            return _json(_result(args, names, await self._decide(pod, names)))
        with traces.span(
            "extender.filter", pod.metadata.annotations.get(TRACEPARENT_ANNOTATION, ""), pod=pod.key, offered=len(names)
        ) as span:
            decision = await self._decide(pod, names)
            span.set_attribute("allowed", len(decision.allowed))
            return _json(_result(args, names, decision))

    async def _decide(self, pod: Pod, names: list[str]) -> Decision:
        """Filter, but not from a snapshot that is visibly behind kube-scheduler's.

        It offers what it takes for large enough. Where we know of no room on any of it, its watch was faster: a pod
        has just ended there. It would not ask again before the next event in the cluster, up to 5 minutes later.
        """
        decision = decide(pod, names, self._snapshot(), self._clock())
        loop = asyncio.get_running_loop()
        if _behind(decision) and loop.time() >= self._rests_until:
            try:
                async with asyncio.timeout(self._lag_seconds):
                    while _behind(decision):
                        await self._news.wait()
                        decision = decide(pod, names, self._snapshot(), self._clock())
            except TimeoutError:
                self._rests_until = loop.time() + _REST_SECONDS
        return decision

    async def prioritize(self, request: web.Request) -> web.Response:
        """Answer an ExtenderArgs with a HostPriorityList."""
        args, pod = self._args(await self._body(request))
        return _json(prioritize(pod, wire.node_names(args), self._snapshot(), self._clock()))

    async def preempt(self, request: web.Request) -> web.Response:
        """Answer an ExtenderPreemptionArgs with an ExtenderPreemptionResult."""
        args = wire.decode_preemption(await self._body(request))
        kept = preempt(_present(args.pod), args.candidates(), self._snapshot(), self._clock())
        return _json(wire.PreemptionResult(kept))

    async def _body(self, request: web.Request) -> bytes:
        if "Content-Encoding" in request.headers:  # Go's client compresses nothing, and a small body may unpack to much
            raise wire.BadRequest("a body with Content-Encoding: send it as it is")
        longer_seconds = min(request.content_length or 0, _LARGEST_BODY_BYTES) / _SLOWEST_BYTES_PER_SECOND
        async with asyncio.timeout(self._deadline_seconds + longer_seconds):
            body = await request.read()
        if self._deserted():
            raise web.HTTPServiceUnavailable(text="the plugin's main process is silent: what is known here is old\n")
        return body

    def _args(self, body: bytes) -> tuple[wire.Args, Pod]:
        args = wire.decode_args(body)
        return args, _present(args.pod)


def _behind(decision: Decision) -> bool:
    return not decision.allowed and not _BEHIND.isdisjoint(decision.failed.values())


def _present(pod: Pod | None) -> Pod:
    if pod is None:
        raise wire.BadRequest("no Pod in the request")
    return pod


def _result(args: wire.Args, names: list[str], decision: Decision) -> wire.FilterResult:
    for reason, nodes in Counter([*decision.failed.values(), *decision.unresolvable.values()]).items():
        REFUSED_NODES.labels(reason).inc(nodes)
    if args.node_names is not None or args.nodes is None:
        return wire.FilterResult(None, decision.allowed, decision.failed, decision.unresolvable)
    allowed = set(decision.allowed)
    kept = [item for name, item in zip(names, args.nodes.items or [], strict=True) if name in allowed]
    return wire.FilterResult(wire.NodeList(kept), None, decision.failed, decision.unresolvable)


def _json(answer: object) -> web.Response:
    return web.Response(body=wire.encode(answer), content_type="application/json")


@web.middleware
async def _answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn what is wrong with a request into a 4xx that says it, and measure every answer."""
    started = time.perf_counter()
    status = 500
    try:
        response = await handler(request)
        status = response.status
    except (wire.BadRequest, BadQuantity, web.RequestPayloadError) as error:
        status, response = 400, _refusal(request, 400, str(error))
    except ConnectionError:
        status, response = 400, _refusal(request, 400, "the client went away before its body was there")
    except TimeoutError:
        status, response = 408, _refusal(request, 408, "the request's body did not arrive in time")
    except web.HTTPException as error:
        status = error.status
        raise
    finally:
        REQUEST_SECONDS.labels(_verb(request), str(status)).observe(time.perf_counter() - started)
    return response


def _refusal(request: web.Request, status: int, reason: str) -> web.Response:
    _LOG.warning("refused a request", extra={"path": request.path, "problem": reason})
    return web.Response(status=status, text=f"{reason}\n")


def _verb(request: web.Request) -> str:
    return request.path.strip("/") if request.match_info.http_exception is None else "unknown"
