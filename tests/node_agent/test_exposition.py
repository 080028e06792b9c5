"""Metrics pages in Prometheus' text format."""

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from node_agent.readings.exposition import Sample, read_samples


def read(page: str, *names: str) -> list[Sample]:
    return list(read_samples(page, set(names or ("a",))))


@pytest.mark.parametrize(
    ("line", "labels", "value"),
    [
        ("a 1", {}, 1),
        ("  a{} 1.5e3 1700000000000  ", {}, 1500),
        ('a{b="c"} -2', {"b": "c"}, -2),
        ('a{ b = "c" , d="e", } 3', {"b": "c", "d": "e"}, 3),
        (r'a{b="x \"y\" \\ \n {z} } 9"} 4', {"b": 'x "y" \\ \n {z} } 9'}, 4),
        ("a +Inf", {}, math.inf),
        ("a 9223372036854775794", {}, 2.0**63),
        ('a{b="\u00fc"} 1\r', {"b": "\u00fc"}, 1),
    ],
)
def test_every_way_to_write_a_sample_is_read(line, labels, value):
    assert read(line) == [Sample("a", labels, value)]


def test_no_number_is_kept_as_such():
    assert math.isnan(read("a NaN")[0].value)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "a",
        "# TYPE a gauge",
        "a{",
        'a{b="c} 1',
        "a{b=c} 1",
        'a{b="c"',
        "a one",
        "ab 1",
        "b 1",
        "a 1 2 3",
        'a{"b"} 1',
        "a{b} 1",
    ],
)
def test_what_is_no_sample_of_the_name_is_passed_over(line):
    assert read(f"{line}\na 7") == [Sample("a", {}, 7)]


def test_a_line_that_is_too_long_is_passed_over():
    assert read('a{b="' + "x" * 20_000 + '"} 1\na 2') == [Sample("a", {}, 2)]


@given(st.text(max_size=300))
def test_no_text_is_an_error(text):
    read(text)
    read("a" + text)
    read('a{b="' + text)


@pytest.mark.parametrize(
    "page",
    [
        'a{b="' + '\\"' * 8000,
        "a{" + 'b="c",' * 2500,
        "a" + " " * 16_000 + "x",
        "a 1" + " " * 16_000 + "x",
        "a{" + "}" * 16_000,
        "a{" + "}" * 16_000 + " 1 2 3",
        "a{" + "}" * 8000 + " " * 8000 + "1 2 3",
    ],
)
def test_no_line_takes_long(page):
    began = time.process_time()
    read("\n".join([page] * 20))
    assert time.process_time() - began < 2


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,5}", fullmatch=True),
        st.text(st.characters(codec="utf-8", exclude_characters="\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), max_size=9),
    ),
    st.floats(allow_nan=False),
)
def test_what_prometheus_itself_reads_is_read_alike(labels, value):
    escape = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
    text = ",".join(f'{name}="{content.translate(escape)}"' for name, content in labels.items())
    page = f"a{{{text}}} {value!r}\n"
    [family] = text_string_to_metric_families(page)
    assert read(page) == [Sample("a", dict(family.samples[0].labels), family.samples[0].value)]
