import time

import pytest
from around import CATALOGUE, RULES, Around

from node_agent.agent import Agent
from node_agent.config import Config
from node_agent.probes import registry
from node_agent.probes.overrides import OverridesProbe
from node_agent.probes.report import KernelPosition, Report, Sighting
from node_agent.state import Store
from outrider.api.gpunode import SubjectKind, Verdict
from outrider.health.findings import seen

GOOD = "faults:\n  xid/63: {verdict: none, weight: 0}\n"
ALLOWED = "can be none, watch, restart-app, no-new-work, reset, reboot, replace"
BAD = "faults:\n  xid/63:\n    verdict: nope\n"


class Node(Around):
    """An agent around the probe, with a file that a test may change."""

    def __init__(self, folder) -> None:
        super().__init__()
        self.folder, self.file = folder, folder / "overrides.yaml"
        self.catalogue = CATALOGUE
        self.probe = self.started()

    def started(self) -> OverridesProbe:
        self.probe = OverridesProbe(self.file, self.folder / "state")
        self.catalogue = CATALOGUE
        around = self.surroundings
        self.probe.attach(registry.Surroundings(catalogue=around.catalogue, use_catalogue=self.use))
        return self.probe

    def use(self, catalogue) -> None:
        self.catalogue = catalogue

    async def read(self) -> list[str]:
        report = await self.probe.read()
        assert report.states.readable == {""}
        return [evidence.line for evidence in report.states.bad]

    @property
    def verdict(self) -> Verdict:
        return self.catalogue.of("xid/63").verdict


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


async def test_without_a_file_the_catalogue_stays_as_it_is(node):
    assert await node.read() == []
    assert node.verdict is Verdict.WATCH


async def test_a_good_file_is_in_force_from_the_next_reading_on(node):
    await node.read()
    node.file.write_text(GOOD)
    assert await node.read() == []
    assert node.verdict is Verdict.NONE
    node.file.write_text(GOOD.replace("none", "no-new-work"))
    await node.read()
    assert node.verdict is Verdict.NO_NEW_WORK


async def test_a_file_that_goes_away_takes_its_changes_along(node):
    node.file.write_text(GOOD)
    await node.read()
    node.file.unlink()
    assert await node.read() == []
    assert node.verdict is Verdict.WATCH


async def test_a_file_with_a_mistake_changes_nothing_and_is_told_until_it_is_corrected(node):
    node.file.write_text(GOOD)
    await node.read()
    node.file.write_text(BAD)
    for _ in range(2):
        assert await node.read() == [f"{node.file}: line 3: xid/63: verdict: {ALLOWED}; not 'nope'"]
    assert node.verdict is Verdict.NONE
    node.file.write_text(GOOD)
    assert await node.read() == []


async def test_the_last_good_file_stays_in_force_over_a_restart_of_the_agent(node):
    node.file.write_text(GOOD)
    await node.read()
    node.file.write_text(BAD)
    await node.read()
    node.started()
    assert node.verdict is Verdict.WATCH
    assert len(await node.read()) == 1
    assert node.verdict is Verdict.NONE


async def test_a_mistake_in_the_first_file_leaves_the_catalogue_as_it_is(node):
    node.file.write_text(BAD)
    assert len(await node.read()) == 1
    assert node.verdict is Verdict.WATCH


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"faults:\n\xff", "line 2: is no UTF-8"), (b"#" * 1_000_000, "line 1: 524289 characters are more than 131072")],
)
async def test_a_file_that_is_no_text_or_too_long_is_refused(node, content, said):
    node.file.write_bytes(content)
    assert await node.read() == [f"{node.file}: {said}"]


async def test_a_file_that_can_t_be_read_blinds_the_probe_and_changes_nothing(node):
    node.file.write_text(GOOD)
    await node.read()
    node.file.unlink()
    node.file.mkdir()
    with pytest.raises(IsADirectoryError):
        await node.probe.read()
    assert node.verdict is Verdict.NONE


async def test_the_finding_names_the_mistake_weighs_nothing_and_goes_when_it_is_corrected(node):
    node.file.write_text(BAD)
    node.take("overrides", await node.probe.read())
    assert node.codes() == {"catalogue/overrides": ""}
    judgement = node.judgement()
    assert (judgement.node.score, judgement.node.verdict) == (100, Verdict.WATCH)
    assert "correct the line that is named" in judgement.message
    node.file.write_text(GOOD)
    for seconds in (10, 20, 30, 40, 50):
        node.take("overrides", await node.probe.read(), seconds)
    assert node.codes() == {}


def test_the_probe_runs_only_where_a_file_is_named():
    assert "overrides" not in registry.build(Config())
    assert "overrides" in registry.build(Config(catalogue_overrides_path="/etc/outrider/overrides.yaml"))


async def test_the_agent_judges_what_it_knows_anew_when_the_file_changes(tmp_path):
    told = []
    agent = Agent(Store(tmp_path / "state"), RULES, {"overrides": 60.0, "kernel-log": 60.0}, told.append)
    probe = OverridesProbe(tmp_path / "overrides.yaml", tmp_path / "state")
    probe.attach(registry.Surroundings(catalogue=lambda: agent.catalogue, use_catalogue=agent.use_catalogue))
    agent.take("overrides", await probe.read())
    evidence = seen("xid/63", time.time(), subject=SubjectKind.GPU, subject_id="GPU-0", source="kernel-log")
    agent.take("kernel-log", Report(sightings=(Sighting(0, evidence),), position=KernelPosition("boot", 0)))
    assert agent.known().judgement.node.verdict is Verdict.WATCH

    told.clear()
    (tmp_path / "overrides.yaml").write_text(GOOD.replace("none", "no-new-work"))
    agent.take("overrides", await probe.read())
    assert agent.known().judgement.node.verdict is Verdict.NO_NEW_WORK
    assert told
