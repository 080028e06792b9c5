import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from outrider.cli.explain import CodeError, NoSuchCodeError, code_of, explain_code, known_code
from outrider.cli.main import app
from outrider.health.catalogue import load
from outrider.health.taint import taint_for

CATALOGUE = load()
ON_LINK_6 = "NVLink: fatal error detected on link 6(0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"
LINK_DOWN = "NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000 0x00000000)"


def explained(*arguments: str) -> dict:
    result = CliRunner().invoke(app, ["explain", *arguments, "-o", "json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["explain", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["xid", "119"], "xid/119"),
        (["XID 119"], "xid/119"),
        (["xid/119"], "xid/119"),
        (["119"], "xid/119"),
        (["xid-119"], "xid/119"),
        (["Xid119"], "xid/119"),
        (["Xid:", "119"], "xid/119"),
        (["SXid-20034"], "sxid/20034"),
        (["xid-149.reset"], "xid/149.reset"),
        (["sxid", "20034"], "sxid/20034"),
        (["nvlink/inactive"], "nvlink/inactive"),
        (["xid", "154.2"], "xid/154.2"),
        (["xid/74.memory"], "xid/74.memory"),
        (["xid", "0119", "x"], "xid/119"),
        (["sxid", "20034", "x"], "sxid/20034"),
        (["xid", "74", ON_LINK_6], "xid/74.memory"),
        (["xid", "74", *ON_LINK_6.split()], "xid/74.memory"),
        ([LINK_DOWN], "xid/149.reset"),
        ([f"Dec  1 gpu-0 kernel: [171167.62] {LINK_DOWN}"], "xid/149.reset"),
        (["nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"], "sxid/20034"),
        (["NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus."], "kernel/off-bus"),
        (["Dec  1 10:00:00 gpu-0 kernel: NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus."], "kernel/off-bus"),
        (["[  12.345678] NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus."], "kernel/off-bus"),
        (["NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 to 0x4"], "xid/154.4"),
    ],
)
def test_a_code_is_named_in_words_as_a_code_or_by_a_line_of_the_driver(words, code):
    assert code_of(words)[0] == code


@pytest.mark.parametrize("words", [[], [""], ["xid"], ["xid/"], ["NVRM:"], ["all is well here"]])
def test_words_that_name_no_code_are_refused_with_examples(words):
    with pytest.raises(CodeError, match="try xid 119"):
        code_of(words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["xid", "abc"], "'abc' is no number of an xid"),
        (["sxid", "x1"], "'x1' is no number of an sxid"),
        (["xid", "9" * 5000], "'9{200}' is no number of an xid"),
        (["xid", "79", "80"], "'80' is one number too many"),
    ],
)
def test_the_argument_that_is_wrong_is_named(words, said):
    with pytest.raises(CodeError, match=said):
        code_of(words)


@given(st.text(max_size=80) | st.from_regex(r"s?xid[ /:-]?[0-9a-z. ]{0,20}", fullmatch=True))
def test_no_word_breaks_it(text):
    with suppress(CodeError, NoSuchCodeError):
        explain_code(CATALOGUE, known_code(CATALOGUE, code_of([text])[0]))


def test_every_code_is_known_as_a_taint_writes_it_too():
    for code in CATALOGUE.codes:
        if "*" not in code:
            assert known_code(CATALOGUE, code_of([taint_for(code).value])[0]) == code


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("nvlink/inactiv", "nvlink/inactive"),
        ("nvlink-inactiv", "nvlink/inactive"),
        ("fabric/degrade", "fabric/degraded"),
        ("xdi/79", "xid/79"),
        ("xid-abc", "xid/"),
    ],
)
def test_a_code_that_does_not_exist_is_told_with_those_near_it(word, near):
    result = CliRunner().invoke(app, ["explain", word])
    assert result.exit_code == 1
    assert "there is no code" in result.output
    assert near in result.output


