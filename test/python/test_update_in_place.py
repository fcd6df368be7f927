# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Caches that a program changes in place: their memory alone is written, with the numbers of PyTorch."""

import copy
import random

import numpy as np
import pytest
import torch
from torch import nn

import spyre_mlir
from spyre_mlir.bundle.folder import read_bundle
from spyre_mlir.driver.program import Program

torch.manual_seed(0)


class Decode(nn.Module):
    """One token: its key and value are written to a position of the caches, and it attends to all of them."""

    def __init__(self, position=-1, is_rows_first=False):
        super().__init__()
        self.position = position
        self.is_rows_first = is_rows_first

    def forward(self, q, key, value, keys, values):
        if self.is_rows_first:
            keys[:, self.position] = key[:, 0]
            values[:, self.position] = value[:, 0]
            q, keys, values = (each.transpose(1, 2) for each in (q, keys, values))
        else:
            keys[:, :, self.position] = key[:, :, 0]
            values[:, :, self.position] = value[:, :, 0]
        return nn.functional.scaled_dot_product_attention(
            q, keys, values, enable_gqa=q.shape[1] != keys.shape[1]
        )


def tensors(batch, heads, groups, positions, columns, is_rows_first=False):
    shapes = [
        (batch, heads, 1, columns),
        *[(batch, groups, 1, columns)] * 2,
        *[(batch, groups, positions, columns)] * 2,
    ]
    if is_rows_first:
        shapes = [(shape[0], shape[2], shape[1], shape[3]) for shape in shapes]
    return [torch.randn(shape).half() / 2 for shape in shapes]


def check(model, inputs, **options):
    """Compile, call twice, and compare results and all inputs with PyTorch's; return the program."""
    program = spyre_mlir.compile(model, inputs, verify_each=True, **options)
    expected = [each.clone() for each in inputs]
    for _ in range(2):
        got, reference = program(*inputs), model(*expected)
        np.testing.assert_allclose(got.float(), reference.float(), atol=0.004, rtol=0.02)
        for one, other in zip(inputs, expected, strict=True):
            assert torch.equal(one, other)
    return program


def shared(program):
    """The names of the arguments whose memory a result has."""
    arguments = program.bundle.manifest.arguments
    results = {each.parameter for each in arguments if each.kind == "result"}
    return [each.name for each in arguments if each.kind != "result" and each.parameter in results]


