# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Addresses in device memory as SSA values of a bundle, each with the symbol by which designs name it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from spyre_mlir.dialects import sdscbundle
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class DeviceAddress:
    """Address in device memory: ``offset`` bytes from a base, plus bytes per iteration for each loop variable.

    An index that is known at run time moves an address as the variable of a loop does.
    """

    base: str
    offset: int
    moves: tuple[tuple[ir.Value, int], ...] = ()


class AddressTable:
    """Symbols and values of addresses, one of each per distinct address; values are built where first used."""

    def __init__(self) -> None:
        self.bases: dict[str, ir.Value] = {}
        self.symbols: dict[DeviceAddress, int] = {}
        self.values: dict[DeviceAddress, ir.Value] = {}
        # loops: the old one and its count from 0; indices; run-time sizes, which are themselves
        self.variables: dict[ir.Value, ir.Value] = {}
        self.sizes: dict[str, ir.Value] = {}
        self._size_symbols: dict[tuple[str, int], tuple[int, ir.Value]] = {}

    def declare_bases(self, names: Sequence[str], parameters: Sequence[ir.Value], pool_bytes: int) -> None:
        """Build the base of each parameter, and of a pool of that size unless it is empty."""
        for name, parameter in zip(names, parameters, strict=True):
            self.bases[name] = sdscbundle.input_arg_extract(parameter)
        if pool_bytes:
            self.bases["pool"] = sdscbundle.device_mem_allocate(pool_bytes)

    def declare_index(self, index: ir.Value, parameter: ir.Value) -> None:
        """Build the value of an index that is a parameter."""
        self.variables[index] = sdscbundle.input_arg_extract(parameter)

    def declare_size(self, name: str, parameter: ir.Value) -> None:
        """Build the value of a run-time size."""
        value = sdscbundle.input_arg_extract(parameter)
        self.sizes[name] = self.variables[value] = value

    def size_symbol(self, name: str, factor: int) -> tuple[int, ir.Value]:
        """Return the symbol and the value of a multiple of a run-time size."""
        key = name, factor
        if key not in self._size_symbols:
            size = self.sizes[name]
            # Built where the size is, so that it dominates all uses.
            with ir.InsertionPoint.after(size.owner):
                value = size if factor == 1 else _multiple(size, factor)
            self._size_symbols[key] = self._next_symbol(), value
        return self._size_symbols[key]

    def _next_symbol(self) -> int:
        # Negative numbers, by which a design tells symbols from addresses in LX.
        return -(len(self.symbols) + len(self._size_symbols) + 1)

    @contextlib.contextmanager
    def in_loop(self, variable: ir.Value, count: ir.Value) -> Iterator[None]:
        """Map a loop variable to its count in the bundle, and forget at the end the values built in the body."""
        self.variables[variable] = count
        # Values of the body do not dominate uses behind the loop; symbols name addresses, not values, and stay.
        outside = self.values.copy()
        yield
        self.values = outside

    def symbol(self, address: DeviceAddress) -> tuple[int, ir.Value]:
        """Return the symbol and the value of an address."""
        if address not in self.values:
            self.values[address] = self._computed(address)
        symbol = self.symbols.setdefault(address, self._next_symbol())
        return symbol, self.values[address]

    def _computed(self, address: DeviceAddress) -> ir.Value:
        value, index = self.bases[address.base], ir.IndexType.get()
        if address.offset:
            operands = [value, index_constant(address.offset)]
            value = ir.Operation.create("arith.addi", results=[index], operands=operands).result
        if not address.moves:
            return value
        moved: ir.AffineExpr = ir.AffineSymbolExpr.get(0)
        for dim, (_, stride) in enumerate(address.moves):
            moved = moved + ir.AffineDimExpr.get(dim) * stride
        map_ = ir.AffineMap.get(len(address.moves), 1, [moved])
        variables = [self.variables[variable] for variable, _ in address.moves]
        return ir.Operation.create(
            "affine.apply",
            results=[index],
            operands=[*variables, value],
            attributes={"map": ir.AffineMapAttr.get(map_)},
        ).result


def _multiple(size: ir.Value, factor: int) -> ir.Value:
    """Build the product of a size and a number."""
    map_ = ir.AffineMap.get(1, 0, [ir.AffineDimExpr.get(0) * factor])
    attributes = {"map": ir.AffineMapAttr.get(map_)}
    return ir.Operation.create("affine.apply", [ir.IndexType.get()], [size], attributes).result


def index_constant(value: int) -> ir.Value:
    """Build an ``arith.constant`` of type ``index``."""
    index = ir.IndexType.get()
    attributes = {"value": ir.IntegerAttr.get(index, value)}
    return ir.Operation.create("arith.constant", results=[index], attributes=attributes).result
