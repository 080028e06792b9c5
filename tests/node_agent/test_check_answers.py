"""What the exit codes and words of users' own checks mean."""

import msgspec
import pytest
from around import CATALOGUE, NOW, Around
from hypothesis import given
from hypothesis import strategies as st

from node_agent.probes.programs import Ran
from node_agent.probes.report import Report, States
from node_agent.readings.checks import CheckSettings, judge, name_of, settings_of
from outrider.api.gpunode import LINE_MAX, Health, Verdict

DEFAULT = CheckSettings()


def answer(status, output=b"words\n", settings=DEFAULT, problem=""):
    return judge("disk", settings, Ran(status=status, output=output, problem=problem), {"GPU-1"}, NOW)


@pytest.mark.parametrize(
    ("status", "code", "usable"),
    [
        (1, "check/disk.warning", True),
        (2, "check/disk", True),
        (3, "check/disk.unknown", False),
        (4, "check/disk.unknown", False),
        (127, "check/disk.unknown", False),
        (-9, "check/disk.unknown", False),
        (None, "check/disk.unknown", False),
    ],
)
def test_every_way_to_end_but_well_is_a_finding_of_the_check(status, code, usable):
    said = answer(status, problem="did not end within 30 s")
    assert (said.evidence.code, said.usable) == (code, usable)
    assert "words" in said.evidence.line


def test_a_check_that_is_well_clears_what_it_said():
    assert answer(0).usable
    assert answer(0).evidence is None


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (b"", "exit code 2 without a word"),
        (b"\n\n  two \x1b[31mred\n three", "two [31mred"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"x" * 9999, "x" * LINE_MAX),
    ],
)
def test_the_first_line_with_words_is_shown_clean_and_cut(output, line):
    assert answer(2, output).evidence.line == line


def test_a_check_that_may_only_be_watched_warns_at_worst():
    assert answer(2, settings=CheckSettings(verdict="watch")).evidence.code == "check/disk.warning"


@pytest.mark.parametrize(("first", "owner"), [("GPU-1:", "GPU-1"), ("GPU-1", "GPU-1"), ("GPU-9:", ""), ("slow", "")])
def test_a_check_of_gpus_names_the_gpu_first(first, owner):
    settings = CheckSettings(subject="gpu")
    assert answer(2, f"{first} is slow".encode(), settings).evidence.owner == owner
    assert answer(2, f"{first} is slow".encode()).evidence.owner == ""


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("disk.sh", "disk"),
        ("My_Check.v2.py", "my-check-v2"),
        ("...", "unnamed"),
        ("\u00fc", "unnamed"),
        ("a" * 99, "a" * 40),
    ],
)
def test_the_name_comes_from_the_file(file, name):
    assert name_of(file) == name


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ([], "object"),
        ({"periodSeconds": 1}, "periodSeconds"),
        ({"timeoutSeconds": "x"}, "timeoutSeconds"),
        ({"verdict": "reboot"}, "verdict"),
        ({"colour": 1}, "colour"),
    ],
)
def test_wrong_settings_are_refused_and_the_field_is_named(content, word):
    with pytest.raises(msgspec.ValidationError, match=word):
        settings_of(content)


@pytest.mark.parametrize(
    ("status", "verdict", "health", "score"),
    [
        (1, Verdict.WATCH, Health.HEALTHY, 90),
        (2, Verdict.NO_NEW_WORK, Health.DEGRADED, 50),
        (3, Verdict.WATCH, Health.HEALTHY, 95),
    ],
)
def test_a_check_never_touches_hardware_and_recovers_after_the_dwell(status, verdict, health, score):
    around = Around()
    well = Report(states=States(readable=frozenset({""})))
    around.take("checks", Report(states=States(bad=(answer(status).evidence,), readable=frozenset({""}))))
    node = around.judgement().node
    assert (node.verdict, node.health, node.score) == (verdict, health, score)
    assert {opinion.score for opinion in around.judgement().gpus.values()} in ({100}, set())
    around.take("checks", well, 1)
    assert around.codes()
    around.take("checks", well, 31)
    assert around.codes() == {}


@given(
    st.one_of(st.none(), st.integers(-64, 300)),
    st.binary(max_size=200),
    st.text(max_size=20),
    st.builds(
        CheckSettings, subject=st.sampled_from(["node", "gpu"]), verdict=st.sampled_from(["watch", "no-new-work"])
    ),
)
def test_no_answer_of_a_program_leads_to_more_than_no_new_work(status, output, file, settings):
    said = judge(name_of(file), settings, Ran(status=status, output=output, problem="p"), {"GPU-1"}, NOW)
    assert said.usable == (status in (0, 1, 2))
    if said.evidence is not None:
        assert not CATALOGUE.of(said.evidence.code).verdict.hard
        assert CATALOGUE.of(said.evidence.code).meaning.startswith("a check of your own")
        assert len(said.evidence.line) <= LINE_MAX
