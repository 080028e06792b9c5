"""Whatever a log holds: no exception, nothing unbounded, and a real line beside it is still read."""

import io
import time
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from outrider.cli.saved_log import NoTextError, Scan
from outrider.health.catalogue import load
from outrider.health.kernel import records
from outrider.health.kernel.bursts import Bursts
from outrider.health.kernel.devices import gpu_of, instance_of
from outrider.health.kernel.reader import KernelReader, worth_reading
from outrider.health.kernel.saved import SavedLog
from outrider.health.kernel.words import Happening

CORPUS = [line[2:] for line in (Path(__file__).parent / "corpus.txt").read_text().splitlines() if line[:2] == "> "]
XID = "NVRM: Xid (PCI:0000:5e:00): 95, pid=1, name=x, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No"
HEADS = [
    "",
    "[   12.345678] ",
    "[Mon Dec  1 10:00:00 2025] ",
    "Dec 01 10:00:00 node-1 kernel: ",
    "2025-12-01T10:00:00.123456+00:00 node-1 kernel: [   12.345678] ",
    "<4>[   12.345678] ",
    "kern  :warn  : [   12.345678] ",
    "4,17,12345678,-;",
    "1764583200.123456 node-1 kernel: ",
]
CATALOGUE = load()
SECONDS_MAX = 0.5  # on a loaded machine; each takes a few milliseconds


@st.composite
def bent_lines(draw: st.DrawFn) -> str:
    """A real line with a piece cut out, doubled, or put in from elsewhere."""
    line = draw(st.sampled_from(CORPUS))
    start = draw(st.integers(0, len(line)))
    end = draw(st.integers(start, len(line)))
    middle = draw(st.sampled_from(["", line[start:end] * 2, "\0", "\ufffd", "9" * 40, "(" * 20])) or draw(
        st.text(max_size=20)
    )
    return line[:start] + middle + line[end:]


lines = st.one_of(bent_lines(), st.text(max_size=200), st.sampled_from(CORPUS))


@given(st.lists(lines, max_size=12), st.floats(0, 1e9))
@settings(max_examples=400)
def test_the_reader_survives_any_lines_and_reads_the_next_real_one(messages, now):
    reader, bursts = KernelReader(), Bursts("kernel-log")
    for message in messages:
        worth_reading(message.encode("utf-8", "surrogatepass"))
        for said in reader.read(message, now):
            if isinstance(said, Happening):
                bursts.add(said, now)
    (told,) = reader.read(XID, now)
    assert (told.code, told.subject_id) == ("xid/95", "pci:00000000:5e:00")
    reader.flush()
    for _, evidence in bursts.take():
        assert CATALOGUE.of(evidence.code)


@given(st.binary(max_size=400), st.binary(max_size=40))
@example(b"4,1,2,-;" + b"\\x0" * 50, b"\\x")
def test_the_record_parser_survives_any_bytes(raw, tail):
    for each in (raw, b"4,1,2,-;" + raw, b"4,1,2,c," + tail + b";" + raw, raw + b"\n" + tail):
        record = records.parse(each)
        if record is not None:
            assert isinstance(record.message, str)
            assert len(record.raw) <= records.MESSAGE_BYTES


@given(st.one_of(st.binary(max_size=300), lines.map(lambda line: line.encode("utf-8", "replace"))))
def test_the_reader_of_saved_logs_survives_any_bytes(raw):
    for head in HEADS:
        saved = SavedLog(1.8e9)
        line = saved.read(head.encode() + raw)
        assert line.seconds is None or 0 <= line.seconds < 253_402_300_800
        saved.read(b"  " + raw)


@given(st.lists(st.binary(max_size=200), max_size=8), st.sampled_from(HEADS))
@settings(max_examples=200)
def test_a_scan_survives_any_bytes_and_finds_the_real_line_among_them(junk, head):
    real = head.encode() + XID.encode()
    log = b"\n".join([*junk, b"", real, b""])
    scan = Scan(CATALOGUE, 1.8e9)
    try:
        scan.read(io.BytesIO(log))
    except NoTextError:
        assume(False)
    assert "xid/95" in {finding.code for finding in scan.findings()}


@given(st.text(max_size=80))
def test_names_of_devices_survive_any_text(text):
    assert gpu_of(text) == "" or gpu_of(text).startswith(("pci:", "GPU-"))
    instance_of(text)
    instance_of(f"PCI:0000:3b:00 GPU-I:{text}")


@pytest.mark.parametrize(
    "filler",
    ["9", "a", " ", "(", "GPC 1, TPC ", "napi_", "GSP heartbeat ", "[", ":", "0x1, ", "on ", "\\x41", "a: [1 "],
)
def test_no_long_line_takes_long(filler):
    reader, saved = KernelReader("580.82.07"), SavedLog(1.8e9)
    heads = sorted({line[:cut] for line in CORPUS for cut in (4, 12, 24, 40, 60, len(line))})
    slowest = 0.0
    for head in heads:
        text = head + filler * (65_536 // len(filler))
        started = time.process_time()
        worth_reading(text.encode())
        reader.read(text, 1.0)
        slowest = max(slowest, time.process_time() - started)
    for head in HEADS:
        raw = (head + filler * (65_536 // len(filler))).encode()
        started = time.process_time()
        saved.read(raw)
        records.parse(raw)
        slowest = max(slowest, time.process_time() - started)
    assert slowest < SECONDS_MAX
