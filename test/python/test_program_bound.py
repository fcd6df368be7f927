# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The bounds of programs: families by hand, small programs in all details, never more than the program needs."""

import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from programs import PROGRAMS

import spyre_mlir
from spyre_mlir.cost.work import ProgramBound
from spyre_mlir.dialects import context
from spyre_mlir.driver.program_figures import program_bound
from spyre_mlir.frontend import import_torch
from spyre_mlir.frontend.signature import to_numpy
from spyre_mlir.target.target import packaged_target
from spyre_mlir.zoo import families

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.family_figures import FIGURES, causal_pairs

#: Its multiply-adds are not as by hand: experts whose gate is 0 at run time are in the program.
DENSE = "moe_top_2_64"


def bound_of(model, *inputs) -> ProgramBound:
    imported = import_torch(model, inputs, context=context())
    assert imported.module is not None
    arrays = {each.name: to_numpy(each.tensor) for each in imported.arguments if each.kind == "constant"}
    return program_bound(imported.module.operation, arrays, imported.signature.updated())


def half(*shape):
    return torch.zeros(shape, dtype=torch.float16)


@pytest.mark.parametrize("name", families.FAMILIES)
def test_families_are_as_by_hand(name):
    """Bytes and multiply-adds within 2 %; the mask of 8192 x 8192 takes seconds to compute."""
    model, inputs = families.program(name)
    bound, figures = bound_of(model, *inputs), FIGURES[name]
    assert bound.bytes == pytest.approx(figures.bytes, rel=0.02)
    if name != DENSE:
        assert bound.multiply_adds == pytest.approx(figures.multiply_adds, rel=0.02)


@pytest.mark.parametrize("name", list(PROGRAMS)[::5])
def test_no_program_needs_more_than_it_has(name):
    """The bound is at most the bytes of arguments and results, and equal if all operations are linear."""
    model, inputs = PROGRAMS[name]()
    imported = import_torch(model, inputs, context=context())
    if imported.module is None:
        return
    bound = bound_of(model, *inputs)
    tensors = [each.tensor for each in imported.arguments if each.tensor is not None]
    assert bound.read_bytes <= sum(tensor.nbytes for tensor in (*tensors, *inputs))
    results = [torch.empty(each.shape, dtype=each.dtype) for each in imported.signature.results]
    assert bound.written_bytes == sum(result.nbytes for result in results)


def test_a_mask_halves_the_work_and_is_not_read():
    """``is_causal``, a mask from positions, an additive mask; a mask that is an argument is read."""
    q = half(1, 2, 96, 64)
    pairs = causal_pairs(96)

    def added(q):
        low = torch.full((96, 96), float("-inf"), dtype=torch.float16).triu(1)
        return F.scaled_dot_product_attention(q, q, q, attn_mask=low)

    def selected(q):
        mask = torch.arange(96)[:, None] >= torch.arange(96)
        scores = (q @ q.transpose(-1, -2)).masked_fill(~mask, float("-inf"))
        return torch.softmax(scores, -1) @ q

    for run in (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), added, selected):
        bound = bound_of(run, q)
        assert bound.multiply_adds == 2 * 2 * pairs * 64
        assert bound.bytes == 2 * q.nbytes
    mask = half(96, 96)
    bound = bound_of(lambda q, mask: F.scaled_dot_product_attention(q, q, q, attn_mask=mask), q, mask)
    assert (bound.multiply_adds, bound.bytes) == (2 * 2 * 96 * 96 * 64, 2 * q.nbytes + mask.nbytes)


def test_a_window_of_a_cache_is_read_alone():
    """One query with a mask of the last 16 of 64 keys needs only these keys, and their work."""
    q, cache = half(1, 2, 1, 64), half(1, 2, 64, 64)

    def run(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=(torch.arange(64) >= 48)[None])

    bound = bound_of(run, q, cache, cache.clone())
    assert bound.multiply_adds == 2 * 2 * 16 * 64
    assert bound.read_bytes == q.nbytes + 2 * cache.nbytes // 4


@pytest.mark.parametrize(
    ("run", "read"),
    [
        (lambda x: x[3:5] * 2, 2 * 10),
        (lambda x: x[:, ::2] * 2, 8 * 5),
        (lambda x: torch.cat((x[:2], x[4:6])) + 1, 4 * 10),
        (lambda x: (x[:, 5:], x[:, :5])[0] + x[:, :5], 8 * 10),
        (lambda x: x.reshape(4, 20)[1:3] * 2, 2 * 20),
        (lambda x: x.T.reshape(20, 4)[:, :2] * 2, 40),
        (lambda x: F.pad(x, (1, 1, 2, 0))[:4] * 2, 2 * 10),
        (lambda x: (x @ torch.ones(10, 7, dtype=torch.float16))[:3], 3 * 10),
    ],
)
def test_only_what_is_used_is_read(run, read):
    assert bound_of(run, half(8, 10)).read_bytes == 2 * read


def test_a_table_is_read_where_it_is_looked_up():
    table, indices = half(1000, 64), torch.zeros(7, dtype=torch.int64)
    bound = bound_of(lambda table, indices: F.embedding(indices, table) * 2, table, indices)
    assert bound.read_bytes == 7 * 64 * 2 + 7 * 8
    small = half(5, 64)
    assert (
        bound_of(lambda table, indices: table[indices] * 2, small, indices).read_bytes == small.nbytes + 7 * 8
    )


