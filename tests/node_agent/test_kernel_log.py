import os
import pty
import stat
import time
import tty

import pytest

from node_agent.config import Config
from node_agent.probes.kernel_log import KernelLogProbe
from node_agent.probes.report import Report
from testbed import kernel_log
from testbed.xid_lines import xid_line

BUS = "00000000:3B:00.0"


@pytest.fixture
def config(tmp_path):
    kernel_log.create(tmp_path / "kmsg")
    (tmp_path / "boot_id").write_text("boot-1\n")
    return Config(kernel_log_path=str(tmp_path / "kmsg"), boot_id_path=str(tmp_path / "boot_id"))


@pytest.fixture
async def probe(config):
    probe = KernelLogProbe(config)
    yield probe
    await probe.close()


def codes(report: Report) -> list[str]:
    return [sighting.evidence.code for sighting in report.sightings]


async def test_what_was_logged_before_the_start_is_replayed_and_then_followed(tmp_path, probe):
    kernel_log.append(tmp_path / "kmsg", [xid_line(BUS, 79), "usb 1-1: new device"])
    first = await probe.read()
    assert codes(first) == ["xid/79"]
    assert (first.position.boot_id, first.position.sequence) == ("boot-1", 1)
    assert codes(await probe.read()) == []
    kernel_log.append(tmp_path / "kmsg", [xid_line(BUS, 94)])
    assert codes(await probe.read()) == ["xid/94"]


async def test_a_replayed_line_has_its_own_time_and_a_new_one_the_present(tmp_path, probe):
    minute_ago = int((time.monotonic() - 60) * 1e6)
    (tmp_path / "kmsg").write_text(f"4,0,{minute_ago},-;{xid_line(BUS, 79)}\n")
    (old,) = (await probe.read()).sightings
    assert old.evidence.first_seen == pytest.approx(time.time() - 60, abs=5)
    with (tmp_path / "kmsg").open("a") as log:
        log.write(f"4,1,{minute_ago},-;{xid_line(BUS, 79)}\n")
    (new,) = (await probe.read()).sightings
    assert new.evidence.first_seen == pytest.approx(time.time(), abs=5)


async def test_lines_of_user_space_forge_nothing(tmp_path, probe):
    (tmp_path / "kmsg").write_text(f"12,0,1,-;{xid_line(BUS, 79)}\n")
    assert codes(await probe.read()) == []


async def test_garbage_and_endless_lines_are_survived(tmp_path, probe):
    with (tmp_path / "kmsg").open("wb") as log:
        log.write(os.urandom(50_000).replace(b"\n", b"") + b"\n")
        log.write(b"4,1,1,-;" + b"x" * 300_000 + b"\n")
        log.write(b"\n;;;\n,,,\n4,x,1,-;NVRM\n" + b"\xff\xfe\x00" * 100 + b"\n")
        log.write(f"4,2,1,-;{xid_line(BUS, 79)}\n SUBSYSTEM=pci\n".encode())
    assert codes(await probe.read()) == ["xid/79"]


async def test_half_a_line_is_read_once_it_is_whole(tmp_path, probe):
    line = f"4,0,1,-;{xid_line(BUS, 79)}\n"
    with (tmp_path / "kmsg").open("a", buffering=1) as log:
        log.write(line[:30])
        log.flush()
        assert codes(await probe.read()) == []
        log.write(line[30:])
        log.flush()
        assert codes(await probe.read()) == ["xid/79"]


async def test_a_log_that_was_cut_short_is_read_from_its_start(tmp_path, probe):
    kernel_log.append(tmp_path / "kmsg", ["a long line of harmless words that nobody needs"] * 20)
    await probe.read()
    kernel_log.clear(tmp_path / "kmsg")
    kernel_log.append(tmp_path / "kmsg", [xid_line(BUS, 79)])
    report = await probe.read()
    assert codes(report) == ["xid/79"]
    assert report.position.restarted


async def test_thousands_of_lines_a_read_lose_nothing_and_are_one_finding(tmp_path, probe):
    kernel_log.append(tmp_path / "kmsg", [xid_line(BUS, 95)] * 5000)
    (storm,) = (await probe.read()).sightings
    assert (storm.evidence.code, storm.evidence.count, storm.sequence) == ("xid/95", 5000, 4999)


async def test_a_missing_log_is_an_error_that_names_it_and_heals(tmp_path, probe):
    (tmp_path / "kmsg").rename(tmp_path / "away")
    with pytest.raises(FileNotFoundError, match="kmsg"):
        await probe.read()
    (tmp_path / "away").rename(tmp_path / "kmsg")
    kernel_log.append(tmp_path / "kmsg", [xid_line(BUS, 79)])
    assert codes(await probe.read()) == ["xid/79"]


async def test_a_log_that_was_replaced_by_another_file_is_read_from_its_start(tmp_path, probe):
    await probe.read()
    kernel_log.create(tmp_path / "new")
    kernel_log.append(tmp_path / "new", [xid_line(BUS, 79)])
    (tmp_path / "new").rename(tmp_path / "kmsg")
    report = await probe.read()
    assert codes(report) == ["xid/79"]
    assert report.position.restarted
    assert not (await probe.read()).position.restarted


@pytest.mark.parametrize("content", [None, "", " \n"], ids=["missing", "empty", "blank"])
async def test_a_boot_id_that_can_not_be_read_is_blindness_and_never_a_reboot(tmp_path, config, content):
    probe = KernelLogProbe(config)
    kernel_log.append(tmp_path / "kmsg", [xid_line(BUS, 79)])
    (tmp_path / "boot_id").unlink()
    if content is not None:
        (tmp_path / "boot_id").write_text(content)
    for _ in range(3):
        with pytest.raises(OSError, match="boot_id"):
            await probe.read()
    (tmp_path / "boot_id").write_text("boot-1\n")
    report = await probe.read()
    assert (codes(report), report.position.boot_id) == (["xid/79"], "boot-1")
    await probe.close()


@pytest.mark.parametrize("path", ["/dev/null", "fifo", "."], ids=["null", "fifo", "folder"])
async def test_what_is_no_log_is_an_error_and_leaves_no_file_open(tmp_path, config, path):
    os.mkfifo(tmp_path / "fifo")
    probe = KernelLogProbe(Config(kernel_log_path=str(tmp_path / path), boot_id_path=config.boot_id_path))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with pytest.raises(OSError, match=r"Errno"):
            await probe.read()
    assert len(os.listdir("/proc/self/fd")) <= before + 1
    await probe.close()


async def test_a_character_device_wakes_the_agent_and_is_read_without_waiting(config):
    ours, device = pty.openpty()
    tty.setraw(device)
    name = os.ttyname(device)
    assert stat.S_ISCHR(os.stat(name).st_mode)
    probe = KernelLogProbe(Config(kernel_log_path=name, boot_id_path=config.boot_id_path))
    try:
        assert codes(await probe.read()) == []
        os.write(ours, f"4,0,1,-;{xid_line(BUS, 79)}\n".encode())
        await probe.wake.wait()
        assert codes(await probe.read()) == ["xid/79"]
    finally:
        await probe.close()
        os.close(ours)
        os.close(device)


async def test_the_machines_own_kernel_log_is_read_record_by_record(config):
    try:
        os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        pytest.skip(f"/dev/kmsg can't be read here: {error}")
    probe = KernelLogProbe(Config(kernel_log_path="/dev/kmsg", boot_id_path=config.boot_id_path))
    try:
        report = await probe.read()
    finally:
        await probe.close()
    assert report.position.sequence >= 0
