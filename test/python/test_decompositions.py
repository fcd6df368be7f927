# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Device forms of PyTorch operations, run by PyTorch itself and compared with the operations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import spyre_mlir
from spyre_mlir.frontend import convolutions, decompositions, pointwise, selection
from spyre_mlir.frontend.decompositions import decomposition_table

aten = torch.ops.aten
_MODULES = (decompositions, pointwise, selection, convolutions)
FORMS = {operation: form for module in _MODULES for operation, form in module.FORMS.items()}
SHAPES = ((5,), (1,), (3, 7), (2, 5, 11), (2, 3, 5, 4))


def tensors(seed: int = 9, *shapes: tuple[int, ...]) -> list[Tensor]:
    """Multiples of 1/8, half of which tie with another."""
    torch.manual_seed(seed)
    return [torch.randint(-16, 16, shape).half() / 8 for shape in shapes or SHAPES]


def images() -> list[Tensor]:
    return tensors(9, (1, 2, 6, 9), (2, 1, 5, 4))


def compare(operation, *arguments, tolerance: float = 0.0, **named) -> None:
    """Assert that the form of an operation has the result of the operation."""
    got, expected = FORMS[operation](*arguments, **named), operation(*arguments, **named)
    assert got is not NotImplemented
    for mine, reference in zip(*map(_results, (got, expected)), strict=True):
        assert mine.shape == reference.shape and mine.dtype == reference.dtype
        torch.testing.assert_close(mine, reference, rtol=tolerance, atol=tolerance, equal_nan=True)


