"""The terminal that answers are printed on."""

import re
from collections.abc import Iterator
from typing import Final

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
from rich.segment import Segment

_PIPE_COLUMNS: Final = 300
_CONTROL: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
_IN_ITS_PLACE: Final = "\N{REPLACEMENT CHARACTER}"


def terminal() -> Console:
    """Return the terminal, or for a pipe or file one so wide that no line is folded.

    Texts from logs and the cluster can't steer it: control characters in them (colours, titles, cleared screens) are
    replaced.
    """
    console = Console()
    console = console if console.is_terminal else Console(width=_PIPE_COLUMNS)
    console.push_render_hook(_Harmless())
    return console


class _Harmless(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Replaced(renderable) for renderable in renderables]


class _Replaced:
    """Something to print, with the control characters of its texts replaced."""

    def __init__(self, renderable: ConsoleRenderable) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for text, style, control in console.render(self._renderable, options):
            yield Segment(text if control else _CONTROL.sub(_IN_ITS_PLACE, text), style, control)
