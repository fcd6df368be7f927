"""`manifest.json`: the host's side of a bundle, as the fields of ``Manifest`` by their names.

A fill value that JSON has no number for is written as the string "inf", "-inf" or "nan". An argument has a
fill only if the host writes its padding, a source only if its array is that of another one, and index bounds only if
its numbers are indices. A buffer has
reasons only if there are any, and a manifest demoted and amplified executes, numerics, and what makes it one of a
sequence: that it is non-terminal, what it expects and what it leaves. Its target is the fields of the device file that
differ from the packaged one, by their sections there.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from spyre_mlir.bundle.json_fields import Field
from spyre_mlir.bundle.model import Buffer, IndexBounds, KernelArgument, Manifest, Resident, Transfer
from spyre_mlir.target.formats import MODES
from spyre_mlir.target.target import Target, packaged_target

VERSION = 1


def manifest_to_json(manifest: Manifest) -> dict[str, Any]:
    """The JSON object of a manifest."""
    value = {"version": manifest.version, **_plain(dataclasses.asdict(manifest))}
    value["target"] = manifest.target.differences()
    for buffer in value["buffers"]:
        if not buffer["reasons"]:
            del buffer["reasons"]
    for optional in ("demoted", "amplified", "non_terminal", "expects", "leaves", "target"):
        if not value[optional]:
            del value[optional]
    for resident in (*value.get("expects", ()), *value.get("leaves", ())):
        for optional in ("cores", "layout"):
            if not resident[optional]:
                del resident[optional]
    return value


def argument_to_json(argument: KernelArgument) -> dict[str, Any]:
    """The JSON object of one argument."""
    return _plain(dataclasses.asdict(argument))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(member) for key, member in value.items() if member is not None}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def manifest_from_json(value: Any, filename: str) -> Manifest:
    """The manifest of a JSON object; anything missing or odd is a CompileError with file and field."""
    root = Field(value, filename)
    _require_fields(root, Manifest)
    if root["version"].integer() != VERSION:
        root["version"].fail(f"must be {VERSION}, the only version that this tool reads")
    return Manifest(
        arguments=tuple(_read_argument(item) for item in root["arguments"].items()),
        buffers=tuple(_read_buffer(item) for item in root["buffers"].items()),
        uses=tuple(item.texts() for item in root["uses"].items()),
        demoted=root["demoted"].integers() if "demoted" in root else (),
        amplified=root["amplified"].integers() if "amplified" in root else (),
        numerics=_read_numerics(root["numerics"]) if "numerics" in root else None,
        non_terminal="non_terminal" in root and root["non_terminal"].boolean(),
        expects=_read_residents(root, "expects"),
        leaves=_read_residents(root, "leaves"),
        target=_read_target(root["target"]) if "target" in root else packaged_target(),
    )


def _read_residents(root: Field, name: str) -> tuple[Resident, ...]:
    return tuple(_read_resident(item) for item in root[name].items()) if name in root else ()


def _read_resident(field: Field) -> Resident:
    _require_fields(field, Resident)
    return Resident(
        buffer=field["buffer"].text(),
        cores=field["cores"].integers() if "cores" in field else (),
        layout=field["layout"].texts() if "layout" in field else (),
    )


def _read_numerics(field: Field) -> str:
    if field.text() not in MODES:
        field.fail(f"must be one of {', '.join(MODES)}")
    return field.text()


def _read_target(field: Field) -> Target:
    sections = {name: dict(section.members()) for name, section in field.members()}
    values = {name: {key: member.value for key, member in table.items()} for name, table in sections.items()}
    return packaged_target().overlaid(values, field.filename)


def _require_fields(field: Field, kind: type) -> None:
    names = {attribute.name for attribute in dataclasses.fields(kind)}
    for key, member in field.members():
        if key not in names:
            member.fail("is not part of the format")


def _read_argument(field: Field) -> KernelArgument:
    _require_fields(field, KernelArgument)
    return KernelArgument(
        name=field["name"].text(),
        kind=field["kind"].text(),
        parameter=field["parameter"].text(),
        host_dtype=field["host_dtype"].text(),
        host_shape=field["host_shape"].integers(),
        data_format=field["data_format"].text(),
        device_size=field["device_size"].integers(),
        bytes=field["bytes"].integer(),
        transfer=_read_transfer(field["transfer"]),
        fill=_read_fill(field["fill"]) if "fill" in field else None,
        source=field["source"].text() if "source" in field else None,
        index_bounds=_read_index_bounds(field["index_bounds"]) if "index_bounds" in field else None,
    )


def _read_index_bounds(field: Field) -> IndexBounds:
    _require_fields(field, IndexBounds)
    return IndexBounds(field["lower"].integer(), field["upper"].integer(), field["operation"].text())


def _read_fill(field: Field) -> float:
    if field.value in ("inf", "-inf", "nan"):
        return float(field.value)
    return field.number()


def _read_transfer(field: Field) -> Transfer:
    _require_fields(field, Transfer)
    return Transfer(
        ranges=field["ranges"].integers(),
        host_strides=field["host_strides"].integers(),
        device_strides=field["device_strides"].integers(),
        bounds=tuple(_read_bound(item) for item in field["bounds"].items()),
        host_offset=field["host_offset"].integer(),
    )


def _read_bound(field: Field) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    parts = field.items()
    if len(parts) != 3:
        field.fail("must hold the loops, their weights and the size")
    return parts[0].integers(), parts[1].integers(), parts[2].integer()


def _read_buffer(field: Field) -> Buffer:
    _require_fields(field, Buffer)
    return Buffer(
        name=field["name"].text(),
        base=field["base"].text(),
        offset=field["offset"].integer(),
        bytes=field["bytes"].integer(),
        reasons=field["reasons"].texts() if "reasons" in field else (),
    )