def _results(value) -> tuple[Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("operation", (aten.max.dim, aten.min.dim, aten.cummax.default, aten.cummin.default))
def test_extremes_and_their_positions_are_those_of_pytorch(operation):
    for x in tensors():
        for dim in range(-1, x.ndim):
            compare(operation, x, dim)


@pytest.mark.parametrize("operation", (aten.argmax.default, aten.argmin.default))
def test_positions_of_extremes_are_the_first_ones(operation):
    for x in tensors():
        compare(operation, x)
        compare(operation, x, keepdim=True)
        for dim in range(-1, x.ndim):
            compare(operation, x, dim, keepdim=True)


def test_positions_beyond_the_16_bit_integers_are_exact():
    x = torch.zeros(5003, dtype=torch.float16)
    x[4999] = 1
    compare(aten.argmax.default, x)


@pytest.mark.parametrize("largest", (True, False))
def test_the_largest_elements_are_different_ones(largest):
    torch.manual_seed(9)
    x = torch.randperm(6 * 9).reshape(6, 9).half()
    for k in (1, 2, 4):
        compare(aten.topk.default, x, k, 1, largest)
        compare(aten.topk.default, x, k, 0, largest)


def test_the_largest_elements_of_a_row_of_infinities_are_different_ones():
    values, positions = selection.largest_elements(torch.full((2, 5), float("-inf")), 3)
    assert positions.tolist() == [[0, 1, 2]] * 2 and torch.isneginf(values).all()


def test_more_of_the_largest_elements_than_the_device_gives_are_left():
    assert selection.largest_elements(torch.zeros(9), 5) is NotImplemented


@pytest.mark.parametrize("position", (0, 4, -1))
def test_one_slice_is_written_where_an_index_says(position):
    x, new = tensors(9, (3, 5, 2), (3, 1, 2))
    index = torch.tensor([position])
    compare(aten.index_put.default, x, [None, index], new)
    if position >= 0:
        compare(aten.index_copy.default, x, 1, index, new)


def test_several_slices_are_put_where_their_index_says():
    x, new = tensors(9, (3, 5), (3, 2))
    compare(aten.index_copy.default, x, 1, torch.tensor([4, 1]), new)
    assert selection.index_put(x, [torch.tensor([0, 1])], new.T[0, :1]) is NotImplemented


def test_a_few_elements_per_row_are_scattered():
    x, source = tensors(9, (4, 7), (4, 3))
    index = torch.stack([torch.randperm(7)[:3] for _ in range(4)])
    compare(aten.scatter.src, x, 1, index, source)
    compare(aten.scatter.value, x, 1, index, 2.5)
    compare(aten.scatter_add.default, x, 1, torch.randint(0, 7, (4, 3)), source)


def test_an_index_that_does_not_cover_the_other_dims_is_left():
    x, source = tensors(9, (4, 7), (4, 3))
    assert FORMS[aten.scatter.src](x, 1, torch.zeros(2, 3, dtype=torch.int64), source) is NotImplemented


def test_medians_and_ordered_elements():
    torch.manual_seed(9)
    for size in (1, 4, 7):
        x = torch.randperm(3 * size).reshape(3, size).half()
        compare(aten.median.dim, x, 1)
        compare(aten.kthvalue.default, x, size, 1, True)


@pytest.mark.parametrize("right", (False, True))
def test_insertion_points_of_equal_numbers_are_before_or_after(right):
    ordered, x = torch.tensor([0.0, 1.0, 1.0, 2.0]), torch.tensor([-1.0, 0.0, 1.0, 1.5, 3.0])
    compare(aten.searchsorted.Tensor, ordered, x, right=right)


def test_elements_that_are_not_zero_are_counted():
    for x in tensors():
        compare(aten.count_nonzero.default, x)
        compare(aten.count_nonzero.dim_IntList, x, [-1])


def test_one_hot_rows():
    index = torch.tensor([[0, 3], [2, 1]])
    assert torch.equal(selection.one_hot(index, 5), torch.nn.functional.one_hot(index, 5))


def test_dims_are_reversed_and_rolled():
    for x in tensors():
        compare(aten.flip.default, x, [-1])
        compare(aten.flip.default, x, list(range(x.ndim)))
        compare(aten.roll.default, x, [2], [0])
        compare(aten.roll.default, x, [-3], [])
    assert decompositions.flip(torch.zeros(17), [0]) is NotImplemented


@pytest.mark.parametrize("amounts", ([-2, 3], [1, -4, -1, 0], [0, 2, -1, -1]))
def test_a_pad_by_a_negative_amount_cuts_off(amounts):
    (x,) = tensors(9, (4, 9))
    compare(aten.constant_pad_nd.default, x, amounts, 1.5)


def test_borders_are_mirrored_and_repeated():
    for x in images():
        compare(aten.reflection_pad2d.default, x, [3, 1, 0, 2])
        compare(aten.replication_pad2d.default, x, [3, 1, 0, 2])
        compare(aten.reflection_pad1d.default, x[0], [0, 2])
        compare(aten.replication_pad1d.default, x[0], [20, 0])


@pytest.mark.parametrize(("size", "step"), ((1, 1), (3, 1), (2, 3), (9, 1)))
def test_windows_of_few_or_of_many_elements(size, step):
    (x,) = tensors(9, (2, 11, 3))
    compare(aten.unfold.default, x, 1, size, step)


@pytest.mark.parametrize("offset", (0, 2, -3))
def test_diagonals_of_rectangles(offset):
    (x,) = tensors(9, (5, 4, 7))
    compare(aten.diagonal.default, x, offset, 0, 2)
    compare(aten.diagonal.default, x, offset, -1, 1)


@pytest.mark.parametrize("size", ((6, 9), (3, 20), (13, 2), (1, 1)))
@pytest.mark.parametrize("align_corners", (False, True))
def test_interpolation_between_pixels(size, align_corners):
    for x in images():
        compare(aten.upsample_bilinear2d.vec, x.float(), size, align_corners, None, tolerance=1e-5)


def test_interpolation_by_a_factor_that_is_no_ratio_of_sizes():
    (x,) = tensors(9, (1, 2, 10))
    compare(aten.upsample_linear1d.vec, x.float(), None, False, [1.25], tolerance=1e-5)


@pytest.mark.parametrize("size", ((12, 9), (18, 27), (2, 3)))
def test_nearest_pixels(size):
    compare(aten.upsample_nearest2d.vec, images()[0], size, None)


def test_nearest_pixels_that_are_no_copies_are_left():
    assert convolutions.nearest(images()[0], (7, 9)) is NotImplemented


def test_means_of_ranges_of_different_lengths():
    for x in images():
        compare(aten._adaptive_avg_pool2d.default, x.float(), (4, 3), tolerance=1e-5)


@pytest.mark.parametrize("operation", (aten.round.default, aten.ceil.default, aten.trunc.default))
def test_integers_near_a_number(operation):
    compare(
        operation,
        torch.cat([*tensors(9, (99,)), torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 1025, 60000]).half()]),
    )


def test_signs_of_zeros_are_copied():
    (x,) = tensors(9, (5,))
    compare(aten.copysign.Tensor, x, torch.tensor([0.0, -0.0, 1, -1, -2]).half())


