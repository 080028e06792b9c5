"""The real server over HTTPS: reviews in, reviews out; garbage gets a 4xx or passes through, never a 5xx or a hang."""

import asyncio
import base64
import io
import json
import ssl
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.webhook.pods import CORPUS, JOB_UID, apply, container, pod
from webhook.admission import MAX_BODY_BYTES, BadReview, answer, application, encode, parse
from webhook.certificates import Lifetimes, Step, now_utc
from webhook.certificates import apply as after_step
from webhook.objects import Secret
from webhook.serving import LiveCertificate

REQUEST_UID = "705ab4f5-6393-11e8-b7cc-42010a800002"


def review(obj: object, **request: Any) -> dict[str, Any]:
    asked = {
        "uid": REQUEST_UID,
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "operation": "CREATE",
        "namespace": "team-a",
        "object": obj,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions"},
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked | request}


def body(obj: object, **request: Any) -> bytes:
    return json.dumps(review(obj, **request)).encode()


class Caller:
    """An API server's way of calling: HTTPS, trusting one CA."""

    def __init__(self, live: LiveCertificate, port: int, bundle: bytes) -> None:
        self.live = live
        self.url = f"https://localhost:{port}/mutate"
        self.bundle = bundle

    async def post(self, content: bytes, **how: Any) -> tuple[int, bytes]:
        trust = ssl.create_default_context(cadata=self.bundle.decode())
        headers = {"Content-Type": "application/json"} | how.pop("headers", {})
        stream = io.BytesIO(content)
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                how.get("method", "POST"),
                how.get("url", self.url),
                data=stream,
                headers=headers,
                ssl=trust,
            ) as response,
        ):
            return response.status, await response.read()


@pytest.fixture
async def caller() -> AsyncIterator[Caller]:
    made = after_step(Step.CREATE, None, ["localhost"], now_utc(), Lifetimes())
    live = LiveCertificate(lambda: None)
    live.on_secret(None, Secret(data=made.data()))
    runner = web.AppRunner(application(list, "registry.example.com/outrider:1"), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "localhost", 0, ssl_context=live.context)
    await site.start()
    yield Caller(live, runner.addresses[0][1], made.bundle)
    await runner.cleanup()


async def test_pod_comes_back_with_a_json_patch(caller: Caller) -> None:
    status, content = await caller.post(body(pod()))
    answered = json.loads(content)
    assert status == 200
    assert (answered["kind"], answered["apiVersion"]) == ("AdmissionReview", "admission.k8s.io/v1")
    response = answered["response"]
    assert (response["uid"], response["allowed"], response["patchType"]) == (REQUEST_UID, True, "JSONPatch")
    after = apply(pod(), json.loads(base64.b64decode(response["patch"])))
    assert after["metadata"]["labels"]["outrider.dev/job-uid"] == JOB_UID


async def test_dry_run_gets_the_same_answer(caller: Caller) -> None:
    assert await caller.post(body(pod(), dryRun=True)) == await caller.post(body(pod()))


@pytest.mark.parametrize(
    "request_fields",
    [{"operation": "DELETE"}, {"operation": "UPDATE"}, {"resource": {"resource": "services"}},
     {"subResource": "ephemeralcontainers"}],
    ids=str,
)  # fmt: skip
async def test_what_is_not_the_creation_of_a_pod_passes_unchanged(
    caller: Caller, request_fields: dict[str, Any]
) -> None:
    status, content = await caller.post(body(pod(), **request_fields))
    assert status == 200
    assert json.loads(content)["response"] == {"uid": REQUEST_UID, "allowed": True}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff\xfe",
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}',
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":null}',
        body(pod(), uid=""),
        body(pod(), uid=5),
        json.dumps(review(pod()) | {"apiVersion": "admission.k8s.io/v1beta1"}).encode(),
        json.dumps(review(pod()) | {"kind": "Pod"}).encode(),
        body(pod())[:-40],
        b"[" * 200_000,
        b'{"request":' * 50_000,
        b"9" * 5000,
    ],
    ids=range(15),
)
async def test_body_that_is_no_review_is_refused_with_the_reason(caller: Caller, content: bytes) -> None:
    status, answered = await caller.post(content)
    assert status == 400
    assert json.loads(answered)["error"]


