# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of PyTorch kernels for operations without a form in linalg, and names that a file must not call."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from host_functions import call, evaluator
from programs import Apply, check_close

import spyre_mlir
from spyre_mlir.errors import CompileError
from spyre_mlir.host.torch_kernels import refusal_of

aten = torch.ops.aten


def _normal(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def _positive(*shape: int) -> torch.Tensor:
    return _normal(*shape).abs() + 0.5


X, POSITIVE = _normal(5, 70), _positive(5, 70)

#: Operations without a form in linalg, of each kind of signature: several results, lists, modes, types, numbers.
NO_FORM: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "lgamma": (lambda x: torch.lgamma(x) + x, (POSITIVE,)),
    "frexp": (torch.frexp, (X,)),
    "one_of_two_results": (lambda x: torch.frexp(x)[1], (X,)),
    "erfc": (torch.special.erfc, (X,)),
    "i0": (torch.i0, (X,)),
    "polygamma": (lambda x: torch.polygamma(1, x), (POSITIVE,)),
    "median": (lambda x: torch.median(x, dim=1), (X,)),
    "mode": (lambda x: torch.mode(x, 0), (torch.tensor([[1, 2], [1, 3], [2, 3]]).half(),)),
    "index_reduce": (
        lambda x, i, y: x.index_reduce(0, i, y, "amax", include_self=False),
        (X, torch.tensor([4, 0, 4]), _normal(3, 70)),
    ),
    "nextafter": (torch.nextafter, (X, X.flip(0))),
    "isfinite": (lambda x: torch.isfinite(1 / x), (torch.tensor([0.0, 1.0, -2.0]).half(),)),
    "heaviside": (torch.heaviside, (X, X[:1])),
    "matrix_exp": (lambda x: torch.linalg.matrix_exp(x * 0.1), (_normal(4, 4, dtype=torch.float32),)),
    "det": (torch.linalg.det, (_normal(3, 5, 5, dtype=torch.float32),)),
    "cov": (lambda x: torch.linalg.inv(x @ x.T + torch.eye(5)), (_normal(5, 70, dtype=torch.float32),)),
    "cumulative_maximum": (lambda x: torch.cummax(x, 1), (X,)),
    "block_diagonal": (lambda x, y: torch.block_diag(x, y), (X, _normal(3, 4))),
    "digamma_of_bfloat16": (torch.digamma, (_positive(9, 3).bfloat16(),)),
    "lcm_of_integers": (torch.lcm, (torch.arange(1, 13), torch.arange(12, 0, -1))),
    "bytes": (lambda x: torch.gcd(x, x + 4), (torch.arange(200, 255, dtype=torch.uint8),)),
    "0-d": (torch.lgamma, (torch.tensor(2.5).half(),)),
}


# A part of the program runs on the host; test_host_work_warning.py tests the warning.
@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")
@pytest.mark.parametrize("name", NO_FORM)
def test_what_has_no_form_is_computed_as_by_pytorch(name: str) -> None:
    function, inputs = NO_FORM[name]
    results = spyre_mlir.compile(function, inputs)(*inputs)
    wanted = function(*inputs)
    for result, other in zip(
        *(torch.utils._pytree.tree_leaves(value) for value in (results, wanted)), strict=True
    ):
        assert result.dtype == other.dtype and result.shape == other.shape
        bound = 4e-3 if other.dtype in (torch.float16, torch.bfloat16) else 1e-5
        torch.testing.assert_close(result, other, rtol=bound, atol=bound, equal_nan=True)


def test_a_folder_has_the_call_as_a_name(tmp_path: Path) -> None:
    """A saved program runs from its folder, and does not import torch unless it is called."""
    model, inputs = Apply(lambda x: torch.exp(torch.lgamma(x) * 0.1)), (POSITIVE,)
    program = spyre_mlir.compile(model, inputs)
    program.save(tmp_path / "program")
    text = (tmp_path / "program" / "host_0.mlir").read_text()
    assert 'domain_name = "aten"' in text and 'operator_name = "lgamma.default"' in text
    np.savez(tmp_path / "inputs.npz", POSITIVE.numpy())
    tools = [sys.executable, "-c", "from spyre_mlir.tools import spyre_run, spyre_validate; "]
    run = "spyre_run.main(['program', '--inputs', 'inputs.npz', '--outputs', 'out.npz'])"
    subprocess.run([*tools[:2], tools[2] + run], cwd=tmp_path, check=True, capture_output=True)
    (result,) = np.load(tmp_path / "out.npz").values()
    check_close("folder", torch.from_numpy(result), model, inputs)
    validate = "import sys; spyre_validate.main(['program']); assert 'torch' not in sys.modules"
    subprocess.run([*tools[:2], tools[2] + validate], cwd=tmp_path, check=True, capture_output=True)


def test_only_the_refused_call_is_one_of_a_kernel() -> None:
    """An operation that linalg has in one form and not in another stays on the device where it can."""
    program = spyre_mlir.compile(lambda x, y: (x.amax(1), y.amax(0)), (X, torch.tensor(1.0).half()))
    assert [step.name for step in program.bundles], "the reduction of rows is for the device"
    assert torch.equal(program(X, torch.tensor(3.0).half())[1], torch.tensor(3.0).half())


