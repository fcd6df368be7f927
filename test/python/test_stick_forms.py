# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every assignment of the stick rules runs: with its layouts, an operation computes the right numbers."""

from __future__ import annotations

import numpy as np
import pytest
from layout_cases import iteration

from spyre_mlir.dialects import context, stick
from spyre_mlir.dialects.structured import device_op
from spyre_mlir.layout import StickLayout
from spyre_mlir.layout.rules import Iteration, StickAssignment, stick_assignments
from spyre_mlir.lowering.export import export
from spyre_mlir.mlir import ir
from spyre_mlir.passes.choose_layouts import Views, apply_layouts
from spyre_mlir.pipelines import Pipeline, run_pipeline
from spyre_mlir.simulator import run
from spyre_mlir.target.ops import DEVICE_OPS
from spyre_mlir.target.target import default_target

PIPELINE = (
    "builtin.module(attach-target{sencores=4},verify-laid-out,resolve-padding,verify-padding,work-distribution,verify-divided,"
    "place-in-hbm,verify-placed,convert-sdsc-to-sdscbundle,verify-bundle)"
)

#: Operation, iteration, its numpy function of arrays with all dims (size 1 for missing dims).
RUNS = {
    "add": (iteration((3, 65, 70), "012", "2", "012"), np.add),
    "add of a column": (iteration((65, 70), "01", "0", "01"), np.add),
    "dl16tofp32": (iteration((3, 65, 70), "012", "012", dtypes="f16 f32"), lambda x: x),
    "fp32todl16": (iteration((65, 70), "01", "01", dtypes="f32 f16"), lambda x: x),
    "sum": (iteration((3, 65, 70), "012", "01", reduced="2"), lambda x: x.sum(2)),
    "sum over two": (iteration((3, 65, 70), "012", "1", reduced="02"), lambda x: x.sum((0, 2))),
    "sum over a dim of size 1": (iteration((1, 65, 70), "012", "12", reduced="0"), lambda x: x.sum(0)),
    "sum over one and a dim of size 1": (iteration((1, 5, 70), "012", "1", reduced="02"), lambda x: x.sum((0, 2))),
    "max of all": (iteration((70,), "0", "", reduced="0"), np.max),
    "mean": (iteration((65, 70), "01", "1", reduced="0"), lambda x: x.sum(0)),
    "exx2_zeromean": (iteration((65, 70), "01", "0", reduced="1"), lambda x: (x * x).sum(1)),
    "prod": (iteration((65, 70), "01", "1", reduced="0"), lambda x: x.prod(0)),
    "batchmatmul": (iteration((65, 70, 66), "02", "21", "01", reduced="2"), lambda a, b: (a * b).sum(2)),
    "batchmatmul of batches": (
        iteration((2, 3, 5, 70, 66), "0124", "034", "0123", reduced="4"), lambda a, b: (a * b).sum(4)
    ),
    "batchmatmul of a row": (iteration((65, 70), "1", "10", "0", reduced="1"), lambda a, b: (a * b).sum(1)),
    "ReStickifyOpHBM": (iteration((3, 65, 70), "012", "012"), lambda x: x),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_every_form_runs(name: str) -> None:
    """With the layouts of an assignment, an operation passes all later checks and computes the right numbers."""
    it, function = RUNS[name]
    found = stick_assignments(name.split()[0], it)
    assert found
    for form in found:
        arrays = _random_arrays(it)
        result = _run(it, form, arrays)
        full = [_with_all_dims(it, at, array.astype(np.float32)) for at, array in enumerate(arrays)]
        np.testing.assert_array_equal(result, function(*full), err_msg=str(form))


def _random_arrays(it: Iteration) -> list[np.ndarray]:
    """Ones, zeros and minus ones: sums and products of them are exact in fp16."""
    rng = np.random.default_rng(0)
    return [
        rng.integers(-1, 2, _shape(it, at)).astype({"f16": np.float16, "f32": np.float32}[it.dtypes[at]])
        for at in range(len(it.present) - 1)
    ]


def _shape(it: Iteration, at: int) -> tuple[int, ...]:
    return tuple(it.sizes[dim] for dim in sorted(it.present[at]))


def _with_all_dims(it: Iteration, at: int, array: np.ndarray) -> np.ndarray:
    return array.reshape([size if dim in it.present[at] else 1 for dim, size in enumerate(it.sizes)])


def _run(it: Iteration, form: StickAssignment, arrays: list[np.ndarray]) -> np.ndarray:
    with context(), ir.Location.unknown():
        module = ir.Module.parse(_function(it))
        func = module.body.operations[0].operation
        block = func.regions[0].blocks[0]
        end = list(block.operations)[-1].operation
        layouts = [_layout(it, form, at) for at in range(len(it.present))]
        with ir.InsertionPoint(end):
            made = _operation(it, form, list(block.arguments), layouts[-1])
        end.operands[0] = made
        by_value = dict(zip((*block.arguments, made), layouts, strict=True))
        apply_layouts(func, by_value, Views(by_value, {}))
        run_pipeline(module, Pipeline.parse(PIPELINE))
        bundle, constants = export(module)
    given = {f"a{at}": array for at, array in enumerate(arrays)}
    return run(bundle, {**constants, **given}, "ieee").outputs["r"]


def _function(it: Iteration) -> str:
    """A function that returns an empty tensor; the operation comes later."""
    types = ["tensor<" + "".join(f"{size}x" for size in _shape(it, at)) + dtype + ">"
             for at, dtype in enumerate(it.dtypes)]  # fmt: skip
    arguments = ", ".join(
        f'%a{at}: {types[at]} {{sdsc.host = #sdsc.host<"a{at}", "input", "{it.dtypes[at]}">}}'
        for at in range(len(types) - 1)
    )
    host = f'{{sdsc.host = #sdsc.host<"r", "result", "{it.dtypes[-1]}">}}'
    body = f"%e = tensor.empty() : {types[-1]}\n return %e : {types[-1]}"
    return f"func.func @main({arguments}) -> ({types[-1]} {host}) {{ {body} }}"


def _layout(it: Iteration, form: StickAssignment, at: int) -> StickLayout:
    """Return the layout with the default order of the other dims, padded for the assignment."""
    dims = sorted(it.present[at])
    lane = form.stick_dims[at]
    others = [k for k, dim in enumerate(dims) if dim != lane]
    order = [*others, -1 if lane is None else dims.index(lane)]
    layout = StickLayout.for_tensor(default_target(), _shape(it, at), it.dtypes[at], order)
    for operand, dim in form.padded_dims:
        if operand == at:
            layout = layout.padded(dims.index(dim), 64)
    return layout


def _operation(it: Iteration, form: StickAssignment, values: list, layout: StickLayout) -> ir.Value:
    if form.opcode == "ReStickifyOpHBM":
        return stick.restickify(values[0], layout, ir.Location.unknown())
    return device_op(
        form.opcode,
        [values[at] for at in form.inputs],
        [tuple(sorted(it.present[at])) for at in form.inputs],
        it.sizes,
        it.dtypes[-1],
        location=ir.Location.unknown(),
        reduced=sorted(it.reduced),
        constants=dict.fromkeys(DEVICE_OPS[form.opcode].constants, 1.0),
    )