#: Batch, heads, groups, positions, columns and the position that is written.
CASES = {
    "grouped": (2, 8, 2, 1024, 64, -1),
    "multi-query": (1, 4, 1, 4096, 64, 70),
    "all heads": (2, 4, 4, 1024, 64, 0),
    "odd positions": (1, 4, 2, 2100, 64, 2099),
    "odd columns": (2, 4, 4, 700, 72, 127),
    "small": (2, 4, 2, 128, 64, 100),
    "one stick": (2, 4, 2, 50, 64, 30),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("is_rows_first", [False, True])
def test_numbers_are_those_of_torch(name, is_rows_first):
    *sizes, position = CASES[name]
    inputs = tensors(*sizes, is_rows_first=is_rows_first)
    program = check(Decode(position, is_rows_first), inputs, sencores=8)
    assert shared(program) == ["keys", "values"]


def test_nothing_but_the_sticks_of_a_position_is_written():
    inputs = tensors(*CASES["grouped"][:5])
    program = spyre_mlir.compile(Decode(), inputs)
    kept = sum(each.bytes for each in program.bundle.manifest.arguments if each.name in ("keys", "values"))
    program(*inputs)
    assert program.traffic().written_bytes < kept / 4
    assert "ReStickifyOpHBM" not in [
        each.opcode for each in program.timeline().executions if each.work.read_bytes > kept / 4
    ]


class Cached(nn.Module):
    """A model with separate caches."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(64, 3 * 64, bias=False)
        self.register_buffer("keys", torch.randn(1, 2, 1024, 32).half())
        self.register_buffer("values", torch.randn(1, 2, 1024, 32).half())

    def forward(self, x):
        q, k, v = self.project(x).view(1, 1, 3, 2, 32).transpose(1, 3).unbind(2)
        self.keys[:, :, 500:501] = k
        self.values[:, :, 500:501] = v
        return nn.functional.scaled_dot_product_attention(q, self.keys, self.values)


def test_buffers_of_a_model():
    model = Cached().half()
    reference, x = copy.deepcopy(model), torch.randn(1, 1, 64).half()
    program = spyre_mlir.compile(model, (x,), sencores=4, verify_each=True)
    assert len(shared(program)) == 2
    np.testing.assert_allclose(
        program(x).detach().float(), reference(x).detach().float(), atol=0.004, rtol=0.02
    )
    for name in ("keys", "values"):
        np.testing.assert_allclose(
            getattr(model, name).detach(), getattr(reference, name).detach(), atol=0.004
        )


def test_an_old_value_that_is_read_elsewhere_is_copied():
    def model(cache, row):
        total = cache.sum(-1)
        cache[:, 3:4] = row
        return total

    program = check(model, [torch.randn(64, 256).half() / 8, torch.randn(64, 1).half()])
    assert shared(program) == []


def test_what_is_computed_is_no_update_in_place():
    def model(cache, row):
        cache += row
        return cache.sum(-1)

    assert shared(check(model, [torch.randn(64, 256).half() / 8, torch.randn(64, 1).half() / 8])) == []


def test_rows_of_whole_sticks_and_of_parts_of_them():
    def model(cache, rows):
        cache[64:128] = rows
        cache[130:133] = rows[:3]
        return torch.exp(cache)

    assert shared(check(model, [torch.randn(256, 192).half() / 8, torch.randn(64, 192).half()])) == ["cache"]


def test_positions_of_one_stick():
    """The second position is written into the stick with the first one."""

    def model(cache, a, b):
        cache[:, 70] = a
        cache[:, 71] = b
        cache[:, 70] = a + b
        return torch.softmax(cache, 1)

    inputs = [torch.randn(8, 256, 64).half(), torch.randn(8, 64).half(), torch.randn(8, 64).half()]
    check(model, inputs, sencores=4)


def test_a_part_that_is_read_elsewhere():
    def model(cache, row):
        new = torch.exp(row)
        cache[3] = new
        return cache.sum(0) + new

    check(model, [torch.randn(256, 64).half() / 8, torch.randn(64).half() / 8], sencores=4)


def test_a_saved_program_changes_its_argument(tmp_path):
    inputs = tensors(*CASES["small"][:5])
    program = spyre_mlir.compile(Decode(), inputs, sencores=4)
    program.save(tmp_path / "program")
    read_bundle(tmp_path / "program")
    loaded = Program.load(tmp_path / "program")
    arrays = [each.numpy().copy() for each in inputs]
    outputs = loaded(*arrays)
    result = program(*inputs)
    changed = [each for each in outputs if each.shape == arrays[3].shape]
    np.testing.assert_array_equal(changed[0], inputs[3])
    np.testing.assert_array_equal(next(each for each in outputs if each.shape == tuple(result.shape)), result)


@pytest.mark.parametrize("seed", range(8))
def test_random_caches(seed):
    chosen = random.Random(seed)
    groups, positions = chosen.choice([1, 2, 3]), chosen.randrange(65, 1400)
    is_rows_first = chosen.random() < 0.5
    sizes = (
        chosen.choice([1, 2]),
        groups * chosen.choice([1, 4]),
        groups,
        positions,
        chosen.choice([32, 64, 80]),
    )
    model = Decode(chosen.randrange(positions), is_rows_first)
    check(model, tensors(*sizes, is_rows_first=is_rows_first), sencores=chosen.choice([1, 4, 32]))
