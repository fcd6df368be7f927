# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Complex numbers in a model are pairs of real ones in its program."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from like_eager import check_like_eager
from programs import Apply, check_close
from torch import Tensor, nn

import spyre_mlir
from spyre_mlir.errors import CompileError


class Rotary(nn.Module):
    """Rotary embedding by a table of complex numbers, as Meta's Llama has it."""

    table: Tensor

    def __init__(self, sequence: int, dim: int) -> None:
        super().__init__()
        angle = torch.outer(torch.arange(sequence).float(), 10000.0 ** (-torch.arange(0, dim, 2) / dim))
        self.register_buffer("table", torch.polar(torch.ones_like(angle), angle), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * self.table[None, :]).flatten(-2).to(x.dtype)


def test_a_rotary_embedding_by_complex_numbers_runs_on_the_device():
    torch.manual_seed(9)
    model, x = Rotary(17, 32).eval(), torch.randn(2, 17, 32).half()
    program = spyre_mlir.compile(model, (x,))
    assert program.is_one_bundle
    with torch.no_grad():
        assert (program(x) - model(x)).abs().max() < 4e-3


@pytest.mark.parametrize(
    "function",
    (
        lambda z, w: z * w.conj(),
        lambda z, w: (z + w) * 2,
        lambda z, w: z.unsqueeze(0)[:, ::2] - w[::2],
    ),
)
def test_arithmetic_of_complex_numbers(function):
    torch.manual_seed(9)

    def model(x: Tensor, y: Tensor) -> Tensor:
        z = function(*(torch.complex(each[0].float(), each[1].float()) for each in (x, y)))
        return (torch.real(z) + torch.imag(z)).to(x.dtype)

    x, y = torch.randn(2, 6, 65).half(), torch.randn(2, 6, 65).half()
    check_close("complex", spyre_mlir.compile(model, (x, y))(x, y), Apply(model), (x, y))


PAIRS = {
    "sums": lambda z, w: (z + w, z - w, -z, 1 - z, z + 1j, z + z.real),
    "products": lambda z, w: (z * w, z * 2, (1 + 2j) * z),
    "as it came": lambda z, w: (z, w.T, z[0], z),
    "parts": lambda z, w: (z.real * 2, w.imag, torch.view_as_real(z), torch.complex(z.real, w.imag)),
    "conjugate": lambda z, w: (z.conj(), z.conj() * w, z.conj_physical()),
    "compared": lambda z, w: (z == w, z != z, torch.where(z.real > 0, z, w)),
    "moved": lambda z, w: (torch.cat([z, w], 1), torch.stack([z, w]), z.flip(0), z.roll(1, 0), F.pad(z, (1, 1))),
    "filled": lambda z, w: (torch.zeros_like(z), torch.full((2,), 1j), z * torch.ones(4, dtype=z.dtype)),
    "several": lambda z, w: (torch.split(z * 2, 2, 1), torch.unbind(z + w), {"twice": z * 2}),
    "converted": lambda z, w: (z.to(torch.complex64) * 1, z.to(torch.complex128), z.bool()),
}  # fmt: skip
FUNCTIONS = {
    "quotients": lambda z, w: (z / w, z / 2j, z.reciprocal(), 1 / z),
    "absolute": lambda z, w: (z.abs(), z.angle(), z.sgn(), z.norm(), torch.linalg.vector_norm(z, dim=1)),
    "exponential": lambda z, w: (z.exp(), z.log(), z.sqrt(), z**2, z.sin(), z.cosh(), z.tanh()),
    "matmul": lambda z, w: (z @ w.T, torch.einsum("ij,kj->ik", z, w.conj()), torch.linalg.vecdot(z, w)),
    "reductions": lambda z, w: (z.sum(0), z.mean(), z.var(0), z.std(1), z.cumsum(0)),
    "without dims": lambda z, w: (z[0, 0] * 2, z.sum() + w[1, 1]),
    "without elements": lambda z, w: (z[:0] * 2, w + 1),
}


