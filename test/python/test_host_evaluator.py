# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Host functions on numpy: every rule against numbers by hand or upstream's own lowering."""

from __future__ import annotations

import functools
import itertools
import math
import random

import numpy as np
import pytest
import torch
from cpu_reference import CpuReference
from host_functions import call, elementwise, evaluator

import spyre_mlir
from spyre_mlir.dialects import context, parsed
from spyre_mlir.errors import CompileError
from spyre_mlir.host import host_evaluator
from spyre_mlir.host.block import Frame

# -- structured ops ----------------------------------------------------------------------------------------


def test_a_body_of_16_bits_is_rounded_once() -> None:
    """The square of 300 is beyond f16, its root is not; steps between are in f32."""
    body = "%s = arith.mulf %a0, %a0 : f16\n    %r = math.sqrt %s : f16"
    (result,) = call(elementwise(["f16"], "f16", body, 2), np.array([300, 0.001], np.float16))
    assert result.tolist() == np.array([300, 0.001], np.float16).tolist()


def test_sums_of_16_bits_are_exact_and_rounded_once() -> None:
    """A sum of 4096 ones in f16 stays at 2048 if every step is rounded."""
    text = """
func.func @main(%x: tensor<3x4096xf16>, %w: tensor<4096x2xf16>) -> (tensor<3xf16>, tensor<3x2xf16>) {
  %z = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<3xf16>
  %f = linalg.fill ins(%z : f16) outs(%e : tensor<3xf16>) -> tensor<3xf16>
  %s = linalg.reduce { arith.addf } ins(%x : tensor<3x4096xf16>) outs(%f : tensor<3xf16>) dimensions = [1]
  %g = tensor.empty() : tensor<3x2xf16>
  %h = linalg.fill ins(%z : f16) outs(%g : tensor<3x2xf16>) -> tensor<3x2xf16>
  %m = linalg.matmul ins(%x, %w : tensor<3x4096xf16>, tensor<4096x2xf16>) outs(%h : tensor<3x2xf16>) -> tensor<3x2xf16>
  return %s, %m : tensor<3xf16>, tensor<3x2xf16>
}"""
    total, product = call(text, np.ones((3, 4096), np.float16), np.ones((4096, 2), np.float16))
    assert total.tolist() == [4096] * 3 and product.tolist() == [[4096] * 2] * 3


def test_products_of_integers_wrap_around_exactly() -> None:
    text = """
func.func @main(%a: tensor<5x70xi64>, %b: tensor<70x3xi64>) -> tensor<5x3xi64> {
  %z = arith.constant 7 : i64
  %e = tensor.empty() : tensor<5x3xi64>
  %f = linalg.fill ins(%z : i64) outs(%e : tensor<5x3xi64>) -> tensor<5x3xi64>
  %m = linalg.matmul ins(%a, %b : tensor<5x70xi64>, tensor<70x3xi64>) outs(%f : tensor<5x3xi64>) -> tensor<5x3xi64>
  return %m : tensor<5x3xi64>
}"""
    generator = np.random.default_rng(5)
    for largest in (100, 1 << 62):
        a, b = (generator.integers(-largest, largest, shape) for shape in ((5, 70), (70, 3)))
        exact = [[(sum(int(p) * int(q) for p, q in zip(row, column, strict=True)) + 7 + 2**63) % 2**64 - 2**63
                  for column in b.T] for row in a]  # fmt: skip
        assert call(text, a, b)[0].tolist() == exact


BODIES = {
    "sum": "%r = arith.addf %out, %in : T",
    "a sum of squares": "%s = arith.mulf %in, %in : T\n%r = arith.addf %s, %out : T",
    "a product": "%r = arith.mulf %in, %out : T",
    "a maximum": "%r = arith.maximumf %in, %out : T",
    "a minimum": "%r = arith.minnumf %out, %in : T",
    "no reduction of numpy": "%s = arith.mulf %out, %out : T\n%q = arith.addf %s, %in : T\n%r = math.tanh %q : T",
    "a sum that keeps its last": "%c = arith.cmpf ogt, %in, %out : T\n%r = arith.select %c, %in, %out : T",
    "indices": "%i = linalg.index 1 : index\n%j = arith.index_cast %i : index to i32\n"
    "%f = arith.sitofp %j : i32 to T\n%m = arith.mulf %f, %in : T\n%r = arith.addf %m, %out : T",
    "control flow": "%z = arith.constant 0.0 : T\n%c = arith.cmpf ogt, %in, %z : T\n"
    "%r = scf.if %c -> (T) {\n%t = arith.addf %in, %out : T\nscf.yield %t : T\n} else {\nscf.yield %out : T\n}",
}  # fmt: skip


