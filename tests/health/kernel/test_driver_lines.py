import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.health.kernel.driver_lines import DriverLines
from outrider.health.kernel.records import parse
from outrider.health.kernel.words import Happening, Naming
from testbed.xid_lines import off_bus_lines, recovery_line, xid_line

PLACE = "pci:00000000:3b:00"


def said(*messages: str) -> list[tuple[str, str] | Naming]:
    lines = DriverLines()
    words = [word for message in messages for word in lines.read(message)] + lines.flush()
    return [(word.code, word.subject_id) if isinstance(word, Happening) else word for word in words]


@pytest.mark.parametrize(
    "device",
    [
        "PCI:0000:3b:00",
        "0000:3b:00",
        "PCI:0000:3B:00",
        "PCI:0000:3b:00.0",
        "PCI:00000000:3b:00",
        "PCI:0000:3b:00 GPU-I:05",
        "PCI:0000:3b:00.0 GPU-I:05",
    ],
)
def test_an_xid_is_read_in_every_spelling_of_the_device(device):
    assert said(f"NVRM: Xid ({device}): 79, pid=1, GPU has fallen off the bus.") == [("xid/79", PLACE)]


def test_an_eight_digit_domain_is_kept():
    assert said("NVRM: Xid (PCI:00000008:01:00): 119, x") == [("xid/119", "pci:00000008:01:00")]


def test_a_device_named_by_uuid_is_kept_as_uuid():
    uuid = "GPU-28fbe81c-729a-5211-b9d5-a35112e35514"
    assert said(f"NVRM: Xid ({uuid}): 94, x") == [("xid/94", uuid)]


def test_the_drivers_recovery_action_is_part_of_the_code():
    assert said(recovery_line("00000000:3B:00.0", 0, 2)) == [("xid/154.2", PLACE)]
    assert said(recovery_line("00000000:3B:00.0", 2, 0)) == [("xid/154.0", PLACE)]
    assert said("NVRM: Xid (PCI:0000:3b:00): 154, OS reboot advised") == [("xid/154", PLACE)]


def test_an_unknown_number_and_a_malformed_line_are_kept():
    assert said("NVRM: Xid (PCI:0000:3b:00): 987, what") == [("xid/987", PLACE)]
    assert said("NVRM: Xid (PCI:0000:3b:00): ") == [("xid/malformed", PLACE)]
    assert said("NVRM: Xid (PCI:0000:3b:00): 99999999999999") == [("xid/malformed", PLACE)]
    assert said("NVRM: Xid (who knows): 79, x") == [("xid/79", "")]


def test_a_gpu_off_the_bus_is_seen_in_its_one_line_form():
    codes = said(*off_bus_lines("00000000:3B:00.0", "1234"))
    assert codes == [("xid/79", PLACE), ("kernel/off-bus", PLACE)]


def test_a_gpu_off_the_bus_without_an_xid_is_seen_in_its_three_line_form():
    lines = [
        "NVRM: The NVIDIA GPU 0000:3b:00.0",
        "NVRM: (PCI ID: 10de:2330) installed in this system has",
        "usb 1-1: new device",
        "NVRM: fallen off the bus and is not responding to commands.",
    ]
    assert said(*lines) == [("kernel/off-bus", PLACE)]


def test_a_device_named_long_ago_is_not_blamed():
    noise = ["NVRM: loading"] * 9
    lines = ["NVRM: The NVIDIA GPU 0000:3b:00.0", *noise, "NVRM: fallen off the bus and is not responding"]
    assert said(*lines) == [("kernel/off-bus", "")]


def test_the_driver_tells_the_uuid_of_an_address():
    uuid = "GPU-28fbe81c-729a-5211-b9d5-a35112e35514"
    assert said(f"NVRM: GPU at PCI:0000:3b:00: {uuid}") == [Naming(PLACE, uuid)]


def test_faults_told_in_words_are_seen():
    assert said("NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x26:0x56:1474)") == [("kernel/init-failed", PLACE)]


def test_switch_errors_are_kept_for_the_node():
    line = "nvidia-nvswitch0: SXid (PCI:0000:86:00.0): 24007, Fatal, Link 00 sourcetrack timeout error"
    assert said(line) == [("sxid/24007", "pci:00000000:86:00/0")]


@pytest.mark.parametrize(
    "line",
    [
        "python[12]: NVRM: Xid (PCI:0000:3b:00): 79, quoted",
        "audit: msg='NVRM: Xid (PCI:0000:3b:00): 79'",
        " NVRM: Xid (PCI:0000:3b:00): 79",
        "nvidia 0000:3b:00.0: enabling device",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.82.07",
        "",
    ],
)
def test_lines_that_only_look_like_an_xid_say_nothing(line):
    assert said(line) == []


@given(st.text(max_size=300), st.sampled_from(["", "NVRM: Xid (", "NVRM: Xid (PCI:0000:3b:00): ", "NVRM: GPU "]))
def test_no_text_breaks_the_reader(text, prefix):
    said(prefix + text, xid_line("00000000:3B:00.0", 79))


@given(st.binary(max_size=300))
def test_no_bytes_break_the_record_parser(raw):
    parse(raw)
    parse(b"4,1,2,-;" + raw)


def test_a_record_is_read_with_its_facility_and_time():
    record = parse(b"4,17,2500000,-,caller=T1;NVRM: x\n SUBSYSTEM=pci\n")
    assert record is not None
    assert (record.sequence, record.uptime_seconds, record.message) == (17, 2.5, "NVRM: x")
    assert record.from_kernel
    user = parse(b"12,18,2500000,-;NVRM: Xid (PCI:0000:3b:00): 79")
    assert user is not None
    assert not user.from_kernel
