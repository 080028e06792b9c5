"""Results of ``dcgmi diag -j``: what failed on which GPU, and how grave DCGM calls it. Pure.

Two documents are in the field: DCGM 4 writes "DCGM Diagnostic" with entity groups and a summary of each
test, DCGM 3 and older "DCGM GPU Diagnostic" with lists of GPU ids and warnings that are plain texts. Words may stand
around the document, and a run that breaks off leaves half of one. A pass of the diagnostic says nothing about links:
it passes with NVLinks down (DCGM#198).
"""

import json
from collections.abc import Iterator
from typing import Any, Final

import msgspec

PREFIX: Final = "dcgm/diag-"
NO_RESULT: Final = "dcgm/diag-no-result"
_ROOTS: Final = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
_TEXT_MAX: Final = 300
_RESULTS_MAX: Final = 4096  # 16 GPUs and 20 tests have some 300
_SEVERITIES: Final = ("none", "monitor", "isolate", "unknown", "triage", "config", "reset")  # dcgm_errors.h, DCGM 4
# Severity of an error where its number is known (dcgm_errors.h): older releases write no severity, or in other numbers.
_KNOWN: Final = {
    **dict.fromkeys((3, 4, 81, 118, 120, 126), "isolate"),
    **dict.fromkeys((6, 80, 85, 125), "reset"),
    **dict.fromkeys((14, 101), "triage"),
    29: "config",  # persistence mode is off: fails each GPU of a healthy node
    122: "triage",  # IMEX: DCGM says isolate, wrongly for days on idle GB300 (aicr#2641), and no reset of a GPU helps
    131: "monitor",
}
_MILD: Final = frozenset({"config", "monitor", "warn"})
_NONE: Final = frozenset({"", "none", "pass"})

JSON = dict[str, Any]


class Complaint(msgspec.Struct, frozen=True, kw_only=True):
    """A test that did not pass. ``gpu`` is DCGM's number of the GPU, None where it concerns the node."""

    code: str
    gpu: int | None = None
    line: str


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What a run of the diagnostic says."""

    complaints: list[Complaint] = []
    passed: set[int] = set()
    """DCGM's numbers of the GPUs on which a test passed and none failed; skipped tests are no pass."""
    serials: dict[int, str] = {}
    """Serial number of each GPU that has one, by DCGM's number."""
    problem: str = ""
    """Why the run has no result, or not a whole one."""
    version: str = ""

    @property
    def failed(self) -> bool:
        """True where a test says that a GPU or the node is not fit for work."""
        return any(one.code.removeprefix(PREFIX) not in _MILD for one in self.complaints)


def read_diagnosis(output: bytes) -> Diagnosis:
    """Return what a run wrote; one that can't be read has a ``problem``."""
    text = output.decode("utf-8", "replace")
    start, end = text.find("{"), text.rfind("}")
    if start < 0:
        return Diagnosis(problem=f"no JSON in the output: {_clean(text) or 'it is empty'}")
    try:
        document = json.loads(text[start : end + 1])  # the standard library's: jsoncpp writes NaN and 1e+9999
    except (ValueError, RecursionError) as error:
        return Diagnosis(problem=f"the output is no whole JSON document: {error}")
    return _of_document(document)


def _of_document(document: Any) -> Diagnosis:
    root = next((document[key] for key in _ROOTS if isinstance(document.get(key), dict)), None)
    problem = _text(document.get("runtime_error")) or _text((root or {}).get("runtime_error"))
    if root is None:
        return Diagnosis(problem=problem or f"the document has none of the keys {' and '.join(_ROOTS)}")
    results = list(_results(root))[:_RESULTS_MAX]
    complaints = [complaint for result in results for complaint in _complaints(result)]
    sick = {complaint.gpu for complaint in complaints if complaint.code.removeprefix(PREFIX) not in _MILD}
    passed = {gpu for result in results if _status(result.body) == "pass" for gpu in result.gpus if gpu is not None}
    return Diagnosis(
        complaints=complaints,
        passed=passed - sick,
        serials=_serials(document, root),
        problem=problem or ("" if results else "no test was run"),
        version=_text(_mapping(document.get("metadata")).get("version")) or _text(root.get("version")),
    )