def test_the_taint_of_a_suspect_domain_says_where_its_cause_is_shown():
    with pytest.raises(NoSuchCodeError, match="kubectl get remediations"):
        known_code(CATALOGUE, code_of(["domain-fabric"])[0])


def test_a_word_far_from_every_code_gets_no_advice_that_leads_astray():
    with pytest.raises(NoSuchCodeError, match=r"there is no code 'qqq/www'$"):
        known_code(CATALOGUE, "qqq/www")


def test_a_check_of_the_users_own_is_a_code():
    assert known_code(CATALOGUE, "check/disk.warning") == "check/disk.warning"


def test_a_setting_is_named_as_the_chart_names_it():
    assert "nodeAgent.clearDwellSeconds" in printed("nvlink/inactive")


def test_every_code_of_the_catalogue_is_explained_in_full():
    for code in CATALOGUE.codes:
        answer = explain_code(CATALOGUE, code)
        assert answer.known
        assert answer.clears
        assert answer.source in CATALOGUE.sources.values()


def test_an_xid_says_what_it_is_how_it_is_judged_and_what_to_do():
    text = printed("xid", "119")
    for words in (
        "GSP_RPC_TIMEOUT",
        "did not answer",
        "gpu-reset",
        "reset",
        "90 of 100",
        "booted again",
        "move work off",
    ):
        assert words in text
    assert "recovery action (NVML, Xid 154) is believed before this" in text


def test_a_line_is_read_to_the_bit():
    answer = explained("xid", "74", ON_LINK_6)
    assert (answer["code"], answer["verdict"]) == ("xid/74.memory", "reset")
    assert answer["line"] == "register:bit 0:4 memory"


def test_the_driver_s_version_decides_how_the_words_of_nvlink5_are_read():
    line = "NVRM: Xid (PCI:0009:01:00): 145, RLW_REMAP Fatal XC1 i0 Link 10 (0x00000004 0x00000040 0x00000000)"
    assert explained(line)["code"] == "xid/145"
    assert explained(line, "--driver", "570.86.15")["code"] == "xid/145"
    assert explained(line, "--driver", "580.65.06")["code"] == "xid/145.reset"


def test_a_code_whose_lines_say_more_names_the_more_exact_codes():
    assert explained("xid", "149")["variants"] == ["xid/149.ignore", "xid/149.reset"]


def test_companions_and_silence_are_told():
    assert any("xid/94" in one for one in explained("xid", "48")["belief"])
    assert any("silence" in one for one in explained("monitor/blind")["belief"])
    assert any("takes the place of every Xid" in one for one in explained("recovery", "1")["belief"])


def test_an_unknown_code_says_what_is_done_with_it():
    answer = explained("xid", "9999")
    assert (answer["known"], answer["verdict"]) == (False, "watch")
    assert any("recorded and shown, and nothing is done" in one for one in answer["belief"])
    assert "not in the catalogue" in printed("xid", "9999")


def test_overrides_are_applied_before_they_go_to_the_cluster(tmp_path):
    path = tmp_path / "overrides.yaml"
    path.write_text("faults:\n  xid/63: {verdict: no-new-work, weight: 0.4}\n")
    answer = explained("xid", "63", "--overrides", str(path))
    assert (answer["verdict"], answer["weight"], answer["source"]) == ("no-new-work", 0.4, CATALOGUE.sources["user"])


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"faults:\n  xid/63:\n    weight: 7\n", ["line 3", "weight"]), (b"\xff", ["utf-8"]), (None, ["No such file"])],
)
def test_overrides_with_a_mistake_are_refused_with_line_and_key(tmp_path, content, words):
    path = tmp_path / "o.yaml"
    if content is not None:
        path.write_bytes(content)
    result = CliRunner().invoke(app, ["explain", "xid", "63", "--overrides", str(path)])
    assert result.exit_code == 2
    assert all(word in result.output for word in words)
