# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stick rules for each kind of operation: the allowed stick dims of each operand."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from spyre_mlir.bundle.model import Design, Operand
from spyre_mlir.target.ops import DEVICE_OPS, Kind


def stick_rules(design: Design) -> Iterator[str]:
    """Check a design against the stick rule of its kind."""
    for problem in (*_RULES[DEVICE_OPS[design.opcode].kind](design), *_sticks_of_several_dims(design)):
        yield f"{problem}."


def _sticks_of_several_dims(design: Design) -> Iterator[str]:
    """Check that only the second input of an 8-bit matmul has pairs of the contracted dim in its sticks."""
    pairs = DEVICE_OPS[design.opcode].multiplies_bytes
    for i, operand in enumerate(design.operands):
        expected = {"in": 2} if pairs and i == 1 else {}
        if operand.beside != expected:
            text = f"Tensor{i} has {_several(operand.beside)} beside {operand.stick_dim} in its stick"
            yield f"{text}; expected {_several(expected)}"


def _several(counts: dict[str, int]) -> str:
    return " and ".join(f"{count} of {dim}" for dim, count in counts.items()) or "nothing"


def _scale(operand: Operand, dim: str) -> int:
    """Return the scale of a dim; an operand does not vary along a dim that it does not list."""
    return operand.scale.get(dim, -1)


def _dims_of_any(design: Design) -> list[str]:
    """Return the dims with several elements that some operand has; other dims count copies of the result."""
    had = {dim for operand in design.operands for dim, scale in operand.scale.items() if scale == 1}
    return [dim for dim, size in design.sizes.items() if size > 1 and dim in had]


def _pointwise(design: Design) -> Iterator[str]:
    output = design.operands[-1]
    stick = output.stick_dim
    for i, operand in enumerate(design.operands):
        if operand.scale[operand.stick_dim] == 1 and operand.stick_dim != stick:
            yield f"Tensor{i} sticks on {operand.stick_dim}; expected {stick}, the stick of the output"
        elif operand.stick_dim != stick and _scale(operand, stick) == 1:
            yield f"Tensor{i} has {stick} outside of its stick; expected {stick} as its stick"
        if _scale(operand, stick) == 1 and _scale(output, stick) != 1:
            yield f"Tensor{i} has {stick} but the output does not; a pointwise operation keeps all dims"
    for dim in _dims_of_any(design):
        if dim != stick and _scale(output, dim) != 1:
            yield f"The output does not have the dim {dim}; a pointwise operation keeps all dims"


def _reduce_stick(design: Design) -> Iterator[str]:
    source, output = design.operands[0], design.operands[-1]
    stick = source.stick_dim
    if source.scale[stick] != 1:
        yield f"Tensor0 broadcasts its stick {stick}; expected the reduced dim there"
    if _scale(output, stick) != -2 or output.stick_dim != stick:
        yield f"The output does not have scale -2 on {stick}; expected the input's stick to be reduced"
    for dim, size in design.sizes.items():
        if dim != stick and size > 1 and _scale(source, dim) != _scale(output, dim):
            yield f"The dim {dim} is reduced too; expected the stick {stick} as the only reduced dim"


def _reduce_other(design: Design) -> Iterator[str]:
    source, output = design.operands[0], design.operands[-1]
    sticks = [(operand.stick_dim, operand.scale[operand.stick_dim]) for operand in (source, output)]
    if sticks[0] != sticks[1]:
        yield f"The output does not keep the stick {source.stick_dim} of the input"
    others = [dim for dim in design.sizes if dim not in (source.stick_dim, output.stick_dim)]
    if not any(_scale(source, dim) == 1 and _scale(output, dim) != 1 for dim in others):
        yield "No dim outside of the stick is reduced; expected one with scale -1 in the output"
    for dim in others:
        if _scale(source, dim) != 1 and _scale(output, dim) == 1 and design.sizes[dim] > 1:
            yield f"The output has the dim {dim} but the input does not"


def _matmul(design: Design) -> Iterator[str]:
    for i, (operand, stick) in enumerate(zip(design.operands, ("in", "out", "out"), strict=True)):
        if operand.stick_dim != stick or operand.scale[stick] != 1:
            yield f"Tensor{i} sticks on {operand.stick_dim}; expected a whole stick of {stick}"
    for i, absent in enumerate(("out", "mb", "in")):
        if _scale(design.operands[i], absent) == 1 and design.sizes.get(absent, 1) > 1:
            yield f"Tensor{i} has the dim {absent}; expected an operand without it"
    if _scale(design.operands[1], "in") != 1:
        yield "Tensor1 does not have the dim in; expected the contracted dim in both inputs"


