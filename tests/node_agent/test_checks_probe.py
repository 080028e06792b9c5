"""Users' own checks as real programs in a real folder."""

import asyncio
import tempfile
from pathlib import Path

import pytest
from around import Around

from node_agent.config import Config
from node_agent.probes import registry
from node_agent.probes.checks import ChecksProbe


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory() as name:  # tmp_path lets only its owner in, and checks run as nobody
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def around():
    return Around()


@pytest.fixture
async def probe(folder, around):
    probe = ChecksProbe(Config(checks_dir=str(folder)))
    probe.attach(around.surroundings)
    yield probe
    await probe.close()


def check(folder: Path, name: str, script: str, settings: str = "", mode: int = 0o755) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(mode)
    if settings:
        path.with_suffix(".yaml").write_text(settings)


async def findings(probe: ChecksProbe, runs: int) -> dict[str, str]:
    """Read until so many checks have ended."""
    report = await probe.read()
    for _ in range(runs):
        await _one_more(probe)
        report = await probe.read()
    return {evidence.code: evidence.line for evidence in report.states.bad}


async def _one_more(probe: ChecksProbe) -> None:
    async with asyncio.timeout(20):
        await probe.wake.wait()
    probe.wake.clear()


async def settled(probe: ChecksProbe) -> dict[str, str]:
    report = await probe.read()
    while any(checked.run for checked in probe._checks.values()):
        await _one_more(probe)
        report = await probe.read()
    return {evidence.code: evidence.line for evidence in report.states.bad}


async def test_each_check_is_a_finding_of_its_own(probe, folder):
    check(folder, "good.sh", "exit 0")
    check(folder, "warns.sh", "echo nearly full; exit 1")
    check(folder, "broken.sh", "echo full; exit 2")
    check(folder, "odd.sh", "exit 77")
    found = await settled(probe)
    assert found == {
        "check/warns.warning": "nearly full",
        "check/broken": "full",
        "check/odd.unknown": "check odd: exit code 77 is none of 0, 1, 2, 3",
    }


async def test_checks_that_hang_hide_no_other_and_are_unknown(probe, folder):
    for number in range(3):
        check(folder, f"hangs-{number}.sh", "sleep 600", "timeoutSeconds: 3")
    check(folder, "works.sh", "echo bad; exit 2")
    assert await findings(probe, runs=1) == {"check/works": "bad"}
    found = await settled(probe)
    assert found["check/hangs-0.unknown"] == "check hangs-0: did not end within 3 s"
    assert len(found) == 4


async def test_a_check_is_not_run_as_root(probe, folder):
    check(folder, "who.sh", "id -u; exit 2")
    assert (await settled(probe))["check/who"] != "0"


@pytest.mark.parametrize(
    ("mode", "settings", "words"),
    [
        (0o757, "", "everybody may change"),
        (0o644, "", "is not executable"),
        (0o755, "periodSeconds: 0", "periodSeconds"),
        (0o755, "verdict: reset", "it can be watch or no-new-work"),
        (0o755, ": [", "not run: bad.yaml"),
    ],
)
async def test_a_check_that_may_not_be_run_is_unknown_and_says_why(probe, folder, mode, settings, words):
    check(folder, "bad.sh", "exit 2", settings, mode)
    found = await settled(probe)
    assert list(found) == ["check/bad.unknown"]
    assert words in found["check/bad.unknown"]


async def test_a_folder_that_everybody_may_change_or_that_is_gone_is_unknown(probe, folder):
    check(folder, "bad.sh", "exit 2")
    folder.chmod(0o777)
    assert "everybody may change" in (await settled(probe))["check/folder.unknown"]
    gone = ChecksProbe(Config(checks_dir="/nowhere"))
    assert await settled(gone) == {"check/folder.unknown": "check folder: /nowhere: No such file or directory"}


async def test_the_folder_in_which_the_kubelet_keeps_a_volumes_files_is_read_and_followed(probe, folder):
    def lay(version: str, script: str) -> None:
        (folder / version).mkdir(mode=0o755)
        check(folder / version, "disk.sh", script)
        (folder / "..new").symlink_to(version)
        (folder / "..new").rename(folder / "..data")

    lay("..1", "echo full; exit 2")
    folder.chmod(0o777)  # as the kubelet leaves it
    assert "name its ..data" in (await settled(probe))["check/folder.unknown"]
    volume = ChecksProbe(Config(checks_dir=str(folder / "..data")))
    assert await settled(volume) == {"check/disk": "full"}
    lay("..2", "exit 0")
    await volume.close()
    again = ChecksProbe(Config(checks_dir=str(folder / "..data")))
    assert await settled(again) == {}
    await again.close()


async def test_a_script_whose_interpreter_is_not_in_the_image_says_so(probe, folder):
    check(folder, "disk.sh", "exit 0")
    (folder / "disk.sh").write_text("#!/usr/bin/no-such-shell -e\nexit 0\n")
    assert (await settled(probe))["check/disk.unknown"] == (
        f"check disk: can't be started: {folder}/disk.sh: its interpreter /usr/bin/no-such-shell is not there: "
        "the agent's image has no such program"
    )


async def test_two_files_of_one_name_are_told(probe, folder):
    check(folder, "disk.py", "exit 0")
    check(folder, "disk.sh", "exit 0")
    assert "disk.py and disk.sh have the same name" in (await settled(probe))["check/disk.unknown"]


async def test_what_a_check_found_stands_while_it_is_silent_and_over_a_restart(probe, folder, around):
    check(folder, "disk.sh", "echo full; exit 2")
    await settled(probe)
    around.take("checks", await probe.read())
    check(folder, "disk.sh", "exit 9")
    again = ChecksProbe(Config(checks_dir=str(folder)))
    again.attach(around.surroundings)
    assert set(await settled(again)) == {"check/disk", "check/disk.unknown"}
    await again.close()
    check(folder, "disk.sh", "exit 0")
    well = ChecksProbe(Config(checks_dir=str(folder)))
    well.attach(around.surroundings)
    assert await settled(well) == {}
    await well.close()


async def test_a_check_that_is_taken_away_takes_its_finding_along(probe, folder, around):
    check(folder, "disk.sh", "echo full; exit 2")
    await settled(probe)
    around.take("checks", await probe.read())
    (folder / "disk.sh").unlink()
    for seconds in (1, 32):
        around.take("checks", await probe.read(), seconds)
    assert around.codes() == {}


def test_without_a_folder_there_is_no_probe(folder):
    assert "checks" not in registry.build(Config())
    assert "checks" in registry.build(Config(checks_dir=str(folder)))
