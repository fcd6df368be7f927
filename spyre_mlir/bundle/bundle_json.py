# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A bundle as one JSON value: the files of its folder, without arrays and remarks."""

from __future__ import annotations

from typing import Any

from spyre_mlir.bundle.design_json import from_json
from spyre_mlir.bundle.design_writer import to_json
from spyre_mlir.bundle.json_fields import Field
from spyre_mlir.bundle.manifest_json import (
    manifest_from_json,
    manifest_to_json,
    padding_to_json,
    with_padding,
)
from spyre_mlir.bundle.model import Bundle
from spyre_mlir.bundle.program_parser import parse_program
from spyre_mlir.bundle.program_text import print_program


def bundle_to_json(bundle: Bundle) -> dict[str, Any]:
    """Return the JSON value of a bundle."""
    return {
        "program": print_program(bundle.parameters, bundle.statements),
        "manifest": {**manifest_to_json(bundle.manifest), **padding_to_json(bundle.designs)},
        "designs": {filename: to_json(design) for filename, design in bundle.designs.items()},
    }


def bundle_from_json(value: Any, source: str) -> Bundle:
    """Return the bundle of a JSON value; ``CompileError`` that names ``source`` for anything missing or odd."""
    root = Field(value, source)
    parameters, statements = parse_program(root["program"].text(), source)
    manifest = manifest_from_json(root["manifest"].value, source)
    designs = {
        filename: from_json(design.value, source, manifest.target)
        for filename, design in root["designs"].members()
    }
    return Bundle(parameters, statements, with_padding(designs, root["manifest"].value, source), manifest)
