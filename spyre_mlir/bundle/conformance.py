# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The conformance check: where a design is not as torch-spyre writes it, and how much that matters.

The validator asks whether a bundle means something and means it once. This asks whether the back end would take it: the
rules are facts of the SuperDSC schema, of the SuperDSC specification, and of the designs and the code of
torch-spyre. They look at the JSON of a design as it is in its file, so they also find what a reader makes good.
"""

from __future__ import annotations

import enum
import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spyre_mlir.bundle import conformance_layouts, conformance_operations
from spyre_mlir.bundle.conformance_fields import DesignFields, Difference, missing_members
from spyre_mlir.bundle.json_fields import Field, load, shorten
from spyre_mlir.errors import CompileError
from spyre_mlir.records import dataclass

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator


class Weight(enum.Enum):
    """How much a difference matters to the back end."""

    REFUSED = "likely refused"
    MISREAD = "may be misread"
    COSMETIC = "cosmetic"


@dataclass(frozen=True)
class ConformanceRule:
    """One fact of the format: how much it matters, where it is written, and what finds the fields that differ."""

    weight: Weight
    source: str
    check: Callable[[DesignFields], Iterator[Difference]]


SCHEMA = "schema"
_SCHEMA_SOURCE = "SDSC Bundle JSON Schema 1.0.0"
_SPEC = "SuperDSC bundle specification 1.0.0"
_EMITTER = "torch-spyre, _inductor/codegen/compute_ops.py"
_PARSER = "torch-spyre, _inductor/codegen/superdsc.py"
_CONTRACT = "LX Relayout SHUFFLE Contract"

#: The rules by name. A design that is not even of the schema's form is checked against nothing else.
RULES: dict[str, ConformanceRule] = {
    "matmul-dims": ConformanceRule(
        Weight.REFUSED, f"{_SPEC}, stick constraints of BatchMatmul", conformance_layouts.matmul_dims
    ),
    "matmul-roles": ConformanceRule(
        Weight.REFUSED, f"{_PARSER}, MATMUL_LAYOUT_LABELS", conformance_layouts.matmul_roles
    ),
    "roles": ConformanceRule(Weight.MISREAD, f"{_PARSER}, LAYOUT_LABELS", conformance_layouts.roles),
    "cast-rows": ConformanceRule(Weight.REFUSED, f"{_PARSER}, parse_op_spec", conformance_layouts.cast_rows),
    "dim-labels": ConformanceRule(
        Weight.REFUSED, f"{_SCHEMA_SOURCE}, DataStructDims", conformance_layouts.dim_labels
    ),
    "folds": ConformanceRule(Weight.MISREAD, f"{_EMITTER}, gen_coord_info_value", conformance_layouts.folds),
    "padding-sizes": ConformanceRule(
        Weight.REFUSED, f"{_SPEC}, padding of windows; {_EMITTER}", conformance_layouts.padding_sizes
    ),
    "stage-names": ConformanceRule(
        Weight.MISREAD, f"{_SPEC}, dataStageParam_; {_EMITTER}", conformance_operations.stage_names
    ),
    "constant-data": ConformanceRule(
        Weight.MISREAD, f"{_EMITTER}, generate_constant_info", conformance_operations.constant_data
    ),
    "mask-constant": ConformanceRule(
        Weight.REFUSED, f"{_PARSER}, _get_coordinate_mask", conformance_operations.mask_constant
    ),
    "reduction-inputs": ConformanceRule(
        Weight.MISREAD, f"{_PARSER}, num_inputs", conformance_operations.reduction_inputs
    ),
    "restickify-format": ConformanceRule(
        Weight.REFUSED, f"{_SPEC}, ReStickifyOpHBM", conformance_operations.restickify_format
    ),
    "shuffle": ConformanceRule(
        Weight.REFUSED, f"{_CONTRACT}, descriptor shape", conformance_operations.shuffle
    ),
    "members": ConformanceRule(Weight.COSMETIC, f"{_EMITTER}, generate_sdsc", missing_members),
}


@dataclass(frozen=True)
class Nonconformance:
    """One field of a design that is not as torch-spyre writes it."""

    rule: str
    filename: str
    path: str
    sentence: str

    @property
    def weight(self) -> Weight:
        return Weight.REFUSED if self.rule == SCHEMA else RULES[self.rule].weight

    @property
    def source(self) -> str:
        return _SCHEMA_SOURCE if self.rule == SCHEMA else RULES[self.rule].source

    def __str__(self) -> str:
        where = f"{self.filename}: {self.path}" if self.path else self.filename
        return f"{where} {self.sentence} [{self.rule}, {self.weight.value}; {self.source}]"


def check_design(value: Any, filename: str) -> list[Nonconformance]:
    """All differences of the JSON of a design."""
    findings = [Nonconformance(SCHEMA, filename, *difference) for difference in _schema_differences(value)]
    if findings:
        return findings
    try:
        design = DesignFields.of(Field(value, filename))
        return [
            Nonconformance(name, filename, *difference)
            for name, rule in RULES.items()
            for difference in rule.check(design)
        ]
    # The schema leaves open much that the rules have to look up, such as the layout of a role.
    except CompileError as error:
        return [Nonconformance(SCHEMA, filename, "", error.message)]


def check_folder(folder: Path) -> tuple[int, list[Nonconformance]]:
    """The number of designs in the folder of a bundle or a program, and all differences of theirs."""
    files = sorted(folder.rglob("sdsc*.json"), key=lambda path: (path.parent, len(path.name), path.name))
    if not files:
        raise CompileError("There is no design, sdsc_<number>.json, in this folder.", str(folder))
    findings: list[Nonconformance] = []
    for path in files:
        findings += check_design(load(path).value, path.relative_to(folder).as_posix())
    return len(files), findings


@functools.cache
def packaged_schema() -> Draft202012Validator:
    """The schema of a design that the package has; ``CompileError`` without the library that checks schemas."""
    try:
        from jsonschema import Draft202012Validator
    except ImportError:
        raise CompileError(
            "Checking designs needs jsonschema, which is not installed; the extra 'conformance' of spyre-mlir has it."
        ) from None
    text = Path(__file__).with_name("sdsc.schema.json").read_text(encoding="utf-8")
    return Draft202012Validator(json.loads(text))


def _schema_differences(value: Any) -> Iterator[Difference]:
    """Yield the fields that the schema does not allow; of several forms the one that fits furthest says which."""
    for error in packaged_schema().iter_errors(value):
        while error.context:
            error = max(error.context, key=lambda cause: len(cause.absolute_path))
        path = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in error.absolute_path)
        yield path.lstrip("."), f"does not fit the schema: {shorten(error.message)}"
