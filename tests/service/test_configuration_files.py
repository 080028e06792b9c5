from pathlib import Path
from typing import Annotated

import msgspec
import pytest

from outrider.config import ConfigError, load


class Probe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Part of a configuration."""

    interval_seconds: Annotated[float, msgspec.Meta(gt=0)] = 5.0


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A configuration."""

    log_level: str = "INFO"
    probe: Probe = Probe()


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "probe: {}"])
def test_what_is_not_set_has_its_default(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    assert load(Config, tmp_path / "c.yaml") == load(Config, None) == Config()


def test_values_are_read(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("logLevel: DEBUG\nprobe:\n  intervalSeconds: 2\n")
    assert load(Config, tmp_path / "c.yaml") == Config("DEBUG", Probe(2.0))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("probe: {intervalSeconds: soon}", "$.probe.intervalSeconds"),
        ("probe: {intervalSeconds: 0}", "$.probe.intervalSeconds"),
        ("probe: {interval: 3}", "interval"),
        ("probes: {}", "probes"),
        ("- a list", "object"),
        ("just words", "object"),
        ("a: [", "no YAML"),
        ("1: 2", "str"),
        ("a: " + "[" * 5000, "nested too deep"),
    ],
)
def test_a_mistake_names_file_and_field(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        load(Config, path)
    assert str(path) in str(raised.value)
    assert said in str(raised.value)


def test_a_missing_or_binary_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read"):
        load(Config, tmp_path / "missing.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="can't be read"):
        load(Config, tmp_path / "binary.yaml")
