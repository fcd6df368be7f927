# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instances of a bundle with run-time sizes at given sizes, with numbers instead of the parameters.

A design with symbolic dims is planned for the largest size, and memory is laid out for the largest size: buffers,
strides and addresses in LX are the same at every size. Only the computation follows the size: the extent of a dim, and
with it the slice of each core. The slice is the same fraction of the dim at every size, so its start address is linear
in the size. An instance does not have parameters that are sizes, and everything that runs, estimates or checks a
bundle accepts an instance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Protocol

from spyre_mlir.bundle import model
from spyre_mlir.bundle.core_slices import operand_shares
from spyre_mlir.errors import CompileError


def instance(bundle: model.Bundle, sizes: Mapping[str, int]) -> model.Bundle:
    """Return the bundle at these ``sizes`` by name; ``CompileError`` for a missing or invalid size."""
    runtime = {size.parameter: _checked(size, sizes) for size in bundle.manifest.sizes}
    names = {size.name for size in bundle.manifest.sizes}
    if unknown := sorted(sizes.keys() - names):
        known = ", ".join(sorted(names)) or "none"
        raise CompileError(f"The program has no run-time size '{unknown[0]}'; its sizes are: {known}.")
    if not runtime:
        return bundle
    folding = _SizeFolding(runtime)
    statements = model.rewritten(bundle.statements, folding.fold)
    manifest = bundle.manifest
    return model.Bundle(
        tuple(parameter for parameter in bundle.parameters if parameter.name not in runtime),
        statements,
        {name: at_size(design, folding.symbols) for name, design in bundle.designs.items()},
        replace(
            manifest, sizes=(), arguments=tuple(_resized(argument, sizes) for argument in manifest.arguments)
        ),
    )


class HasShape(Protocol):
    """An array, or the header of an array."""

    @property
    def shape(self) -> tuple[int, ...]: ...


def sizes_of(bundle: model.Bundle, arrays: Mapping[str, HasShape]) -> dict[str, int]:
    """Return the run-time sizes of host arrays by argument name; the largest value for a size that no array has.

    ``CompileError`` if two arrays have different values of a size, or a dim is not a multiple of its factor.
    """
    sizes: dict[str, int] = {}
    for argument in bundle.manifest.arguments:
        array = arrays.get(argument.array_name)
        if array is None:
            continue
        shape = array.shape
        for extent in argument.symbolic:
            if len(shape) != len(argument.host_shape) or shape[extent.dim] % extent.factor:
                raise CompileError(
                    f"The array of '{argument.name}' has shape {list(shape)}; at its largest it has "
                    f"{list(argument.host_shape)}, and dim {extent.dim} is a multiple of {extent.factor}."
                )
            size = shape[extent.dim] // extent.factor
            if sizes.setdefault(extent.size, size) != size:
                raise CompileError(
                    f"Dim '{extent.size}' has size {size} in '{argument.name}' and {sizes[extent.size]} elsewhere."
                )
    return {size.name: sizes.get(size.name, size.max_value) for size in bundle.manifest.sizes}


def at_arrays(bundle: model.Bundle, arrays: Mapping[str, HasShape]) -> model.Bundle:
    """Return the bundle at the sizes of host arrays by argument name."""
    return instance(bundle, sizes_of(bundle, arrays)) if bundle.manifest.sizes else bundle


def largest(bundle: model.Bundle) -> model.Bundle:
    """Return the bundle at its largest sizes; the bundle itself if it has none."""
    return instance(bundle, {size.name: size.max_value for size in bundle.manifest.sizes})


