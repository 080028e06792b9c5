"""Writes the CustomResourceDefinitions from the structs of outrider/api, so that code and schema can't drift apart.

``python -m tools.crds`` writes charts/outrider/files/crds/; with ``--check`` it only reports what would change.
"""

import argparse
import sys
from enum import Enum
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from msgspec import inspect

from outrider.api.meta import Condition, ObjectMeta
from outrider.api.names import GROUP, VERSION
from tools.crd_table import RESOURCES, CustomResource

FOLDER: Final = Path(__file__).parent.parent / "charts" / "outrider" / "files" / "crds"
_HEADER: Final = "# Written by tools/crds.py (make generate) from outrider/api. Change the structs, not this file.\n"
Schema = dict[str, Any]

_BOUNDS: Final = {
    inspect.IntType: {"ge": "minimum", "le": "maximum"},
    inspect.FloatType: {"ge": "minimum", "le": "maximum"},
    inspect.StrType: {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"},
    inspect.ListType: {"min_length": "minItems", "max_length": "maxItems"},
    inspect.DictType: {"min_length": "minProperties", "max_length": "maxProperties"},
}
_SCALARS: Final = {
    inspect.IntType: "integer",
    inspect.FloatType: "number",
    inspect.StrType: "string",
    inspect.BoolType: "boolean",
}


class UnsupportedType(Exception):
    """A struct has a field that a structural schema can't express."""


def schema_of(kind: inspect.Type) -> Schema:
    """Return the structural schema of a type. Raises UnsupportedType."""
    match kind:
        case inspect.Metadata():
            return _annotated(kind)
        case inspect.UnionType() if len(kind.types) == 2 and kind.includes_none:
            return schema_of(next(part for part in kind.types if not isinstance(part, inspect.NoneType)))
        case inspect.StructType():
            return _struct(kind)
    return _plain(kind) | _bounds(kind)


def _plain(kind: inspect.Type) -> Schema:
    match kind:
        case inspect.EnumType():
            return {"type": "string", "description": _doc(kind.cls), "enum": [str(member.value) for member in kind.cls]}
        case inspect.ListType():
            items = schema_of(kind.item_type)
            # kubectl explain shows the words of the field, not of its items.
            described = {"description": items["description"]} if "description" in items else {}
            return {"type": "array", "items": items, **described, **_list_kind(kind.item_type)}
        case inspect.DictType():
            return {"type": "object", "additionalProperties": schema_of(kind.value_type)}
    if scalar := _SCALARS.get(type(kind)):
        return {"type": scalar}
    raise UnsupportedType(f"no structural schema for {kind}")


def _annotated(kind: inspect.Metadata) -> Schema:
    extra = dict(kind.extra or {})
    described = {"description": text} if (text := (kind.extra_json_schema or {}).get("description")) else {}
    return schema_of(kind.type) | described | extra


def _bounds(kind: inspect.Type) -> Schema:
    names = _BOUNDS.get(type(kind), {})
    return {name: value for field, name in names.items() if (value := getattr(kind, field)) is not None}


def _list_kind(item: inspect.Type) -> Schema:
    """Conditions are merged by type, so that several writers can each own theirs (KEP-1623)."""
    if isinstance(item, inspect.StructType) and item.cls is Condition:
        return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    return {}


def _struct(kind: inspect.StructType) -> Schema:
    if kind.cls is ObjectMeta:
        return {"type": "object"}
    schema: Schema = {"type": "object", "description": _doc(kind.cls)}
    if required := [field.encode_name for field in kind.fields if field.required]:
        schema["required"] = required
    schema["properties"] = {field.encode_name: _field(field) for field in kind.fields}
    return schema


def _field(field: inspect.Field) -> Schema:
    schema = schema_of(field.type)
    default = _default(field)
    return schema if default is None else schema | {"default": default}


def _default(field: inspect.Field) -> Any:
    """Return what the API server fills in: nothing for what is absent, empty or null by default."""
    value = field.default if field.default is not msgspec.NODEFAULT else None
    if value is None and field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    if isinstance(value, msgspec.Struct):
        return {}
    if isinstance(value, Enum):
        return str(value.value)
    return None if value in ("", [], {}) else value


def _doc(cls: type) -> str:
    return " ".join((cls.__doc__ or "").replace("``", "").split())


def definition(resource: CustomResource) -> Schema:
    """Return the CustomResourceDefinition of one resource."""
    names = {"kind": resource.struct.__name__, "listKind": f"{resource.struct.__name__}List"}
    names |= {"plural": resource.plural, "singular": resource.struct.__name__.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": resource.scope,
            "names": names | {"shortNames": list(resource.short_names), "categories": ["outrider"]},
            "versions": [_version(resource)],
        },
    }


def _version(resource: CustomResource) -> Schema:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [column.manifest() for column in resource.columns],
        "schema": {"openAPIV3Schema": _root(resource)},
    }


def _root(resource: CustomResource) -> Schema:
    schema = schema_of(inspect.type_info(resource.struct))
    # The API server owns these three; defaults and rules on them are not allowed.
    owned: Schema = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    schema["properties"] = owned | {name: part for name, part in schema["properties"].items() if name not in owned}
    schema["required"] = [name for name in schema["required"] if name not in owned]
    for rule in resource.rules:
        schema["properties"][rule.field].setdefault("x-kubernetes-validations", []).append(rule.manifest())
    return {key: value for key, value in schema.items() if value != []}


def manifests() -> dict[str, str]:
    """Return the content of each file by its name."""
    return {f"{resource.plural}.yaml": _HEADER + _yaml(definition(resource)) for resource in RESOURCES}


def _yaml(content: Schema) -> str:
    return yaml.safe_dump(content, sort_keys=False, width=110, allow_unicode=True)


def stale(folder: Path) -> list[str]:
    """Return the names of files in ``folder`` that differ from what would be written."""
    wanted = manifests()
    present = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.yaml")}
    return sorted(name for name in wanted.keys() | present.keys() if wanted.get(name) != present.get(name))


def write(folder: Path) -> None:
    """Make ``folder`` hold exactly the generated files."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = manifests()
    for path in folder.glob("*.yaml"):
        if path.name not in wanted:
            path.unlink()
    for name, content in wanted.items():
        (folder / name).write_text(content, encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Write or check; the exit code is 1 where ``--check`` found a difference."""
    parser = argparse.ArgumentParser(prog="python -m tools.crds", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail where a file is out of date")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args(arguments)
    if not options.check:
        write(options.folder)
        return 0
    for name in (outdated := stale(options.folder)):
        print(f"{options.folder / name} is out of date: run `make generate` and commit the result", file=sys.stderr)
    return 1 if outdated else 0


if __name__ == "__main__":
    raise SystemExit(main())
