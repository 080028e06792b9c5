"""AdmissionReview v1 over HTTP. Whatever is under review is admitted; what is no review gets a 4xx that says why."""

import asyncio
import base64
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from aiohttp import web

from outrider.api.names import SCHEDULER_NAME
from outrider.api.trainingpolicy import TrainingPolicy
from outrider.telemetry.traces import span
from webhook import metrics
from webhook.mutate import Context, Mutation, NotUnderstood, mutate, trace_of

_LOG: Final = logging.getLogger(__name__)
PATH: Final = "/mutate"
MAX_BODY_BYTES: Final = 16 * 1024 * 1024  # stored pods reach 1.5 MB (etcd's limit), reviews of them twice that and more
BODY_SECONDS: Final = 5.0  # longer than any API server waits for our answer
_API_VERSION: Final = "admission.k8s.io/v1"
_PLURAL: Final = "pods"


class BadReview(ValueError):
    """The body is no AdmissionReview that can be answered; the message names the field."""


class GroupVersionResource(msgspec.Struct, frozen=True):
    """A resource."""

    group: str = ""
    version: str = ""
    resource: str = ""


class AdmissionRequest(msgspec.Struct, frozen=True, rename="camel"):
    """The question. ``object`` stays undecoded until it is known to be of interest."""

    uid: str
    resource: GroupVersionResource = GroupVersionResource()
    sub_resource: str = ""
    operation: str = ""
    namespace: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")
    dry_run: bool | None = None


class AdmissionReview(msgspec.Struct, frozen=True, rename="camel"):
    """The envelope."""

    api_version: str
    kind: str
    request: AdmissionRequest


def parse(body: bytes) -> AdmissionRequest:
    """Return the request in the body. Raises BadReview."""
    try:
        review = msgspec.json.decode(body, type=AdmissionReview)
    except (ValueError, RecursionError) as error:  # all that decoders raise, UnicodeDecodeError included
        raise BadReview(f"not an AdmissionReview: {error}") from error
    if review.kind != "AdmissionReview" or review.api_version != _API_VERSION:
        raise BadReview(f"{review.api_version} {review.kind}: only {_API_VERSION} AdmissionReview is understood")
    if not review.request.uid:
        raise BadReview("request.uid is empty")
    return review.request


def answer(
    request: AdmissionRequest, policies: Sequence[TrainingPolicy], image: str, scheduler_name: str = SCHEDULER_NAME
) -> tuple[Mutation, str]:
    """Return what to change in the object under review, and the outcome for the metric.

    A dry-run request gets the same answer: nothing here has side effects.
    """
    if request.operation != "CREATE" or request.resource.resource != _PLURAL or request.sub_resource:
        return Mutation(), "unchanged"
    try:
        pod = _object(request.object)
        with span("webhook.admit", trace_of(pod, request.uid), namespace=request.namespace) as current:
            mutation = mutate(pod, Context(request.namespace, request.uid, image, policies, scheduler_name))
            current.set_attribute("operations", len(mutation.patch))
    except NotUnderstood as error:
        _LOG.warning("pod admitted unchanged", extra={"namespace": request.namespace, "problem": str(error)})
        return Mutation(warnings=[f"pod admitted unchanged, since it was not understood: {error}"]), "error"
    except Exception:  # noqa: BLE001 - this is the supervisor of one review: a fault of ours must not refuse a pod
        _LOG.exception("pod admitted unchanged", extra={"namespace": request.namespace})
        return Mutation(warnings=["pod admitted unchanged after an internal error; see the webhook's log"]), "error"
    return mutation, "mutated" if mutation.patch else "unchanged"


def _object(raw: msgspec.Raw) -> Mapping[str, Any]:
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise NotUnderstood(f"object: {error}") from error


def encode(uid: str, mutation: Mutation) -> bytes:
    """Return the AdmissionReview that answers request ``uid``."""
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if mutation.warnings:
        response["warnings"] = [f"outrider: {warning}" for warning in mutation.warnings]
    if mutation.patch:
        patch = msgspec.json.encode(mutation.patch)
        metrics.PATCH_BYTES.observe(len(patch))
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(patch).decode()}
    return msgspec.json.encode({"apiVersion": _API_VERSION, "kind": "AdmissionReview", "response": response})


def application(
    policies: Callable[[], Sequence[TrainingPolicy]], image: str, scheduler_name: str = SCHEDULER_NAME
) -> web.Application:
    """Return the HTTP application; ``policies`` gives the current ones without waiting."""

    async def handle(request: web.Request) -> web.Response:
        started = time.perf_counter()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await request.read()
            review = parse(body)
        except (BadReview, web.RequestPayloadError, TimeoutError) as error:
            metrics.REVIEWS.labels("refused").inc()
            status = 408 if isinstance(error, TimeoutError) else 400
            return web.json_response({"error": str(error) or "the body did not arrive in time"}, status=status)
        mutation, outcome = answer(review, policies(), image, scheduler_name)
        metrics.REVIEWS.labels(outcome).inc()
        metrics.DURATION.observe(time.perf_counter() - started)
        return web.Response(body=encode(review.uid, mutation), content_type="application/json")

    served = web.Application(client_max_size=MAX_BODY_BYTES)
    served.router.add_post(PATH, handle)
    return served
