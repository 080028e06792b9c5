"""What is built, and where it goes, follows from the pinned modules and nothing else."""

import re

import msgspec
import pytest

from testbed import build, versions
from testbed.toolchain import MODULES, needed, parse_go_version


@pytest.mark.parametrize("pinned", [*versions.ALL, *versions.OPERATORS], ids=lambda b: "-".join(b.programs.values()))
def test_a_module_requires_the_version_that_its_programs_claim(pinned: versions.Build) -> None:
    required = re.findall(r"^require \S+ v(\S+)$", (MODULES / pinned.module / "go.mod").read_text(), re.MULTILINE)
    assert required == [pinned.version]


@pytest.mark.parametrize("module", sorted(p.name for p in MODULES.iterdir()))
def test_every_module_commits_its_checksums_and_is_built(module: str) -> None:
    assert (MODULES / module / "go.sum").stat().st_size > 0
    assert module in {b.module for b in (*versions.ALL, *versions.OPERATORS)}


def test_kubernetes_and_its_staging_modules_have_one_version() -> None:
    text = (MODULES / "kubernetes" / "go.mod").read_text()
    minor = versions.KUBERNETES.removeprefix("1.")
    replaced = re.findall(r"^\t(\S+) => (\S+) v0\.(\S+)$", text, re.MULTILINE)
    assert len(replaced) > 20
    assert all(old == new and version == minor for old, new, version in replaced)


def test_other_flags_give_another_cache_folder() -> None:
    etcd = versions.CONTROL_PLANE[0]
    assert build.folder(etcd) != build.folder(msgspec.structs.replace(etcd, tags="other"))
    assert build.folder(etcd) == build.folder(msgspec.structs.replace(etcd))


@pytest.mark.parametrize(
    ("text", "version"),
    [("go version go1.26.8 linux/amd64", (1, 26, 8)), ("go 1.26.0", (1, 26, 0)), ("go1.30", (1, 30)), ("", None)],
)
def test_go_versions_are_read_from_what_go_prints(text: str, version: tuple[int, ...] | None) -> None:
    assert parse_go_version(text) == version


def test_the_needed_go_is_the_highest_that_any_module_names() -> None:
    assert needed() >= (1, 26, 6)
