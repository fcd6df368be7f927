# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the level *bundle*."""

from __future__ import annotations

from typing import ClassVar

from spyre_mlir.analysis.aliasing import all_ops, functions
from spyre_mlir.bundle.validate import validate
from spyre_mlir.errors import CompileError
from spyre_mlir.lowering.export import export
from spyre_mlir.mlir import ir, location_of
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class VerifyBundle(Pass):
    """Check that the module is a bundle and obeys all rules of the SuperDSC specification (``spyre-validate``).

    An error is reported at the op that executes the design that breaks a rule.
    """

    name: ClassVar[str] = "verify-bundle"
    is_evaluated: ClassVar[bool] = False

    def run(self, module: ir.Operation) -> None:
        bundle, _ = export(module)
        findings = validate(bundle)
        if not findings:
            return
        # A finding begins with the name of the file that it concerns; not each is about a single design.
        filename, where = findings[0].where.partition(" ")[0], module
        for op in (op for func in functions(module) for op in all_ops(func)):
            if op.name == "sdscbundle.sdsc_execute":
                if ir.StringAttr(op.attributes["sdsc_filename"]).value == filename:
                    where = op
                    break
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        raise CompileError(f"{findings[0]}{more}", location_of(where.location))
