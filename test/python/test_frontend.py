# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch programs become linalg with the right form, arguments, locations, numbers and errors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from cpu_reference import CpuReference
from programs import LlamaBlock
from torch import nn
from torch.export import Dim

from spyre_mlir.errors import CompileError
from spyre_mlir.frontend import Imported, import_torch
from spyre_mlir.mlir import ir


def imported(model, *inputs) -> Imported:
    return import_torch(model, inputs, context=ir.Context())


def run(program: Imported, *inputs):
    call = program.bind(*inputs)
    return call.finish(CpuReference(program.module)(*call.operands()))


def operations(operation: ir.Operation) -> Iterator[ir.Operation]:
    yield operation
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from operations(inner.operation)


def half(*shape: int) -> torch.Tensor:
    return torch.randn(shape).half()


def test_arguments_are_named_and_hold_the_data():
    """Inputs, parameters and folded constants are arguments of @main in the order of Imported.arguments."""
    model = LlamaBlock(128, 33, 2, 1, 192).eval().half()
    program = imported(model, half(1, 33, 128))
    kinds = {argument.name: argument.kind for argument in program.arguments}
    assert kinds["mlp.gate.weight"] == "parameter" and kinds["x"] == "input" and kinds["cos"] == "constant"
    function = program.module.body.operations[0]
    attributes = [ir.DictAttr(entry) for entry in function.arg_attrs]
    assert [ir.StringAttr(entry["spyre.name"]).value for entry in attributes] == list(kinds)
    assert [ir.StringAttr(entry["spyre.kind"]).value for entry in attributes] == list(kinds.values())
    weights = {argument.name: argument.tensor for argument in program.arguments}
    assert weights["x"] is None and weights["mlp.gate.weight"].data_ptr() == model.mlp.gate.weight.data_ptr()


def test_equal_constants_are_one_argument():
    """The causal masks of all layers are computed when importing, and kept once."""

    def two_layers(x):
        for _ in range(2):
            x = F.scaled_dot_product_attention(x, x, x, is_causal=True)
        return x

    program = imported(two_layers, half(1, 2, 5, 64))
    constants = [argument.tensor for argument in program.arguments if argument.kind == "constant"]
    assert [tuple(tensor.shape) for tensor in constants] == [(5, 5)]


def test_broadcast_constants_are_not_materialised():
    """A constant that PyTorch expands keeps its own size."""
    program = imported(lambda x: x + (torch.arange(6.0) * 2).half().expand(1000, 6), half(1000, 6))
    assert [tuple(argument.tensor.shape) for argument in program.arguments[1:]] == [(1, 6)]


def test_uniform_constants_are_no_arguments():
    """A constant with one value is a fill or a scalar, not data."""
    program = imported(lambda x: x * torch.full((65,), 0.5, dtype=torch.half), half(3, 65))
    assert [argument.name for argument in program.arguments] == ["x"]
    assert "dense" not in str(program.module)


def test_buffers_fold():
    """The factor of a batch norm is computed from its variance when importing."""
    norm = nn.BatchNorm1d(8).eval().half()
    norm.running_var.copy_(torch.arange(8) + 1)
    program = imported(norm, half(4, 8))
    assert "rsqrt" not in str(program.module)


def test_views_of_large_buffers_are_no_copies():
    """A weight that is a buffer stays where it is; a small one is folded with its views."""

    class Product(nn.Module):
        def __init__(self, columns):
            super().__init__()
            self.register_buffer("w", (torch.arange(1100 * columns) % 7).reshape(columns, 1100).half())

        def forward(self, x):
            return x @ self.w.t()

    for columns, stays in ((1000, True), (8, False)):
        model = Product(columns)
        (data,) = (
            each.tensor for each in imported(model, half(4, 1100)).arguments if each.tensor is not None
        )
        assert (data.data_ptr() == model.w.data_ptr()) == stays


def test_locations_name_line_module_and_operation():
    """A linalg op knows the line of the model, the module path and the aten operation."""
    program = imported(LlamaBlock(128, 33, 2, 1, 192).half(), half(1, 33, 128))
    matmuls = [op for op in operations(program.module.operation) if op.name == "linalg.matmul"]
    location = next(op.location for op in matmuls if "self.up" not in str(op.location))
    metadata = ir.DictAttr(location.metadata)
    assert ir.StringAttr(metadata["aten"]).value == "aten.linear.default"
    assert ir.StringAttr(metadata["module"]).value == "q"
    assert "blocks.py" in str(location)


