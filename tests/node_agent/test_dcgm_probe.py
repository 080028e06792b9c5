"""The DCGM probe against a real HTTP server."""

import pytest
from aiohttp import web
from around import Around

from node_agent.config import Config
from node_agent.probes import registry
from node_agent.probes.dcgm import DCGMProbe

PAGE = 'DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu="0",UUID="GPU-0"} 1\nDCGM_FI_DEV_SM_CLOCK{gpu="1",UUID="GPU-1"} 5\n'


@pytest.fixture
async def serve(aiohttp_server):
    async def start(answer) -> DCGMProbe:
        async def handle(_request):
            return answer

        app = web.Application()
        app.router.add_get("/metrics", handle)
        server = await aiohttp_server(app)
        return probe_of(str(server.make_url("/metrics")))

    return start


def probe_of(url: str) -> DCGMProbe:
    probe = DCGMProbe(Config(dcgm_exporter_url=url))
    probe.attach(Around().surroundings)
    return probe


async def test_a_page_is_read_and_judged(serve):
    states = (await (await serve(web.Response(text=PAGE))).read()).states
    assert [(evidence.code, evidence.owner) for evidence in states.bad] == [("dcgm/remap-failure", "GPU-0")]
    assert states.readable == {"", "GPU-0", "GPU-1"}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (web.Response(status=503), "HTTP 503"),
        (web.Response(text=PAGE.replace("GPU-", "GPU-9")), "another node"),
        (web.Response(body=b"x" * (8 * 1024 * 1024 + 1)), "more than"),
    ],
)
async def test_an_exporter_without_a_page_is_watched_and_no_gpu_is_read_well(serve, answer, words):
    await unreachable(await serve(answer), words)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/metrics", "no url", "http://", "ftp://x/"])
async def test_an_exporter_that_is_not_there_is_watched(url):
    await unreachable(probe_of(url), url)


async def unreachable(probe: DCGMProbe, words: str) -> None:
    report = await probe.read()
    [bad] = report.states.bad
    assert bad.code == "dcgm/unreachable"
    assert words in bad.line
    assert report.states.readable == frozenset()
    assert not report.blind


async def test_a_page_of_garbage_shows_no_gpu_well(serve):
    states = (await (await serve(web.Response(body=bytes(range(256)) * 100))).read()).states
    assert (states.bad, states.readable) == ((), {""})


def test_without_an_exporter_there_is_no_probe():
    assert "dcgm" not in registry.build(Config())
    assert "dcgm" in registry.build(Config(dcgm_exporter_url="http://x/metrics"))
