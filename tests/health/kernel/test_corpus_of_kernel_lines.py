from pathlib import Path

import pytest

from outrider.health.catalogue import load
from outrider.health.kernel.reader import KernelReader, worth_reading
from outrider.health.kernel.words import Naming, Said

CORPUS = (Path(__file__).parent / "corpus.txt").read_text()
LOGS = [
    [line for line in block.splitlines() if not line.startswith("#")]
    for block in CORPUS.split("\n\n")
    if any(line.startswith(">") for line in block.splitlines())
]


def written(said: Said) -> str:
    if isinstance(said, Naming):
        return f"naming {said.subject_id} {said.uuid}"
    words = f"{said.code} {said.subject} {said.subject_id}".strip()
    return f"{words} | {said.unit}" if said.unit else words


def lines_of(log: list[str]) -> list[str]:
    return [line[2:].replace("\\n", "\n") for line in log if line.startswith(">")]


def told(lines: list[str]) -> list[Said]:
    reader = KernelReader()
    said = [word for line in lines if worth_reading(line.encode()) for word in reader.read(line, 100.0)]
    return [*said, *reader.flush()]


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log[0][2:60])
def test_a_log_says_what_it_means_and_no_more(log):
    assert [written(word) for word in told(lines_of(log))] == [line[2:] for line in log if line.startswith("=")]


def test_the_corpus_is_large_and_names_only_listed_codes_and_unknown_xids():
    catalogue = load()
    assert sum(len(lines_of(log)) for log in LOGS) >= 200
    codes = {line.split()[1] for log in LOGS for line in log if line.startswith("=")} - {"naming"}
    strangers = {code for code in codes if code not in catalogue}
    assert strangers <= {"xid/987", "xid/malformed", "sxid/28006"}
    assert {code for code in catalogue.codes if code.startswith("kernel/")} - codes == {
        "kernel/aer-corrected",  # by its rate: test_rates_of_corrected_errors
        "kernel/mce-corrected",
        "kernel/records-lost",  # told by the probe itself
        "kernel/flood",
    }
