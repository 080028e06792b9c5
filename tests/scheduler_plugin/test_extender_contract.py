"""The wire contract of extender/v1, point by point, through a real HTTP server."""

import asyncio
import contextlib
import gzip
import io
import json
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.api import reasons
from outrider.api.gpunode import Verdict
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.extender import wire
from scheduler_plugin.extender.decide import UNRESOLVABLE
from scheduler_plugin.extender.server import Extender
from tests.scheduler_plugin.builders import NOW, make_gpunode, make_node, make_pod, make_snapshot

GOOD, BAD = "good", "bad"
SNAPSHOT = make_snapshot(
    make_node(GOOD), make_node(BAD), make_gpunode(GOOD), make_gpunode(BAD, verdict=Verdict.REPLACE)
)
POD = json.loads(msgspec.json.encode(make_pod("alone", gpus=1)))


@pytest.fixture
async def http() -> AsyncIterator[TestClient[Any, Any]]:
    extender = Extender(lambda: SNAPSHOT, deadline_seconds=0.3, clock=lambda: NOW)
    async with TestClient(TestServer(extender.application())) as client:
        yield client


Http = TestClient[Any, Any]


async def ask(http: Http, verb: str, body: object) -> Any:
    response = await http.post(f"/{verb}", json=body)
    assert response.status == 200, await response.text()
    assert response.content_type == "application/json"
    return json.loads(await response.read())


def args(*names: str, **extra: object) -> dict[str, object]:
    return {"Pod": POD, "Nodes": None, "NodeNames": list(names), **extra}


def node_list(*names: str) -> dict[str, object]:
    items = [
        {"metadata": {"name": name}, "spec": {"podCIDR": "10.0.0.0/24", "futureField": {"x": 1.5}}} for name in names
    ]
    return {"metadata": {}, "items": items}


def victims(*uids: str) -> dict[str, object]:
    return {"Pods": [{"metadata": {"name": uid, "uid": uid}} for uid in uids], "NumPDBViolations": 1}


def meta_victims(*uids: str) -> dict[str, object]:
    return {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 1}


async def test_1_answers_have_pascal_case_keys(http: Http) -> None:
    answer = await ask(http, "filter", args(GOOD, BAD))
    assert answer == {
        "Nodes": None,
        "NodeNames": [GOOD],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {BAD: reasons.NODE_UNHEALTHY},
        "Error": "",
    }
    assert set((await ask(http, "prioritize", args(GOOD)))[0]) == {"Host", "Score"}


@pytest.mark.parametrize("spell", [str.lower, str.upper, str.title])
async def test_2_requests_are_read_in_any_case(http: Http, spell: Any) -> None:
    odd = {spell(key): value for key, value in args(GOOD, BAD).items()}
    assert await ask(http, "filter", odd) == await ask(http, "filter", args(GOOD, BAD))


async def test_2_preemption_is_read_in_any_case(http: Http) -> None:
    odd = {"pod": POD, "nodenametometavictims": {GOOD: {"pods": [{"uid": "u1"}], "numpdbviolations": 2}}}
    answer = await ask(http, "preempt", odd)
    assert answer == {"NodeNameToMetaVictims": {GOOD: {"Pods": [{"UID": "u1"}], "NumPDBViolations": 2}}}


async def test_3_names_are_answered_with_names(http: Http) -> None:
    answer = await ask(http, "filter", args(GOOD))
    assert (answer["NodeNames"], answer["Nodes"]) == ([GOOD], None)


async def test_4_full_nodes_are_answered_with_the_same_nodes_unchanged(http: Http) -> None:
    request = args() | {"NodeNames": None, "Nodes": node_list(GOOD, BAD)}
    answer = await ask(http, "filter", request)
    assert answer["Nodes"]["items"] == node_list(GOOD)["items"]
    assert answer["NodeNames"] is None
    assert answer["FailedAndUnresolvableNodes"] == {BAD: reasons.NODE_UNHEALTHY}
    assert [entry["Host"] for entry in await ask(http, "prioritize", request)] == [GOOD, BAD]


