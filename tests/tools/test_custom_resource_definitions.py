from pathlib import Path
from typing import Annotated

import msgspec
import pytest
import yaml
from msgspec import inspect

from outrider.api.meta import Condition, Resource
from tools import crds


class Part(Resource, frozen=True, kw_only=True):
    """A part,
    in two lines."""

    size: Annotated[int, msgspec.Meta(ge=1, le=9, description="how many")] = 3
    name: str
    note: str | None = None


class Whole(Resource, frozen=True, kw_only=True):
    """A whole."""

    part_of: Part
    names: Annotated[list[str], msgspec.Meta(max_length=4)] = []
    labels: dict[str, str] = {}
    conditions: list[Condition] = []
    parts: list[Part] = []
    said: Annotated[list[Part], msgspec.Meta(description="spare parts")] = []


def test_a_struct_becomes_a_structural_schema() -> None:
    schema = crds.schema_of(inspect.type_info(Whole))
    assert schema["required"] == ["partOf"]
    properties = schema["properties"]
    assert properties["partOf"] == {
        "type": "object",
        "description": "A part, in two lines.",
        "required": ["name"],
        "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 9, "description": "how many", "default": 3},
            "name": {"type": "string"},
            "note": {"type": "string"},
        },
    }
    assert properties["names"] == {"type": "array", "items": {"type": "string"}, "maxItems": 4}
    assert properties["labels"] == {"type": "object", "additionalProperties": {"type": "string"}}
    assert properties["parts"]["description"] == "A part, in two lines."
    assert properties["said"]["description"] == "spare parts"
    assert properties["conditions"]["x-kubernetes-list-map-keys"] == ["type"]


def test_a_type_that_no_structural_schema_can_express_is_refused() -> None:
    with pytest.raises(crds.UnsupportedType, match="UnionType"):
        crds.schema_of(inspect.type_info(int | str))


def test_every_manifest_has_status_columns_and_descriptions() -> None:
    for text in crds.manifests().values():
        version = yaml.safe_load(text)["spec"]["versions"][0]
        assert version["subresources"] == {"status": {}}
        assert version["additionalPrinterColumns"][-1]["name"] == "Age"
        schema = version["schema"]["openAPIV3Schema"]
        assert schema["description"]
        assert schema["properties"]["status"]["properties"]["conditions"]["x-kubernetes-list-type"] == "map"


def test_the_committed_manifests_are_what_the_structs_say() -> None:
    assert crds.stale(crds.FOLDER) == []


def test_check_names_files_that_differ_are_missing_or_are_left_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert crds.main(["--folder", str(tmp_path)]) == 0
    assert crds.main(["--check", "--folder", str(tmp_path)]) == 0
    (tmp_path / "gpunodes.yaml").write_text("kind: Other\n")
    (tmp_path / "remediations.yaml").unlink()
    (tmp_path / "old.yaml").write_text("")
    assert crds.main(["--check", "--folder", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert all(name in told for name in ("gpunodes.yaml", "remediations.yaml", "old.yaml", "make generate"))
    assert "gangplacements.yaml" not in told
    crds.main(["--folder", str(tmp_path)])
    assert crds.stale(tmp_path) == []