def test_lengths_that_do_not_overflow():
    compare(aten.hypot.default, torch.tensor([3e4, 0.0, -3.0]), torch.tensor([4e4, 0.0, 4.0]), tolerance=1e-6)
    tiny = torch.tensor([5e-5, 6e-8, 0.0]).half()
    compare(aten.hypot.default, tiny, tiny, tolerance=1e-7)


@pytest.mark.parametrize("exponent", (0.5, 1.5, -2, -0.5, 3))
def test_powers(exponent):
    compare(aten.pow.Tensor_Scalar, torch.linspace(0.5, 3, 20), exponent, tolerance=1e-6)
    if exponent == -2:
        compare(aten.pow.Tensor_Scalar, torch.tensor([500.0]).half(), exponent, tolerance=1e-7)


@pytest.mark.parametrize(
    "operation",
    (aten.softplus.default, aten.mish.default, aten.celu.default, aten.log2.default, aten.log10.default),
)
def test_activations_and_logarithms(operation):
    x = torch.linspace(0.1, 3, 20).half()
    compare(operation, x, tolerance=3e-3)


@pytest.mark.parametrize("parameters", ((), (1.7, 1.05), (1, 1, 0.5)))
def test_elu_of_small_numbers_is_not_zero(parameters):
    """exp(x) - 1 in 16 bits is 0 below 2^-12."""
    x = torch.tensor([-2e-4, -1e-3, -0.3, -20.0, 0.0, 2.5, -60000.0, 60000.0]).half()
    got, expected = FORMS[aten.elu.default](x, *parameters), aten.elu.default(x.double(), *parameters)
    torch.testing.assert_close(got.double(), expected, rtol=3e-3, atol=0)


def test_the_approximate_gelu_of_negative_numbers_keeps_its_digits():
    """1 + tanh(u) in 16 bits is 0 below -4; PyTorch computes in f32."""
    x = torch.linspace(-5.5, 5.5, 111).half()
    got = FORMS[aten.gelu.default](x, approximate="tanh")
    expected = torch.nn.functional.gelu(x.double(), approximate="tanh")
    torch.testing.assert_close(got.double(), expected, rtol=3e-2, atol=1e-6)


def test_the_logarithm_of_the_sigmoid():
    x = torch.linspace(-30, 30, 61).half()
    mine, expected = pointwise.log_sigmoid(x)[0], torch.nn.functional.logsigmoid(x)
    torch.testing.assert_close(mine, expected, rtol=2e-3, atol=2e-3)


QUOTIENTS = {
    "floor": (lambda x, y: torch.div(x, y, rounding_mode="floor"), lambda x, y: torch.floor(x / y)),
    "trunc": (lambda x, y: torch.div(x, y, rounding_mode="trunc"), lambda x, y: torch.trunc(x / y)),
    "fmod": (torch.fmod, lambda x, y: x - y * torch.trunc(x / y)),
    "remainder": (torch.remainder, lambda x, y: x - y * torch.floor(x / y)),
}


@pytest.mark.parametrize("name", QUOTIENTS)
def test_quotients_just_below_an_integer_are_not_that_integer(name: str) -> None:
    """In fp16 some of these quotients are integers; the results equal exact quotients, rounded once."""
    operation, exact = QUOTIENTS[name]
    torch.manual_seed(5)
    x, y = (torch.randn(50, 70) * 20).half(), (torch.rand(50, 70) * 3 + 0.5).half()
    assert ((x / y).floor() != (x.double() / y.double()).floor()).any()
    got = spyre_mlir.compile(operation, (x, y))(x, y)
    assert torch.equal(got, exact(x.double(), y.double()).half())


def test_logarithms_of_sums_neither_overflow_nor_lose_infinities():
    inf, nan = torch.inf, torch.nan
    x = torch.tensor([[100.0, 2.0, -200.0, 100.0], [-inf, -inf, 1.0, inf], [-1000.0, 0.0, nan, 1.0]])
    for dim in (0, 1, -1):
        compare(aten.logcumsumexp.default, x, dim, tolerance=1e-6)
    compare(aten.logcumsumexp.default, x.half(), 1, tolerance=1e-3)
    compare(aten.logcumsumexp.default, torch.tensor(3.0), 0)


