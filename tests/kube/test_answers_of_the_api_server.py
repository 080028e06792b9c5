import json
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.kube import errors, wire
from outrider.kube.client import EventType
from outrider.kube.kinds import GPUNODES, PODS
from outrider.kube.transport import connect


def line(type_: str, **content: object) -> bytes:
    return json.dumps({"type": type_, "object": content}).encode()


def status(code: int, reason: str, message: str = "no") -> bytes:
    return json.dumps({"kind": "Status", "code": code, "reason": reason, "message": message}).encode()


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (404, "NotFound", errors.NotFound),
        (409, "AlreadyExists", errors.AlreadyExists),
        (409, "Conflict", errors.Conflict),
        (410, "Expired", errors.Gone),
        (422, "Invalid", errors.Invalid),
        (400, "BadRequest", errors.Invalid),
        (401, "Unauthorized", errors.Forbidden),
        (403, "Forbidden", errors.Forbidden),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", errors.KubeError),
        (503, "ServiceUnavailable", errors.KubeError),
    ],
)
def test_each_status_becomes_its_own_error(code: int, reason: str, expected: type[errors.KubeError]) -> None:
    error = wire.error_of(code, status(code, reason, "the reason why"), {}, "GET /x")
    assert type(error) is expected
    assert error.status == code
    assert "GET /x: the reason why" in str(error)


def test_throttling_says_how_long_to_wait() -> None:
    error = wire.error_of(429, status(429, "TooManyRequests"), {"Retry-After": "10"}, "POST /x")
    assert isinstance(error, errors.TooManyRequests)
    assert error.retry_after_seconds == 10.0


def test_a_proxys_html_page_is_an_error_with_its_text() -> None:
    error = wire.error_of(502, b"<html>Bad gateway</html>", {}, "GET /x")
    assert error.status == 502
    assert "Bad gateway" in str(error)


def test_an_error_that_repeats_the_object_is_clipped() -> None:
    error = wire.error_of(422, status(422, "Invalid", "x" * 100_000), {}, "PUT /x")
    assert len(str(error)) < 1_200


def test_objects_that_do_not_decode_are_named_and_left_out_of_a_list(caplog: pytest.LogCaptureFixture) -> None:
    good = {"metadata": {"name": "a", "namespace": "n"}}
    bad = {"metadata": {"name": "b", "namespace": "n"}, "spec": {"nodeName": 7}}
    body = json.dumps({"metadata": {"resourceVersion": "9", "continue": "c"}, "items": [good, bad]}).encode()
    with caplog.at_level(logging.WARNING):
        chunk = wire.decode_list(PODS, body)
    assert [pod.key for pod in chunk.items] == ["n/a"]
    assert list(chunk.invalid) == ["n/b"]
    assert "$.spec.nodeName" in chunk.invalid["n/b"]
    assert (chunk.resource_version, chunk.continue_) == ("9", "c")
    assert caplog.records[0].__dict__["object"] == "n/b"
    assert "$.spec.nodeName" in caplog.records[0].__dict__["problem"]


def test_a_list_without_items_is_empty() -> None:
    assert wire.decode_list(PODS, b'{"metadata":{"resourceVersion":"1"},"items":null}').items == []


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"items": 7}', b"<html>", b"null"])
def test_an_answer_that_is_no_list_is_a_clear_error(body: bytes) -> None:
    with pytest.raises(errors.KubeError, match="pods"):
        wire.decode_list(PODS, body)


def test_a_watched_object_that_does_not_decode_is_an_invalid_event() -> None:
    event = wire.decode_line(GPUNODES, line("MODIFIED", metadata={"name": "n1", "resourceVersion": "5"}, spec=[]))
    assert event.type is EventType.INVALID
    assert event.metadata.name == "n1"
    assert event.metadata.resource_version == "5"
    assert "$.spec" in event.problem


