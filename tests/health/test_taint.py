import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.api.core import Node, NodeSpec, Taint
from outrider.api.names import UNHEALTHY_TAINT
from outrider.health.taint import taint_for, taint_of


@pytest.mark.parametrize(
    ("reason", "value"), [("xid/79", "xid-79"), ("gpu / lost", "gpu-lost"), ("", "unhealthy"), ("//", "unhealthy")]
)
def test_the_taint_is_named_after_its_reason(reason: str, value: str) -> None:
    assert taint_for(reason) == Taint(key=UNHEALTHY_TAINT, value=value, effect="NoSchedule")


@given(st.text())
def test_whatever_the_reason_the_api_server_accepts_the_value(reason: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", taint_for(reason).value)


def test_only_our_own_taint_is_taken_for_ours() -> None:
    ours, theirs = taint_for("xid/79"), Taint(key="maintenance")
    assert taint_of(Node(spec=NodeSpec(taints=[theirs, ours]))) == ours
    assert taint_of(Node(spec=NodeSpec(taints=[theirs]))) is None