BAGS = torch.tensor([1, 2, 3, 4, 5, 5]), torch.tensor([0, 2, 2, 5])


@pytest.mark.parametrize("padding", (None, 5))
@pytest.mark.parametrize("is_last_given", (False, True))
@pytest.mark.parametrize("mode", (0, 1, 2))
def test_bags_of_rows_have_all_results_of_pytorch(mode, is_last_given, padding):
    indices, offsets = BAGS
    offsets = torch.tensor([0, 2, 2, 6]) if is_last_given else offsets
    (table,) = tensors(3, (10, 4))
    weights = None if mode else tensors(4, (6,))[0]
    for each in (None, weights):
        given = (table, indices, offsets, False, mode, False, each, is_last_given, padding)
        compare(aten.embedding_bag.padding_idx, *given, tolerance=2e-3)


def test_a_row_that_is_not_finite_stays_in_its_bag():
    (table,) = tensors(3, (10, 4))
    table[1] = torch.inf
    compare(aten.embedding_bag.default, table, *BAGS)


@pytest.mark.parametrize("beta", (0, 1, 2))
def test_what_is_added_to_products(beta):
    added, x, y, vector = tensors(5, (3, 4), (3, 5), (5, 4), (5,))
    if not beta:
        added[0] = torch.nan
    compare(aten.addmv.default, added[:, 0], x, vector, beta=beta, alpha=3, tolerance=1e-2)
    compare(aten.addbmm.default, added, x[None], y[None], beta=beta, alpha=3, tolerance=1e-2)
    compare(aten.baddbmm.default, added[None], x[None], y[None], beta=beta, alpha=3, tolerance=1e-2)
    integers = [each.mul(8).to(torch.int64) for each in (torch.ones(3, 4), x, y)]
    compare(aten.addmm.default, *integers, beta=beta, alpha=3)


def test_scatters_by_diagonal_and_by_storage():
    x, source = tensors(5, (2, 5, 6), (2, 4))
    for offset, dims, size in ((1, (1, 2), 5), (-1, (-2, -1), 4), (2, (1, 2), 4), (1, (2, 1), 4)):
        compare(aten.diagonal_scatter.default, x, x[:, 1, :size] + 1, offset, *dims)
    compare(aten.as_strided_scatter.default, x, source, (2, 4), (17, 2), 3)


def test_running_extremes_of_integers():
    x = torch.randint(-9, 9, (4, 7))
    compare(aten.cummax.default, x, 1)
    compare(aten.cummin.default, x, -2)


def test_a_group_norm_has_its_mean_and_deviation():
    (x,) = tensors(5, (2, 6, 5))
    expected = aten.native_group_norm.default(x, None, None, 2, 6, 5, 3, 1e-5)
    mine = decomposition_table()[aten.native_group_norm.default](x, None, None, 2, 6, 5, 3, 1e-5)
    for one, other in zip(mine, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=4e-3, atol=4e-3)


def test_a_variance_over_too_few_numbers_is_not_negative():
    (x,) = tensors(5, (2, 3))
    mine = decomposition_table()[aten.var.correction](x, [1], correction=5)
    assert torch.equal(mine, torch.full((2,), torch.inf).half())


def test_a_clamp_of_integers_has_limits_that_are_integers():
    compare(aten.hardtanh.default, torch.arange(-3, 4), -1.5, 2.5)


def test_fp16_is_quantised_in_f32():
    """4.1484 / 0.1 is 41.484, but 41.5 in fp16."""
    import torch.ao.quantization.fx._decomposed  # registers the operations

    library, forms = torch.ops.quantized_decomposed, decompositions.quantizing_forms()
    x = torch.linspace(-14, 14, 1001).half()
    x[0] = 4.1484
    for operation, parameters in (
        (library.quantize_per_tensor.default, (0.1, 3, -128, 127, torch.int8)),
        (library.quantize_per_tensor.default, (0.1, 128, 0, 255, torch.uint8)),
        (library.quantize_per_tensor.tensor, (torch.tensor(0.1), torch.tensor(3), -128, 127, torch.int8)),
    ):
        assert torch.equal(forms[operation](x, *parameters), operation(x, *parameters))
    scales, zeros = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([3, 0, -4])
    given = (x[:999].reshape(3, 333), scales, zeros, 0, -128, 127, torch.int8)
    operation = library.quantize_per_channel.default
    assert torch.equal(forms[operation](*given), operation(*given))
