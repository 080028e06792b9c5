"""The kernel log stand-in has the records of /dev/kmsg."""

import threading
import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from testbed import kernel_log


def records(log: Path) -> list[tuple[list[str], str]]:
    found = []
    for line in log.read_text("ascii").splitlines():
        head, semicolon, message = line.partition(";")
        assert semicolon
        found.append((head.split(","), message))
    return found


def test_records_are_numbered_on_and_stamped_with_the_monotonic_clock(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    kernel_log.create(log)
    begin = time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6
    kernel_log.append(log, ["one", "two"])
    kernel_log.append(log, ["three"], level=6)
    end = time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6
    heads = [head for head, _ in records(log)]
    assert [message for _, message in records(log)] == ["one", "two", "three"]
    assert [(h[0], h[1], h[3]) for h in heads] == [("4", "0", "-"), ("4", "1", "-"), ("6", "2", "-")]
    times = [int(h[2]) for h in heads]
    assert times == sorted(times)
    assert begin - 1 <= times[0] <= times[-1] <= end + 3


def test_a_boot_begins_an_empty_log_from_number_zero(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    kernel_log.append(log, ["before"])
    kernel_log.clear(log)
    assert log.read_bytes() == b""
    kernel_log.append(log, ["after"])
    assert records(log)[0][0][1] == "0"


def test_a_foreign_line_at_the_end_does_not_stop_the_numbering(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    kernel_log.append(log, ["one"])
    with log.open("a") as file:
        file.write(" SUBSYSTEM=pci\n")
    kernel_log.append(log, ["two"])
    assert log.read_text().splitlines()[-1].startswith("4,1,")


def test_writers_at_once_lose_no_record_and_no_number(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"

    def write() -> None:
        for _ in range(20):
            kernel_log.append(log, ["a", "b"])

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [int(head[1]) for head, _ in records(log)] == list(range(160))


@given(st.text())
def test_any_message_is_one_printable_line_that_can_be_read_back(message: str) -> None:
    message = message.encode("utf-8", "ignore").decode()
    line = kernel_log.escaped(message)
    assert line.isascii()
    assert line.isprintable()
    assert line.encode().decode("unicode_escape").encode("latin-1").decode() == message
