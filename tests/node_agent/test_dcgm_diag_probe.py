"""Active diagnostics with a real program in the place of dcgmi."""

import asyncio
import json
import time

import pytest
from around import Around

from node_agent.config import Config
from node_agent.probes.dcgm_diag import DiagnosticProbe
from outrider.api.gpunode import Diagnostic, DiagnosticState, GPUNode, Verdict
from outrider.api.meta import ObjectMeta
from outrider.api.names import RUN_DIAGNOSTIC_ANNOTATION

ISOLATE = [{"error_id": 81, "error_severity": 2, "warning": "uncontained error"}]


class Node:
    """A node whose GPUNode people write to, and whose dcgmi answers as it is told."""

    def __init__(self, folder) -> None:
        self.around = Around(now=time.time())
        self.dcgmi, self.answer, self.log = folder / "dcgmi", folder / "answer.json", folder / "log"
        self.program(f"cat {self.answer}")
        self.answers("Pass", "Pass")
        self.probe = self.restarted()

    def program(self, script: str) -> None:
        self.dcgmi.write_text(f'#!/bin/sh\necho "$@" >> {self.log}\n{script}\n')
        self.dcgmi.chmod(0o755)

    def restarted(self) -> DiagnosticProbe:
        self.probe = DiagnosticProbe(Config(dcgmi_path=str(self.dcgmi)))
        self.probe.attach(self.around.surroundings)
        return self.probe

    def answers(self, *statuses: str) -> None:
        results = [
            {"entity_group": "GPU", "entity_id": gpu, "status": status, "warnings": ISOLATE if status == "Fail" else []}
            for gpu, status in enumerate(statuses)
        ]
        root = {"test_categories": [{"category": "Hardware", "tests": [{"name": "memory", "results": results}]}]}
        self.answer.write_text(json.dumps({"DCGM Diagnostic": root}))

    def ask(self, text: str) -> None:
        old, annotations = self.around.gpunode, {RUN_DIAGNOSTIC_ANNOTATION: text}
        self.around.gpunode = GPUNode(metadata=ObjectMeta(name="n", annotations=annotations))
        for callback in self.around.gpunode_callbacks:
            callback(old, self.around.gpunode)

    async def read(self, seconds: float = 0.0) -> Diagnostic | None:
        self.around.take("dcgm-diag", await self.probe.read(), seconds)
        return self.around.memory.diagnostic

    async def end(self) -> Diagnostic:
        """Read until the diagnostic has ended."""
        async with asyncio.timeout(20):
            while (state := await self.read()).state is DiagnosticState.RUNNING:
                await self.probe.wake.wait()
                self.probe.wake.clear()
        return state

    @property
    def runs(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
async def node(tmp_path):
    node = Node(tmp_path)
    yield node
    await node.probe.close()


async def test_nothing_is_run_unasked(node):
    assert await node.read() is None
    assert node.runs == []


async def test_a_diagnostic_is_run_once_for_each_id_at_the_level_asked_for(node):
    node.ask('{"id": "a", "level": 3}')
    assert node.probe.wake.is_set()
    node.probe.wake.clear()
    assert (await node.read()).state is DiagnosticState.RUNNING
    ended = await node.end()
    assert (ended.id, ended.level, ended.state) == ("a", 3, DiagnosticState.PASSED)
    assert ended.finished_at >= ended.started_at
    await node.read()
    node.restarted()
    await node.read()
    assert node.runs == ["diag -r 3 -j"]
    node.ask('{"id": "b"}')
    await node.end()
    assert node.runs == ["diag -r 3 -j", "diag -r 1 -j"]


async def test_a_failure_is_a_finding_of_the_gpu_until_a_later_run_passes(node):
    node.answers("Pass", "Fail")
    node.ask('{"id": "a"}')
    assert (await node.end()).state is DiagnosticState.FAILED
    assert node.around.codes() == {"dcgm/diag-isolate": "GPU-1"}
    assert node.around.judgement().gpus["GPU-1"].verdict is Verdict.RESET
    await node.read(1000)
    node.restarted()
    await node.read(2000)
    assert node.around.codes() == {"dcgm/diag-isolate": "GPU-1"}
    node.answers("Pass", "Pass")
    node.ask('{"id": "b"}')
    await node.end()
    for seconds in (3000, 3031):
        await node.read(seconds)
    assert node.around.codes() == {}


async def test_a_finding_that_judging_let_go_is_not_told_again(node):
    node.answers("Pass", "Fail")
    node.ask('{"id": "a"}')
    await node.end()
    node.around.memory.findings.clear()
    await node.read()
    assert node.around.codes() == {}


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'Error: unable to connect to nv-hostengine'; exit 3", "unable to connect"),
        ("kill -9 $$", "no JSON"),
        ("yes", "wrote too much"),
    ],
)
async def test_a_program_that_gives_no_result_is_neither_pass_nor_fault(node, script, words):
    node.program(script)
    node.ask('{"id": "a"}')
    ended = await node.end()
    assert (ended.state, words in ended.message) == (DiagnosticState.NO_RESULT, True)
    assert node.around.codes() == {"dcgm/diag-no-result": ""}
    assert node.around.judgement().node.verdict is Verdict.WATCH


async def test_a_program_that_is_not_there_says_so(node):
    node.dcgmi.unlink()
    node.ask('{"id": "a"}')
    assert "can't be started" in (await node.end()).message


async def test_a_diagnostic_that_was_refused_is_told_for_an_hour_and_no_longer(node):
    node.probe = DiagnosticProbe(Config())
    node.probe.attach(node.around.surroundings)
    node.ask('{"id": "a"}')
    assert "dcgmiPath" in (await node.end()).message
    await node.read(3000)
    assert node.around.codes() == {"dcgm/diag-no-result": ""}
    for seconds in (3700, 3800):
        await node.read(seconds)
        assert node.around.codes() == {}


async def test_a_diagnostic_that_a_restart_ended_has_no_result_and_is_not_run_again(node):
    node.program("sleep 600")
    node.ask('{"id": "a"}')
    await node.read()
    await node.probe.close()
    node.restarted()
    assert "restarted" in (await node.end()).message
    await node.read()
    assert len(node.runs) <= 1


@pytest.mark.parametrize("text", ["{", '{"id": "", "level": 1}', '{"id": "a", "level": 9}'])
async def test_a_request_that_makes_no_sense_is_answered_once(node, text):
    node.ask(text)
    first = await node.end()
    assert RUN_DIAGNOSTIC_ANNOTATION in first.message
    assert await node.read() == first
    assert node.runs == []