async def test_5_neither_names_nor_nodes_is_an_empty_answer(http: Http) -> None:
    answer = await ask(http, "filter", {"Pod": POD, "Nodes": None, "NodeNames": None})
    assert answer["NodeNames"] == []
    assert await ask(http, "filter", {"Pod": POD}) == answer
    assert await ask(http, "prioritize", {"Pod": POD}) == []


async def test_6_null_items_are_no_items(http: Http) -> None:
    answer = await ask(http, "filter", {"Pod": POD, "Nodes": {"metadata": {}, "items": None}, "NodeNames": None})
    assert answer["Nodes"]["items"] == []


async def test_7_and_8_each_offered_name_is_in_exactly_one_answer_and_no_other_name_is(http: Http) -> None:
    answer = await ask(http, "filter", args(GOOD, BAD, "stranger"))
    named = [*answer["NodeNames"], *answer["FailedNodes"], *answer["FailedAndUnresolvableNodes"]]
    assert sorted(named) == sorted([GOOD, BAD, "stranger"])


async def test_9_the_same_request_has_the_same_answer(http: Http) -> None:
    assert await ask(http, "filter", args(GOOD, BAD)) == await ask(http, "filter", args(GOOD, BAD))


async def test_10_a_single_node_is_judged_as_among_all(http: Http) -> None:
    everything = await ask(http, "filter", args(GOOD, BAD))
    assert (await ask(http, "filter", args(GOOD)))["NodeNames"] == [GOOD]
    alone = await ask(http, "filter", args(BAD))
    assert alone["FailedAndUnresolvableNodes"] == everything["FailedAndUnresolvableNodes"]


async def test_11_scores_are_whole_numbers_from_0_to_10_in_the_order_asked(http: Http) -> None:
    answer = await ask(http, "prioritize", args(BAD, GOOD))
    assert [entry["Host"] for entry in answer] == [BAD, GOOD]
    assert all(type(entry["Score"]) is int and 0 <= entry["Score"] <= 10 for entry in answer)


async def test_12_what_is_unknown_scores_zero(http: Http) -> None:
    assert await ask(http, "prioritize", args("stranger")) == [{"Host": "stranger", "Score": 0}]
    assert await ask(http, "prioritize", args(GOOD) | {"Pod": {}}) == [{"Host": GOOD, "Score": 0}]


@pytest.mark.parametrize(("field", "form"), [("NodeNameToVictims", victims), ("NodeNameToMetaVictims", meta_victims)])
async def test_13_preemption_in_both_forms_drops_what_filter_refuses(http: Http, field: str, form: Any) -> None:
    other = {"NodeNameToVictims", "NodeNameToMetaVictims"} - {field}
    request = {"Pod": POD, field: {GOOD: form("u1", "u2"), BAD: form("u3")}, other.pop(): None}
    answer = await ask(http, "preempt", request)
    assert answer == {"NodeNameToMetaVictims": {GOOD: {"Pods": [{"UID": "u1"}, {"UID": "u2"}], "NumPDBViolations": 1}}}


@pytest.mark.parametrize(
    "empty", [{}, {GOOD: {"Pods": [], "NumPDBViolations": 0}}, {GOOD: {"Pods": None}}, {GOOD: None}]
)
async def test_14_preemption_never_answers_null_or_empty_victims(http: Http, empty: dict[str, object]) -> None:
    request = {"Pod": POD, "NodeNameToVictims": None, "NodeNameToMetaVictims": empty}
    assert await ask(http, "preempt", request) == {"NodeNameToMetaVictims": {}}


