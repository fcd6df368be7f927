# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs that are cut into bundles, and checks of the bundles."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import spyre_mlir
from spyre_mlir.bundle.model import Bundle
from spyre_mlir.bundle.sequence import split
from spyre_mlir.bundle.validate import validate, validate_sequence
from spyre_mlir.errors import CompileError
from spyre_mlir.simulator import BundleCall, Result, run, run_sequence

Shapes = tuple[tuple[int, ...], ...]

#: Name -> model and the shapes of its inputs; "tiles" has two loops and operations around them.
MODELS: dict[str, tuple[Callable, Shapes]] = {
    "softmax": (lambda x: torch.softmax(x, -1), ((512, 256),)),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (128,), w, b), ((65, 128), (128,), (128,))),
    "mlp": (lambda a, b, c: torch.relu(a @ b) @ c, ((64, 64), (64, 128), (128, 64))),
    "attention": (F.scaled_dot_product_attention, ((1, 2, 128, 64),) * 3),
    "tiles": (F.scaled_dot_product_attention, ((1, 2, 1024, 64),) * 3),
    "parts": (
        lambda x, y: torch.cat([torch.exp(x), torch.relu(y)]) * torch.cat([x, y]),
        ((64, 128), (64, 128)),
    ),
    "results in the middle": (
        lambda x: (torch.exp(x), torch.exp(x).sum(-1), torch.relu(torch.exp(x))),
        ((64, 128),),
    ),
}

SOFTMAX = """
func.func @main(%x: tensor<512x1024xf16>) -> tensor<512x1024xf16> {
  %e = tensor.empty() : tensor<512x1024xf16>
  %0 = linalg.softmax dimension(0) ins(%x : tensor<512x1024xf16>) outs(%e : tensor<512x1024xf16>)
      -> tensor<512x1024xf16>
  return %0 : tensor<512x1024xf16>
}"""
MN = 512 * 1024 * 2  # bytes


def inputs_of(name: str) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(3)
    return tuple(torch.randn(shape, generator=generator).half() for shape in MODELS[name][1])


def compiled(name: str, cores: int = 4, **options: Any) -> spyre_mlir.Program:
    """A model with its inputs as they are by default: layouts by price, and so the order of sums, would
    depend on what may stay in LX."""
    options.setdefault("argument_layouts", "default")
    return spyre_mlir.compile(MODELS[name][0], inputs_of(name), sencores=cores, **options)


@functools.cache
def whole(name: str, cores: int = 4) -> tuple[Bundle, dict[str, np.ndarray], Result]:
    """A model as one bundle, its arrays, and its run."""
    program = compiled(name, cores)
    inputs = zip(program.inputs, inputs_of(name), strict=True)
    arrays = {**program.arrays, **{value.name: np.asarray(array) for value, array in inputs}}
    return program.bundle, arrays, run(program.bundle, arrays)


def boundaries(bundle: Bundle) -> list[int]:
    """The executes that may begin another bundle: those outside of loops, and the first of each loop."""
    possible = []
    for cut in range(1, len(bundle.manifest.uses)):
        try:
            split(bundle, [cut])
        except CompileError:
            continue
        possible.append(cut)
    return possible


def executed(parts: Sequence[Bundle], arrays: dict[str, np.ndarray]) -> list[Result]:
    def taken(part: Bundle) -> dict[str, np.ndarray]:
        names = {each.array_name for each in part.manifest.arguments if each.kind != "result"}
        return {name: arrays[name] for name in names}

    return run_sequence([BundleCall(part, taken(part)) for part in parts])


def moved(results: Sequence[Result]) -> int:
    return sum(each.statistics.read_bytes + each.statistics.write_bytes for each in results)


def traffic(program: spyre_mlir.Program) -> int:
    return program.traffic().read_bytes + program.traffic().written_bytes


def findings(parts: Sequence[Bundle]) -> list[str]:
    """Return all findings of the validator for a sequence."""
    alone = [str(each) for part in parts for each in validate(part)]
    return alone or [str(each) for each in validate_sequence([f"b{n}" for n in range(len(parts))], parts)]


def annotated(bundle: Bundle, **fields: Any) -> Bundle:
    return replace(bundle, manifest=replace(bundle.manifest, **fields))