def test_a_cache_in_place_is_written_where_it_changes():
    """At a known position, and at one that the call brings; a functional update writes all."""
    cache, row, position = half(1, 2, 32, 64), half(1, 2, 1, 64), torch.tensor([3])

    def known(cache, row):
        cache[:, :, 5:6] = row * 2

    def brought(cache, row, position):
        cache.index_copy_(2, position, row)

    assert bound_of(known, cache, row).written_bytes == row.nbytes
    assert bound_of(known, cache, row).read_bytes == row.nbytes
    assert bound_of(brought, cache, row, position).written_bytes == row.nbytes
    bound = bound_of(lambda c, r: torch.cat((c[:, :, :-1], r), 2), cache, row)
    assert (bound.written_bytes, bound.read_bytes) == (cache.nbytes, cache.nbytes)


def test_weights_that_the_import_widens_count_as_they_were():
    """8-bit weights become fp16 data of the import, made of half as many bytes; a table of positions of none."""
    linear = torch.nn.Module()
    linear.register_buffer("weight", torch.arange(64 * 32).reshape(64, 32).to(torch.int8))
    linear.forward = lambda x: x @ linear.weight.to(x.dtype).t()
    bound = bound_of(linear, half(4, 32))
    assert bound.bytes == 64 * 32 + 2 * 4 * (32 + 64)
    positions = bound_of(lambda x: x + torch.arange(32).to(x.dtype), half(4, 32))
    assert positions.bytes == 2 * 2 * 4 * 32


def test_time_is_that_of_bytes_or_of_work():
    """The rates are of the device, with faster 8-bit factors."""
    target = packaged_target()
    rate = target.cores * target.array.multiply_adds_per_ns
    assert ProgramBound(100, 50, {}).ns(target) == 150 / target.one_way_bytes_per_ns
    assert ProgramBound(1, 1, {"SEN169_FP16": 10**6}).ns(target) == 10**6 / rate
    fast = ProgramBound(1, 1, {"SENINT8": 10**6}).ns(target)
    assert fast == pytest.approx(10**6 / rate / target.array.speedup_of("SENINT8"))


# A part of the program runs on the host; test_host_work_warning.py tests the warning.
@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")
def test_a_program_in_mlir_has_a_bound():
    text = """
    func.func @main(%x: tensor<64x32xf16>, %w: tensor<32x96xf16>) -> tensor<64x96xf32> {
      %zero = arith.constant 0.0 : f32
      %empty = tensor.empty() : tensor<64x96xf32>
      %fill = linalg.fill ins(%zero : f32) outs(%empty : tensor<64x96xf32>) -> tensor<64x96xf32>
      %y = linalg.matmul ins(%x, %w : tensor<64x32xf16>, tensor<32x96xf16>)
                         outs(%fill : tensor<64x96xf32>) -> tensor<64x96xf32>
      return %y : tensor<64x96xf32>
    }"""
    bound = spyre_mlir.compile(text).bound()
    assert bound is not None
    assert bound.read_bytes == 2 * (64 * 32 + 32 * 96) and bound.written_bytes == 4 * 64 * 96
    assert bound.multiply_adds == 64 * 32 * 96
    assert np.isfinite(bound.ns(packaged_target()))


def _moves(choice, x):
    """Return a random chain of data movement, whose results have only elements of x and zeros of padding."""
    for _ in range(choice.randrange(2, 6)):
        dims = list(x.shape)
        kind = choice.choice(["slice", "step", "permute", "flatten", "split", "concat", "pad"])
        dim = choice.randrange(len(dims))
        if kind == "slice" and dims[dim] > 1:
            start = choice.randrange(dims[dim] - 1)
            x = x.narrow(dim, start, choice.randrange(1, dims[dim] - start))
        elif kind == "step":
            x = x.index_select(dim, torch.arange(0, dims[dim], 2)) if choice.random() < 0.2 else x[::2]
        elif kind == "permute":
            x = x.permute(choice.sample(range(len(dims)), len(dims)))
        elif kind == "flatten" and len(dims) > 1:
            x = x.flatten(0, 1)
        elif kind == "split" and dims[dim] % 2 == 0:
            x = x.unflatten(dim, (2, dims[dim] // 2))
        elif kind == "concat":
            x = torch.cat((x, x.flip(dim) if choice.random() < 0.2 else x), dim)
        elif kind == "pad":
            x = F.pad(x, (1, 0))
    return x * 1.5


@pytest.mark.parametrize("seed", range(24))
def test_random_moves_read_no_more_than_they_use(seed):
    """Just what of the input is in the result, by running it on numbers that are all different."""
    shape = random.Random(seed).choice([(6, 8), (4, 5, 6), (48,)])
    numbers = (torch.arange(np.prod(shape), dtype=torch.float32) + 1).reshape(shape)
    used = len(set(_moves(random.Random(seed), numbers).flatten().tolist()) - {0.0})
    read = bound_of(lambda x: _moves(random.Random(seed), x), numbers.half()).read_bytes
    assert read == 2 * used
