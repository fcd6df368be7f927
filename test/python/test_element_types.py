# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Element types that the device does not have, or computes in another type: f64, booleans, integers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from like_eager import check_like_eager

import spyre_mlir
from spyre_mlir.errors import CompileError, HostWorkWarning

BIG = torch.tensor([[2**31 + 5, 2**40, -(2**35), 7, 2**62]])

DOUBLES = {
    "a result": lambda x: x.double() * 3.3,
    "a constant": lambda x: x * torch.tensor([1.1, 2.2, 3.3], dtype=torch.float64),
    "inside": lambda x: (x.double() / 3).sum(0).to(x.dtype),
    "softmax": lambda x: torch.softmax(x, -1, dtype=torch.float64),
    "float_power": lambda x: torch.float_power(x, 2.5),
    "norms": lambda x: (F.layer_norm(x.double(), (3,)), x.double().var(0), torch.logsumexp(x.double(), 1)),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.int64])
@pytest.mark.parametrize("form", DOUBLES)
def test_f64(form: str, dtype: torch.dtype) -> None:
    check_like_eager(DOUBLES[form], torch.arange(12).reshape(4, 3).to(dtype))


# A part of the program runs on the host; test_host_work_warning.py tests the warning.
@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")
def test_f64_in_a_folder(tmp_path) -> None:
    x = torch.rand(4, 3)
    spyre_mlir.compile(lambda x: x.double() / 3, (x,)).save(tmp_path / "program")
    (got,) = [spyre_mlir.Program.load(tmp_path / "program")(x.numpy())]
    assert torch.equal(torch.from_numpy(got), x.double() / 3)


