# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random programs of exact numbers: any difference at all is an element in the wrong place or a lost one.

These are small and odd in size; ``test_random_plans.py`` has large ones, all in all 300.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from random_programs import RandomProgram

import spyre_mlir
from spyre_mlir.bundle.validate import validate

#: All but the one that needs an optional library.
SOLVERS = ("portfolio", "greedy", "firstfit", "bestfit", "largest-first", "annealing", "branch-and-bound")


def check(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], text: str = "", **options) -> None:
    """Compiles with all checks, validates and runs; every result has the shape and the numbers of float64."""
    program = spyre_mlir.compile(model, inputs, verify_each=True, **options)
    findings = [finding for step in program.bundles for finding in validate(step.bundle)]
    assert not findings, "\n".join([text, *map(str, findings)])
    results = program(*inputs)
    with torch.no_grad():
        expected = model(*(x.double() for x in inputs))
    for index, (result, exact) in enumerate(zip(results, expected, strict=True)):
        assert result.shape == exact.shape, f"{text}\nresult {index}"
        wrong = (result.double() != exact).sum().item()
        assert not wrong, f"{text}\nresult {index}: {wrong} of {exact.numel()} elements are wrong"


@pytest.mark.parametrize("seed", range(140))
def test_random_programs_are_exact(seed):
    """Chains of pointwise ops, broadcasts, reductions, matmuls, reshapes, slices, concatenations, pads."""
    program, rng = RandomProgram(seed), random.Random(seed)
    options = {"sencores": rng.randint(1, 32), "uneven_splits": rng.random() < 0.5}
    check(program, tuple(program.inputs), "\n".join([*program.text, str(options)]), **options)


@pytest.mark.parametrize("seed", range(140, 180))
def test_random_plans_of_memory_are_exact(seed):
    """Every solver, with room in LX for all, some, or hardly any of it."""
    program, rng = RandomProgram(seed), random.Random(seed)
    options = {
        "sencores": rng.choice((1, 2, 3, 8, 16, 31, 32)),
        "uneven_splits": rng.random() < 0.5,
        "in_place": rng.random() < 0.8,
        "clone_inputs": rng.random() < 0.8,
        "clone_outputs": rng.random() < 0.8,
        "lx_frac_avail": rng.choice((0.2, 0.99, 0.995, 0.999)),
        "layout_solver": rng.choice(SOLVERS),
    }
    check(program, tuple(program.inputs), "\n".join([*program.text, str(options)]), **options)


