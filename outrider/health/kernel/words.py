"""What a line says: things that happened, and names that it teaches."""

import msgspec

from outrider.api.gpunode import SubjectKind


class Happening(msgspec.Struct, frozen=True, kw_only=True):
    """One fault that a line tells of."""

    code: str
    subject: SubjectKind = SubjectKind.NODE
    subject_id: str = ""
    """As in a finding: GPU UUID or ``pci:`` address, GPU/LINK, NIC name or ``pci:`` address, part of the node."""
    unit: str = ""
    """Part of the subject that failed, such as "GPC 1 TPC 2"; empty where the line names none."""
    line: str
    """The evidence that people see."""
    count: int = 1


class Naming(msgspec.Struct, frozen=True):
    """The driver tells which UUID the GPU at a PCI address (subject id) has."""

    subject_id: str
    uuid: str


Said = Happening | Naming


def about_gpu(code: str, gpu: str, line: str, *, unit: str = "", link: int | None = None) -> Happening:
    """Return what happened to a GPU or its link; to the node where the line names no GPU."""
    if not gpu:
        return Happening(code=code, unit=unit, line=line)
    if link is None:
        return Happening(code=code, subject=SubjectKind.GPU, subject_id=gpu, unit=unit, line=line)
    return Happening(code=code, subject=SubjectKind.LINK, subject_id=f"{gpu}/{link}", unit=unit, line=line)
