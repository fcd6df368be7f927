# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lowers placed device operations to KTIR, the tile programs of RFC 0682."""

from __future__ import annotations

from typing import ClassVar

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.bundle.json_fields import to_plain
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import ktdp
from spyre_mlir.dialects.attributes import to_attribute
from spyre_mlir.dialects.indices import sizes_of
from spyre_mlir.ktir.function_lowering import lowered
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.passes.convert_sdsc_to_sdscbundle import bundle_of
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class ConvertSdscToKtir(Pass):
    """Turn a placed program into one function of ``ktdp``, ``linalg``, ``arith``, ``math``, ``tensor`` and ``scf``.

    Every core runs the function and computes its part of each operand from its core number. Values in LX are tensors;
    with ``addresses`` they are memory in the core's LX, at the addresses of the plan, shifted past the area that the
    public interpreter reserves. All cores synchronise where a core reads data that another core writes.

    Before: level *placed*, one function. After: a function of KTIR (RFC 0682), whose arguments are memories.
    """

    name: ClassVar[str] = "convert-sdsc-to-ktir"
    addresses: bool = False

    def run(self, module: ir.Operation) -> None:
        (func,) = functions(module)
        name = ir.StringAttr(func.attributes["sym_name"]).value
        block = module.regions[0].blocks[0]
        if sizes := sizes_of(func):
            names = ", ".join(f"'{size}'" for size in sizes)
            raise error_at(
                func, f"KTIR has one size of each dim, and this program has run-time sizes: {names}"
            )
        bundle = bundle_of(module)
        for op in list(block.operations):
            op.operation.erase()
        with module.context, ir.Location.unknown(), ir.InsertionPoint(block):
            manifest = lowered(bundle, name, self.addresses)
            module.attributes[ktdp.MANIFEST] = to_attribute(to_plain(manifest))
