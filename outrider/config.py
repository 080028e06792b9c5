"""Configuration of a component: one YAML file, mounted from the chart's ConfigMap, into a msgspec struct."""

from pathlib import Path
from typing import TypeVar

import msgspec
import yaml

T = TypeVar("T", bound=msgspec.Struct)


class ConfigError(Exception):
    """The configuration can't be used; the message names the file, the field and what was wrong with it."""


def load(struct_type: type[T], path: Path | None) -> T:
    """Return the configuration in ``path``; the struct's defaults where there is no path or the file is empty.

    Raises ConfigError for a file that can't be read, is no YAML, or holds a value that the struct does not allow.
    """
    content = {} if path is None else _mapping(path)
    try:
        return msgspec.convert(content, struct_type)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path or 'built-in defaults'}: {error}") from error


def _mapping(path: Path) -> object:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: can't be read: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: is no YAML: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: is nested too deep") from error
    return {} if content is None else content
