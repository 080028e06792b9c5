import json
import time
from pathlib import Path

import pytest
from evidence import CATALOGUE
from hypothesis import given
from hypothesis import strategies as st

from outrider.api.gpunode import Verdict
from outrider.health import nvlink5, xid74
from outrider.health.decoding import Decoded, cause_of, decode
from outrider.health.nvlink5 import Resolution
from outrider.health.xid74 import Kind

RULES = json.loads((Path(__file__).parent / "nvlink5_rules.json").read_text())
"""Xid, unit, bit patterns of both layouts (32 bits, - is any), status word and resolution of each published rule."""


def fatal_on_link_6(*words: int) -> str:
    registers = ", ".join(f"{word:#x}" for word in words)
    head = "NVRM: Xid (PCI:0000:3b:00): 74, pid='<unknown>', name=<unknown>"
    return f"{head}, NVLink: fatal error detected on link 6({registers})"


def registers(**set_bits: int | list[int]) -> str:
    words = [0] * 7
    for register, bits in set_bits.items():
        for bit in bits if isinstance(bits, list) else [bits]:
            words[int(register[1:])] |= 1 << bit
    return fatal_on_link_6(*words)


def nvlink5_line(xid: int, first: int, status: int, unit: str = "UNIT", link: str = "04") -> str:
    head = f"NVRM: Xid (PCI:0009:01:00): {xid}, {unit} Fatal XC0 i0 Link {link}"
    return f"{head} ({first:#010x} {status:#010x} 0x00000000)"


def word(pattern: str, any_bit: str = "0") -> int:
    return int(pattern.replace("-", any_bit), 2)


@pytest.mark.parametrize(
    ("kind", "register", "bits"),
    [
        (Kind.MINOR, "r0", [0, 23, 30]),
        (Kind.SECONDARY, "r0", [1, 20]),
        (Kind.MEMORY, "r0", [4, 5]),
        (Kind.HARDWARE, "r0", [8, 9, 12, 16, 17, 24, 28]),
        (Kind.SIGNAL, "r0", [21, 22]),
        (Kind.REPEATED, "r0", [27, 29]),
        (Kind.MEMORY, "r2", [0, 1, 2, 6]),
        (Kind.REPEATED, "r2", [13, 16, 17, 18, 19]),
        (Kind.SECONDARY, "r3", [16, 17]),
        (Kind.REPEATED, "r3", [18]),
        (Kind.MEMORY, "r4", [18, 19, 21, 22, 24, 25, 27, 28]),
        (Kind.MINOR, "r4", [20, 23, 26, 29]),
    ],
)
def test_each_bit_of_the_registers_of_xid_74_has_its_kind(kind, register, bits):
    for bit in bits:
        assert xid74.read(registers(**{register: bit})).kind is kind


@pytest.mark.parametrize("register", ["r0", "r2", "r3", "r4"])
def test_a_bit_that_no_list_names_leaves_xid_74_as_it_is(register):
    for bit in range(32):
        reading = xid74.read(registers(**{register: bit}))
        assert reading.kind is not None
        if reading.kind is Kind.UNLISTED:
            assert decode(74, registers(**{register: bit})).code == "xid/74"
            assert f"{register[1]}:{bit} not listed" in reading.detail


@pytest.mark.parametrize("register", ["r1", "r5", "r6"])
def test_registers_without_meaning_are_not_judged(register):
    assert xid74.read(registers(**{register: list(range(32))})) == xid74.read(registers())


def test_the_gravest_bit_decides_and_all_bits_are_told():
    reading = xid74.read(registers(r0=[0, 20, 21, 4], r2=[16]))
    assert reading.kind is Kind.MEMORY
    assert reading.detail == (
        "register:bit 0:0 minor, 0:4 memory, 0:20 secondary, 0:21 signal-integrity, 2:16 counts if repeated"
    )
    assert xid74.read(registers(r0=[4, 8])).kind is Kind.HARDWARE
    assert decode(74, registers(r0=[0, 20])).code == "xid/74.secondary"
    assert decode(74, registers(r0=[0, 20, 27])).code == "xid/74"  # more than the milder bits explain


@pytest.mark.parametrize(
    "line",
    [
        fatal_on_link_6(),
        fatal_on_link_6(*[1] * 6),
        fatal_on_link_6(*[1] * 8),
        "NVRM: Xid (PCI:0000:3b:00): 74, NVLink: fatal error detected on link 6",
        fatal_on_link_6(*[0] * 7),
    ],
)
def test_xid_74_without_seven_registers_or_a_set_bit_keeps_its_plain_code(line):
    decoded = decode(74, line)
    assert (decoded.code, decoded.link) == ("xid/74", 6)
    assert decoded.detail


