# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operands that torch-mlir's passes end the process on: dims from the end, no elements, bytes in matmuls."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import spyre_mlir
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.exported import export_graph
from spyre_mlir.frontend.importer import operations
from spyre_mlir.simulator.run_outcome import SimulationError

aten = torch.ops.aten


def half(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(5)).half()


def index(bound: int, *shape: int) -> torch.Tensor:
    return torch.randint(bound, shape, generator=torch.Generator().manual_seed(5))


def byte(*shape: int) -> torch.Tensor:
    return (index(200, *shape) - 100).to(torch.int8)


def check(model, *inputs, tolerance: float = 2e-3) -> None:
    """Assert that a compiled model gives the results and types of the model."""
    results, expected = spyre_mlir.compile(model, inputs)(*inputs), model(*inputs)
    pairs = zip(*(each if isinstance(each, tuple) else (each,) for each in (results, expected)), strict=True)
    for result, reference in pairs:
        torch.testing.assert_close(result, reference, rtol=tolerance, atol=tolerance, equal_nan=True)


def negative_dims(x, i, source):
    return (
        x.scatter(-1, i, source),
        x.scatter_add(-1, i, source),
        x.scatter_reduce(-1, i, source, "amax"),
        x.index_add(-1, i[0], source),
        x.index_copy(-1, torch.tensor([3, 1, 0, 2, 6]), source),
        x.gather(-1, i),
        torch.select_scatter(x, source[:, 0], -1, 2),
    )


def test_dims_that_count_from_the_end():
    check(negative_dims, half(3, 7), index(7, 3, 5), half(3, 5))


def test_dims_of_the_graph_count_from_the_front():
    graph = export_graph(negative_dims, (half(3, 7), index(7, 3, 5), half(3, 5))).graph_module.graph
    named = (
        value
        for node in graph.nodes
        if isinstance(node.target, torch._ops.OpOverload)
        for argument, value in zip(node.target._schema.arguments, node.args, strict=False)
        if argument.name == "dim"
    )
    assert all(value >= 0 for value in named if isinstance(value, int))


EMPTY = {
    "repeat": (lambda x, e: (x.repeat(2, 0), e.repeat(2, 3)), half(3, 4), half(0, 4)),
    "bilinear": (lambda x, y, w: F.bilinear(x, y, w), half(0, 3), half(0, 4), half(5, 3, 4)),
    "pooling of no images": (lambda x: F.adaptive_avg_pool1d(x, 5), half(0, 4, 8)),
    "windows": (lambda x, e: (x.unfold(0, 0, 1), e.unfold(1, 2, 1)), half(4, 3), half(0, 3)),
    "im2col": (lambda x: F.unfold(x, 2), half(0, 1, 5, 5)),
    "products of many": (lambda a, b, c: torch.linalg.multi_dot([a, b, c]), half(2, 0), half(0, 4), half(4, 5)),
    "no rows": (lambda a, b, c: torch.linalg.multi_dot([a, b, c]), half(0, 3), half(3, 4), half(4, 5)),
    "one of several results": (lambda x: (x[:0] * 2, x + 1), half(4, 64)),
    "a sum, a product, a mean": (lambda x: (x.sum(0), x.prod(), x.mean()), half(0, 4)),
    "writing nothing": (lambda x, i, v: x.index_put((i,), v) + 1, half(5, 4), index(5, 0), half(0, 4)),
    "scattering nothing": (lambda x, i, v: x.scatter(0, i, v) + 1, half(5, 4), index(5, 0, 4), half(0, 4)),
    "adding nothing": (lambda c, a, b: torch.addmm(c, a, b) + 1, half(5, 4), half(5, 0), half(0, 4)),
    "attention": (lambda q: F.scaled_dot_product_attention(q, q, q), half(1, 2, 0, 16)),
    "a resize": (lambda x: x.clone().resize_(()) + 1, half(4)),
}  # fmt: skip


@pytest.mark.parametrize("name", EMPTY)
def test_tensors_without_elements(name):
    model, *inputs = EMPTY[name]
    check(model, *inputs)


def test_a_changed_input_without_elements_stays_one():
    x, y = half(0, 4), half(2, 3)
    assert torch.equal(spyre_mlir.compile(lambda x, y: (x.add_(1), y * 2)[1], (x, y))(x, y), y * 2)


def test_what_needs_elements_is_refused_with_its_line():
    with pytest.raises(CompileError, match="normal_forms"):
        spyre_mlir.compile(lambda x: x.amax(0), (half(0, 4),))