class _Function(torch.nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (self.function(*inputs),)


def _twice(x, y, z):
    product = x @ y
    return product.reshape(390)[:64].reshape(1, 64) + torch.cat((product, z))[:1, :1]


#: Minimised findings of random programs: name -> function and shapes.
FOUND = {
    "pieces smaller than a stick become the stick": (lambda y, x: y + x.flatten(0, 1).T, (128, 64), (4, 16, 128)),
    "pieces that do not fill a stick": (lambda y, x: y + x.flatten(0, 1).T, (128, 60), (5, 12, 128)),
    "pieces larger than a stick": (lambda y, x: y + x.flatten(0, 1).T, (70, 130), (2, 65, 70)),
    "a slice that ends inside a piece": (lambda x: x.flatten(0, 1)[:58] * 2, (5, 12, 128)),
    "a slice within one piece": (lambda x: x.flatten(0, 1)[3:9] * 2, (5, 12, 128)),
    "a slice of pieces by a step": (lambda x: x.flatten(0, 1)[7:58:2] * 2, (5, 12, 128)),
    "steps over a stick dim": (lambda x, y: x[:, ::2] @ y, (127, 5), (3, 32)),
    "steps over a dim that is not innermost": (lambda x: x[..., ::2] + 1, (1, 2, 3, 1, 65)),
    "concatenations of one shape in two layouts": (
        lambda x, y, z: torch.cat((y @ torch.cat((x, x), 1), z)), (65, 2), (64, 65), (1, 4),
    ),
    "a buffer with a view gets more room": (_twice, (65, 1), (1, 6), (32, 6)),
    "a concatenation in a concatenation": (
        lambda x, y, z: torch.stack((torch.cat((x, y)), z)), (128,), (128,), (256,),
    ),
    "two pads of one shape": (lambda x, y: F.pad(x, (0, 1)) * F.pad(y, (0, 1)), (127,), (127,)),
    "two concatenations at once": (lambda x, y: torch.cat((x, y), 1) * torch.cat((y, x), 1), (65, 64), (65, 64)),
    "a pad on both sides of a stick": (lambda x: F.pad(x, (33, 33, 3, 0), value=-3.0), (5, 64)),
}  # fmt: skip


@pytest.mark.parametrize("sencores", [1, 32])
@pytest.mark.parametrize("name", FOUND)
def test_what_random_programs_found(name, sencores):
    function, *shapes = FOUND[name]
    torch.manual_seed(0)
    check(
        _Function(function),
        tuple(torch.randint(-2, 3, shape).half() for shape in shapes),
        name,
        sencores=sencores,
    )


LINALG = """
#map = affine_map<(d0, d1, d2) -> (d2, d0)>
#out = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#row = affine_map<(d0, d1, d2) -> (d1)>
func.func @main(%x: tensor<{c}x{a}x{t}>, %y: tensor<{b}x{t}>) -> tensor<{a}x{b}x{t}> {{
  %zero = arith.constant 0.0 : {t}
  %e = tensor.empty() : tensor<{a}x{b}x{c}x{t}>
  %s = linalg.generic {{indexing_maps = [#map, #row, #out], iterator_types = ["parallel", "parallel", "parallel"]}}
      ins(%x, %y : tensor<{c}x{a}x{t}>, tensor<{b}x{t}>) outs(%e : tensor<{a}x{b}x{c}x{t}>) {{
  ^bb0(%p: {t}, %q: {t}, %o: {t}):
    %m = arith.mulf %p, %q : {t}
    %n = arith.subf %m, %p : {t}
    linalg.yield %n : {t}
  }} -> tensor<{a}x{b}x{c}x{t}>
  %i = tensor.empty() : tensor<{a}x{b}x{t}>
  %f = linalg.fill ins(%zero : {t}) outs(%i : tensor<{a}x{b}x{t}>) -> tensor<{a}x{b}x{t}>
  %r = linalg.reduce ins(%s : tensor<{a}x{b}x{c}x{t}>) outs(%f : tensor<{a}x{b}x{t}>) dimensions = [2]
      (%in: {t}, %acc: {t}) {{
        %sum = arith.addf %in, %acc : {t}
        linalg.yield %sum : {t}
      }}
  return %r : tensor<{a}x{b}x{t}>
}}"""


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.filterwarnings("ignore::spyre_mlir.PassWarning")
def test_random_linalg_is_exact(seed):
    """A transposed operand, a broadcast and a reduction over random sizes, fp16 and fp32, without torch."""
    rng = random.Random(seed)
    a, b, c = (rng.choice((1, 2, 31, 63, 64, 65, 127)) for _ in range(3))
    kind, dtype = (("f16", np.float16), ("f32", np.float32))[seed % 2]
    generator = np.random.default_rng(seed)
    x, y = (generator.integers(-2, 3, shape).astype(dtype) for shape in ((c, a), (b,)))
    text = LINALG.format(a=a, b=b, c=c, t=kind)
    program = spyre_mlir.compile(
        text,
        sencores=rng.randint(1, 32),
        precision=rng.choice(("device", "strict")),
        uneven_splits=rng.random() < 0.5,
    )
    assert not validate(program.bundle)
    expected = (x.T[:, None, :] * y[None, :, None] - x.T[:, None, :]).sum(-1)
    np.testing.assert_array_equal(program(x, y), expected)