@pytest.mark.parametrize(
    "function",
    [torch.linalg.norm, torch.fft.fftshift, torch.isfinite, lambda x: torch.view_copy(x, (70, 5)) + 1],
)
def test_compositions_are_decomposed_and_run_on_the_device(function: Callable) -> None:
    program = spyre_mlir.compile(function, (X,))
    assert not any("host" in step.name for step in program.steps)
    torch.testing.assert_close(program(X), function(X), rtol=2e-3, atol=2e-3)


def test_equal_layers_are_called_together() -> None:
    """Each round of import handles all equal calls, so their number does not count."""
    model = lambda x: sum((torch.lgamma(x + layer) for layer in range(12)), x)  # noqa: E731
    assert len(spyre_mlir.compile(model, (POSITIVE,)).steps) >= 2


# -- files from elsewhere ----------------------------------------------------------------------------------


def _called(
    operator: str,
    arguments: str,
    operand: str = "tensor<4xf32>",
    result: str = "tensor<4xf32>",
    **dtypes: str,
) -> str:
    domain, _, name = operator.partition(".")
    operands, results = dtypes.get("operands", '["float32"]'), dtypes.get("results", '["float32"]')
    kept = dtypes.get("kept", "array<i64: 0>")
    return f"""
func.func @main(%x: {operand}) -> {result} {{
  %y = tosa.custom %x {{domain_name = "{domain}", operator_name = "{name}", implementation_attrs = "",
    sdsc.call = {{arguments = {arguments}, kept = {kept}, operands = {operands}, results = {results}}}}}
    : ({operand}) -> {result}
  return %y : {result}
}}"""


SELF = "{self = {operand = 0}}"


def test_a_call_in_a_file_is_computed() -> None:
    x = np.array([0.5, 1, 2, 3], np.float32)
    (result,) = call(_called("aten.lgamma.default", SELF), x)
    np.testing.assert_allclose(result, torch.lgamma(torch.from_numpy(x)))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (_called("os.system.default", SELF), "no model of this process calls"),
        (_called("aten.__import__.default", SELF), "not an operator of PyTorch"),
        (_called("aten.nothing_like_it.default", SELF), "does not have"),
        (_called("aten.lgamma.other", SELF), "does not have"),
        (_called("aten.lgamma_.default", SELF), "writes"),
        (_called("aten.from_file.default", '{filename = "none"}'), "does not compute tensors from tensors|kept"),
        (_called("aten.as_strided.default", "{self = {operand = 0}, size = array<i64: 4>}"), "check"),
        (_called("aten.bernoulli.default", SELF), "random"),
        (_called("aten.lgamma.default", "{self = {operand = 1}}"), "not a number, mode"),
        (_called("aten.lgamma.default", "{self = {operand = -1}}"), "not a number, mode"),
        (_called("aten.lgamma.default", '{self = "/etc/passwd"}'), "not a number, mode"),
        (_called("aten.lgamma.default", "{self = {operand = 0}, more = 1}"), "cannot express"),
        (_called("aten.lgamma.default", "{}"), "refused by PyTorch's kernel"),
        (_called("aten.repeat.default", "{self = {operand = 0}, repeats = array<i64: 1000000000000>}"), "declares"),
        (_called("aten.lgamma.default", SELF, result="tensor<5xf32>"), "declares"),
        (_called("aten.lgamma.default", SELF, results='["float64"]'), "as elements of the type"),
        (_called("aten.lgamma.default", SELF, operands='["float16"]'), "as elements of the type"),
        (_called("aten.lgamma.default", SELF, kept="array<i64: 1>"), "refused by PyTorch's kernel"),
        (_called("aten.lgamma.default", SELF, kept="array<i64: -1>"), "by name"),
        (_called("aten.lgamma.default", SELF, operands='["float32", "float32"]'), "by name"),
        (_called("aten.lgamma.default", SELF).replace("sdsc.call", "sdsc.other"), "needs the attribute"),
    ],
)  # fmt: skip
def test_what_a_file_may_not_call(text: str, reason: str) -> None:
    with pytest.raises(CompileError, match=reason):
        evaluator(text)(np.ones(4, np.float32))


def test_kernels_that_check_nothing_are_refused() -> None:
    """Each of these kernels reads or writes at an unchecked index; a wrong index would end the process."""
    for operator in (
        aten.max_pool2d_with_indices_backward.default, aten.lu_unpack.default, aten.linalg_lu_solve.default,
        aten._unsafe_index.Tensor, aten._segment_reduce_backward.default, aten.index_put_.default,
        aten.set_.source_Storage, aten.embedding_renorm_.default, aten._ctc_loss.default,
    ):  # fmt: skip
        assert refusal_of(operator) is not None, operator


def test_operators_that_a_model_needs_are_allowed() -> None:
    for operator in (
        aten.lgamma.default, aten.frexp.Tensor, aten.median.dim, aten.index_reduce.default, aten._linalg_det.default,
        aten.gather.default, aten.cat.default, aten.searchsorted.Tensor, torch.ops.prims.amax.default,
    ):  # fmt: skip
        assert refusal_of(operator) is None, operator
