# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Delta debugging: the smallest part of a program that still shows a fault.

``smallest`` removes ever smaller chunks of a list while a check accepts the rest (Zeller and Hildebrandt, "Simplifying
and Isolating Failure-Inducing Input", 2002, without its test of single chunks, which are programs that rarely fail).
A list of n elements of which k are needed takes about 2 k log2(n) checks.

Any subset of the operations of a function is a program: the values of removed operations become arguments, and values
that only removed operations read become results.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir
from spyre_mlir.rewriting.outlining import is_constant, set_function_type, user_in_block

Element = TypeVar("Element")


def smallest(elements: Sequence[Element], is_faulty: Callable[[Sequence[Element]], bool]) -> list[Element]:
    """Return a part of the elements, in order, of which ``is_faulty`` refuses every part without one element."""
    kept, size = list(elements), max(1, len(elements) // 2)
    while kept:
        begin, before = len(kept), len(kept)
        # From the end: later operations read earlier ones, so a fault in the middle loses its readers first.
        while begin > 0:
            begin = max(0, begin - size)
            rest = kept[:begin] + kept[begin + size :]
            if len(rest) < len(kept) and is_faulty(rest):
                kept = rest
        if size == 1 and len(kept) == before:
            break
        size = max(1, min(size // 2, len(kept) // 2))
    return kept


# Programs in MLIR.


def body_of(module: ir.Operation) -> ir.Block:
    """Return the largest block of a function of the module; ``CompileError`` for a module without functions."""
    blocks = [
        op.operation.regions[0].blocks[0]
        for op in module.regions[0].blocks[0].operations
        if op.operation.name == "func.func" and len(op.operation.regions[0].blocks)
    ]
    if not blocks:
        raise CompileError("The module has no function whose operations can be removed.")
    return max(blocks, key=lambda block: len(block.operations))


def removable(module: ir.Operation) -> list[int]:
    """Return the positions, in ``body_of``, of the operations that count: all but constants and the terminator."""
    operations = [op.operation for op in body_of(module).operations]
    return [index for index, op in enumerate(operations[:-1]) if not is_constant(op)]


def keep_operations(module: ir.Operation, kept: Sequence[int]) -> None:
    """Remove the operations at the positions in ``removable`` that are not among ``kept``, and unused constants."""
    block = body_of(module)
    operations = [op.operation for op in block.operations]
    removed = {operations[index] for index in set(removable(module)) - set(kept)}
    returned, exits = operations[-1], []
    for op in operations[:-1]:
        if op not in removed and not is_constant(op):
            exits += [
                value
                for value in op.results
                if any(
                    user_in_block(use, op) in removed or use.owner.operation == returned for use in value.uses
                )
            ]
    with module.context, ir.Location.unknown(), ir.InsertionPoint(returned):
        ir.Operation.create(returned.name, operands=exits)
        returned.erase()
        for op in reversed(operations[:-1]):
            if op in removed:
                for value in op.results:
                    if any(True for _ in value.uses):
                        value.replace_all_uses_with(block.add_argument(value.type, ir.Location.unknown()))
                op.erase()
            elif is_constant(op) and not any(True for value in op.results for _ in value.uses):
                op.erase()
        _drop_unused_arguments(block)


def _drop_unused_arguments(block: ir.Block) -> None:
    """Remove unused arguments of a function, and write its type and its attributes of arguments again."""
    func = block.owner.operation
    attributes = list(func.attributes["arg_attrs"]) if "arg_attrs" in func.attributes else []
    attributes += [ir.DictAttr.get({})] * (len(block.arguments) - len(attributes))
    for index in reversed(range(len(block.arguments))):
        if not any(True for _ in block.arguments[index].uses):
            block.erase_argument(index)
            del attributes[index]
    func.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)
    # The attributes of results do not fit after results were removed.
    if "res_attrs" in func.attributes:
        del func.attributes["res_attrs"]
    set_function_type(func)


_SHAPED = re.compile(r"(?<=[<x\[ ,])(\d+)(?=x)|(?<=[\[ ,])(\d+)(?=[],])")
_MOST_SIZES = 40


def smaller_shapes(text: str) -> Iterator[str]:
    """Yield texts with one size of dims replaced by smaller ones, the smallest first; some are not valid programs.

    All dims of one size shrink together, alone or with the multiples of the size.
    """
    sizes = sorted(
        {int(match[1]) for match in re.finditer(r"(?<=[<x])(\d+)(?=x)", text)} - {0, 1}, reverse=True
    )
    for size in sizes[:_MOST_SIZES]:
        for smaller in dict.fromkeys((1, 2, 64, size // 2)):
            if 0 < smaller < size:
                multiples = {other: other // size * smaller for other in sizes if other % size == 0}
                for numbers in ({size: smaller}, multiples) if len(multiples) > 1 else (multiples,):
                    yield _SHAPED.sub(lambda m, numbers=numbers: str(numbers.get(int(m[0]), m[0])), text)
