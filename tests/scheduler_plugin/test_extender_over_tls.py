"""Point 21 of the wire contract: HTTPS with an authority of one's own, and mutual TLS."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from outrider.config import ConfigError, load
from scheduler_plugin.config import Config
from scheduler_plugin.extender.server import Extender
from testbed.certificates import Authority
from tests.scheduler_plugin.builders import make_node, make_snapshot

SNAPSHOT = make_snapshot(make_node("n0"))
ARGS = {"Pod": {"metadata": {"name": "alone"}}, "Nodes": None, "NodeNames": ["n0"]}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


@pytest.fixture
async def url(authority: Authority, tmp_path: Path) -> AsyncIterator[str]:
    certificate, key = authority.server("extender", ["127.0.0.1"])
    settings = tmp_path / "config.yaml"
    settings.write_text(
        f"extenderTls: {{certFile: {certificate}, keyFile: {key}, clientCaFile: {authority.folder / 'ca.crt'}}}"
    )
    tls = load(Config, settings).extender_tls
    assert tls is not None
    server = TestServer(Extender(lambda: SNAPSHOT, deadline_seconds=1.0).application(), host="127.0.0.1")
    await server.start_server(ssl=tls.context())
    yield f"https://127.0.0.1:{server.port}/filter"
    await server.close()


async def ask(url: str, context: ssl.SSLContext) -> list[str]:
    async with aiohttp.ClientSession() as session, session.post(url, json=ARGS, ssl=context) as response:
        names: list[str] = (await response.json())["NodeNames"]
        return names


async def test_a_scheduler_with_a_certificate_of_the_authority_is_answered(authority: Authority, url: str) -> None:
    context = ssl.create_default_context(cafile=str(authority.folder / "ca.crt"))
    context.load_cert_chain(*authority.client("scheduler", "kube-scheduler"))
    assert await ask(url, context) == ["n0"]


async def test_a_client_without_a_certificate_is_refused(authority: Authority, url: str) -> None:
    context = ssl.create_default_context(cafile=str(authority.folder / "ca.crt"))
    with pytest.raises(aiohttp.ClientError):
        await ask(url, context)


def test_half_of_the_files_is_an_error_that_names_the_field(tmp_path: Path) -> None:
    settings = tmp_path / "config.yaml"
    settings.write_text("extenderTls: {certFile: /nowhere/tls.crt}")
    with pytest.raises(ConfigError, match="keyFile"):
        load(Config, settings)
