"""Small words for people, the same everywhere: numbers with their nouns, short lists, errors on one line."""

from collections.abc import Sequence


def plural(count: int, noun: str, many: str = "") -> str:
    """Return the count with its noun: "1 pod", "2 pods"; ``many`` for nouns that take no s: "2 leaves"."""
    return f"{count} {noun}" if count == 1 else f"{count} {many or noun + 's'}"


def listed(names: Sequence[str], most: int, word: str = "and") -> str:
    """Return the names as a sentence lists them, those above ``most`` as a number: "a, b and 3 more"."""
    shown = list(names[:most])
    if len(names) > most:
        shown.append(f"{len(names) - most} more")
    return f" {word} ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


def one_line(error: Exception) -> str:
    """Return the words of an error without the line breaks that some answers bring."""
    return " ".join(str(error).split())
