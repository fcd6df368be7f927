# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs whose buffers are placed in LX by hand: after the division, before the bundle."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from programs import Apply

from spyre_mlir.analysis.aliasing import AliasAnalysis, all_ops, functions
from spyre_mlir.analysis.core_ownership import Divided, def_use_edges, divided_ops
from spyre_mlir.bundle.model import Bundle
from spyre_mlir.cost.of_space import hbm_bytes
from spyre_mlir.dialects import context, sdsc
from spyre_mlir.division.ownership import local_bytes
from spyre_mlir.frontend import import_torch
from spyre_mlir.lowering.export import export
from spyre_mlir.mlir import ir
from spyre_mlir.pipelines import SpyrePipeline, run_pipeline
from spyre_mlir.simulator import Result, run

#: Name -> function of tensors, and their shapes.
FUNCTIONS: dict[str, tuple[Callable, tuple[tuple[int, ...], ...]]] = {
    "softmax over rows": (lambda x: torch.softmax(x, 0), ((63, 130),)),
    "softmax over columns": (lambda x: torch.softmax(x, -1), ((130, 65),)),
    "softmax of 512 x 1024": (lambda x: torch.softmax(x, 0), ((512, 1024),)),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (128,), w, b), ((65, 128), (128,), (128,))),
    "rms norm": (lambda x, w: F.rms_norm(x, (65,), w), ((2, 7, 65), (65,))),
    "matmul and pointwise": (lambda a, b, c: F.silu(a @ b + c) * 2, ((64, 64), (64, 256), (256,))),
    "two matmuls": (lambda a, b, c: torch.relu(a @ b) @ c, ((64, 64), (64, 128), (128, 64))),
    "rows as two dims": (lambda x: torch.abs(torch.exp(x).view(4, 16, 130)), ((64, 130),)),
    "two dims as rows": (lambda x: torch.abs(torch.exp(x).view(64, 65)), ((4, 16, 65),)),
    "heads": (lambda x: torch.exp(x).view(2, 33, 4, 64).transpose(1, 2) * 2, ((2, 33, 256),)),
    "broadcast": (lambda x, y: torch.exp(x) + torch.exp(y), ((65, 130), (130,))),
    "float32 between": (lambda x: (torch.exp(x.float() * 1.01) - 1).half(), ((33, 130),)),
}
#: Cores, and whether slices may be uneven.
DIVISIONS = ((1, False), (4, False), (7, True), (32, False))
CHECKS = "verify-placed,verify-ownership,verify-scratchpad"


@dataclass(frozen=True)
class Executed:
    """A program's bundle and its run; ``saved_bytes`` is what its buffers in LX would move in device memory."""

    bundle: Bundle
    result: Result
    saved_bytes: int = 0

    @property
    def bits(self) -> dict[str, bytes]:
        return {name: array.tobytes() for name, array in self.result.outputs.items()}

    @property
    def moved_bytes(self) -> int:
        return self.result.statistics.read_bytes + self.result.statistics.write_bytes


@functools.cache
def divided(name: str, cores: int, uneven: bool = False) -> str:
    """The text of a program with all its buffers in device memory."""
    function, _ = FUNCTIONS[name]
    module = import_torch(Apply(function).half(), inputs_of(name), context=context()).module
    # Without shuffles, which are from LX to LX.
    options = f"sencores={cores} uneven-splits={str(uneven).lower()} co-optimizing-lx-planning=false"
    run_pipeline(module, SpyrePipeline.parse(options).pipeline("divided"))
    run_pipeline(module, "place-in-hbm")
    return str(module.operation.get_asm(enable_debug_info=True))


@functools.cache
def inputs_of(name: str) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(shape, generator=generator).half() for shape in FUNCTIONS[name][1])


def operations(module: ir.Module) -> list[Divided]:
    """The device operations in program order."""
    (func,) = functions(module.operation)
    return divided_ops(AliasAnalysis(func), all_ops(func))


def eligible(module: ir.Module) -> dict[int, int]:
    """Return the operations whose result is eligible for LX, by index, and the bytes of the result on each core."""
    (func,) = functions(module.operation)
    memory, body = AliasAnalysis(func), all_ops(func)
    ops = divided_ops(memory, body)
    barred = {each.buffer for each in def_use_edges(memory, ops) if each.problem is not None}
    barred |= {memory.place(value).buffer for value in body[-1].operands}
    return {
        number: local_bytes(op.space, len(op.values) - 1, op.division)
        for number, op in enumerate(ops)
        if memory.place(op.values[-1]).buffer == op.values[-1] and op.values[-1] not in barred
    }


def one_behind_the_other(sizes: Mapping[int, int]) -> dict[int, int]:
    """Addresses at which nothing overlaps."""
    ends = np.cumsum([0, *sizes.values()])
    return {number: int(end) for number, end in zip(sizes, ends, strict=False)}


def place(module: ir.Module, addresses: Mapping[int, int]) -> int:
    """Place results of operations, by index, at addresses in LX; return the device memory traffic that this saves."""
    (func,) = functions(module.operation)
    memory, ops = AliasAnalysis(func), operations(module)
    with module.context:
        for number, address in addresses.items():
            ops[number].op.attributes[sdsc.PLACEMENT] = sdsc.lx_attr(address)
    placed = {ops[number].values[-1] for number in addresses}
    return sum(
        hbm_bytes(op.space, operand, op.division)[0]
        for op in ops
        for operand, value in enumerate(op.values)
        if memory.place(value).buffer in placed
    )


def executed(text: str, name: str, addresses: Mapping[int, int], checks: str = CHECKS) -> Executed:
    """Lower and run a program with results in LX; ``CompileError`` if a check or the simulator refuses it."""
    module = ir.Module.parse(text, context())
    saved = place(module, addresses)
    run_pipeline(module, ",".join(filter(None, (checks, "convert-sdsc-to-sdscbundle"))))
    bundle, arrays = export(module)
    given = [argument for argument in bundle.manifest.arguments if argument.kind == "input"]
    named = {each.name: array.numpy() for each, array in zip(given, inputs_of(name), strict=True)}
    return Executed(bundle, run(bundle, {**arrays, **named}), saved)
