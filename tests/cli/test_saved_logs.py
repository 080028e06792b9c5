"""`outrider scan --kernel-log`: every form of a saved log, several hosts in one, answers for people and programs."""

import bz2
import gzip
import io
import json
import lzma
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from outrider.api.gpunode import Verdict
from outrider.cli import saved_log
from outrider.cli.main import app
from outrider.cli.saved_log import Scan, ScanFinding
from outrider.health.catalogue import load
from testbed.xid_lines import recovery_line, xid_line

CATALOGUE = load()
NOW = datetime(2026, 1, 15, 12, tzinfo=UTC).timestamp()
XID = xid_line("00000000:3B:00.0", 79)
UUID = "GPU-28fbe81c-729a-5211-b9d5-a35112e35514"


def scanned(text: str | bytes, node: str = "") -> list[ScanFinding]:
    scan = Scan(CATALOGUE, NOW, node)
    scan.read(io.BytesIO(text if isinstance(text, bytes) else text.encode()))
    return scan.findings()


def local(*parts: int) -> str:
    moment = datetime(*parts).astimezone().astimezone(UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@pytest.mark.parametrize(
    ("head", "node", "seen"),
    [
        ("Dec 01 10:00:00 node-a kernel: ", "node-a", local(2025, 12, 1, 10)),
        ("Jan 01 10:00:00 node-a kernel: ", "node-a", local(2026, 1, 1, 10)),
        ("Dec  1 10:00:00 node-a kernel: [   12.345678] ", "node-a", local(2025, 12, 1, 10)),
        ("<4>Dec  1 10:00:00 node-a kernel: ", "node-a", local(2025, 12, 1, 10)),
        ("Dec 01 10:00:00.123456 node-a kernel: ", "node-a", local(2025, 12, 1, 10).replace(".000", ".123")),
        ("Dec 01 10:00:00 kernel: ", "", local(2025, 12, 1, 10)),
        ("2025-12-01T10:00:00+0000 node-a kernel: ", "node-a", "2025-12-01T10:00:00.000Z"),
        ("2025-12-01T10:00:00+00:00 node-a kernel: ", "node-a", "2025-12-01T10:00:00.000Z"),
        ("2025-12-01T12:00:00.123456+02:00 node-a.example kernel: ", "node-a.example", "2025-12-01T10:00:00.123Z"),
        ("2025-12-01T10:00:00.123456Z node-a kernel: [ 9.5] ", "node-a", "2025-12-01T10:00:00.123Z"),
        ("Mon 2025-12-01 10:00:00 UTC node-a kernel: ", "node-a", "2025-12-01T10:00:00.000Z"),
        ("1764583200.250000 node-a kernel: ", "node-a", "2025-12-01T10:00:00.250Z"),
        ("[Mon Dec  1 10:00:00 2025] ", "", local(2025, 12, 1, 10)),
        ("[Dec 1 10:00] ", "", local(2025, 12, 1, 10)),
        ("[Nov30 10:00] ", "", local(2025, 11, 30, 10)),
        ("[Mon Dec  1 10:00:00 2025 <    0.000012>] ", "", local(2025, 12, 1, 10)),
        ("kern  :warn  : [Mon Dec  1 10:00:00 2025] ", "", local(2025, 12, 1, 10)),
        ("kern  :crit  : [Mon Dec  1 10:00:00 2025 <    0.000012>] ", "", local(2025, 12, 1, 10)),
        ("kern  :warn  : [Nov30 10:00] ", "", local(2025, 11, 30, 10)),
        ("kern  :warn  : 2025-12-01T10:00:00,123456+00:00 ", "", "2025-12-01T10:00:00.123Z"),
        ("2025-12-01T10:00:00,123456+00:00 ", "", "2025-12-01T10:00:00.123Z"),
        ("Feb 29 10:00:00 node-a kernel: ", "node-a", local(2024, 2, 29, 10)),
    ],
)
def test_a_line_with_a_date_is_read_with_its_host_and_time(head, node, seen):
    (found,) = scanned(f"{head}{XID}\n")
    assert (found.code, found.subject, found.node) == ("xid/79", "0000:3b:00.0", node)
    assert (found.first_seen, found.last_seen, found.first_uptime_seconds) == (seen, seen, None)


@pytest.mark.parametrize(
    ("head", "node"),
    [
        ("[   12.345678] ", ""),
        ("[12.345678] ", ""),
        ("<4>[   12.345678] ", ""),
        ("[   12.345678 <    0.000012>] ", ""),
        ("kern  :warn  : [   12.345678 <    0.000012>] ", ""),
        ("[   12.345678][ T1234] ", ""),
        ("[   12.345678][    C3] ", ""),
        ("kern  :warn  : [   12.345678] ", ""),
        ("4,17,12345678,-;", ""),
        ("4,17,12345678,-,caller=T99;", ""),
        ("\ufeff[   12.345678] ", ""),
        ("\x1b[32m[   12.345678] \x1b[0m\x1b[33m", ""),
        ("[   12.345678] node-a kernel: ", "node-a"),
        ("node-a: [   12.345678] ", "node-a"),
        ("node-a.example: <4>[   12.345678] ", "node-a.example"),
        ("node-a: 4,17,12345678,-;", "node-a"),
    ],
)
def test_a_line_with_the_time_since_the_boot_is_read(head, node):
    (found,) = scanned(f"{head}{XID}\n")
    assert (found.code, found.subject, found.node) == ("xid/79", "0000:3b:00.0", node)
    assert (found.first_seen, found.first_uptime_seconds) == (None, pytest.approx(12.345678))


@pytest.mark.parametrize(
    "head",
    [
        *("", "kernel: ", "kernel: [123.456789] ", "\t", "  ", "[  +1.250000] ", "[<    1.250000>] "),
        *("kern  :warn  : ", "kern  :warn  : [  +1.250000] ", "kern  :warn  : [<    1.250000>] "),
    ],
)
def test_a_line_without_any_time_is_read(head):
    (found,) = scanned(f"{head}{XID}\n", "node-7")
    assert (found.code, found.node) == ("xid/79", "node-7")


def test_a_time_that_no_line_tells_is_none():
    (found,) = scanned(f"{XID}\nDec 01 10:00:00 kernel: usb 1-1: new device, NVRM none\n")
    assert (found.count, found.first_seen, found.last_seen) == (1, None, None)
    (found,) = scanned(f"[12.5] {XID}\nDec 01 10:00:00 kernel: {XID}\n")
    assert (found.count, found.first_seen, found.last_seen) == (2, None, local(2025, 12, 1, 10))
    assert (found.first_uptime_seconds, found.last_uptime_seconds) == (None, None)
    (found,) = scanned(f"[999999999999.0] {XID}\nDec 01 10:00:00 kernel: {XID}\n{XID}\n")
    assert (found.count, found.first_seen, found.last_seen) == (3, None, local(2025, 12, 1, 10))


def test_what_has_no_time_is_taken_to_come_with_the_first_line_that_has_one():
    double_bit, contained = (xid_line("00000000:3B:00.0", number) for number in (48, 94))
    found = scanned(f"{double_bit}\n2025-12-01T10:00:00Z kernel: {contained}\n")
    assert {one.code: str(one.verdict) for one in found} == {"xid/48": "watch", "xid/94": "restart-app"}


@pytest.mark.parametrize(
    "line",
    [
        f"(01/12 10:00) {XID}",
        f"[0x12ab] {XID}",
        f"2025-12-01T10:00:00Z stderr F [   12.345678] {XID}",
        f"<<{XID}",
        '{"MESSAGE":"' + XID,
        "??? NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
        "nvidia-nvswitch on node 3 said SXid (PCI:0000:c1:00.0): 24007",
    ],
)
def test_a_line_of_the_driver_in_no_known_form_never_passes_for_clean(line, tmp_path):
    path = tmp_path / "log"
    path.write_text(f"usb 1-1: new device\n{line}\n")
    done = CliRunner().invoke(app, ["scan", "--kernel-log", str(path)])
    assert done.exit_code == 1
    assert "1 line names the GPU's driver or an Xid in no form that is known" in done.output
    assert "Nothing found" not in done.output
    path.write_text(f"{XID}\n{line}\n")
    done = CliRunner().invoke(app, ["scan", "--kernel-log", str(path), "-o", "json"])
    assert done.exit_code == 3
    assert "not a clean log" in done.output


def test_the_driver_s_other_words_and_rehearsals_are_no_unread_lines():
    scan = Scan(CATALOGUE, NOW)
    scan.read(io.BytesIO(f"[1.0] NVRM: loading NVIDIA\n[2.0] outrider-drill: {XID}\nNVRM: all well\n".encode()))
    assert (scan.findings(), scan.unread) == ([], 0)


@pytest.mark.parametrize(
    "message",
    [json.dumps(XID), json.dumps(list(XID.encode()))],
    ids=["text", "bytes"],
)
def test_entries_of_the_journal_are_read(message):
    entry = (
        f'{{"MESSAGE":{message},"_HOSTNAME":"node-a","_TRANSPORT":"kernel","__REALTIME_TIMESTAMP":"1764583200250000"}}'
    )
    (found,) = scanned(entry + "\n")
    assert (found.code, found.node, found.first_seen) == ("xid/79", "node-a", "2025-12-01T10:00:00.250Z")
    assert scanned(entry.replace('"kernel"', '"syslog"')) == []
    assert scanned("{}\n{\n" + '{"MESSAGE":null}\n{"MESSAGE":"NVRM: Xid"') != [entry]


@pytest.mark.parametrize(
    "line",
    [
        f"Dec 01 10:00:00 node-a python[12]: {XID}",
        f"Dec 01 10:00:00 node-a train: {XID}",
        f"Dec 01 10:00:00 node-a kernel[77]: {XID}",
        f"node-a: 12,17,12345678,-;{XID}",
        f"train: {XID}",
        f"Dec 01 10:00:00 node-a kernel: python[12]: {XID}",
        f"Dec 01 10:00:00 node-a python[12]: one\n                          {XID}",
        f"2025-12-01T10:00:00+00:00 node-a systemd[1]: {XID}",
        f"[   12.345678] node-a python[12]: {XID}",
        f"<12>[   12.345678] {XID}",
        f"user  :warn  : [   12.345678] {XID}",
        f"user  :warn  : [Mon Dec  1 10:00:00 2025] {XID}",
        f"user  :warn  : [  +0.000012] {XID}",
        f"user  :warn  : 2025-12-01T10:00:00,123456+00:00 {XID}",
        f"daemon:warn  : {XID}",
        f"12,17,12345678,-;{XID}",
        f"12,17,12345678,-;outrider-drill: {XID}",
        f"[   12.345678] audit: type=1400 msg='{XID}'",
    ],
)
def test_what_a_program_wrote_is_no_fault(line):
    assert scanned(line + "\n") == []


def test_a_kernel_message_over_several_lines_goes_on_indented():
    text = (
        "Dec 01 10:00:00 node-a kernel: NVRM: The NVIDIA GPU 0000:3b:00.0\n"
        "                               NVRM: (PCI ID: 10de:2330) installed in this system has\n"
        "                               NVRM: fallen off the bus and is not responding to commands.\n"
    )
    (found,) = scanned(text)
    assert (found.code, found.subject, found.node) == ("kernel/off-bus", "0000:3b:00.0", "node-a")


def test_hosts_are_told_apart_and_their_lines_may_be_mixed():
    three = ["NVRM: The NVIDIA GPU 0000:3b:00.0", "NVRM: (PCI ID: 10de:2330) has", "NVRM: fallen off the bus"]
    text = "".join(f"Dec 01 10:00:00 node-{n % 3} kernel: {three[n // 3]}\n" for n in range(9))
    assert {(one.node, one.subject) for one in scanned(text)} == {(f"node-{n}", "0000:3b:00.0") for n in range(3)}


def test_the_uuid_is_told_where_the_log_tells_it():
    text = f"[1.0] NVRM: GPU at PCI:0000:3b:00: {UUID}\n[2.0] {XID}\n[3.0] NVRM: Xid ({UUID}): 94, x\n"
    assert {(one.subject, one.gpu_uuid) for one in scanned(text)} == {("0000:3b:00.0", UUID), (UUID, UUID)}


def test_a_link_a_switch_port_and_a_network_adapter_are_named():
    text = (
        f"[1.0] {xid_line('00000000:3B:00.0', 74)}\n"
        "[1.0] nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 55 sourcetrack timeout error (First)\n"
        "[1.0] mlx5_core 0000:b3:00.1: poll_health:845:(pid 0): device's health compromised - reached miss count\n"
    )
    subjects = {(str(one.kind), one.subject) for one in scanned(text)}
    assert subjects == {("link", "0000:3b:00.0/3"), ("node", "0000:c1:00/55"), ("nic", "0000:b3:00.1")}


def test_an_error_of_a_device_is_the_gpus_once_the_log_tells_that_it_is_one():
    error = "pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:3b:00.0"
    (unknown,) = scanned(f"[1.0] {error}\n")
    assert (unknown.kind, unknown.subject) == ("node", "0000:3b:00.0")
    found = {one.code: (str(one.kind), one.subject) for one in scanned(f"[1.0] {error}\n[9.0] {XID}\n")}
    assert found == {"kernel/aer-fatal": ("gpu", "0000:3b:00.0"), "xid/79": ("gpu", "0000:3b:00.0")}


def test_a_switch_event_keeps_its_own_time():
    line = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 55 sourcetrack timeout error (First)"
    found = {one.code: one.first_uptime_seconds for one in scanned(f"[100.5] {line}\n[900.0] {XID}\n")}
    assert found == {"sxid/24007": 100.5, "xid/79": 900.0}


def test_a_storm_is_one_finding_with_exact_counts():
    lines = (f"[{n / 1000:.6f}] {xid_line('00000000:3B:00.0', 95, f'unit {n % 290}')}\n" for n in range(20_000))
    (storm,) = scanned("".join(lines))
    assert (storm.count, storm.distinct, storm.verdict) == (20_000, 290, "reset")
    assert (storm.first_uptime_seconds, storm.last_uptime_seconds) == (0.0, pytest.approx(19.999))


def test_codes_that_come_together_are_judged_together():
    text = "".join(f"[1.0] {xid_line('00000000:3B:00.0', number)}\n" for number in (48, 63, 94))
    verdicts = {one.code: str(one.verdict) for one in scanned(text)}
    assert verdicts == {"xid/48": "watch", "xid/63": "watch", "xid/94": "restart-app"}
    assert {str(one.verdict) for one in scanned(f"[1.0] {xid_line('00000000:3B:00.0', 48)}\n")} == {"reset"}


BOOT = "Linux version 6.8.0-45-generic (build@host) (gcc 13.2.0)"


def verdicts(*lines: str) -> dict[str, str]:
    return {one.code: str(one.verdict) for one in scanned("\n".join(lines))}


def test_what_a_boot_repaired_is_told_and_asks_for_nothing_any_more():
    before, boot = f"2025-12-01T10:00:00Z a kernel: {XID}", f"2025-12-01T10:05:00Z a kernel: {BOOT}"
    assert verdicts(before) == {"xid/79": "reboot"}
    assert verdicts(before, boot) == {"xid/79": "none"}
    assert scanned(f"{before}\n{boot}")[0].advice.startswith("nothing now: the node has booted since")
    assert verdicts(before, boot, f"2025-12-01T10:06:00Z a kernel: {XID}") == {"xid/79": "reboot"}
    assert verdicts(boot, f"2025-12-01T10:06:00Z a kernel: {XID}") == {"xid/79": "reboot"}
    assert verdicts(before, boot.replace(" a ", " b ")) == {"xid/79": "reboot"}


@pytest.mark.parametrize("older", [f"2025-11-30T10:00:00Z a kernel: {BOOT}", f"[    0.000000] {BOOT}", BOOT])
def test_a_boot_that_may_have_been_before_the_fault_repairs_nothing(older):
    assert verdicts(f"2025-12-01T10:00:00Z a kernel: {XID}", older) == {"xid/79": "reboot"}
    assert verdicts(f"[  100.000000] {XID}", f"[    0.000000] {BOOT}") == {"xid/79": "reboot"}


def test_what_a_reset_repaired_asks_for_nothing_any_more():
    damage, repaired = xid_line("00000000:3B:00.0", 95), recovery_line("00000000:3B:00.0", 1, 0)
    assert verdicts(f"[10.0] {damage}", f"[20.0] {repaired}") == {"xid/95": "none", "xid/154.0": "none"}
    assert verdicts(f"[20.0] {repaired}", f"[30.0] {damage}") == {"xid/95": "reset", "xid/154.0": "none"}


def test_the_gravest_comes_first():
    text = f"[1.0] {xid_line('00000000:5E:00.0', 13)}\n[2.0] {xid_line('00000000:3B:00.0', 95)}\n[3.0] {XID}\n"
    assert [one.code for one in scanned(text)] == ["xid/79", "xid/95", "xid/13"]


def test_long_lines_garbage_and_a_last_line_without_an_end_are_survived():
    text = b"x" * 3_000_000 + b"\n\xff\xfe\x00\n" + b"[" * 100_000 + b"\n" + f"[1.0] {XID}".encode()
    assert [one.code for one in scanned(text)] == ["xid/79"]


def test_many_hosts_are_bounded_and_none_is_lost():
    text = "".join(f"Dec 01 10:00:00 node-{n} kernel: {XID}\n" for n in range(4200))
    found = scanned(text)
    assert sum(one.count for one in found) == 4200
    assert len({one.node for one in found}) == 4097


def run(*arguments: str, stdin: str | None = None) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["scan", *arguments], input=stdin)
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (["usb 1-1: new"], 0),
        (["Memory cgroup out of memory: Killed process 44 (python3) total-vm:1kB"], 0),
        ([xid_line("00000000:3B:00.0", 13)], 1),
        ([xid_line("00000000:3B:00.0", 13), XID], 3),
    ],
    ids=["nothing", "program", "soft", "hard"],
)
def test_the_exit_code_tells_how_grave_it_is(tmp_path, lines, code):
    (tmp_path / "log").write_text("".join(f"[1.0] {line}\n" for line in lines))
    assert run("--kernel-log", str(tmp_path / "log"))[0] == code