def test_only_what_needs_no_action_on_a_link_is_milder_than_xid_74_itself():
    assert {kind: CATALOGUE.of(f"xid/74.{kind}").verdict for kind in (Kind.MINOR, Kind.SECONDARY)} == {
        Kind.MINOR: Verdict.WATCH,
        Kind.SECONDARY: Verdict.WATCH,
    }
    for kind in (Kind.HARDWARE, Kind.MEMORY, Kind.SIGNAL):
        assert CATALOGUE.of(f"xid/74.{kind}").verdict is Verdict.RESET
    assert CATALOGUE.of("xid/74").verdict is Verdict.RESET


def test_every_published_rule_of_nvlink5_is_there_once():
    ours = sorted((xid, unit, reason, status, str(then)) for xid, unit, reason, status, then in nvlink5.rules())
    published = sorted((xid, unit, word(v1[6:12]), status, then) for xid, unit, v1, _, status, then in RULES)
    assert ours == published
    assert len(ours) == 94


@pytest.mark.parametrize("any_bit", ["0", "1"])
@pytest.mark.parametrize(("driver", "layout"), [("570.172.08", 2), ("575.57.08", 3), ("610.43.02", 3)])
def test_every_rule_is_read_in_the_layout_of_its_driver_whatever_the_free_bits(driver, layout, any_bit):
    for rule in RULES:
        xid, unit, status, then = rule[0], rule[1], rule[4], rule[5]
        pattern = rule[layout]
        first = word(pattern, any_bit)
        decoded = decode(xid, nvlink5_line(xid, first, status), driver)
        assert decoded.code == f"xid/{xid}.{then}", (unit, pattern)
        assert f"status {status:#x}" in decoded.detail
        assert decoded.code in CATALOGUE


@pytest.mark.parametrize(("driver", "unit_bits", "raised"), [("570.1", 0x0C2, 1 << 10), ("580.1", 0x06, 1 << 7)])
def test_an_error_that_the_driver_raised_to_a_fatal_one_asks_for_a_reset(driver, unit_bits, raised):
    for status in (1, 2, 4):
        assert decode(145, nvlink5_line(145, unit_bits, status), driver).code == "xid/145.ignore"
        assert decode(145, nvlink5_line(145, unit_bits | raised, status), driver).code == "xid/145.reset"


def test_the_same_words_mean_different_things_before_and_since_r575():
    old, new = nvlink5_line(145, 0x82, 0x40, "RLW_REMAP"), nvlink5_line(145, 0x04, 0x40, "RLW_REMAP")
    assert [decode(145, line, "570.86").code for line in (old, new)] == ["xid/145.reset", "xid/145"]
    assert [decode(145, line, "575.57").code for line in (old, new)] == ["xid/145", "xid/145.reset"]


@pytest.mark.parametrize("driver", ["", "N/A", "driver 580", "5", "."])
def test_with_an_unknown_driver_the_milder_layout_holds_and_never_asks_for_a_reset_alone(driver):
    assert decode(145, nvlink5_line(145, 0x82, 0x40, "RLW_REMAP"), driver).code == "xid/145"
    assert decode(145, nvlink5_line(145, 0x82, 0x100, "RLW_REMAP"), driver).code == "xid/145.ignore"
    assert decode(150, nvlink5_line(150, 0, 0, "MSE_WATCHDOG"), driver).code == "xid/150.reset"  # both layouts say so
    assert CATALOGUE.of("xid/145").verdict is Verdict.NO_NEW_WORK


def test_a_unit_that_was_renamed_tells_the_layout_where_the_driver_is_not_known():
    assert decode(149, nvlink5_line(149, 0x025525C6, 0, "NETIR_LINK_EVT")).code == "xid/149.reset"
    assert decode(149, nvlink5_line(149, 0x02500011, 0, "NETIR_LINK_DOWN")).code == "xid/149.reset"
    assert decode(149, nvlink5_line(149, 0x025525C6, 0, "NETIR_LINK_DOWN")).code == "xid/149"
    assert decode(149, nvlink5_line(149, 0x025525C6, 0, "NETIR_LINK_EVT"), "575.1").code == "xid/149"  # it is known


@pytest.mark.parametrize(
    ("line", "driver", "code", "link", "words"),
    [
        (
            "149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000 0x00000000 0x00000000)",
            "570.124.06",
            "xid/149.reset",
            1,
            "sub-code 33, status 0x0; packets to this GPU may be lost",
        ),
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6 0x00000000 0x0)", "570.1", "xid/149.ignore", 0, "38"),
        ("149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000 0x0)", "570.1", "xid/149.reset", None, "come first"),
        ("149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x00086226 0x00000001)", "570.1", "xid/149.ignore", 3, "cable"),
        (
            "145, pid=876767, name=ray::WorkerDict, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x0)",
            "570.1",
            "xid/145.ignore",
            13,
            "RLW_RXPIPE, nonfatal (HW/SW)",
        ),
        ("145, RLW_SRC_TRACK Nonfatal XC1 i0 Link 12 (0x040988e2 0x00000008)", "570.1", "xid/145.ask-154", 12, ""),
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 09 (0x0255", "570.1", "xid/149", 9, "no status words"),
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 09", "570.1", "xid/149", 9, "no status words"),
        ("148, NVLPW Nonfatal XC0 i0 Link 09 (0xffffffff 0x00000001)", "575.1", "xid/148", 9, "no rule"),
    ],
)
def test_lines_from_the_field_are_read(line, driver, code, link, words):
    decoded = decode(int(line[:3]), f"NVRM: Xid (PCI:0018:01:00): {line}", driver)
    assert (decoded.code, decoded.link) == (code, link)
    assert words in decoded.detail


