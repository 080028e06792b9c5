"""Reads a container's command line: is it torchrun, and which of its options does the user set there?

An option on the command line beats the ``PET_*`` variable of the same name, so a setting injected beside it is inert.
Names, abbreviations and which options take a value follow torch 2.14's parser (torch/distributed/run.py, argparse).
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Final

_SHELLS: Final = {"sh", "bash", "dash", "ash", "zsh"}
_PYTHON: Final = re.compile(r"(python|pypy)[0-9.]*")
_SHELL_COMMAND: Final = re.compile(r"-[a-zA-Z]*c")
_ISOLATED: Final = re.compile(r"-[a-zA-Z]*[IES][a-zA-Z]*")  # python -I, -E, -S: no PYTHONPATH or no site
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_MODULES: Final = {"torch.distributed.run", "torch.distributed.launch"}
_FLAGS: Final = {"standalone", "module", "no-python", "run-path", "use-env", "virtual-local-rank", "help"}
_SHORT_FLAGS: Final = {"-m", "-h"}
_WITH_VALUE: Final = {
    "nnodes", "nproc-per-node", "rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf", "max-restarts",
    "monitor-interval", "start-method", "event-log-handler", "role", "log-dir", "redirects", "tee",
    "local-ranks-filter", "node-rank", "master-addr", "master-port", "local-addr", "logs-specs", "numa-binding",
    "signals-to-handle", "shutdown-timeout", "duplicate-stdout-filters", "duplicate-stderr-filters",
}  # fmt: skip


class Kind(StrEnum):
    """What starts the training processes."""

    TORCHRUN = "torchrun"
    PYTHON = "python"  # a script without launcher: PET_* mean nothing to it
    UNKNOWN = "unknown"  # the image's entrypoint, a script: may well call torchrun


@dataclass(frozen=True)
class Launch:
    """What the command line shows. ``options`` by long name with dashes; ``assigned`` by the shell before the call."""

    kind: Kind
    options: dict[str, str] = field(default_factory=dict)
    assigned: frozenset[str] = frozenset()
    isolated: bool = False


def inspect(argv: Sequence[str]) -> Launch:
    """Return what can be told from ``argv``; what can't be parsed is UNKNOWN, never an error."""
    script = _shell_script(argv)
    tokens = list(argv) if script is None else _shell_tokens(script)
    assigned = frozenset() if script is None else frozenset(_assignments(tokens))
    start = _torchrun_end(tokens)
    isolated = any(_is_python(a) and _ISOLATED.fullmatch(b) for a, b in pairwise(tokens))
    if start is not None:
        return Launch(Kind.TORCHRUN, dict(_options(tokens[start:])), assigned, isolated)
    plain = script is None and bool(tokens) and _is_python(tokens[0]) and "-m" not in tokens[1:2]
    return Launch(Kind.PYTHON if plain else Kind.UNKNOWN, {}, assigned, isolated)


def _shell_script(argv: Sequence[str]) -> str | None:
    if not argv or _base(argv[0]) not in _SHELLS:
        return None
    rest = list(argv[1:])
    at = next((index for index, token in enumerate(rest) if _SHELL_COMMAND.fullmatch(token)), None)
    return rest[at + 1] if at is not None and at + 1 < len(rest) else None


def _shell_tokens(script: str) -> list[str]:
    lexer = shlex.shlex(script.replace("\\\n", " "), posix=True, punctuation_chars=";&|()<>")
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:  # an open quote: the shell's own business
        return []


def _assignments(tokens: Sequence[str]) -> Iterator[str]:
    for token in tokens:
        if match := _ASSIGNMENT.match(token):
            yield match.group(1)


def _torchrun_end(tokens: Sequence[str]) -> int | None:
    """Return the position behind the launcher's own name."""
    for index, (word, follower) in enumerate(zip(tokens, [*tokens[1:], ""], strict=False)):
        if _base(word) == "torchrun":
            return index + 1
        if (word == "-m" and follower in _MODULES) or (_base(word) == "accelerate" and follower == "launch"):
            return index + 2
    return None


def _options(tokens: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the launcher's options: what follows the training script's name is the script's."""
    waiting = iter(tokens)
    for token in waiting:
        if token in _SHORT_FLAGS:
            continue
        if not token.startswith("-"):
            return
        name, equals, value = token.partition("=")
        name = _long_name(name)
        if not equals and name not in _FLAGS:
            value = next(waiting, "")
        yield name, value


def _long_name(token: str) -> str:
    name = token.lstrip("-").replace("_", "-")
    known = [option for option in _FLAGS | _WITH_VALUE if option.startswith(name)]
    return known[0] if len(known) == 1 and name not in known else name


def _is_python(token: str) -> bool:
    return _PYTHON.fullmatch(_base(token)) is not None


def _base(token: str) -> str:
    return token.rpartition("/")[2]
