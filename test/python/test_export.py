# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From the module at the bundle level to bundle values."""

from __future__ import annotations

import numpy as np
import pytest
from programs import PROGRAMS

import spyre_mlir
from spyre_mlir.bundle import model
from spyre_mlir.dialects import context
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend import import_torch
from spyre_mlir.lowering.export import export
from spyre_mlir.mlir import ir
from spyre_mlir.passes.convert_sdsc_to_sdscbundle import bundle_of
from spyre_mlir.pipelines import SpyrePipeline, run_pipeline

TEXT = """func.func @main(%x: tensor<3x65xf16>) -> tensor<3x65xf16> {
  %c = arith.constant dense<[[1.0], [2.0], [4.0]]> : tensor<3x1xf16>
  %e = tensor.empty() : tensor<3x65xf16>
  %y = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, 0)>,
      affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%x, %c : tensor<3x65xf16>, tensor<3x1xf16>) outs(%e : tensor<3x65xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %m = arith.mulf %a, %b : f16
    %n = math.exp %m : f16
    linalg.yield %n : f16
  } -> tensor<3x65xf16>
  return %y : tensor<3x65xf16>
}"""


@pytest.fixture(scope="module")
def program() -> spyre_mlir.Program:
    return spyre_mlir.compile(TEXT, sencores=3, lx_planning=False)


def parsed(text: str) -> ir.Module:
    return ir.Module.parse(text, context())


def test_the_text_of_a_module_is_the_whole_bundle(program):
    """Printed and parsed, the module exports the same bundle and constants: spyre-translate needs no more."""
    bundle, arrays = export(parsed(str(program.module)))
    assert bundle == program.bundle
    (constant,) = arrays.values()
    assert constant.ravel().tolist() == [1.0, 2.0, 4.0] and constant.dtype == np.float16


def test_names_are_those_of_the_format(program):
    """Parameters arg_<i>_base_addr, the values extracted from them, one pool."""
    assert [each.name for each in program.bundle.parameters] == [f"arg_{i}_base_addr" for i in range(3)]
    extracts = [each for each in program.bundle.statements if isinstance(each, model.Extract)]
    assert extracts[0] == model.Extract("arg_0", "arg_0_base_addr")
    (pool,) = (each for each in program.bundle.statements if isinstance(each, model.Allocate))
    assert pool == model.Allocate("pool", 3 * 2 * 128)


def test_designs_are_in_the_order_of_their_files(program):
    designs = program.bundle.designs
    assert list(designs) == [f"sdsc_{index}.json" for index in range(len(designs))]
    assert [design.index for design in designs.values()] == list(range(len(designs)))


LOOP = """    %lower = arith.constant 0 : index
    %upper = arith.constant 8 : index
    %step = arith.constant 2 : index
    scf.for %i = %lower to %upper step %step {
      %at = affine.apply affine_map<(d0)[s0] -> (d0 * 256 + s0 + 7)>(%i)[%upper]
    }
    return
"""


def with_body(program: spyre_mlir.Program, body: str) -> str:
    """The module with more statements at its end."""
    return str(program.module).replace("    return\n", body)


def test_loops_and_linear_addresses(program):
    """An affine.apply is its coefficients and its offset; a loop holds its statements."""
    bundle, _ = export(parsed(with_body(program, LOOP)))
    loop = bundle.statements[-1]
    assert isinstance(loop, model.Loop)
    constants = {
        each.result: each.value for each in bundle.statements if isinstance(each, model.IndexConstant)
    }
    assert [constants[name] for name in (loop.lower, loop.upper, loop.step)] == [0, 8, 2]
    (apply,) = loop.body
    assert isinstance(apply, model.Apply)
    assert (apply.dims, apply.symbols) == ((loop.induction,), (loop.upper,))
    assert (apply.coefficients, apply.offset) == ((256, 1), 7)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            LOOP.replace("    %step", "    %x = arith.muli %upper, %upper : index\n    %step"),
            "'arith.muli' is not an op",
        ),
        (LOOP.replace("d0 * 256 + s0 + 7", "d0 floordiv 2 + s0"), "is linear in its dims and symbols"),
    ],
)
def test_what_a_bundle_cannot_say(program, body, words):
    with pytest.raises(CompileError, match=words):
        export(parsed(with_body(program, body)))


def test_other_levels_are_refused():
    with pytest.raises(CompileError, match="not at the bundle level; run the spyre pipeline"):
        export(parsed(TEXT))
    attributes = (
        "module attributes {sdscbundle.designs = {}, sdscbundle.manifest = {arguments = [], buffers = [], \
uses = [], version = 1 : i64}} {}"
    )
    with pytest.raises(CompileError, match="needs one function @sdsc_bundle"):
        export(parsed(attributes))


@pytest.mark.parametrize("name", ["llama_block_small", "softmax_dim_0_512x1024", "batchnorm"])
def test_the_bundle_without_attributes_is_the_same(name):
    """Predictions use the bundle without attributes instead of the module at the bundle level and its export."""
    module = import_torch(*PROGRAMS[name](), context=context()).module
    run_pipeline(module, SpyrePipeline().pipeline("placed"))
    other = module.operation.clone()
    with module.context, ir.Location.unknown():
        found = bundle_of(other.operation)
    run_pipeline(module, "convert-sdsc-to-sdscbundle")
    assert found == export(module)[0]