BOOLEANS = {
    "product": lambda x, y: x * y,
    "sum": lambda x, y: x + y,
    "logic": lambda x, y: (x & y, x | y, x ^ y, ~x, torch.logical_not(x), torch.logical_xor(x, y)),
    "compared": lambda x, y: (x == y, x != y, x < y, x <= y, x > y, x >= y),
    "extremes": lambda x, y: (torch.maximum(x, y), torch.minimum(x, y), x.amax(1), x.amin(0), x.max(), x.aminmax()),
    "counts": lambda x, y: (x.sum(), x.sum(1), x.count_nonzero(), x.any(), x.all(0), x.any(1), x.prod(1)),
    "with numbers": lambda x, y: (x * 3, x + 1, x * 2.5, x * y.half(), x.int() - y.int(), x.half().mean()),
    "where": lambda x, y: torch.where(x, y, x),
    "order": lambda x, y: (x.sort(1)[0], x.cumsum(1), x.flip(0)),
    "accumulated": lambda x, y: (
        x.scatter_add(0, torch.zeros(4, 5, dtype=torch.int64), y),
        x.index_add(0, torch.tensor([0, 0, 1, 0]), y),
        x.index_put((torch.tensor([0, 0, 1, 0]),), y, accumulate=True),
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", BOOLEANS)
def test_booleans(form: str) -> None:
    torch.manual_seed(2)
    check_like_eager(BOOLEANS[form], *(torch.rand(2, 4, 5) > 0.5))


def test_logic_runs_on_the_device() -> None:
    x, y = torch.rand(2, 64, 64) > 0.5
    assert check_like_eager(lambda x, y: torch.logical_not(x * y) == (x < y), x, y).is_one_bundle


WIDE = {
    "as a float": lambda x: x.float(),
    "moved": lambda x: (torch.cat([x, x]), F.pad(x, (1, 1)), x.expand(4, 5) + 0),
    "arithmetic": lambda x: (x * 2, x + 2**33, x // 3, x % 1000, -x),
    "compared": lambda x: (x > 2**32, x == 7, x.max(1), x.argmin(1)),
    "beside floats": lambda x: x.double() * torch.ones(5, dtype=torch.float64) + x.bool(),
    "narrowed": lambda x: (x.int(), x.half(), x.to(torch.int16), x.to(torch.uint8)),
}


@pytest.mark.parametrize("form", WIDE)
def test_integers_beyond_32_bits(form: str) -> None:
    check_like_eager(WIDE[form], BIG)


def test_integers_that_need_64_bits_at_one_call_only() -> None:
    """The program is the same; the device runs it where it can."""
    program = spyre_mlir.compile(lambda x: x.float(), (torch.zeros(1, 5, dtype=torch.int64),))
    assert program.is_one_bundle
    with pytest.warns(HostWorkWarning, match="The host runs this call"):
        assert torch.equal(program(BIG), BIG.float())
    assert torch.equal(program(BIG % 1000), (BIG % 1000).float())


def test_a_folder_without_its_source_refuses_integers_that_need_64_bits(tmp_path) -> None:
    spyre_mlir.compile(lambda x: x.float(), (BIG,)).save(tmp_path / "program")
    with pytest.raises(CompileError, match="outside the range of IEEE_INT32"):
        spyre_mlir.Program.load(tmp_path / "program")(BIG.numpy())


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32])
def test_narrow_signed_integers(dtype: torch.dtype) -> None:
    def model(x, y):
        return (
            x + y,
            x * y,
            x // y,
            x % y,
            x**3,
            x.abs(),
            x.amax(1),
            x.sum(0),
            (x < y),
            x.half(),
            (x.half() * 2).to(dtype),
        )

    torch.manual_seed(2)
    x, y = (torch.randint(low, 60, (4, 5)).to(dtype) for low in (-60, 1))
    check_like_eager(model, x, y)


LARGE = {
    "sums": lambda x, y: (x + y, x - y, 5 - x, -x, x.sum(1), x.cumsum(1), x.diff()),
    "products": lambda x, y: (x * y, x**3, x * 16777217, y.prod(1), torch.outer(x[0], y[0]), x @ y.T),
    "quotients": lambda x, y: (x // y, x % y, torch.fmod(x, y), torch.div(x, y, rounding_mode="trunc"), x % 1000003),
    "order": lambda x, y: (x.max(1), x.argmin(), x.sort(1), x.topk(3)[0], x.cummax(1), torch.maximum(x, y)),
    "limits": lambda x, y: (x.abs(), x.sign(), x.relu(), x.clamp(-33554433, 16777219), F.hardtanh(x, -16777219, 7)),
    "compared": lambda x, y: (x < y, x >= 16777217, x == 16777217, torch.where(x > y, x, y)),
    "bits": lambda x, y: (x & y, x | y, x ^ y, ~x, x << 2, x >> 3),
    "moved": lambda x, y: (F.pad(x, (1, 1), value=16777217), torch.cat([x, y]), torch.full_like(x, 16777217)),
}  # fmt: skip


# The back end likely refuses a restickify of 32-bit numbers; test_conformance.py tests the warning.
@pytest.mark.filterwarnings("ignore::spyre_mlir.PassWarning")
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("form", LARGE)
def test_integers_that_f32_has_not(form: str, dtype: torch.dtype) -> None:
    x = torch.tensor([[16777217, -33554435, 2**30 + 1, -(2**30) - 3, 99999999, -7, 0, 1]])
    y = torch.tensor([[3, -5, 7, 16777217, -(2**29) - 1, 2, 1, -1]])
    if dtype == torch.int64:
        x, y = torch.cat([x, x * 1431655763], 1), torch.cat([y, y], 1)
    check_like_eager(LARGE[form], x.to(dtype), y.to(dtype))


BFLOATS = {"ldexp": lambda x: torch.ldexp(x, torch.tensor(2)), "logaddexp": lambda x: torch.logaddexp(x, x)}


@pytest.mark.parametrize("form", BFLOATS)
def test_a_bfloat16_without_dims_passes_between_device_and_host(form: str) -> None:
    check_like_eager(BFLOATS[form], torch.tensor(1.5).bfloat16())


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_convolutions_of_integers(dims: int) -> None:
    form = (F.conv1d, F.conv2d, F.conv3d)[dims - 1]
    x, weight = (
        torch.arange(2 * 5**dims).reshape(1, 2, *(5,) * dims),
        torch.ones(3, 2, *(2,) * dims, dtype=torch.int64),
    )
    check_like_eager(form, x, weight)