def _convolution(design: Design) -> Iterator[str]:
    for i, (operand, stick) in enumerate(zip(design.operands, ("in", "out", "out"), strict=True)):
        if operand.stick_dim != stick or operand.scale[stick] != 1:
            yield f"Tensor{i} sticks on {operand.stick_dim}; expected a whole stick of {stick}"
    source, kernel, output = map(_varying, design.operands)
    kernels = {window.kernel for window in design.operands[0].windows.values()}
    if kernel - output != {"in", *kernels}:
        text = f"Tensor1 has the dims {sorted(kernel - output)} that the output lacks"
        yield f"{text}; expected in and those of the windows"
    if "out" in source or kernel & set(design.operands[0].windows):
        yield "Tensor0 has the dim out, or Tensor1 a dim that windows slide along"
    if output - source != {"out"}:
        yield f"The output has the dims {sorted(output - source)} that Tensor0 lacks; expected out alone"


def _pooling(design: Design) -> Iterator[str]:
    source, output = design.operands[0], design.operands[-1]
    slid = {dim for label, window in source.windows.items() for dim in (label, window.kernel)}
    for i, operand in enumerate(design.operands):
        if operand.stick_dim in slid:
            yield f"Tensor{i} sticks on {operand.stick_dim}; expected a dim that no window has or slides along"
        elif operand.stick_dim != output.stick_dim:
            yield f"Tensor{i} sticks on {operand.stick_dim}; expected {output.stick_dim}, the stick of the output"
    kernels = {window.kernel for window in source.windows.values()}
    if _varying(source) - _varying(output) != kernels:
        yield "The output does not have the dims of the input but those of the windows"


def _varying(operand: Operand) -> set[str]:
    return set(operand.varying)


def _restickify(design: Design) -> Iterator[str]:
    source, output = design.operands
    if source.stick_dim == output.stick_dim:
        yield f"Input and output both stick on {source.stick_dim}; expected two different sticks"
    for i, operand in enumerate(design.operands):
        sparse = {other.stick_dim for other in design.operands if other.scale[other.stick_dim] == -2}
        for dim in _dims_of_any(design):
            if _scale(operand, dim) != 1 and dim not in sparse:
                yield f"Tensor{i} does not have the dim {dim}; a restickify moves the whole tensor"


def _relayout(design: Design) -> Iterator[str]:
    source, output = design.operands
    sticks = [(operand.stick_dim, operand.scale[operand.stick_dim]) for operand in (source, output)]
    if sticks[0] != sticks[1]:
        yield f"The output does not keep the stick {source.stick_dim} of the input; a relayout moves whole sticks"
    for dim in _dims_of_any(design):
        if _scale(source, dim) != _scale(output, dim):
            yield f"Only one operand has the dim {dim}; a relayout moves the whole tensor"


def _gather(design: Design) -> Iterator[str]:
    index, table, output = design.operands
    positions, rows = _dims(index), _dims(table) - _dims(output)
    for i, operand in enumerate((index, table)):
        if operand.memory != "hbm":
            yield f"Tensor{i} is in {operand.memory}; expected an indirect access in device memory"
    if index.scale[index.stick_dim] == 1:
        yield f"Tensor0 sticks on {index.stick_dim}; expected one position per stick"
    sticks = [(operand.stick_dim, operand.scale[operand.stick_dim]) for operand in (table, output)]
    if sticks[0] != sticks[1]:
        yield f"The output does not keep the stick {table.stick_dim} of the table"
    if len(rows) != 1 or any(design.slices[dim] > 1 or dim == table.stick_dim for dim in rows):
        text = f"The table has the dims {sorted(rows)} besides those of the output"
        yield f"{text}; expected one, undivided and outside of the stick, that the positions count"
    counting = {
        dim for dim, size in design.sizes.items() if size > 1
    }  # any operand may have dims of one position
    row, looked_up = (_dims(table) - rows) & counting, (_dims(output) - positions) & counting
    if looked_up != row or positions & _dims(table) & counting:
        yield "The output does not have the dims of the positions and of one row of the table"


def _dims(operand: Operand) -> set[str]:
    return {dim for dim, scale in operand.scale.items() if scale == 1}


_RULES: dict[Kind, Callable[[Design], Iterator[str]]] = {
    Kind.POINTWISE: _pointwise,
    Kind.CAST: _pointwise,
    Kind.REDUCE_STICK: _reduce_stick,
    Kind.REDUCE_OTHER: _reduce_other,
    Kind.MATMUL: _matmul,
    Kind.CONVOLUTION: _convolution,
    Kind.POOLING: _pooling,
    Kind.RESTICKIFY: _restickify,
    Kind.RELAYOUT: _relayout,
    Kind.GATHER: _gather,
}
