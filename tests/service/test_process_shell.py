import os
import signal
import subprocess
import sys

import pytest
from aiohttp.test_utils import TestClient, TestServer

from outrider.service import identity, probe_application

PROGRAM = """
import asyncio, sys
from outrider import service
async def main():
    {body}
service.run(main)
"""


def start(body: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", PROGRAM.format(body=body)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_work_finish_and_exits_with_0(number: signal.Signals) -> None:
    body = """
    try:
        print('ready', flush=True)
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(0.1)
        print('cleaned', flush=True)"""
    with start(body.strip()) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        out, _ = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, "cleaned\n")


def test_a_return_exits_with_0_and_an_error_with_1_and_its_reason() -> None:
    with start("return") as process:
        process.communicate(timeout=20)
    assert process.returncode == 0
    with start("raise RuntimeError('the reason')") as process:
        _, told = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "the reason" in told


def test_settings_that_only_the_work_finds_wrong_exit_with_2_and_are_named_without_a_traceback() -> None:
    body = "from outrider.config import ConfigError; raise ConfigError('disabledProbes: nope: no such probe')"
    with start(body) as process:
        _, told = process.communicate(timeout=20)
    assert process.returncode == 2
    assert "disabledProbes: nope: no such probe" in told
    assert "Traceback" not in told


async def test_readiness_says_why_not() -> None:
    reason: str | None = "no contact with the API server for 80 s"
    async with TestClient(TestServer(probe_application(lambda: reason))) as http:
        answer = await http.get("/readyz")
        assert answer.status == 503
        assert "no contact with the API server for 80 s" in await answer.text()
        reason = None
        assert (await http.get("/readyz")).status == 200
        assert (await http.get("/healthz")).status == 200
        metrics = await http.get("/metrics")
        assert "python_info" in await metrics.text()
        assert metrics.headers["Content-Type"].startswith("text/plain")


def test_processes_on_one_host_have_different_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAME", "planner-7d9")
    assert identity() == "planner-7d9"
    monkeypatch.delenv("POD_NAME")
    assert identity().endswith(f"-{os.getpid()}")