def test_nesting_without_end_is_undecodable_and_no_crash() -> None:
    deep = b'{"metadata":{"name":"p"},"spec":' + b'{"x":' * 5000 + b"1" + b"}" * 5001
    with pytest.raises(errors.Invalid):
        wire.decode_object(PODS, deep)
    with pytest.raises(errors.KubeError):
        wire.decode_line(PODS, b'{"type":"ADDED","object":' + deep + b"}")
    with pytest.raises(errors.KubeError):
        wire.decode_list(PODS, b'{"items":[' + deep + b"]}")


@pytest.mark.parametrize("name", ["a/b", "../secrets/x", "x?dryRun=All", "x#y", "é %2e"])
def test_a_name_never_leads_to_another_path(name: str) -> None:
    path = PODS.path(name, name)
    assert path.count("/") == "/api/v1/namespaces/NAMESPACE/pods/POD".count("/")
    assert not set("?# ") & set(path)


KUBECONFIGS = {
    "empty": b"",
    "brace": b"{",
    "null": b"null",
    "list": b"[]",
    "text": b"hello",
    "binary": bytes(range(256)),
    "no-context": b"apiVersion: v1\nkind: Config\n",
    "users": b"clusters: [{name: x, cluster: {server: y}}]\ncontexts: [{name: x, context: {cluster: x, user: y}}]\n"
    b"current-context: x\nusers: 7\n",
}


@pytest.mark.parametrize("content", KUBECONFIGS.values(), ids=KUBECONFIGS.keys())
async def test_a_kubeconfig_that_makes_no_sense_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "kubeconfig").write_bytes(content)
    with pytest.raises(errors.NoCredentials, match=r"kubeconfig: [^;]+; set KUBECONFIG"):
        async with connect("t", kubeconfig=tmp_path / "kubeconfig"):
            pass


def test_a_missing_kubeconfig_is_one_line_with_the_way_out(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    for variables, arguments, place in (
        ({}, [], tmp_path / ".kube" / "config"),
        ({"KUBECONFIG": str(missing)}, [], missing),
        ({}, ["--kubeconfig", str(missing)], missing),
    ):
        command = [sys.executable, "-m", "outrider.cli.main", "status", *arguments]
        done = subprocess.run(command, env=environment | variables, capture_output=True, text=True, check=False)
        told = f"outrider: no kubeconfig at {place}; set KUBECONFIG to a file that names your cluster\n"
        assert (done.returncode, done.stdout, done.stderr) == (2, "", told)


def test_a_bookmark_carries_the_version_only() -> None:
    event = wire.decode_line(GPUNODES, line("BOOKMARK", kind="GPUNode", metadata={"resourceVersion": "77"}))
    assert event.type is EventType.BOOKMARK
    assert event.object is None
    assert event.metadata.resource_version == "77"


def test_expired_history_within_a_stream_is_gone() -> None:
    with pytest.raises(errors.Gone):
        wire.decode_line(PODS, line("ERROR", kind="Status", code=410, reason="Expired", message="too old"))


@given(st.one_of(st.binary(max_size=200), st.recursive(st.none() | st.integers() | st.text(), st.lists).map(repr)))
def test_no_line_of_a_watch_raises_anything_but_our_errors(content: bytes | str) -> None:
    raw = content if isinstance(content, bytes) else content.encode(errors="replace")
    for text in (raw, b'{"type":"ADDED","object":' + raw + b"}"):
        try:
            event = wire.decode_line(PODS, text)
        except errors.KubeError:
            continue
        assert (event.object is None) == (event.type is EventType.INVALID)  # {} is a pod of defaults


@given(st.lists(st.binary(min_size=1).filter(lambda part: b"\n" not in part and part.strip())), st.integers(1, 7))
async def test_lines_come_out_whole_however_they_are_cut(parts: list[bytes], size: int) -> None:
    stream = b"".join(part + b"\n" for part in parts)

    async def cut() -> AsyncIterator[bytes]:
        for start in range(0, len(stream), size):
            yield stream[start : start + size]

    assert [part async for part in wire.lines(cut())] == parts