def _pair(dtype: torch.dtype) -> list[Tensor]:
    torch.manual_seed(9)
    return [torch.complex(torch.randn(3, 4), torch.randn(3, 4)).to(dtype) for _ in range(2)]


@pytest.mark.parametrize("dtype", [torch.complex32, torch.complex64, torch.complex128])
@pytest.mark.parametrize("form", PAIRS)
def test_complex_inputs_and_results(form: str, dtype: torch.dtype) -> None:
    check_like_eager(PAIRS[form], *_pair(dtype))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("form", FUNCTIONS)
def test_complex_functions(form: str, dtype: torch.dtype) -> None:
    check_like_eager(FUNCTIONS[form], *_pair(dtype))


def test_what_changes_in_place() -> None:
    def model(z: Tensor, w: Tensor) -> Tensor:
        z.mul_(w)
        return w.add_(1j).real

    check_like_eager(model, *_pair(torch.complex64))
    check_like_eager(lambda z: z * 2, _pair(torch.complex64)[0].conj())


class State(nn.Module):
    """A parameter, and a buffer that each call changes."""

    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(_pair(torch.complex64)[0])
        self.register_buffer("total", _pair(torch.complex64)[1].clone())

    def forward(self, z: Tensor) -> tuple[Tensor, ...]:
        self.total += z * self.factor
        return self.total * 1, self.factor, z.T


def test_complex_state() -> None:
    with torch.no_grad():
        z, eager = _pair(torch.complex64)[0], State()
        program = spyre_mlir.compile(State(), (z,))
        for _ in range(2):
            torch.testing.assert_close(program(z), eager(z))


TRANSFORMS = {
    "one dim": lambda x: (torch.fft.fft(x), torch.fft.ifft(x), torch.fft.fft(x, n=7, norm="ortho", dim=1)),
    "two dims": lambda x: (torch.fft.fft2(x), torch.fft.ifft2(x, norm="forward"), torch.fft.fftn(x)),
    "real numbers": lambda x: (torch.fft.rfft(x.real), torch.fft.rfftn(x.real), torch.fft.ihfft(x.real)),
    "to real numbers": lambda x: (torch.fft.irfft(x), torch.fft.irfft(x, n=7), torch.fft.hfft(x), torch.fft.irfft2(x)),
    "there and back": lambda x: torch.fft.irfft(torch.fft.rfft(x.real) * torch.fft.rfft(x.imag), n=x.shape[-1]),
    "shifted": lambda x: torch.fft.fftshift(torch.fft.fft(x)),
}  # fmt: skip


@pytest.mark.parametrize("size", [2, 5, 8, 9])
@pytest.mark.parametrize("form", TRANSFORMS)
def test_fourier_transforms(form: str, size: int) -> None:
    torch.manual_seed(9)
    check_like_eager(TRANSFORMS[form], torch.complex(torch.randn(2, 3, size), torch.randn(2, 3, size)))


def test_what_has_no_rule_is_refused_where_it_is() -> None:
    with pytest.raises(CompileError, match=r"(of|gives) complex numbers"):
        spyre_mlir.compile(lambda z: torch.linalg.eigvals(z), (_pair(torch.complex64)[0][:, :3],))
    with pytest.raises(CompileError, match="'z' must be a complex tensor"):
        spyre_mlir.compile(lambda z: z * 2, (_pair(torch.complex64)[0],))(torch.ones(3, 4))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float16])
@pytest.mark.filterwarnings("ignore::spyre_mlir.PassWarning")
def test_a_shift_of_real_numbers_only_moves_them(dtype: torch.dtype) -> None:
    x = torch.arange(12).reshape(3, 4).to(dtype)
    assert torch.equal(spyre_mlir.compile(torch.fft.fftshift, (x,))(x), torch.fft.fftshift(x))