class _Result(msgspec.Struct, frozen=True, kw_only=True):
    test: str
    gpus: list[int | None]
    body: JSON


def _results(root: JSON) -> Iterator[_Result]:
    for category in _mappings(root.get("test_categories")):
        for test in _mappings(category.get("tests")):
            name = _text(test.get("name")) or "unnamed test"
            results = list(_mappings(test.get("results")))
            for body in results:
                yield _Result(test=name, gpus=_gpus(body), body=body)
            summary = _mapping(test.get("test_summary"))
            if summary and not any(_status(body) == _status(summary) for body in results):
                yield _Result(test=name, gpus=[None], body=summary)


def _gpus(body: JSON) -> list[int | None]:
    """GPUs that a result is about: an entity (DCGM 4), a list of ids or one id (before); none named: the node."""
    if "entity_id" in body:
        number = body["entity_id"] if _text(body.get("entity_group")).upper() == "GPU" else None
        return [number if isinstance(number, int) else None]
    named = body.get("gpu_ids", body.get("gpu_id"))
    numbers = [part.strip() for part in str(named).split(",")] if isinstance(named, str | int) else []
    found: list[int | None] = [int(part) for part in numbers if part.isascii() and part.isdecimal() and len(part) < 6]
    return found or [None]


def _complaints(result: _Result) -> Iterator[Complaint]:
    status = _status(result.body)
    if status in _NONE or status.startswith(("skip", "not")):
        return
    warnings = list(_warnings(result.body.get("warnings"))) or [("", "")]
    for kind, text in warnings:
        code = f"{PREFIX}{_kind(status, kind)}"
        line = _clean(f"{result.test}: {status}{f': {text}' if text else ''}")
        for gpu in result.gpus:
            yield Complaint(code=code, gpu=gpu, line=line)


def _kind(status: str, severity: str) -> str:
    """What a result is called: a failure by its severity, a warning as such, anything else as not known."""
    if status == "fail":
        return severity or "fail"
    return "warn" if status == "warn" else "unknown"


def _warnings(warnings: Any) -> Iterator[tuple[str, str]]:
    """Yield severity ("" where none is told) and text of each warning."""
    for warning in warnings if isinstance(warnings, list) else [warnings]:
        if isinstance(warning, dict):
            yield _severity(warning), _text(warning.get("warning"))
        elif isinstance(warning, str) and warning:
            yield "", warning


def _severity(warning: JSON) -> str:
    number, severity = warning.get("error_id"), warning.get("error_severity")
    if isinstance(number, int) and number in _KNOWN:
        return _KNOWN[number]
    if isinstance(severity, int) and 0 <= severity < len(_SEVERITIES):
        severity = _SEVERITIES[severity]
    if isinstance(severity, str) and severity.lower() in _SEVERITIES:
        return severity.lower().replace("none", "unknown")  # a failure without severity contradicts itself
    return "" if severity is None else "unknown"


def _serials(document: JSON, root: JSON) -> dict[int, str]:
    serials: dict[int, str] = {}
    for group in _mappings(document.get("entity_groups") or root.get("entity_groups")):
        if _text(group.get("entity_group")).upper() == "GPU":
            for entity in _mappings(group.get("entities")):
                _add(serials, entity.get("entity_id"), entity.get("serial_num"))
    for number, serial in _mapping(root.get("GPU Device Serials")).items():
        _add(serials, number, serial)
    return serials


def _add(serials: dict[int, str], number: Any, serial: Any) -> None:
    digits = str(number)
    if isinstance(serial, str) and not serial.startswith("<") and digits.isascii() and digits.isdecimal():
        serials[int(digits[:6])] = serial


def _status(body: JSON) -> str:
    return _text(body.get("status")).lower().replace("skipped", "skip").replace("failed", "fail")


def _mappings(value: Any) -> Iterator[JSON]:
    return (one for one in value if isinstance(one, dict)) if isinstance(value, list) else iter(())


def _mapping(value: Any) -> JSON:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return _clean(value) if isinstance(value, str) else ""


def _clean(text: str) -> str:
    return " ".join(text.split())[:_TEXT_MAX]
