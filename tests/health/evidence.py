"""Builders of evidence that read as sentences."""

from hypothesis import strategies as st

from outrider.api.gpunode import SubjectKind
from outrider.health.catalogue import load
from outrider.health.findings import Evidence

NOW = 1_800_000_000.0
CATALOGUE = load()
GPU_NAMES = {"GPU-a": "GPU 0", "GPU-b": "GPU 1"}


def on_gpu(code: str, uuid: str = "GPU-a", *, ago: float = 60.0, count: int = 1, line: str = "") -> Evidence:
    return Evidence(
        code=code,
        subject=SubjectKind.GPU,
        subject_id=uuid,
        first_seen=NOW - ago,
        last_seen=NOW - ago,
        count=count,
        line=line,
        source="test",
    )


def on_node(code: str, *, ago: float = 60.0, subject_id: str = "", source: str = "test") -> Evidence:
    return Evidence(code=code, subject_id=subject_id, first_seen=NOW - ago, last_seen=NOW - ago, source=source)


codes = st.sampled_from([*CATALOGUE.codes, "xid/999", "recovery/42", "xid/154.42", "nonsense"])
evidences = st.builds(
    lambda code, uuid, ago, span, count, line: Evidence(
        code=code,
        subject=SubjectKind.GPU if uuid else SubjectKind.NODE,
        subject_id=uuid,
        first_seen=NOW - ago - span,
        last_seen=NOW - ago,
        count=count,
        line=line,
        source="test",
    ),
    codes,
    st.sampled_from(["GPU-a", "GPU-b", ""]),
    st.floats(0, 1e6),
    st.floats(0, 1e6),
    st.integers(1, 10_000),
    st.text(max_size=5),
)