def test_the_driver_s_advice_is_read_by_its_number_or_in_the_words_of_any_driver():
    changed = "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to"
    assert decode(154, f"{changed} 0x2 (Node Reboot Required)") == Decoded("xid/154.2", "Node Reboot Required")
    assert decode(154, f"{changed} 0x2 (OS Reboot)") == Decoded("xid/154.2", "OS Reboot")
    assert decode(154, f"{changed} 0x1 (PF FLR)") == Decoded("xid/154.1", "PF FLR")
    assert decode(154, f"{changed} 0x2a") == Decoded("xid/154.42")
    assert decode(154, f"{changed} 0x2a (Something New)") == Decoded("xid/154.42", "Something New")
    assert decode(154, "GPU recovery action changed from None to Drain and Reset").code == "xid/154.4"
    assert decode(154, "GPU recovery action changed from Node Reboot Required to None").code == "xid/154.0"
    assert decode(154, "GPU recovery action changed from None to Something New").code == "xid/154"
    assert decode(154, changed).code == "xid/154"
    assert decode(154, f"{changed} 0x123456789").code == "xid/154"


@pytest.mark.parametrize("name", ["to 0x2", "to 0x0", "from a to 0x7"])
def test_the_name_of_a_process_is_no_advice_of_the_driver(name):
    said = "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
    line = f"NVRM: Xid (PCI:0000:01:00): 154, pid=4711, name={name}, {said}"
    assert decode(154, line).code == "xid/154.1"


def test_a_torn_down_channel_names_its_cause_where_the_driver_does():
    line = "NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149"
    assert decode(45, line) == Decoded("xid/45", "caused by Xid 149")
    assert cause_of(line) == 149
    assert cause_of("NVRM: Xid (PCI:0000:dc:00): 45, pid=1, name=caused by, Ch 00000001") is None


def test_other_xids_keep_their_number_and_only_those_of_links_name_one():
    assert decode(137, "NVRM: Xid (PCI:0:1:0): 137, RLW_RXPIPE interrupt hit on link 11 on GPU0: PRIV Error").link == 11
    assert decode(31, "NVRM: Xid (PCI:0:1:0): 31, name=link 5, Ch 00000008") == Decoded("xid/31")
    assert decode(987, "") == Decoded("xid/987")


texts = st.text(max_size=300) | st.builds(
    "".join,
    st.lists(
        st.sampled_from(
            ["(0x", "0x", "ffffffff", "0", ", ", " ", ")", "Link ", "-1", "link 6(", "NETIR_LINK_EVT Fatal", "to 0x"]
        ),
        max_size=40,
    ),
)


numbers = st.integers(0, 10**7) | st.sampled_from([45, 74, 137, 154, *nvlink5.XIDS])
drivers = st.sampled_from(["", "570.1", "610.2"]) | texts


@given(numbers, texts, drivers)
def test_any_text_is_decoded_to_the_family_of_its_number(xid, text, driver):
    decoded = decode(xid, text, driver)
    assert decoded.code == f"xid/{xid}" or decoded.code.startswith(f"xid/{xid}.")
    assert decoded.link is None or 0 <= decoded.link <= 999
    if xid in (74, *nvlink5.XIDS):
        assert decoded.code in CATALOGUE


@given(st.sampled_from(list(nvlink5.XIDS)), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_without_a_driver_nothing_is_read_that_is_harsher_than_in_either_layout(xid, first, status):
    line = nvlink5_line(xid, first, status)
    unknown, old, new = (nvlink5.read(xid, line, driver).resolution for driver in ("", "570.1", "580.1"))
    assert unknown in (old, new)
    assert unknown is not Resolution.RESET or old is new


@pytest.mark.parametrize(
    "text",
    ["(" * 65536, "0x" * 32768, "(0x1 " * 13000, "link " * 13000, "link 1(" + "0x1," * 16000, "A" * 65536, " " * 65536],
)
def test_long_lines_are_read_in_bounded_time(text):
    started = time.process_time()
    for xid in (45, 74, 149, 154):
        decode(xid, text)
    assert time.process_time() - started < 1.0