GARBAGE = [
    *(b"", b"{", b"null", b"[]", b"7", b'"Pod"', b"{}", b'{"Pod":null}', b'{"Pod":7}', b'{"Pod":{"spec":[]}}'),
    *(b"\xff\xfe", b"[" * 100_000, b"9" * 5000, b'{"Pod":{},"NodeNames":["a"]', b'{"pod":{"metadata":{"labels":[]}}}'),
]
NODES_GARBAGE = [b'{"Pod":{},"NodeNames":"a"}', b'{"Pod":{},"NodeNames":[1]}', b'{"Pod":{},"Nodes":{"items":[7]}}']
VICTIMS_GARBAGE = [b'{"Pod":{},"NodeNameToVictims":[]}', b'{"Pod":{},"NodeNameToMetaVictims":{"a":7}}']


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        *((verb, body) for verb in ("filter", "prioritize") for body in GARBAGE + NODES_GARBAGE),
        *(("preempt", body) for body in GARBAGE + VICTIMS_GARBAGE),
    ],
)
async def test_15_a_malformed_request_is_a_400_that_says_what_is_wrong(http: Http, verb: str, body: bytes) -> None:
    response = await http.post(f"/{verb}", data=body)
    assert response.status == 400
    assert (await response.text()).strip()


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
@pytest.mark.parametrize("body", [b"not gzip", gzip.compress(b" " * 1000)], ids=["says so", "is"])
async def test_15_a_body_that_is_compressed_or_says_so_is_a_400(http: Http, verb: str, body: bytes) -> None:
    response = await http.post(f"/{verb}", data=body, headers={"Content-Encoding": "gzip"})
    assert response.status == 400


@pytest.mark.parametrize("end", ["eof", "close", "reset"])
async def test_15_a_client_that_goes_away_in_the_middle_of_its_body_is_no_fault_of_ours(
    http: Http, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    for count in range(20):
        _, writer = await asyncio.open_connection(http.server.host, http.server.port)
        writer.write(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{" + b"x" * count)
        await writer.drain()
        await asyncio.sleep(0)
        if end == "eof":
            writer.write_eof()
        (writer.transport.abort if end == "reset" else writer.close)()
    assert (await ask(http, "filter", args(GOOD)))["NodeNames"] == [GOOD]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize(
    "pod",
    [
        {"metadata": None, "spec": None, "status": None},
        {"metadata": {"name": None, "uid": None, "labels": None, "annotations": None, "ownerReferences": None}},
        {"spec": {"containers": None, "tolerations": None, "affinity": None, "overhead": None, "priority": None}},
        {"spec": {"containers": [{"name": None, "resources": None, "ports": None}]}},
        {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": None}, "requests": None}}]}},
    ],
)
async def test_6_null_anywhere_in_a_pod_is_what_is_not_there(http: Http, pod: dict[str, object]) -> None:
    assert (await ask(http, "filter", args(GOOD, BAD) | {"Pod": pod}))["NodeNames"] == [GOOD, BAD]
    assert len(await ask(http, "prioritize", args(GOOD, BAD) | {"Pod": pod})) == 2
    victims = {GOOD: {"Pods": [{"metadata": None, "spec": pod.get("spec")}], "NumPDBViolations": None}, BAD: None}
    answer = await ask(http, "preempt", {"Pod": pod, "NodeNameToVictims": victims})
    assert list(answer["NodeNameToMetaVictims"]) == [GOOD]


async def test_6_a_null_elsewhere_leaves_full_nodes_as_they_came(http: Http) -> None:
    node = b'{"metadata": {"name":"good" , "x":null}, "y":1.50}'
    body = b'{"pod":{"metadata":null},"nodes":{"items":[' + node + b"]}}"
    response = await http.post("/filter", data=body)
    assert node in await response.read()


async def test_15_only_small_fields_are_read_with_nulls(http: Http) -> None:
    body = b'{"Pod":{"metadata":null,"x":[' + b"[]," * 3_000_000 + b"[]]}}"
    response = await http.post("/filter", data=io.BytesIO(body))
    assert (response.status, "metadata" in await response.text()) == (400, True)


KEYS = st.sampled_from(["Pod", "NodeNames", "Nodes", "items", "metadata", "NodeNameToVictims", "pods"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_15_no_body_at_all_breaks_the_reading(body: bytes) -> None:
    for decode in (wire.decode_args, wire.decode_preemption):
        with contextlib.suppress(wire.BadRequest):
            assert decode(body) is not None


async def test_15_a_quantity_that_is_none_is_a_400(http: Http) -> None:
    pod = {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "eight"}}}]}}
    response = await http.post("/filter", json=args(GOOD) | {"Pod": pod})
    assert (response.status, "eight" in await response.text()) == (400, True)


async def test_16_what_is_not_offered_is_a_404_and_other_methods_a_405(http: Http) -> None:
    assert (await http.post("/bind", json={})).status == 404
    assert (await http.get("/filter")).status == 405


async def test_16_a_fault_of_ours_is_a_500_and_the_next_request_is_answered() -> None:
    broken = [True]

    def snapshot() -> Snapshot:
        if broken.pop():
            raise RuntimeError("broken")
        return SNAPSHOT

    async with TestClient(TestServer(Extender(snapshot, clock=lambda: NOW).application())) as http:
        assert (await http.post("/filter", json=args(GOOD))).status == 500
        broken.append(False)
        assert (await ask(http, "filter", args(GOOD)))["NodeNames"] == [GOOD]


async def test_17_the_reasons_together_fit_an_event() -> None:
    texts = [value for name, value in vars(reasons).items() if name.startswith(("NODE_", "GANG_NOT"))]
    assert len("; ".join(f"5000 {text}" for text in texts).encode()) < 1024


async def test_17_each_reason_of_filter_is_in_the_reference_with_what_preemption_could_do() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "extender.md").read_text()
    rows = re.findall(r"^\| `([^`]+)` \| (yes|no) \|", page, re.MULTILINE)
    hopeless = {reason for reason, preemption in rows if preemption == "no"}
    assert hopeless == UNRESOLVABLE
    assert {reason for reason, _ in rows} - hopeless == {
        reasons.NODE_NO_GPU,
        reasons.NODE_RESERVED,
        reasons.NODE_NOT_SEEN,
    }
    assert len(rows) <= 10