def test_matmuls_of_bytes_have_the_last_8_bits_of_the_sums():
    check(lambda a, b: (a @ b, torch.bmm(a[None], b[None]), a @ b[:, 0]), byte(8, 16), byte(16, 4))


def test_products_of_integers_that_are_added_to():
    def model(c, a, b):
        return (
            torch.addmm(c, a, b, beta=2, alpha=3),
            torch.addmv(c[:, 0], a, b[:, 0]),
            c.addbmm(a[None], b[None]),
        )

    check(model, index(9, 4, 6), index(9, 4, 5), index(9, 5, 6))


def test_a_number_out_of_a_tensor_is_a_result():
    x = half(9)
    program = spyre_mlir.compile(lambda x: (x.argmax().item(), x.max().item(), x + 1), (x,))
    position, largest, moved = program(x)
    assert (position, largest) == (x.argmax().item(), x.max().item()) and type(position) is int
    assert torch.equal(moved, x + 1)


def test_a_calculation_with_such_a_number_is_refused():
    with pytest.raises(CompileError, match=r"test_frontend_normal_forms.*return it as a tensor"):
        spyre_mlir.compile(lambda x: x.sum().item() * 2, (half(9),))


@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")
def test_a_constant_result_beside_work_of_the_host():
    check(lambda x, y: (x.clone().zero_(), y.cumsum(0)), half(8, 64), half(8, 64))


@pytest.mark.parametrize(
    "pool, dims",
    [(F.avg_pool1d, 1), (F.avg_pool2d, 2), (F.max_pool1d, 1), (F.max_pool2d, 2), (F.max_pool3d, 3)],
)
def test_a_pooling_of_one_image_is_that_of_a_batch_of_one(pool, dims):
    """torch-mlir's pooling of a tensor without a batch ends the process, or has no form."""
    x = torch.randn(3, *[6] * dims).half()
    result = spyre_mlir.compile(lambda x: pool(x, 2, 2), (x,))(x)
    torch.testing.assert_close(result, pool(x, 2, 2), rtol=2e-3, atol=2e-3)


def test_a_pooling_of_volumes_of_integers_is_refused():
    """torch-mlir would end the process for this pooling."""
    x = torch.ones(1, 2, 3, 6, 5, dtype=torch.int64)
    with pytest.raises(CompileError, match="max_pool3d of integers is not supported"):
        spyre_mlir.compile(lambda x: F.max_pool3d(x, 3, 2, 1), (x,))


def test_negative_indices_count_from_the_end_where_pytorch_takes_them() -> None:
    """``index_put`` and ``index_fill`` take them, given or computed; ``index_add`` and ``index_copy`` do not."""
    x, rows = torch.arange(40.0).reshape(8, 5).half(), torch.ones(2, 5).half()

    def taken(x, index, rows):
        return (
            x.index_put((index,), rows),
            x.index_fill(0, index - 3, 2),
            x.index_put((index,), rows, accumulate=True),
        )

    index = torch.tensor([-1, 2])
    program = spyre_mlir.compile(taken, (x, index, rows))
    for got, expected in zip(program(x, index, rows), taken(x, index, rows), strict=True):
        assert torch.equal(got, expected)
    with pytest.raises((CompileError, SimulationError), match="-9"):
        program(x, torch.tensor([-9, 2]), rows)
    for form in (
        lambda x, index, rows: x.index_add(0, index - 4, rows),
        lambda x, index, rows: x.index_copy(0, index - 4, rows),
    ):
        with pytest.raises((CompileError, SimulationError), match="index -2"):
            spyre_mlir.compile(form, (x, index + 3, rows))(x, torch.tensor([2, 3]), rows)


def test_an_operation_follows_the_operations_of_its_regions():
    """The cleaning erases operations during its walk: it would read operations of an erased region after it."""
    program = spyre_mlir.compile(lambda x: torch.full_like(x, 3.0) * x.sum(), (half(4),))
    walked = list(operations(program.module.operation))
    for place, operation in enumerate(walked):
        assert not any(operation == inner.parent for inner in walked[place:])


def test_a_scatter_of_parts_of_rows():
    """Only an index for whole rows copies rows; here the last three columns keep their numbers."""
    rows = torch.tensor([4, 0, 3])
    check(lambda x, source: x.scatter(0, rows[:, None].expand(3, 5), source) * 1, half(6, 8), half(3, 5))
    check(lambda x, source: x.scatter(0, rows[:, None].expand(3, 8), source) * 1, half(6, 8), half(3, 8))
