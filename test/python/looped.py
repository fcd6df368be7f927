# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled programs with loops, one for each way that they come about."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from hinted import kernel, kernel_inputs
from programs import Apply
from test_programs import imported
from tilings import tile_at_random

import spyre_mlir
from spyre_mlir.analysis.tile_nests import Nests, dim_classes
from spyre_mlir.dialects import context
from spyre_mlir.dialects.hint_attributes import TILING, tiling_attr
from spyre_mlir.frontend import import_torch
from spyre_mlir.mlir import ir
from spyre_mlir.pipelines import SpyrePipeline, run_pipeline
from spyre_mlir.tiling.hint_tree import TiledLoop


@dataclass(frozen=True)
class Looped:
    """A module at a level with the options that it is compiled with, and arrays of inputs by number and by name."""

    module: ir.Module
    options: SpyrePipeline
    inputs: tuple[torch.Tensor, ...]
    arrays: dict

    @functools.cached_property
    def program(self) -> spyre_mlir.Program:
        """Compiled, and run once."""
        made = spyre_mlir.compile(self.copy(), **vars(self.options))
        made.arrays.update(self.arrays)
        made(*self.inputs)
        return made

    def copy(self) -> ir.Module:
        return ir.Module.parse(self.module.operation.get_asm(enable_debug_info=True), context())

    def placed(self) -> ir.Module:
        """The module at level placed."""
        module = self.copy()
        run_pipeline(module, self.options.pipeline("placed"))
        return module


def _at_random(name: str, seed: int, **options) -> Looped:
    """A program of the list under random loops."""
    _, inputs, program = imported(name)
    operands = list(zip(program.arguments, program.operands(*inputs), strict=True))
    given = tuple(array for argument, array in operands if argument.kind == "input")
    arrays = {argument.name: array for argument, array in operands if argument.kind != "input"}
    return _tiled(program.module, lambda module: tile_at_random(module, seed), given, arrays, **options)


def _tiled(
    module: ir.Module,
    tile: Callable[[ir.Module], object],
    inputs: tuple[torch.Tensor, ...],
    arrays: dict | None = None,
    **options,
) -> Looped:
    """A program, tiled at level device-ops."""
    tiled = ir.Module.parse(module.operation.get_asm(enable_debug_info=True), context())
    run_pipeline(tiled, SpyrePipeline(**options).pipeline("device-ops"))
    with tiled.context:
        tile(tiled)
    return Looped(tiled, SpyrePipeline(from_level="device-ops", **options), inputs, arrays or {})


def _over_keys(module: ir.Module) -> None:
    """Four tiles along the dim of the maximum of the scores, which online-softmax enables."""
    (func,) = module.operation.regions[0].blocks[0].operations
    tiled = list(Nests(func.operation.regions[0].blocks[0]).tiled.values())
    maximum = next(each for each in tiled if each.generic.opcode in ("max", "maxnonstick"))
    (keys,) = maximum.generic.reduced
    along = next(each for each in dim_classes(tiled) if keys in each.dims.get(maximum, ()))
    for each, dims in along.dims.items():
        each.op.attributes[TILING] = tiling_attr([TiledLoop("1.keys", dims[0], 4)])


def _of_model(model: Callable, inputs: tuple[torch.Tensor, ...], **options) -> Looped:
    return Looped(_imported(model, inputs), SpyrePipeline(**options), inputs, {})


def _imported(model: Callable, inputs: tuple[torch.Tensor, ...]) -> ir.Module:
    return import_torch(Apply(model), inputs, context=context()).module


def _attention() -> Looped:
    inputs = tuple(torch.rand(2, rows, 64).half() for rows in (64, 256, 256))
    return _tiled(_imported(F.scaled_dot_product_attention, inputs), _over_keys, inputs, sencores=8)


def _automatic() -> Looped:
    """(a + b) * c on 4 cores that have too little LX for all of a + b."""
    inputs = tuple(torch.rand(512, 512).half() for _ in range(3))
    return _of_model(lambda a, b, c: (a + b) * c, inputs, sencores=4, lx_frac_avail=0.97)


#: Programs by name; programs of ``tile_at_random`` have nested loops, sums over tiles, and loops in sequence.
LOOPED: dict[str, Callable[[], Looped]] = {
    "softmax in tiles": lambda: _at_random("softmax_dim_0_512x1024", 1, sencores=8),
    "mlp in tiles": lambda: _at_random("swiglu_mlp", 5, sencores=4),
    "llama in tiles": lambda: _at_random("llama_block_small", 3),
    "matmul in tiles": lambda: _at_random("matmul_67x71x256", 1, sencores=7, uneven_splits=True),
    "hints": lambda: _of_model(kernel, kernel_inputs(), sencores=4),
    "attention over tiles of keys": _attention,
    "tiled for LX": _automatic,
}


@functools.cache
def looped(name: str) -> Looped:
    return LOOPED[name]()
