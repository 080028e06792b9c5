import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from node_agent.config import Config
from node_agent.judging import Rules, absorb, conclude
from node_agent.memory import Memory
from node_agent.probes.cloud import CloudProbe, _build
from node_agent.probes.report import Report
from node_agent.readings.cloud_notices import (
    CloudWatch,
    Kind,
    Malformed,
    Notice,
    aws_events,
    aws_rebalance,
    aws_spot,
    azure_events,
    gcp_event,
    gcp_preempted,
    gcp_upcoming,
    oci_instance,
    time_of,
)
from outrider.api.gpunode import Health, Verdict
from outrider.health.catalogue import load

RULES = Rules(catalogue=load(), clear_dwell_seconds=30, expected_gpus=0)
NOW = 1_800_000_000.0
DAY = 86400.0

AWS = {
    "/latest/meta-data/events/maintenance/scheduled": '[{"NotBefore": "21 Jan 2019 09:00:43 GMT", "State": "active",'
    ' "Code": "system-reboot", "Description": "scheduled reboot", "EventId": "instance-event-0d5"},'
    ' {"NotBefore": "1 Jan 2019 00:00:00 GMT", "Code": "instance-stop", "State": "canceled"}]'
}
SPOT = {"/latest/meta-data/spot/instance-action": '{"action": "terminate", "time": "2017-09-18T08:22:00Z"}'}
REBALANCE = {"/latest/meta-data/events/recommendations/rebalance": '{"noticeTime": "2020-10-27T08:22:00Z"}'}
RETIRED = {
    "/latest/meta-data/events/maintenance/scheduled": '[{"NotBefore": "21 Jan 2019 09:00:43 GMT",'
    ' "Code": "instance-retirement", "Description": "the host fails"}]'
}
GCP_ROOT = "/computeMetadata/v1/instance"
GCP = {f"{GCP_ROOT}/maintenance-event": "NONE", f"{GCP_ROOT}/preempted": "FALSE"}
UPCOMING = (
    '{"can_reschedule": "false", "maintenance_status": "PENDING", "type": "SCHEDULED",'
    ' "window_start_time": "2024-05-01T02:00:00-07:00"}'
)
AZURE_NAME = {"/metadata/instance/compute/name": "gpu-7\n"}


def azure(event_type: str, machine: str = "GPU-7", not_before: str = "Mon, 19 Sep 2016 18:29:47 GMT") -> dict[str, str]:
    event = (
        f'{{"EventId": "A1", "EventType": "{event_type}", "ResourceType": "VirtualMachine", "Resources": ["{machine}"],'
        f' "EventStatus": "Scheduled", "NotBefore": "{not_before}", "Description": "host work"}}'
    )
    return AZURE_NAME | {"/metadata/scheduledevents": f'{{"DocumentIncarnation": 1, "Events": [{event}]}}'}


NEEDED = {
    "aws": {"X-aws-ec2-metadata-token": "token-1"},
    "gcp": {"Metadata-Flavor": "Google"},
    "azure": {"Metadata": "true"},
    "oci": {"Authorization": "Bearer Oracle"},
}


class Server:
    """A metadata service on this machine: answers what the test says, and only who asks as the cloud demands."""

    def __init__(self, cloud: str) -> None:
        self.cloud, self.answers, self.tokens = cloud, dict[str, str](), 0
        self.act = self._answer

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/latest/api/token":
            assert request.method == "PUT"
            assert int(request.headers["X-aws-ec2-metadata-token-ttl-seconds"]) <= 21600
            self.tokens += 1
            return web.Response(text="token-1")
        if any(request.headers.get(name) != value for name, value in NEEDED[self.cloud].items()):
            return web.Response(status=401)
        text = self.answers.get(request.path)
        return web.Response(status=404) if text is None else web.Response(text=text)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        return await self.act(request)


@asynccontextmanager
async def service(cloud: str):
    server = Server(cloud)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    probe = CloudProbe(Config(cloud=cloud, cloud_endpoint=f"http://127.0.0.1:{port}/"))
    try:
        yield server, probe
    finally:
        await probe.close()
        await runner.cleanup()


def lines(report: Report) -> dict[str, str]:
    return {evidence.code: evidence.line for evidence in report.states.bad}


@pytest.mark.parametrize("cloud", NEEDED)
async def test_a_cloud_without_a_notice_has_no_finding(cloud):
    quiet = {"gcp": GCP, "azure": azure("Reboot", machine="other-machine"), "oci": {"/opc/v2/instance/": "{}"}}
    async with service(cloud) as (server, probe):
        server.answers = quiet.get(cloud, {})
        report = await probe.read()
        assert (report.states.bad, report.states.readable) == ((), {""})