def test_programs_get_one_object_a_line(tmp_path):
    (tmp_path / "a").write_text(f"[1.0] {XID}\n")
    (tmp_path / "b").write_text(f"Dec 01 10:00:00 node-b kernel: {xid_line('00000000:3B:00.0', 95)}\n")
    code, output = run("--kernel-log", str(tmp_path / "a"), "--kernel-log", str(tmp_path / "b"), "-o", "json")
    first, second = map(json.loads, output.splitlines())
    assert code == 3
    assert (first["code"], second["code"], second["node"]) == ("xid/79", "xid/95", "node-b")
    wanted = {"node", "code", "kind", "subject", "gpuUuid", "unit", "count", "distinct", "firstSeen", "lastSeen"}
    wanted |= {"firstUptimeSeconds", "lastUptimeSeconds", "verdict", "meaning", "advice", "evidence"}
    assert set(first) == wanted
    assert first["evidence"] == XID


def test_people_get_a_table_with_what_to_do_next():
    code, output = run("--kernel-log", "-", "--node", "node-9", stdin=f"[1.0] {XID}\n")
    assert code == 3
    assert "node-9" in output
    assert "Next: " in output
    assert "0000:3b:00.0" in output
    assert run("--kernel-log", "-", stdin="usb\n") == (0, "Nothing found: no line that Outrider knows as a fault.\n")


