"""Generated pages: written, or only compared with the committed ones."""

import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]


def write(pages: Mapping[Path, str], *, check: bool) -> bool:
    """Write the pages that are not current, or name them; return whether all is well."""
    stale = [path for path, text in pages.items() if not path.exists() or path.read_text("utf-8") != text]
    for path in stale:
        if check:
            print(f"{path.relative_to(ROOT)} is not current: run `make generate`")
        else:
            path.write_text(pages[path], "utf-8")
    return not (check and stale)


def checking() -> bool:
    """Return whether the command line asks for a check alone."""
    return "--check" in sys.argv