async def test_18_a_body_that_does_not_arrive_is_answered_within_the_deadline(http: Http) -> None:
    reader, writer = await asyncio.open_connection(http.server.host, http.server.port)
    writer.write(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
    started = time.monotonic()
    status = await asyncio.wait_for(reader.readline(), 5)
    assert b"408" in status
    assert time.monotonic() - started < 2
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("meta", [{}, {"generateName": "train-"}, {"name": "x", "labels": {"a": "b"}}])
async def test_19_a_pod_may_lack_uid_name_and_labels(http: Http, meta: dict[str, object]) -> None:
    pod = POD | {"metadata": meta}
    assert (await ask(http, "filter", args(GOOD, BAD) | {"Pod": pod}))["NodeNames"] == [GOOD]


async def test_19_five_thousand_names(http: Http) -> None:
    names = [f"node-{index:04}.rack.example.internal" for index in range(4999)]
    answer = await ask(http, "filter", args(*names, GOOD))
    assert answer["NodeNames"] == [GOOD]
    assert len(answer["FailedNodes"]) == 4999


async def test_20_one_connection_serves_many_requests_and_large_bodies(http: Http) -> None:
    for _ in range(50):
        await ask(http, "filter", args(GOOD))
    large = node_list(*(f"n{index}" for index in range(1000)))
    large["items"][0]["padding"] = "x" * 3_000_000  # type: ignore[index]
    body = io.BytesIO(json.dumps(args() | {"NodeNames": None, "Nodes": large}).encode())
    response = await http.post("/filter", data=body)
    assert len((await response.json())["FailedNodes"]) == 1000


async def test_22_pods_bound_by_others_count() -> None:
    full = make_snapshot(make_node(GOOD), make_pod("theirs", gpus=8, node=GOOD, phase="Running"))
    extender = Extender(lambda: full, clock=lambda: NOW)
    async with TestClient(TestServer(extender.application())) as http:
        assert (await ask(http, "filter", args(GOOD)))["FailedNodes"] == {GOOD: reasons.NODE_NO_GPU}


async def test_23_no_text_holds_a_percent_sign_and_no_map_is_null(http: Http) -> None:
    assert not any("%" in value for name, value in vars(reasons).items() if name.isupper())
    answer = await ask(http, "filter", args(GOOD))
    assert answer["FailedNodes"] == answer["FailedAndUnresolvableNodes"] == {}
