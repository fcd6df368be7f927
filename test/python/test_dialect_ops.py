# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of the dialects in their generic form, which a text may have: a diagnostic, or an operation."""

from __future__ import annotations

import itertools

import pytest

from spyre_mlir import dialects
from spyre_mlir.mlir import ir

OPS = (
    "sdsc.clone", "sdsc.shuffle", "stick.restickify", "stick.pin",
    "sdscbundle.sdsc_execute", "sdscbundle.device_mem_allocate", "sdscbundle.input_arg_extract",
)  # fmt: skip
FORMS = (
    "() {A} : () -> ()", "() {A} : () -> index", "(%i) {A} : (index) -> ()", "(%i) {A} : (index) -> index",
    "(%t) {A} : (tensor<4xf16>) -> tensor<4xf16>", "(%t) {A} : (tensor<4xf16>) -> tensor<8xf16>",
    "(%t, %i) {A} : (tensor<4xf16>, index) -> tensor<4xf16>", "(%u) {A} : (tensor<*xf16>) -> tensor<*xf16>",
)  # fmt: skip
VALUES = (
    "",
    "3 : i64",
    "-1 : i64",
    '"text"',
    "[]",
    '["text"]',
    "[-1]",
    "unit",
    "#stick.layout<affine_map<(d0) -> (d0)>>",
)
NAMES = ("bytes", "what", "sdsc_filename", "symbol_ids", "stick.to")


@pytest.mark.parametrize("op", OPS)
def test_a_malformed_operation_is_an_error_and_no_exception_of_python(op: str) -> None:
    """Every form of operands and results with every kind of value of every attribute."""
    for form, value in itertools.product(FORMS, VALUES):
        attributes = ", ".join(f"{name} = {value}" for name in NAMES) if value else ""
        text = "func.func @main(%i: index, %t: tensor<4xf16>, %u: tensor<*xf16>) {\n  "
        text += "" if form.endswith("-> ()") else "%r = "
        text += f'"{op}"' + form.replace("{A}", f"{{{attributes}}}") + "\n  return\n}"
        try:
            ir.Module.parse(text, dialects.context())
        except ir.MLIRError as error:
            assert error.error_diagnostics