def test_a_file_that_can_not_be_read_is_an_error_with_its_name(tmp_path):
    code, output = run("--kernel-log", str(tmp_path / "absent"))
    assert code == saved_log.EXIT_ERROR
    assert "absent" in output
    assert run("--kernel-log", str(tmp_path))[0] == saved_log.EXIT_ERROR


@pytest.mark.parametrize(
    "head",
    [
        "[Mo Dez  1 10:00:00 2025] ",
        "[Di Mär  3 10:00:00 2025] ",
        "mars 03 10:00:00 node-a kernel: ",
        "12月 01 10:00:00 node-a kernel: ",
    ],
)
def test_a_log_in_another_language_is_read_without_its_times(head):
    (found,) = scanned(f"{head}{XID}\n")
    assert (found.code, found.last_seen, found.last_uptime_seconds) == ("xid/79", None, None)


@pytest.mark.parametrize(
    "content",
    [gzip.compress(XID.encode()), bz2.compress(XID.encode()), lzma.compress(XID.encode()), XID.encode("utf-16")],
)
def test_a_log_that_is_no_text_does_not_pass_for_a_clean_one(tmp_path, content):
    path = tmp_path / "kern.log"
    path.write_bytes(content)
    code, output = run("--kernel-log", str(path))
    assert code == 2
    assert "is no text, perhaps compressed" in output


