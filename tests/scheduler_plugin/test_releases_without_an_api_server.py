"""What a planner does with the gates of a large gang while the API server is away."""

import asyncio
import ssl

import pytest

from outrider.kube.errors import Unreachable
from outrider.kube.transport import session
from scheduler_plugin.planner.deliver import release
from tests.scheduler_plugin.builders import make_pod

PODS = 300


class Nobody:
    """Credentials that let nobody in, for a server that hangs up."""

    tls = ssl.create_default_context()
    proxy: str | None = None
    server_name: str | None = None

    def __init__(self, port: int) -> None:
        self.root = f"http://127.0.0.1:{port}"

    async def authorization(self) -> str:
        return ""


async def test_a_planner_that_reaches_nobody_tries_a_few_pods_and_leaves_the_others_for_later() -> None:
    tries = 0

    def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal tries
        tries += 1
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server, session(Nobody(server.sockets[0].getsockname()[1]), "test") as client:
        pods = [(make_pod(f"p-{number}", job="train"), ("n0",)) for number in range(PODS)]
        with pytest.raises(Unreachable):
            await release(client, pods, "why")
    assert 0 < tries < PODS / 2
