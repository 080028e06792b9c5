"""One gRPC call against a real HTTP/2 server."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kubelet_server import HEADERS, Server, framed

from node_agent.probes.grpc_call import CallError, call
from node_agent.readings.pod_resources import METHOD


@pytest.fixture
async def server(tmp_path):
    async with Server(tmp_path / "kubelet.sock") as server:
        yield server


async def answer(server: Server, answer_max: int = 1_000_000) -> bytes:
    async with asyncio.timeout(10):
        return await call(server.socket, METHOD, b"request", answer_max=answer_max)


@pytest.mark.parametrize("size", [0, 1, 300_000])
async def test_the_answer_comes_whole_whatever_its_size(server, size):
    server.answer = bytes(size)
    assert await answer(server) == bytes(size)
    assert server.asked == [(METHOD, framed(b"request"))]


async def test_a_call_that_the_server_refuses_brings_no_answer(server):
    server.reply = server.failure
    with pytest.raises(CallError, match="refused the call"):
        await answer(server)


def _broken(kind):
    def reply(connection, stream):
        connection.send_headers(stream, HEADERS)
        if kind == "reset":
            connection.reset_stream(stream)
        elif kind == "goaway":
            connection.close_connection()
        else:
            connection.send_data(stream, kind)
            connection.send_headers(stream, [("grpc-status", "0")], end_stream=True)

    return reply


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("reset", "broke off"),
        ("goaway", "broke off"),
        (b"", "refused the call"),
        (b"\0\0\0", "not one plain message"),
        (framed(b"abc")[:-1], "not one plain message"),
        (framed(b"abc") * 2, "not one plain message"),
        (b"\1" + framed(b"abc")[1:], "not one plain message"),
    ],
)
async def test_a_broken_answer_is_an_error_of_its_own(server, kind, words):
    server.reply = _broken(kind)
    with pytest.raises(CallError, match=words):
        await answer(server)


async def test_a_page_of_a_web_server_is_no_answer(server):
    def reply(connection, stream):
        connection.send_headers(stream, [(":status", "404")])
        connection.send_data(stream, b"not found", end_stream=True)

    server.reply = reply
    with pytest.raises(CallError, match="not one plain message"):
        await answer(server)


async def test_a_server_that_asks_whether_we_live_gets_its_answer(server):
    def reply(connection, stream):
        connection.ping(b"12345678")
        server.message(connection, stream)

    server.reply, server.answer = reply, b"abc"
    assert await answer(server) == b"abc"


async def test_padding_is_no_part_of_the_answer(server):
    def reply(connection, stream):
        connection.send_headers(stream, HEADERS)
        connection.send_data(stream, framed(b"abc"), pad_length=7)
        connection.send_headers(stream, [("grpc-status", "0")], end_stream=True)

    server.reply = reply
    assert await answer(server) == b"abc"


async def test_an_answer_that_is_too_long_is_refused(server):
    server.answer = bytes(100_000)
    with pytest.raises(CallError, match="more than 5000 bytes"):
        await answer(server, answer_max=5000)


async def test_nobody_at_the_socket_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        await call(str(tmp_path / "none"), METHOD, b"", answer_max=10)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
async def test_no_bytes_of_a_server_lead_to_another_error(tmp_path, garbage):
    async def babble(_reader, writer):
        writer.write(garbage)
        writer.close()

    server = await asyncio.start_unix_server(babble, tmp_path / "babble.sock")
    with pytest.raises((CallError, OSError)):
        async with asyncio.timeout(10):
            await call(str(tmp_path / "babble.sock"), METHOD, b"", answer_max=100)
    server.close()
    await server.wait_closed()