def test_what_a_log_holds_never_steers_the_terminal():
    line = f"Dec 01 10:00:00 node-a kernel: {XID} \x1b]0;title\x07\x1b[2J\x9b31m\n"
    _, output = run("--kernel-log", "-", stdin=line)
    assert "xid/79" in output
    assert not set(output) & {"\x1b", "\x07", "\x9b"}


@pytest.mark.parametrize("form", ["table", "json"])
def test_an_answer_that_can_not_be_printed_is_no_answer(form):
    arguments = ["-c", "from outrider.cli.main import main; main()", "scan", "--kernel-log", "-", "-o", form]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, *arguments], check=False, input=XID.encode(), stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 2
    assert done.stderr == b"outrider: the answer could not be printed: No space left on device\n"


def test_a_closed_input_is_an_error_and_no_crash():
    program = "import os; os.close(0); import sys; sys.stdin = None; from outrider.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "scan", "--kernel-log", "-"], check=False, capture_output=True
    )
    assert done.returncode == 2
    assert b"standard input is closed" in done.stderr


def test_a_driver_that_starts_none_of_the_gpus_asks_for_no_reset_of_each():
    failed = [
        f"Dec 01 10:00:0{n} node-a kernel: NVRM: GPU 0000:{n}b:00.0: RmInitAdapter failed! (0x26:0x56:1474)\n"
        for n in (1, 2)
    ]
    found = {one.code: one for one in scanned("".join(failed))}
    assert found["driver/init-failed"].verdict is Verdict.NO_NEW_WORK
    assert found["kernel/init-failed"].verdict is Verdict.WATCH
    assert found["kernel/init-failed"].advice.startswith("driver/init-failed, seen with it, decides: check that driver")
    assert {one.verdict for one in scanned(failed[0])} == {Verdict.RESET}


def test_the_advice_of_each_finding_is_that_of_the_code_which_decides():
    lines = [xid_line("00000000:3B:00.0", number) for number in (48, 63)]
    advice = {
        one.code: one.advice for one in scanned("".join(f"Dec 01 10:00:00 node-a kernel: {line}\n" for line in lines))
    }
    assert advice["xid/48"] == f"xid/63, seen with it, decides: {advice['xid/63']}"