def test_hints_reach_linalg():
    """Annotations of torch.fx.traceback.annotate are in the metadata of the location."""

    class Hinted(nn.Module):
        def forward(self, x):
            with torch.fx.traceback.annotate({"tiles": {"rows": 4}}):
                return torch.exp(x)

    program = imported(Hinted(), half(8, 64))
    generic = next(op for op in operations(program.module.operation) if op.name == "linalg.generic")
    assert str(ir.DictAttr(generic.location.metadata)["hint"]) == "{tiles = {rows = 4 : i64}}"


def test_output_structure_is_rebuilt():
    """None, numbers and constants come back at their places; bfloat16 survives numpy."""

    def model(x):
        return {"twice": x * 2, "nothing": None, "pair": (3, torch.arange(2)), "short": x.bfloat16()}

    x = half(2, 3)
    result = run(imported(model, x), x)
    assert result["nothing"] is None and result["pair"][0] == 3 and result["pair"][1].tolist() == [0, 1]
    assert torch.equal(result["twice"], x * 2) and torch.equal(result["short"], x.bfloat16())


def test_exported_program():
    x = half(3, 64)
    program = import_torch(torch.export.export(nn.RMSNorm(64).half(), (x,)), context=ir.Context())
    assert run(program, x).shape == (3, 64)


def test_reciprocal_of_zero_is_infinite():
    """torch-mlir's assertion against it is removed."""
    x = torch.zeros(3).half()
    assert run(imported(torch.reciprocal, x), x).tolist() == [float("inf")] * 3


def test_rows_that_see_nothing_are_zero():
    """Rows without a visible key are zero, as in PyTorch, for boolean and for additive masks."""
    x = half(1, 1, 3, 64)
    mask = torch.tensor([[True, False, True], [False, False, False], [True, True, True]])
    for given in (mask, torch.zeros(3, 3).half().masked_fill(~mask, float("-inf"))):
        program = imported(lambda x, m: F.scaled_dot_product_attention(x, x, x, attn_mask=m), x, given)
        result = run(program, x, given)
        assert result[0, 0, 1].abs().max() == 0 and not result.isnan().any()


def _segments(x):
    """An operation without a form in linalg or a kernel call: the kernel reads at its offsets, unchecked."""
    return torch.segment_reduce(x, "sum", offsets=torch.tensor([0, 2, 4]))


ERRORS = {
    "no form": (lambda x: _segments(x), "segment_reduce has no form in linalg"),
    "nonzero": (torch.nonzero, "nonzero: The size of dim 0 of the result depends on values"),
    "masked select": (lambda x: x[x > 0], "index: The size of dim 0 of the result depends on values"),
    "branch": (lambda x: x if x.sum() > 0 else -x, "depends on the values of a tensor"),
    "random": (lambda x: torch.multinomial(x.abs(), 2), "multinomial: Its random numbers cannot be drawn"),
    "shapes": (lambda x: x @ x, "PyTorch cannot run this"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_error(name, capfd):
    """The error is one sentence that names the cause and its line; torch and MLIR print nothing."""
    model, message = ERRORS[name]
    with pytest.raises(CompileError, match=message) as caught:
        imported(model, half(4, 5))
    assert caught.value.location == "" or "test_frontend.py:" in caught.value.location
    assert capfd.readouterr() == ("", "")


def test_error_names_the_line():
    def model(x):
        y = x + 1
        return torch.segment_reduce(y, "sum", offsets=torch.tensor([0, 4]))

    with pytest.raises(CompileError) as caught:
        imported(model, half(4, 5))
    line = model.__code__.co_firstlineno + 2
    assert caught.value.location == f"{__file__}:{line}:0"


def test_dynamic_shape():
    program = torch.export.export(nn.Linear(5, 5), (torch.randn(4, 5),), dynamic_shapes=({0: Dim("rows")},))
    with pytest.raises(CompileError, match="The size of dim 0 of input 'input' is dynamic; export"):
        import_torch(program, context=ir.Context())


def test_what_is_no_model():
    with pytest.raises(CompileError, match="not an int"):
        imported(3, half(2))


def test_inputs_that_are_no_tuple():
    with pytest.raises(CompileError, match=r"a tuple of tensors, or a mapping .*, not a Tensor"):
        import_torch(torch.exp, half(2), context=ir.Context())


def test_calls_with_other_inputs():
    """The number, the structure and the kind of the inputs are checked when a program is called."""
    program = imported(torch.exp, half(2))
    with pytest.raises(CompileError, match="takes 1 input, not 2"):
        program.operands(half(2), half(2))
    with pytest.raises(CompileError, match="inputs of the structure"):
        program.operands([half(2)])
    with pytest.raises(CompileError, match="must be a tensor, not an ndarray"):
        program.operands(np.zeros(2, np.float16))