@pytest.mark.parametrize(
    ("cloud", "answers", "found"),
    [
        ("aws", AWS, {"cloud/maintenance": "2019-01-21 09:00 UTC: system-reboot: scheduled reboot"}),
        ("aws", RETIRED, {"cloud/termination": "2019-01-21 09:00 UTC: instance-retirement: the host fails"}),
        ("aws", SPOT, {"cloud/termination": "2017-09-18 08:22 UTC: spot instance: terminate"}),
        ("aws", REBALANCE, {"cloud/rebalance": "now or soon: spot instance: rebalance recommended"}),
        (
            "gcp",
            GCP | {f"{GCP_ROOT}/maintenance-event": "TERMINATE_ON_HOST_MAINTENANCE"},
            {"cloud/maintenance": "now or soon: TERMINATE_ON_HOST_MAINTENANCE"},
        ),
        (
            "gcp",
            GCP | {f"{GCP_ROOT}/upcoming-maintenance": UPCOMING},
            {"cloud/maintenance": "2024-05-01 09:00 UTC: SCHEDULED maintenance, PENDING"},
        ),
        ("gcp", GCP | {f"{GCP_ROOT}/preempted": "TRUE"}, {"cloud/termination": "now or soon: preempted"}),
        ("azure", azure("Reboot"), {"cloud/maintenance": "2016-09-19 18:29 UTC: Reboot Scheduled: host work"}),
        ("azure", azure("Freeze", not_before=""), {"cloud/maintenance": "now or soon: Freeze Scheduled: host work"}),
        ("azure", azure("Redeploy"), {"cloud/termination": "2016-09-19 18:29 UTC: Redeploy Scheduled: host work"}),
        (
            "oci",
            {"/opc/v2/instance/": '{"state": "Running", "timeMaintenanceRebootDue": "2023-04-05T06:07:08.9Z"}'},
            {"cloud/maintenance": "2023-04-05 06:07 UTC: timeMaintenanceRebootDue"},
        ),
        (
            "oci",
            {"/opc/v2/instance/": '{"state": "Terminating"}'},
            {"cloud/termination": "now or soon: state Terminating"},
        ),
    ],
)
async def test_each_clouds_notices_are_told_with_their_time(cloud, answers, found):
    async with service(cloud) as (server, probe):
        server.answers = answers
        assert lines(await probe.read()) == found


async def test_the_token_is_used_again_and_asked_for_anew_when_refused():
    async with service("aws") as (server, probe):
        await probe.read()
        await probe.read()
        assert server.tokens == 1
        server.act = _refuse
        await probe.read()
        server.act = server._answer
        assert (await probe.read()).states.readable == {""}
        assert server.tokens == 2


async def _refuse(request: web.Request) -> web.StreamResponse:
    return web.Response(status=401, text=request.path)