def sizes_to_check(bundle: model.Bundle) -> list[dict[str, int]]:
    """Return the sizes at which the rules of a bundle are checked: the smallest, the largest and one in between."""
    sizes = bundle.manifest.sizes
    if not sizes:
        return []
    steps = [size.max_value // size.granularity for size in sizes]
    choices = ([count for count in steps], [1 for _ in steps], [(count + 1) // 2 for count in steps])
    distinct = dict.fromkeys(tuple(choice) for choice in choices)
    return [
        {size.name: count * size.granularity for size, count in zip(sizes, counts, strict=True)}
        for counts in distinct
    ]


def _checked(size: model.RuntimeSize, sizes: Mapping[str, int]) -> int:
    """Return the value of a size that the caller gives; ``CompileError`` for an invalid value."""
    if size.name not in sizes:
        raise CompileError(f"The program needs the run-time size '{size.name}'.")
    value = sizes[size.name]
    if not 0 < value <= size.max_value:
        raise CompileError(f"Dim '{size.name}' has size {value}, but at most {size.max_value}.")
    if value % size.granularity:
        raise CompileError(
            f"The size {value} of dim '{size.name}' is not a multiple of its granularity {size.granularity}."
        )
    return value


class _SizeFolding:
    """The values of a program that become numbers at given sizes, by name, and the values of execute symbols."""

    def __init__(self, runtime: Mapping[str, int]) -> None:
        self.runtime = runtime
        self.values: dict[str, int] = {}
        self.symbols: dict[int, int] = {}

    def fold(self, statement: model.Statement) -> list[model.Statement]:
        """Return a statement with these values folded into it; nothing for a statement whose result is a number."""
        match statement:
            case model.Extract(result, parameter) if parameter in self.runtime:
                self.values[result] = self.runtime[parameter]
                return []
            case model.Apply(result, dims, symbols, coefficients, offset):
                pairs = list(zip((*dims, *symbols), coefficients, strict=True))
                kept = tuple(coefficient for name, coefficient in pairs if name not in self.values)
                offset += sum(factor * self.values[name] for name, factor in pairs if name in self.values)
                if not kept:
                    self.values[result] = offset
                    return []
                dims, symbols = (
                    tuple(name for name in names if name not in self.values) for names in (dims, symbols)
                )
                return [model.Apply(result, dims, symbols, kept, offset)]
            case model.Execute(filename, operands, symbol_ids):
                pairs = list(zip(operands, symbol_ids, strict=True))
                self.symbols |= {symbol: self.values[name] for name, symbol in pairs if name in self.values}
                addresses = [(name, symbol) for name, symbol in pairs if name not in self.values]
                names = tuple(name for name, _ in addresses)
                return [model.Execute(filename, names, tuple(symbol for _, symbol in addresses))]
        return [statement]


def at_size(design: model.Design, symbols: Mapping[int, int]) -> model.Design:
    """Return a design at the sizes given by ``symbols``; the design itself if no dim is symbolic."""
    if not design.symbolic:
        return design
    for dim, size in design.symbolic.items():
        if size.symbol not in symbols:
            raise CompileError(
                f"No execute binds the symbol {size.symbol} of its dim {dim}.", design.filename
            )
        if dim in design.padding or size.granularity % (design.slices[dim] or 1):
            raise CompileError(
                f"Its dim {dim} grows by {size.granularity}, which is not a multiple of {design.slices[dim]} slices "
                "without padding.",
                design.filename,
            )
    sizes = design.sizes | {dim: symbols[size.symbol] for dim, size in design.symbolic.items()}
    # Each slice is the same fraction of its dim at every size.
    shares = design.shares | {dim: sizes[dim] // (design.slices[dim] or 1) for dim in design.symbolic}
    smaller = replace(design, sizes=sizes, shares=shares, symbolic={})
    operands = []
    for operand in design.operands:
        # Gaps keep the memory extents of the largest size.
        before, after = (
            each.sizes if operand.memory == "hbm" else operand_shares(each, operand)
            for each in (design, smaller)
        )
        gap = dict(operand.gap)
        for dim in design.symbolic:
            missing = before[dim] - after[dim]
            if missing and operand.scale.get(dim) == 1:
                gap[dim] = gap.get(dim, 0) + missing
        operands.append(replace(operand, gap=gap))
    return replace(smaller, operands=tuple(operands))


def _resized(argument: model.KernelArgument, sizes: Mapping[str, int]) -> model.KernelArgument:
    """Return an argument with the host array of these sizes, in the device memory of the largest sizes."""
    if not argument.symbolic:
        return argument
    shape = list(argument.host_shape)
    for extent in argument.symbolic:
        shape[extent.dim] = extent.factor * sizes[extent.size]
    transfer = _resized_transfer(argument.transfer, argument.host_shape, tuple(shape))
    return replace(argument, host_shape=tuple(shape), transfer=transfer, symbolic=())


def _resized_transfer(
    transfer: model.Transfer, before: tuple[int, ...], after: tuple[int, ...]
) -> model.Transfer:
    """Return the transfer of a dense host array of shape ``after`` to the device positions of shape ``before``.

    A loop counts steps of a dim, identified by its bound or else by its stride; positions outside of the smaller array
    are padding. A loop over padding of a short dim has the stride of a step of another dim.
    """
    strides = [[prod(shape[dim + 1 :]) for dim in range(len(shape))] for shape in (before, after)]
    dim_of = {
        loop: dim
        for bounded, weights, size in transfer.bounds
        for dim, step in enumerate(strides[0])
        if before[dim] == size
        and all(
            transfer.host_strides[each] == weight * step
            for each, weight in zip(bounded, weights, strict=True)
        )
        for loop in bounded
    }
    loops: dict[int, list[tuple[int, int]]] = {}
    host_strides = []
    for loop, stride in enumerate(transfer.host_strides):
        by_stride = (dim for dim, step in enumerate(strides[0]) if stride >= step and before[dim] > 1)
        dim = dim_of.get(loop, next(by_stride, None))
        # A loop of one iteration does not move.
        if dim is None or not stride or transfer.ranges[loop] == 1:
            host_strides.append(stride)
            continue
        weight = stride // strides[0][dim]
        loops.setdefault(dim, []).append((loop, weight))
        host_strides.append(weight * strides[1][dim])
    resized = {dim for dim in range(len(before)) if before[dim] != after[dim]}
    # A bound applies to the dim that its loops count.
    counting = {loop for dim in resized for loop, _ in loops.get(dim, ())}
    kept = [bound for bound in transfer.bounds if counting.isdisjoint(bound[0])]
    bounds = [
        (tuple(loop for loop, _ in loops[dim]), tuple(weight for _, weight in loops[dim]), after[dim])
        for dim in sorted(resized)
        if dim in loops
    ]
    return replace(transfer, host_strides=tuple(host_strides), bounds=(*kept, *bounds))
