# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A bundle without cores: the same operations on whole tensors, each by one core, all in device memory.

Who works on which slice must not matter to the numbers. So a bundle whose run gives other numbers than this one is no
program: some core has taken one element of a tensor for another. Nothing of the validator is used here. Buffers in LX
become tensors in device memory; operands that are parts of what LX holds have no such form.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from spyre_mlir.bundle.model import Allocate, Buffer, Bundle, Design, Execute, Loop, Operand, Statement

STICK_BYTES = 128


def unsharded(bundle: Bundle) -> Bundle:
    """The bundle on one core, without LX; ``ValueError`` for one that has parts in LX."""
    return _Unsharded(bundle).bundle()


class _Unsharded:
    def __init__(self, bundle: Bundle) -> None:
        self.old = bundle
        self.offsets = {buffer.name: buffer.offset for buffer in bundle.manifest.buffers}
        self.designs: dict[str, Design] = {}
        self.sizes: dict[str, int] = {}  # bytes of the buffers of LX
        self.position = 0

    def bundle(self) -> Bundle:
        statements = self.block(self.old.statements)
        allocations = [Allocate(f"whole {name}", size) for name, size in self.sizes.items()]
        buffers = [
            Buffer(each.name, f"whole {each.name}", 0, self.sizes[each.name])
            if each.name in self.sizes
            else each
            for each in self.old.manifest.buffers
            if each.base != "lx" or each.name in self.sizes
        ]
        manifest = replace(self.old.manifest, buffers=tuple(buffers))
        return replace(
            self.old, statements=(*allocations, *statements), designs=self.designs, manifest=manifest
        )

    def block(self, statements: tuple[Statement, ...]) -> tuple[Statement, ...]:
        made: list[Statement] = []
        for statement in statements:
            if isinstance(statement, Loop):
                statement = replace(statement, body=self.block(statement.body))
            elif isinstance(statement, Execute):
                statement = self.execute(statement)
            made.append(statement)
        return tuple(made)

    def execute(self, statement: Execute) -> Execute:
        design = self.old.designs[statement.filename]
        values = dict(zip(statement.symbol_ids, statement.operands, strict=True))
        names = self.old.manifest.uses[self.position]
        operands, addresses = [], []
        for number, (operand, name) in enumerate(zip(design.operands, names, strict=True)):
            addresses.append(self.address(design, operand, name, values))
            gap = operand.gap if operand.memory == "hbm" else {}
            operands.append(replace(operand, memory="hbm", start=(-1 - number,), gap=gap, held=None))
        filename = f"sdsc_{self.position}.json"
        self.designs[filename] = replace(
            design,
            index=self.position,
            opcode="identity" if design.opcode == "shuffle" else design.opcode,
            slices=dict.fromkeys(design.sizes, 1),
            shares=dict(design.sizes),
            core_slices=(dict.fromkeys(design.sizes, 0),),
            operands=tuple(operands),
        )
        self.position += 1
        return Execute(filename, tuple(addresses), tuple(-1 - number for number in range(len(operands))))

    def address(self, design: Design, operand: Operand, name: str, values: dict[int, str]) -> str:
        """The value that is the address of the whole tensor: where the core with its first slices begins."""
        if operand.memory == "lx":
            size = _bytes(design, operand)
            if (
                operand.gap
                or set(operand.start) != {self.offsets[name]}
                or self.sizes.get(name, size) != size
            ):
                raise ValueError("a part of LX")
            self.sizes[name] = size
            return f"whole {name}"
        varying = [dim for dim in operand.dim_order if operand.scale[dim] == 1]
        first = next(
            core for core, own in enumerate(design.core_slices) if not any(own[dim] for dim in varying)
        )
        return values[operand.start[first]]


def _bytes(design: Design, operand: Operand) -> int:
    positions = (
        -(-design.sizes[dim] // operand.per_stick(dim))
        for dim in operand.dim_order
        if operand.scale[dim] == 1
    )
    return prod(positions) * STICK_BYTES
