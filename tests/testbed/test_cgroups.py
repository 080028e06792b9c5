"""Control groups on both versions, on folders that look like the kernel's."""

from pathlib import Path

from testbed.cgroups import Cgroups


def test_on_v1_a_new_group_gets_the_processors_and_memory_of_its_parent(tmp_path: Path) -> None:
    (tmp_path / "cpuset").mkdir()
    (tmp_path / "memory").mkdir()
    (tmp_path / "cpu_link").symlink_to("cpuset")
    (tmp_path / "cpuset" / "cpuset.cpus").write_text("0-1")
    (tmp_path / "cpuset" / "cpuset.mems").write_text("0")
    groups = Cgroups(tmp_path)
    groups.create("bed/gpu-0")
    assert not groups.is_v2
    assert [p.name for p in groups.hierarchies] == ["cpuset", "memory"]
    assert (tmp_path / "cpuset" / "bed" / "gpu-0" / "cpuset.cpus").read_text() == "0-1"
    assert (tmp_path / "cpuset" / "bed" / "gpu-0" / "cpuset.mems").read_text() == "0"
    assert (tmp_path / "memory" / "bed" / "gpu-0").is_dir()


def test_on_v2_controllers_are_handed_down_to_the_parent_of_a_new_group(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory misc")
    (tmp_path / "bed").mkdir()
    (tmp_path / "bed" / "cgroup.controllers").write_text("memory")
    (tmp_path / "bed" / "gpu-0").mkdir()
    (tmp_path / "bed" / "gpu-0" / "cgroup.controllers").write_text("pids")
    groups = Cgroups(tmp_path)
    groups.create("bed/gpu-0")
    assert groups.is_v2
    assert groups.hierarchies == [tmp_path]
    # The kernel collects what is written; a file keeps the last word only.
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory"
    assert (tmp_path / "bed" / "cgroup.subtree_control").read_text() == "+memory"
    assert (tmp_path / "bed" / "gpu-0" / "cgroup.subtree_control").read_text() == "+pids"


def test_processes_of_a_group_include_those_of_groups_below(tmp_path: Path) -> None:
    deep = tmp_path / "pids" / "bed" / "gpu-0" / "kubepods"
    deep.mkdir(parents=True)
    (deep / "cgroup.procs").write_text("12\n13\n")
    (deep.parent / "cgroup.procs").write_text("11\n")
    assert Cgroups(tmp_path).processes("bed") == {11, 12, 13}
    assert Cgroups(tmp_path).processes("other") == set()
