"""Builders of evidence that read as sentences."""

from hypothesis import strategies as st

from outrider.api.gpunode import SubjectKind
from outrider.health.catalogue import load
from outrider.health.findings import Evidence

NOW = 1_800_000_000.0
CATALOGUE = load()
GPU_NAMES = {"GPU-a": "GPU 0", "GPU-b": "GPU 1"}
NIC_NAMES = ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"]


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


def on_nic(code: str, name: str = "mlx5_0", *, ago: float = 60.0) -> Evidence:
    subject = SubjectKind.NIC
    return Evidence(
        code=code, subject=subject, subject_id=name, first_seen=NOW - ago, last_seen=NOW - ago, source="nics"
    )


SUBJECTS = [
    (SubjectKind.NODE, ""),
    *((SubjectKind.GPU, uuid) for uuid in (*GPU_NAMES, "GPU-new")),
    *((SubjectKind.LINK, f"{uuid}/3") for uuid in GPU_NAMES),
    *((SubjectKind.NIC, name) for name in ("mlx5_0", "mlx5_1/1", "unlisted", "")),
]
codes = st.sampled_from([*CATALOGUE.codes, "xid/999", "recovery/42", "xid/154.42", "nonsense"])
evidences = st.builds(
    lambda code, subject, ago, span, count, line: Evidence(
        code=code,
        subject=subject[0],
        subject_id=subject[1],
        first_seen=NOW - ago - span,
        last_seen=NOW - ago,
        count=count,
        line=line,
        source="test",
    ),
    codes,
    st.sampled_from(SUBJECTS),
    st.floats(0, 1e6),
    st.floats(0, 1e6),
    st.integers(1, 10_000),
    st.text(max_size=5),
)