@pytest.mark.parametrize(
    "obj",
    [None, 5, [], "pod", {}, {"spec": {}}, {"spec": {"containers": [{"name": 5}]}}, {"metadata": [], "spec": None},
     {"spec": {"containers": []}, "metadata": {"labels": {"a": 1}}}],
    ids=str,
)  # fmt: skip
async def test_object_that_is_no_pod_is_admitted_unchanged_with_a_warning(caller: Caller, obj: object) -> None:
    status, content = await caller.post(body(obj))
    response = json.loads(content)["response"]
    assert status == 200
    assert response["allowed"]
    assert "patch" not in response
    assert "not understood" in response["warnings"][0]


async def test_deeply_nested_object_and_huge_number_are_admitted_unchanged(caller: Caller) -> None:
    envelope = body("@@")
    for weird in (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, b'{"spec":' + b"9" * 5000 + b"}"):
        status, content = await caller.post(envelope.replace(b'"@@"', weird))
        assert (status, json.loads(content).get("response", {}).get("allowed")) in [(200, True), (400, None)]


async def test_ten_megabytes_are_read_and_seventeen_refused(caller: Caller) -> None:
    big = pod(metadata={"annotations": {"big": "x" * 10_000_000}})
    status, content = await caller.post(body(big))
    assert status == 200
    assert json.loads(content)["response"]["patch"]
    status, _ = await caller.post(b"x" * (MAX_BODY_BYTES + 1))
    assert status == 413


async def test_other_methods_and_paths_are_refused(caller: Caller) -> None:
    assert (await caller.post(b"", method="GET"))[0] == 405
    assert (await caller.post(body(pod()), url=caller.url + "/else"))[0] == 404


async def test_unknown_content_encoding_is_refused(caller: Caller) -> None:
    status, _ = await caller.post(b"not gzip", headers={"Content-Encoding": "gzip"})
    assert 400 <= status < 500


async def test_body_that_never_ends_is_given_up(caller: Caller) -> None:
    trust = ssl.create_default_context(cadata=caller.bundle.decode())
    port = int(caller.url.split(":")[2].split("/")[0])
    reader, writer = await asyncio.open_connection("localhost", port, ssl=trust)
    writer.write(b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    async with asyncio.timeout(10):
        line = await reader.readline()
    writer.close()
    assert b" 408 " in line


async def test_new_certificate_is_served_without_a_restart_and_open_connections_go_on(caller: Caller) -> None:
    made = after_step(Step.CREATE, None, ["localhost"], now_utc(), Lifetimes())
    old_trust = ssl.create_default_context(cadata=caller.bundle.decode())
    async with aiohttp.ClientSession() as session:
        async with session.post(caller.url, data=body(pod()), ssl=old_trust) as response:
            assert response.status == 200
        caller.live.on_secret(None, Secret(data=made.data()))
        async with session.post(caller.url, data=body(pod()), ssl=old_trust) as response:
            assert response.status == 200, "the kept connection"
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await caller.post(body(pod()))
    caller.bundle = made.bundle
    assert (await caller.post(body(pod())))[0] == 200


async def test_unusable_secret_leaves_the_certificate_in_place(caller: Caller) -> None:
    caller.live.on_secret(None, Secret(data={"tls.crt": "AAAA"}))
    caller.live.on_secret(None, None)
    assert (await caller.post(body(pod())))[0] == 200


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


@given(_JSON)
def test_any_json_is_answered(content: object) -> None:
    raw = json.dumps(content).encode()
    with pytest.raises(BadReview):
        parse(raw)
    mutation, outcome = answer(parse(body(content)), [], "image")
    assert outcome == "error" or not mutation.patch
    assert json.loads(encode(REQUEST_UID, mutation))["response"]["allowed"] is True


@given(st.sampled_from(list(CORPUS.values())), st.data())
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_pod_with_one_wrong_field_is_answered(before: dict[str, Any], data: st.DataObject) -> None:
    broken = json.loads(json.dumps(before))
    spot = broken
    while isinstance(spot, dict | list) and spot:
        key = data.draw(st.sampled_from(list(spot) if isinstance(spot, dict) else range(len(spot))))
        if data.draw(st.booleans()) or not isinstance(spot[key], dict | list):
            spot[key] = data.draw(_JSON)
            break
        spot = spot[key]
    mutation, outcome = answer(parse(body(broken)), [], "image")
    assert outcome in ("mutated", "unchanged", "error")
    assert not any("internal" in warning for warning in mutation.warnings)
    msgspec.json.encode(mutation.patch)


def test_pod_of_megabytes_is_mutated_in_milliseconds() -> None:
    many = pod(container(env=[{"name": f"N{i}", "value": "x" * 1000} for i in range(1500)]))
    mutation, outcome = answer(parse(body(many)), [], "image")
    assert outcome == "mutated"
    assert len(msgspec.json.encode(mutation.patch)) < 8192