@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("name", BODIES)
def test_reductions_are_those_of_upstream(name: str, element: str) -> None:
    """Over the middle dim of three, with an output that is there already."""
    dtype = {"f32": np.float32, "f64": np.float64}[element]
    text = (
        f"""
func.func @main(%x: tensor<4x9x5xT>, %o: tensor<5x4xT>) -> tensor<5x4xT> {{
  %y = linalg.generic {{indexing_maps = [affine_map<(i, k, j) -> (i, k, j)>, affine_map<(i, k, j) -> (j, i)>],
      iterator_types = ["parallel", "reduction", "parallel"]}} ins(%x : tensor<4x9x5xT>) outs(%o : tensor<5x4xT>) {{
  ^bb0(%in: T, %out: T):
    {BODIES[name]}
    linalg.yield %r : T
  }} -> tensor<5x4xT>
  return %y : tensor<5x4xT>
}}""".replace("xT", f"x{element}")
        .replace(": T", f": {element}")
        .replace("to T", f"to {element}")
        .replace("(T)", f"({element})")
    )
    generator = np.random.default_rng(1)
    arrays = [generator.standard_normal(shape).astype(dtype) for shape in ((4, 9, 5), (5, 4))]
    (expected,) = CpuReference(parsed(text, context()))(*arrays)
    np.testing.assert_allclose(call(text, *arrays)[0], expected, rtol=1e-5, atol=1e-6)


ARGMAX = """
func.func @main(%x: tensor<6x11xf32>) -> (tensor<6xf32>, tensor<6xi64>) {
  %low = arith.constant 0xFF800000 : f32
  %z = arith.constant 0 : i64
  %e = tensor.empty() : tensor<6xf32>
  %f = linalg.fill ins(%low : f32) outs(%e : tensor<6xf32>) -> tensor<6xf32>
  %g = tensor.empty() : tensor<6xi64>
  %h = linalg.fill ins(%z : i64) outs(%g : tensor<6xi64>) -> tensor<6xi64>
  %y:2 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>,
      affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<6x11xf32>) outs(%f, %h : tensor<6xf32>, tensor<6xi64>) {
  ^bb0(%in: f32, %out: f32, %at: i64):
    %j = linalg.index 1 : index
    %here = arith.index_cast %j : index to i64
    %m = arith.maximumf %in, %out : f32
    %c = arith.cmpf PREDICATE, %in, %out : f32
    %s = arith.select %c, %here, %at : i64
    linalg.yield %m, %s : f32, i64
  } -> (tensor<6xf32>, tensor<6xi64>)
  return %y#0, %y#1 : tensor<6xf32>, tensor<6xi64>
}"""


@pytest.mark.parametrize("predicate", ["ogt", "oge", "ugt"])
def test_the_index_of_a_maximum(predicate: str) -> None:
    """The first or the last of equal maxima, by the comparison; NaN and rows of -inf as upstream."""
    x = np.random.default_rng(2).integers(-3, 4, (6, 11)).astype(np.float32)
    x[1], x[2, 4], x[3, 0] = -np.inf, np.nan, np.nan
    text = ARGMAX.replace("PREDICATE", predicate)
    for result, expected in zip(call(text, x), CpuReference(parsed(text, context()))(x), strict=True):
        np.testing.assert_array_equal(result, expected)