async def _hang(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(3600)
    return web.Response(text=request.path)


async def _flood(request: web.Request) -> web.StreamResponse:
    return web.Response(body=b"x" * 10_000_000, headers={"X-Path": request.path})


async def _break(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def _garbage(request: web.Request) -> web.StreamResponse:
    return web.Response(body=b"\xff\x00{[", headers={"X-Path": request.path})


async def _redirect(request: web.Request) -> web.StreamResponse:
    return web.Response(status=302, headers={"Location": f"http://127.0.0.1:1{request.path}"})


@pytest.mark.parametrize("cloud", NEEDED)
@pytest.mark.parametrize(
    ("act", "words"),
    [
        (_refuse, "HTTP status 401"),
        (_flood, "more than 65536 bytes"),
        (_break, "/"),
        (_garbage, "/"),
        (_redirect, "HTTP status 302"),
    ],
)
async def test_answers_that_can_not_be_used_are_told_after_three_looks_and_clear_nothing(cloud, act, words):
    async with service(cloud) as (server, probe):
        server.act = act
        first, second, third = [await probe.read() for _ in range(3)]
        assert (first.states.bad, second.states.bad) == ((), ())
        assert set(lines(third)) == {"cloud/unreadable"}
        line = lines(third)["cloud/unreadable"]
        assert line.startswith("/"), "the path is named"
        assert words in line
        assert third.states.readable == set()


async def test_a_service_that_is_not_there_is_no_crash():
    probe = CloudProbe(Config(cloud="gcp", cloud_endpoint="http://127.0.0.1:9"))
    try:
        assert (await probe.read()).states.bad == ()
    finally:
        await probe.close()


async def test_an_address_that_is_none_is_no_crash():
    probe = CloudProbe(Config(cloud="aws", cloud_endpoint="not an address"))
    try:
        assert (await probe.read()).states.bad == ()
    finally:
        await probe.close()


@pytest.mark.looptime
async def test_a_service_that_does_not_answer_costs_its_time_limit():
    async with service("oci") as (server, probe):
        server.act = _hang
        started = asyncio.get_running_loop().time()
        assert (await probe.read()).states.readable == set()
        assert asyncio.get_running_loop().time() - started == pytest.approx(5, abs=0.5)


def test_the_probe_is_there_only_where_a_cloud_is_named():
    assert _build(Config()) is None
    assert _build(Config(cloud="oci")) is not None


def judged(memory: Memory, seconds: float = 0.0):
    return conclude(memory, NOW + seconds, RULES).node


def test_a_notice_holds_new_work_back_and_is_gone_when_it_is_withdrawn():
    watch, memory = CloudWatch(DAY), Memory()
    notice = Notice(Kind.TERMINATION, "spot", NOW + 120)
    memory = absorb(memory, "cloud", Report(states=watch.judge([notice], NOW)), NOW, RULES)
    assert (judged(memory).verdict, judged(memory).reason) == (Verdict.NO_NEW_WORK, "cloud/termination")
    memory = absorb(memory, "cloud", Report(states=watch.failed("timeout", NOW + 60)), NOW + 60, RULES)
    memory = absorb(memory, "cloud", Report(states=watch.failed("timeout", NOW + 120)), NOW + 120, RULES)
    assert judged(memory).reason == "cloud/termination", "silence takes no notice back"
    for seconds in (180, 211):
        memory = absorb(memory, "cloud", Report(states=watch.judge([], NOW + seconds)), NOW + seconds, RULES)
    assert (judged(memory).health, judged(memory).score) == (Health.HEALTHY, 100)


def test_maintenance_far_ahead_is_shown_and_stops_nothing_yet():
    watch = CloudWatch(DAY)
    later = Notice(Kind.MAINTENANCE, "reboot", NOW + 2 * DAY)
    assert [evidence.code for evidence in watch.judge([later], NOW).bad] == ["cloud/maintenance-later"]
    assert RULES.catalogue.of("cloud/maintenance-later").verdict is Verdict.WATCH
    assert [evidence.code for evidence in watch.judge([later], NOW + 1.5 * DAY).bad] == ["cloud/maintenance"]


def test_of_several_notices_the_soonest_is_told():
    notices = [Notice(Kind.MAINTENANCE, name, NOW + at) for name, at in (("late", 900), ("soon", 60), ("mid", 90))]
    (evidence,) = CloudWatch(DAY).judge(notices, NOW).bad
    assert evidence.line.endswith(": soon, and 2 more")


def test_unreadable_notices_do_not_make_the_node_unknown():
    watch, memory = CloudWatch(DAY), Memory()
    for seconds in range(0, 300, 30):
        states = watch.failed("/latest: no answer within 5 s", NOW + seconds)
        memory = absorb(memory, "cloud", Report(states=states), NOW + seconds, RULES)
    assert (judged(memory, 300).health, judged(memory, 300).verdict) == (Health.HEALTHY, Verdict.WATCH)
    for seconds in (330, 361):
        memory = absorb(memory, "cloud", Report(states=watch.judge([], NOW + seconds)), NOW + seconds, RULES)
    assert judged(memory, 361).score == 100


@pytest.mark.parametrize("text", ["", "soon", "99 Foo 2019 00:00:00 GMT", "99 Jan 2019 99:00:00 GMT", "0000", None, 5])
def test_a_time_that_is_none_is_not_guessed(text):
    assert time_of(text) is None


PARSERS = (
    aws_events,
    aws_spot,
    aws_rebalance,
    gcp_event,
    gcp_upcoming,
    gcp_preempted,
    lambda text: azure_events(text, "me"),
    oci_instance,
)
KEYS = st.sampled_from(
    ["Events", "Resources", "NotBefore", "State", "Code", "state", "timeMaintenanceRebootDue", "action", "time", "x"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)


@given(st.text(max_size=200) | VALUES.map(json.dumps))
def test_no_answer_upsets_a_parser(text):
    for parse in PARSERS:
        try:
            notices = parse(text)
        except Malformed:
            continue
        states = CloudWatch(DAY).judge(notices, NOW)
        assert all(evidence.code in RULES.catalogue for evidence in states.bad)


def test_deeply_nested_answers_end():
    for parse in PARSERS:
        with pytest.raises(Malformed):
            parse("[" * 100_000)


@pytest.mark.parametrize("code", ["{}", "[]", "null", "7"])
def test_a_code_that_is_no_text_is_a_maintenance_and_no_error(code):
    (told,) = aws_events(f'[{{"Code": {code}}}]')
    assert told.kind is Kind.MAINTENANCE
    (told,) = azure_events(f'{{"Events": [{{"EventType": {code}, "Resources": ["vm"]}}]}}', "vm")
    assert told.kind is Kind.MAINTENANCE
