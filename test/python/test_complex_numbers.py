"""Complex numbers in a model are pairs of real ones in its program."""

from __future__ import annotations

import pytest
import torch
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


def test_an_input_that_is_complex_is_refused_where_it_is():
    with pytest.raises(CompileError, match="element type complex64 of input 'z' is not supported"):
        spyre_mlir.compile(lambda z: torch.view_as_real(z * z), (torch.zeros(3, dtype=torch.complex64),))