def test_large_ops_are_evaluated_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut into parts of eight points every structured op has the numbers of the whole."""
    from spyre_mlir.host import structured_ops

    texts = [_random_function(random.Random(seed)) for seed in range(12)] + [
        (ARGMAX.replace("PREDICATE", "ogt"), [(6, 11)])
    ]
    for text, shapes in texts:
        generator = np.random.default_rng(0)
        arrays = [generator.integers(-4, 5, shape).astype(np.float32) for shape in shapes]
        whole = call(text, *arrays)
        with monkeypatch.context() as patch:
            patch.setattr(structured_ops, "_BLOCK", 8)
            patch.setattr(structured_ops, "_MATMUL_BLOCK", 8)
            for part, expected in zip(call(text, *arrays), whole, strict=True):
                np.testing.assert_array_equal(part, expected)


def test_a_long_product_of_one_row_and_one_column_is_summed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only its reduction loop is cut into parts, because the parallel loops have one iteration each."""
    from spyre_mlir.host import structured_ops

    monkeypatch.setattr(structured_ops, "_MATMUL_BLOCK", 8)
    text = """
func.func @main(%a: tensor<1x64xf32>, %b: tensor<64x1xf32>, %c: tensor<1x1xf32>) -> tensor<1x1xf32> {
  %y = linalg.matmul ins(%a, %b : tensor<1x64xf32>, tensor<64x1xf32>) outs(%c : tensor<1x1xf32>) -> tensor<1x1xf32>
  return %y : tensor<1x1xf32>
}"""
    arrays = [np.ones(shape, np.float32) for shape in ((1, 64), (64, 1), (1, 1))]
    np.testing.assert_array_equal(call(text, *arrays)[0], [[65]])


def _random_function(rng: random.Random) -> tuple[str, list[tuple[int, ...]]]:
    """A generic with random loops, maps and body over two inputs of small integers, which f32 has exactly."""
    extents = [rng.randint(1, 4) for _ in range(rng.randint(1, 4))]
    loops = range(len(extents))
    reduced = [loop for loop in loops if rng.random() < 0.4]
    maps = [rng.sample(list(loops), rng.randint(0, len(extents))) for _ in range(2)]
    maps.append(rng.sample([loop for loop in loops if loop not in reduced], len(extents) - len(reduced)))
    for loop in loops:
        if not any(loop in dims for dims in maps):
            maps[0].append(loop)
    names = ", ".join(f"d{loop}" for loop in loops)
    shapes = [tuple(extents[dim] for dim in dims) for dims in maps]
    types = ["x".join([*map(str, shape), "f32"]) for shape in shapes]
    texts = [f"affine_map<({names}) -> ({', '.join(f'd{dim}' for dim in dims)})>" for dims in maps]
    kinds = ", ".join('"reduction"' if loop in reduced else '"parallel"' for loop in loops)
    value = rng.choice(
        ["arith.mulf %a, %b", "arith.addf %a, %b", "arith.maximumf %a, %b", "arith.subf %a, %a"]
    )
    combine = rng.choice(["arith.addf", "arith.maximumf", "arith.minimumf", "arith.subf"])
    order = rng.choice(["%o, %v", "%v, %o"])
    return (
        f"""
func.func @main(%x: tensor<{types[0]}>, %y: tensor<{types[1]}>, %z: tensor<{types[2]}>) -> tensor<{types[2]}> {{
  %r = linalg.generic {{indexing_maps = [{", ".join(texts)}], iterator_types = [{kinds}]}}
      ins(%x, %y : tensor<{types[0]}>, tensor<{types[1]}>) outs(%z : tensor<{types[2]}>) {{
  ^bb0(%a: f32, %b: f32, %o: f32):
    %v = {value} : f32
    %s = {combine} {order} : f32
    linalg.yield %s : f32
  }} -> tensor<{types[2]}>
  return %r : tensor<{types[2]}>
}}""",
        shapes,
    )


@pytest.mark.parametrize("seed", range(40))
def test_random_structured_ops_are_those_of_upstream(seed: int) -> None:
    text, shapes = _random_function(random.Random(seed))
    generator = np.random.default_rng(seed)
    arrays = [generator.integers(-4, 5, shape).astype(np.float32) for shape in shapes]
    (expected,) = CpuReference(parsed(text, context()))(*arrays)
    np.testing.assert_array_equal(call(text, *arrays)[0], expected)


