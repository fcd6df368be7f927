# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Write a pass: compute only what a slice reads, and see what that saves in time and traffic.

    python examples/own_pass.py

A language model computes logits at every position of a prompt, and samples from the logits of the last position. The
pass moves the slice up through all operations before it, until it is a slice of the input. It runs on device
operations, where one rule covers matmuls, norms and pointwise functions: each is a loop nest with a map per operand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

import spyre_mlir
from spyre_mlir.dialects.structured import Structured, defining_op, rebuilt, structured
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass

SLICE = "tensor.extract_slice"


@dataclass(frozen=True)
class SinkSlices(Pass):
    """Compute a slice of an operation from slices of its inputs.

        slice(f(x, y))   ->   f(slice(x), slice(y))

    It runs on device operations, of those whose result nothing but the slice reads. Slices with strides stay.
    """

    name: ClassVar[str] = "sink-slices"

    def run(self, module: ir.Operation) -> None:
        slices = slices_of(module)
        while slices:
            slices += self.sink(slices.pop())

    def sink(self, op: ir.Operation) -> list[ir.Operation]:
        """Rewrite one slice; return the slices of the inputs, which may move on."""
        maker = defining_op(op.operands[0])
        generic = structured(maker) if maker is not None else None
        if generic is None or not generic.opcode or has_other_readers(generic) or not is_dense(op):
            return []
        offsets, sizes = integers(op, "static_offsets"), integers(op, "static_sizes")
        # An iteration dim that indexes a dim of the result has the range of this dim; others run in full.
        ranges = dict(zip(generic.maps[-1], zip(offsets, sizes, strict=True), strict=True))
        extents = [ranges.get(dim, (0, extent))[1] for dim, extent in enumerate(generic.extents)]
        if list(generic.extents) == extents:
            return []
        with ir.InsertionPoint(op), op.location:
            inputs = [
                sliced(value, [ranges.get(dim) for dim in dims])
                for value, dims in zip(generic.inputs, generic.maps[:-1], strict=True)
            ]
            result = rebuilt(generic, inputs, extents)
            # A slice may drop dims of size 1, as x[-1] does.
            whole = sliced(result, [(0, size) for size in sizes], op.result.type)
        self.remark(op, "sink", f"{generic.opcode} computes {extents}, not {list(generic.extents)}")
        op.result.replace_all_uses_with(whole)
        op.erase()
        generic.op.erase()
        return [owner for value in inputs if (owner := defining_op(value)) and owner.name == SLICE]


def slices_of(module: ir.Operation) -> list[ir.Operation]:
    """Return all slices of a module, those in loops too."""
    slices: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == SLICE:
            slices.append(op.operation)
        return ir.WalkResult.ADVANCE

    module.walk(visit)
    return slices


def has_other_readers(generic: Structured) -> bool:
    """Return whether more than one operation reads a result."""
    return len(list(generic.result.uses)) > 1


def is_dense(op: ir.Operation) -> bool:
    """Return whether a slice has static bounds and steps of one."""
    return len(op.operands) == 1 and set(integers(op, "static_strides")) == {1}


def integers(op: ir.Operation, name: str) -> list[int]:
    """Return an attribute that is a list of integers."""
    return list(ir.DenseI64ArrayAttr(op.attributes[name]))


def sliced(
    value: ir.Value, ranges: list[tuple[int, int] | None], result_type: ir.Type | None = None
) -> ir.Value:
    """Return the slice of a tensor with an offset and a size per dim, None for all of it; ``value`` if that is all."""
    shape = ir.RankedTensorType(value.type).shape
    bounds = [part or (0, size) for part, size in zip(ranges, shape, strict=True)]
    type_ = result_type or ir.RankedTensorType.get(
        [size for _, size in bounds], ir.RankedTensorType(value.type).element_type
    )
    if type_ == value.type:
        return value
    offsets, sizes = zip(*bounds, strict=True)
    attributes = {
        "static_offsets": ir.DenseI64ArrayAttr.get(offsets),
        "static_sizes": ir.DenseI64ArrayAttr.get(sizes),
        "static_strides": ir.DenseI64ArrayAttr.get([1] * len(sizes)),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0, 0]),
    }
    return ir.Operation.create(SLICE, results=[type_], operands=[value], attributes=attributes).result


class Model(nn.Module):
    """A norm, an MLP with its residual, and logits at the last position."""

    def __init__(self, width: int = 512, hidden: int = 1024, vocabulary: int = 4096) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.down(nn.functional.gelu(self.up(self.norm(x))))
        return self.head(x)[-1]


def main() -> None:
    torch.manual_seed(0)
    model, x = Model().half().eval(), torch.randn(1024, 512).half()
    before = spyre_mlir.compile(model, (x,))
    after = spyre_mlir.compile(model, (x,), passes={"device-ops": [SinkSlices()]})

    print(f"{'':<16}{'before':>12}{'after':>12}")
    for text, name, digits in (
        ("time (us)", "predicted_us", 1),
        ("bytes read", "hbm_read_bytes", 0),
        ("bytes written", "hbm_written_bytes", 0),
        ("operations", "device_operations", 0),
        ("bytes of LX", "lx_peak_bytes", 0),
    ):
        old, new = before.metrics()[name], after.metrics()[name]
        print(f"{text:<16}{old:>12,.{digits}f}{new:>12,.{digits}f}")

    sinks = [remark for remark in after.remarks if remark.kind == "sink"]
    print(f"{len(sinks)} operations changed; the first: {sinks[0].reason}")

    with torch.no_grad():
        expected = model(x)
    for name, program in (("before", before), ("after", after)):
        y, moved = program(x), program.traffic()
        error = float((y - expected).abs().max() / expected.abs().max())
        print(
            f"{name}: {moved.read_bytes:,} bytes read in the simulator, error {error:.4f} of the largest logit"
        )


if __name__ == "__main__":
    main()
