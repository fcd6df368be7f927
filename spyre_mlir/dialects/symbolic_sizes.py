# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run-time sizes in the IR: the sizes of a function, and the dims of arguments and constants that follow them.

    func.func @main(%x: tensor<1x1024x64xf16> {sdsc.symbolic = {d1 = ["S", 1 : i64]}}, ..)
        attributes {sdsc.sizes = {S = array<i64: 64, 1024>}}

``sdsc.sizes`` has the granularity and the largest value of each size. ``sdsc.symbolic`` has, by dim, its size and the
number of elements per unit of the size. Types have the largest sizes. A function without ``sdsc.sizes`` is static.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from spyre_mlir.dialects.attributes import from_attribute, to_attribute
from spyre_mlir.errors import CompileError
from spyre_mlir.layout.space import SymbolicDim, SymbolicDims
from spyre_mlir.mlir import ir, location_of

SIZES, SYMBOLIC = "sdsc.sizes", "sdsc.symbolic"

#: On an argument that is a view of its host array: the symbolic dims of the host array.
SYMBOLIC_HOST = "sdsc.symbolic_host"


def sizes_attr(sizes: Mapping[str, tuple[int, int]]) -> ir.Attribute:
    """Build ``sdsc.sizes`` from granularity and largest value by name. Needs a current context."""
    return to_attribute({name: list(pair) for name, pair in sizes.items()})


def symbolic_attr(dims: SymbolicDims) -> ir.Attribute:
    """Build ``sdsc.symbolic``. Needs a current context."""
    return to_attribute({f"d{dim}": [symbolic.name, symbolic.factor] for dim, symbolic in dims.items()})


def sizes_of(func: ir.Operation) -> dict[str, tuple[int, int]]:
    """Return the granularity and largest value of the run-time sizes of a function by name; empty if it has none."""
    if SIZES not in func.attributes:
        return {}
    value = from_attribute(func.attributes[SIZES])
    is_sound = isinstance(value, dict)
    for entry in value.values() if is_sound else ():
        match entry:
            # Not ``int(..)`` alone: bool is also an int in Python.
            case [int(granularity), int(most)] if bool not in map(type, entry):
                is_sound = is_sound and 0 < granularity <= most and most % granularity == 0
            case _:
                is_sound = False
    if not is_sound:
        message = f"'{SIZES}' must have a granularity and a largest value, a multiple of it, by name"
        raise CompileError(message, location_of(func.location))
    return {name: (granularity, most) for name, (granularity, most) in value.items()}


def symbolic_of(
    attribute: ir.Attribute,
    sizes: Mapping[str, tuple[int, int]],
    shape: tuple[int, ...],
    location: ir.Location,
) -> SymbolicDims:
    """Return the dims of ``sdsc.symbolic``, by the sizes of the function; ``CompileError`` for an unfit shape."""
    value = from_attribute(attribute)
    dims: SymbolicDims = {}
    for key, entry in value.items() if isinstance(value, dict) else [(str(attribute), [])]:
        match entry:
            case [name, int(factor)] if (
                re.fullmatch(r"d\d+", key) and name in sizes and type(factor) is int and factor > 0
            ):
                dim, symbolic = int(key[1:]), SymbolicDim(name, *sizes[name], factor)
            case _:
                message = f"'{SYMBOLIC}' must have a size of '{SIZES}' and a factor by dim, not {attribute}"
                raise CompileError(message, location_of(location))
        if dim >= len(shape) or shape[dim] != symbolic.extent:
            what = f"{factor} times the largest '{name}'"
            message = f"{key} of a tensor of shape {list(shape)} is not {symbolic.extent}, {what}"
            raise CompileError(message, location_of(location))
        dims[dim] = symbolic
    return dims