NAMED = {
    "linalg.conv_2d_nchw_fchw {dilations = dense<[1, 2]> : tensor<2xi64>, strides = dense<[2, 1]> : tensor<2xi64>}": (
        (2, 3, 7, 9), (4, 3, 3, 2), (2, 4, 3, 7)),
    "linalg.depthwise_conv_2d_nchw_chw {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}": (
        (2, 3, 5, 6), (3, 2, 3), (2, 3, 4, 4)),
    "linalg.pooling_nchw_max {dilations = dense<1> : tensor<2xi64>, strides = dense<2> : tensor<2xi64>}": (
        (1, 2, 6, 7), (2, 3), (1, 2, 3, 3)),
    "linalg.pooling_nhwc_sum {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}": (
        (1, 5, 6, 2), (2, 3), (1, 4, 4, 2)),
    "linalg.batch_matmul": ((3, 4, 5), (3, 5, 2), (3, 4, 2)),
    "linalg.matvec": ((4, 5), (5,), (4,)),
    "linalg.vecmat": ((4,), (4, 5), (5,)),
    "linalg.dot": ((6,), (6,), ()),
    "linalg.batch_matvec": ((3, 4, 5), (3, 5), (3, 4)),
    "linalg.mmt4d": ((2, 3, 4, 5), (6, 3, 2, 5), (2, 6, 4, 2)),
    "linalg.sub": ((3, 4), (3, 4), (3, 4)),
    "linalg.div": ((3, 4), (3, 4), (3, 4)),
    "linalg.max": ((3, 4), (3, 4), (3, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_named_ops_are_those_of_upstream(name: str) -> None:
    types = ["tensor<" + "x".join([*map(str, shape), "f32"]) + ">" for shape in NAMED[name]]
    text = f"""func.func @main(%x: {types[0]}, %y: {types[1]}, %z: {types[2]}) -> {types[2]} {{
  %r = {name} ins(%x, %y : {types[0]}, {types[1]}) outs(%z : {types[2]}) -> {types[2]}
  return %r : {types[2]}
}}"""
    generator = np.random.default_rng(4)
    arrays = [generator.integers(1, 9, shape).astype(np.float32) for shape in NAMED[name]]
    (expected,) = CpuReference(parsed(text, context()))(*arrays)
    np.testing.assert_allclose(call(text, *arrays)[0], expected, rtol=1e-6)


def test_maps_with_divisions_and_offsets() -> None:
    """A repeat, a window that begins at 2, and a diagonal."""
    text = """
func.func @main(%x: tensor<4xf32>, %y: tensor<7xf32>, %d: tensor<6x6xf32>) -> tensor<6xf32> {
  %e = tensor.empty() : tensor<6xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i floordiv 2)>, affine_map<(i) -> (i + 1)>,
      affine_map<(i) -> (i, i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x, %y, %d : tensor<4xf32>, tensor<7xf32>, tensor<6x6xf32>) outs(%e : tensor<6xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %o: f32):
    %s = arith.addf %a, %b : f32
    %t = arith.addf %s, %c : f32
    linalg.yield %t : f32
  } -> tensor<6xf32>
  return %r : tensor<6xf32>
}"""
    x, y, d = np.arange(4.0), np.arange(7.0) * 10, np.arange(36.0).reshape(6, 6) * 100
    (result,) = call(text, *(each.astype(np.float32) for each in (x, y, d)))
    np.testing.assert_array_equal(result, x.repeat(2)[:6] + y[1:] + np.diag(d))


def test_softmax_is_rounded_once() -> None:
    x = (np.random.default_rng(0).standard_normal((5, 33)) * 8).astype(np.float16)
    text = """func.func @main(%x: tensor<5x33xf16>) -> tensor<5x33xf16> {
  %e = tensor.empty() : tensor<5x33xf16>
  %r = linalg.softmax dimension(1) ins(%x : tensor<5x33xf16>) outs(%e : tensor<5x33xf16>) -> tensor<5x33xf16>
  return %r : tensor<5x33xf16>
}"""
    exact = torch.softmax(torch.from_numpy(x).double(), 1).numpy()
    np.testing.assert_array_equal(call(text, x)[0], exact.astype(np.float16))


# -- other ops ---------------------------------------------------------------------------------------------

SCANS = ["arith.addf", "arith.mulf", "arith.maximumf", "arith.subf"]


@pytest.mark.parametrize(("op", "inclusive"), list(itertools.product(SCANS, ["true", "false"])))
def test_scans_are_those_of_torch_mlir(op: str, inclusive: str) -> None:
    """The last of them has no running form in numpy."""
    text = f"""
func.func @main(%x: tensor<3x6x2xf32>, %o: tensor<3x6x2xf32>, %a: tensor<3x2xf32>)
    -> (tensor<3x6x2xf32>, tensor<3x2xf32>) {{
  %r:2 = tm_tensor.scan dimension(1) inclusive({inclusive}) ins(%x : tensor<3x6x2xf32>)
      outs(%o, %a : tensor<3x6x2xf32>, tensor<3x2xf32>) {{
  ^bb0(%p: f32, %q: f32):
    %s = {op} %p, %q : f32
    tm_tensor.yield %s : f32
  }} -> tensor<3x6x2xf32>, tensor<3x2xf32>
  return %r#0, %r#1 : tensor<3x6x2xf32>, tensor<3x2xf32>
}}"""
    generator = np.random.default_rng(3)
    arrays = [generator.integers(-3, 4, shape).astype(np.float32) for shape in ((3, 6, 2), (3, 6, 2), (3, 2))]
    for result, expected in zip(
        call(text, *arrays), CpuReference(parsed(text, context()))(*arrays), strict=True
    ):
        np.testing.assert_array_equal(result, expected)


SCATTERS = {
    "the last of equal places stays": ("tm_tensor.yield %u : f32", "5x3xf32", "5x1xi32", "4x3xf32", "[0]"),
    "sums": ("%s = arith.addf %u, %o : f32\ntm_tensor.yield %s : f32", "5xf32", "5x2xi32", "4x3xf32", "[0, 1]"),
    "places in the other order": ("tm_tensor.yield %u : f32", "5xf32", "5x2xi32", "3x4xf32", "[1, 0]"),
    "differences, one by one": ("%s = arith.subf %u, %o : f32\ntm_tensor.yield %s : f32", "5x3xf32", "5x1xi32",
                                "4x3xf32", "[0]"),
    "slices with an offset": ("tm_tensor.yield %u : f32", "5x2x3xf32", "5x1xi32", "5x3xf32", "[0]"),
}  # fmt: skip


@pytest.mark.parametrize("name", SCATTERS)
def test_scatters_are_those_of_torch_mlir(name: str) -> None:
    body, updates, indices, target, dims = SCATTERS[name]
    text = f"""
func.func @main(%u: tensor<{updates}>, %i: tensor<{indices}>, %o: tensor<{target}>) -> tensor<{target}> {{
  %r = tm_tensor.scatter {{dimension_map = array<i64: {dims[1:-1]}>}} unique_indices(false)
      ins(%u, %i : tensor<{updates}>, tensor<{indices}>) outs(%o : tensor<{target}>) {{
  ^bb0(%u0: f32, %o0: f32):
    {body.replace("%u", "%u0").replace("%o", "%o0")}
  }} -> tensor<{target}>
  return %r : tensor<{target}>
}}"""
    sizes = [tuple(map(int, each.split("x")[:-1])) for each in (updates, indices, target)]
    generator = np.random.default_rng(6)
    arrays = [
        generator.integers(-9, 9, sizes[0]).astype(np.float32),
        generator.integers(0, 3, sizes[1]).astype(np.int32),
        generator.integers(-9, 9, sizes[2]).astype(np.float32),
    ]
    (expected,) = CpuReference(parsed(text, context()))(*arrays)
    np.testing.assert_array_equal(call(text, *arrays)[0], expected)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")
def test_sorts_keep_the_order_of_equal_elements(descending: bool) -> None:
    x = torch.tensor([[3.0, 1, 2, 1, 3, 0], [5, 5, 5, -1, -1, math.nan]]).half()
    program = spyre_mlir.compile(lambda x: torch.sort(x, 1, descending), (x,))
    expected = torch.sort(x, dim=1, descending=descending, stable=True)
    result = program(x)
    assert torch.equal(result[1], expected[1]) and torch.equal(
        result[0].nan_to_num(9), expected[0].nan_to_num(9)
    )


CONTROL = """
func.func @main(%n: tensor<i64>, %x: tensor<4xf32>) -> (tensor<4xf32>, tensor<i64>) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %limit = tensor.extract %n[] : tensor<i64>
  %count = arith.index_cast %limit : i64 to index
  %y = scf.for %i = %zero to %count step %one iter_args(%v = %x) -> (tensor<4xf32>) {
    %a = tensor.extract %v[%i] : tensor<4xf32>
    %b = arith.addf %a, %a : f32
    %w = tensor.insert %b into %v[%i] : tensor<4xf32>
    scf.yield %w : tensor<4xf32>
  }
  %hundred = arith.constant 100 : i64
  %three = arith.constant 3 : i64
  %m = scf.while (%k = %limit) : (i64) -> i64 {
    %c = arith.cmpi slt, %k, %hundred : i64
    scf.condition(%c) %k : i64
  } do {
  ^bb0(%k: i64):
    %p = arith.muli %k, %three : i64
    scf.yield %p : i64
  }
  %t = tensor.from_elements %m : tensor<i64>
  return %y, %t : tensor<4xf32>, tensor<i64>
}"""


def test_loops_and_their_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a thousand operations in place of the millions that a call may have."""
    monkeypatch.setattr(host_evaluator, "Frame", functools.partial(Frame, remaining_ops=1000))
    x = np.array([1, 2, 3, 4], np.float32)
    doubled, power = call(CONTROL, np.array(2), x)
    assert doubled.tolist() == [2, 4, 3, 4] and power == 162 and x.tolist() == [1, 2, 3, 4]
    with pytest.raises(
        CompileError, match=r"'tensor.extract' reads at index 4 of dim 0, which has the indices 0 to 3"
    ):
        call(CONTROL, np.array(5), x)
    with pytest.raises(CompileError, match=r"'scf.while' runs on: the host stops loops after"):
        call(CONTROL.replace("%hundred = arith.constant 100", "%hundred = arith.constant 1").replace(
            "cmpi slt, %k", "cmpi ne, %k"), np.array(0), x)  # fmt: skip


def test_dynamic_slices_are_checked() -> None:
    text = """
func.func @main(%n: tensor<i64>, %x: tensor<5x3xf32>) -> (tensor<2x3xf32>, tensor<5x3xf32>) {
  %i = tensor.extract %n[] : tensor<i64>
  %k = arith.index_cast %i : i64 to index
  %s = tensor.extract_slice %x[%k, 0] [2, 3] [2, 1] : tensor<5x3xf32> to tensor<2x3xf32>
  %t = tensor.insert_slice %s into %x[%k, 0] [2, 3] [1, 1] : tensor<2x3xf32> into tensor<5x3xf32>
  return %s, %t : tensor<2x3xf32>, tensor<5x3xf32>
}"""
    x = np.arange(15, dtype=np.float32).reshape(5, 3)
    part, whole = call(text, np.array(2), x)
    assert np.array_equal(part, x[2:5:2]) and np.array_equal(whole, x[[0, 1, 2, 4, 4]])
    for index, reach in ((3, "3 to 5"), (-1, "-1 to 1")):
        with pytest.raises(CompileError, match=f"reaches from {reach} in dim 0, which has 5 indices"):
            call(text, np.array(index), x)


def test_an_assertion_is_an_error_with_its_words() -> None:
    text = elementwise(["i64"], "i64", '%z = arith.constant 3 : i64\n%c = arith.cmpi slt, %a0, %z : i64\n'
                       'cf.assert %c, "less than three"\n%r = arith.addi %a0, %z : i64', 2)  # fmt: skip
    assert call(text, np.array([1, 2]))[0].tolist() == [4, 5]
    with pytest.raises(CompileError, match=r"An assertion does not hold: less than three"):
        call(text, np.array([1, 3]))


def test_results_are_arrays_of_their_own() -> None:
    """An argument, a constant or a view that is returned is copied."""
    text = """
func.func @main(%x: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<6xf32>, tensor<2xf32>, tensor<2x3xf32>) {
  %c = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %v = tensor.collapse_shape %x [[0, 1]] : tensor<2x3xf32> into tensor<6xf32>
  return %x, %v, %c, %x : tensor<2x3xf32>, tensor<6xf32>, tensor<2xf32>, tensor<2x3xf32>
}"""
    function, x = evaluator(text), np.ones((2, 3), np.float32)
    for result in function(x):
        result += 1
    assert x.max() == 1 and [float(each.max()) for each in function(x)] == [1, 1, 2, 1]
