"""Coverage-guided fuzzing of the parsers of kernel lines: python tests/health/kernel/fuzz.py -max_total_time=60.

Needs atheris (pip install atheris), which is no part of the development environment for its size. What it finds
belongs into corpus.txt or test_no_input_breaks_the_parsers.py.
"""

import io
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["outrider.health.kernel", "outrider.health.decoding"]):
    from outrider.health import decoding, nvlink5, xid74  # noqa: F401 - instrumented by being imported here
    from outrider.health.kernel import records
    from outrider.health.kernel.reader import KernelReader, worth_reading
    from outrider.health.kernel.saved import SavedLog

CORPUS = Path(__file__).parent / "corpus.txt"


def one_input(data: bytes) -> None:
    """Read the bytes as a record, as lines of a saved log, and as messages of one machine."""
    records.parse(data)
    reader, saved = KernelReader(), SavedLog(1.8e9)
    for number, raw in enumerate(io.BytesIO(data)):
        line = saved.read(raw)
        worth_reading(raw)
        reader.read(line.message, float(number))
        reader.read(raw.decode("utf-8", "replace"), float(number))
    reader.flush()


def seeds(folder: Path) -> None:
    """Write the logs of the corpus as files to begin with."""
    for number, block in enumerate(CORPUS.read_text().split("\n\n")):
        lines = [line[2:] for line in block.splitlines() if line.startswith("> ")]
        (folder / f"{number}.log").write_text("\n".join(lines))


if __name__ == "__main__":
    if Path(sys.argv[-1]).is_dir():
        seeds(Path(sys.argv[-1]))
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
