# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules of host functions, evaluated."""

from __future__ import annotations

from numpy.typing import NDArray

from spyre_mlir.dialects import context, parsed
from spyre_mlir.host import HostEvaluator


def evaluator(text: str) -> HostEvaluator:
    return HostEvaluator(parsed(text, context()))


def call(text: str, *arrays: NDArray) -> list[NDArray]:
    return evaluator(text)(*arrays)


def elementwise(types: list[str], result: str, body: str, size: int) -> str:
    """A function of one generic over ``size`` elements; its body makes %r of %a0, %a1 ..."""
    ids = ", ".join(["#id"] * (len(types) + 1))
    arguments = ", ".join(f"%x{k}: tensor<{size}x{type_}>" for k, type_ in enumerate(types))
    operands = ", ".join(f"%x{k}" for k in range(len(types)))
    tensors = ", ".join(f"tensor<{size}x{type_}>" for type_ in types)
    scalars = ", ".join([*(f"%a{k}: {type_}" for k, type_ in enumerate(types)), f"%o: {result}"])
    return f"""
#id = affine_map<(d0) -> (d0)>
func.func @main({arguments}) -> tensor<{size}x{result}> {{
  %e = tensor.empty() : tensor<{size}x{result}>
  %y = linalg.generic {{indexing_maps = [{ids}], iterator_types = ["parallel"]}}
      ins({operands} : {tensors}) outs(%e : tensor<{size}x{result}>) {{
  ^bb0({scalars}):
    {body}
    linalg.yield %r : {result}
  }} -> tensor<{size}x{result}>
  return %y : tensor<{size}x{result}>
}}"""
