# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`manifest.json`: the host's side of a bundle, as the fields of ``Manifest`` by their names (``json_fields.py``).

A fill value that JSON cannot represent is written as the string "inf", "-inf" or "nan". An argument has a
fill only if the host writes its padding, a source only if it takes the array of another argument, and index bounds
only if its numbers are indices. A buffer has reasons only if there are any. A manifest has demoted, amplified and
wide-sum executes, numerics and origins of executes only if there are any. The same holds for the fields of a bundle in
a sequence: non-terminal, the buffers it expects and the buffers it leaves. The target is written as the fields of the
device file that differ from the packaged file, by section.

The member ``padding`` has the padding of the dims of each design (``Design.padding``), by the file of the design.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from spyre_mlir.bundle.json_fields import Field, from_plain, to_plain
from spyre_mlir.bundle.model import Design, KernelArgument, Manifest
from spyre_mlir.target.formats import MODES
from spyre_mlir.target.target import packaged_target

VERSION = 1


def manifest_to_json(manifest: Manifest) -> dict[str, Any]:
    """Return the JSON object of a manifest."""
    target = manifest.target.differences()
    # The version first, so that a reader of another version sees it before anything else.
    value = {"version": manifest.version, **to_plain(manifest, for_json=True)}
    return {**value, "target": target} if target else value


def argument_to_json(argument: KernelArgument) -> dict[str, Any]:
    """Return the JSON object of one argument."""
    return to_plain(argument, for_json=True)


def manifest_from_json(value: Any, filename: str) -> Manifest:
    """Return the manifest of a JSON object; ``CompileError`` with file and field for an invalid object."""
    root = Field(value, filename)
    if root["version"].integer() != VERSION:
        root["version"].fail(f"must be {VERSION}, the only version that this tool reads")
    others = {key: member for key, member in value.items() if key not in ("target", "padding")}
    manifest = from_plain(Manifest, Field(others, filename), from_json=True)
    if manifest.numerics not in (None, *MODES):
        root["numerics"].fail(f"must be one of {', '.join(MODES)}")
    if "target" not in root:
        return manifest
    sections = root["target"].members()
    values = {name: {key: member.value for key, member in section.members()} for name, section in sections}
    return replace(manifest, target=packaged_target().overlaid(values, filename))


def padding_to_json(designs: Mapping[str, Design]) -> dict[str, Any]:
    """Return the manifest member with the padding of designs by their files; empty if nothing is padded."""
    padding = {filename: dict(design.padding) for filename, design in designs.items() if design.padding}
    return {"padding": padding} if padding else {}


def with_padding(designs: Mapping[str, Design], value: Any, filename: str) -> dict[str, Design]:
    """Return the designs of a bundle with the padding from the JSON object of its manifest.

    A manifest of an older version does not have this member; the reader took the padding from the designs instead.
    """
    root, padded = Field(value, filename), dict(designs)
    for name, dims in root["padding"].members() if "padding" in root else ():
        if name not in designs:
            dims.fail("is the padding of no design of the bundle")
        padding = dims.integers_by_key()
        if designs[name].padding not in ({}, padding):
            dims.fail("is not the padding that the design has in paddingSizes_")
        padded[name] = replace(designs[name], padding=padding)
    return padded
