# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The text of bundle.mlir: round trips, the syntax of the SuperDSC specification, errors with their place."""

import bundles
import pytest

from spyre_mlir.bundle.model import Allocate, Apply, Execute, IndexConstant, Loop, Parameter
from spyre_mlir.bundle.program_text import parse_program, print_program
from spyre_mlir.errors import CompileError

PARAMETERS = "%p: !sdscbundle.input_arg<index>"


def parse_body(body: str, maps: str = ""):
    text = f"{maps}module {{\n  func.func @sdsc_bundle({PARAMETERS}) {{\n{body}\n    return\n  }}\n}}\n"
    return parse_program(text, "bundle.mlir")[1]


@pytest.mark.parametrize("build", bundles.GOOD.values(), ids=bundles.GOOD)
def test_round_trip(build):
    bundle = build()
    text = print_program(bundle.parameters, bundle.statements)
    assert parse_program(text, "bundle.mlir") == (bundle.parameters, bundle.statements)


def test_parameter_limits():
    parameters = (Parameter("a", 64), Parameter("b", None, 128), Parameter("c", 1, 2))
    text = print_program(parameters, ())
    assert "%a: !sdscbundle.input_arg<index, granularity=64>" in text
    assert "%c: !sdscbundle.input_arg<index, granularity=1, max_value=2>" in text
    assert parse_program(text, "f") == (parameters, ())


def test_equal_maps_share_one_definition():
    text = print_program(*_program("loop"))
    assert text.count("affine_map<") == 1
    assert text.startswith("#map0 = affine_map<(d0)[s0] -> (s0 + 16384 * d0)>\nmodule {\n")
    assert "%x_tile_0 = affine.apply #map0(%i)[%x_0]" in text


def _program(name: str):
    bundle = bundles.GOOD[name]()
    return bundle.parameters, bundle.statements


def test_the_published_forms():
    body = """
        // A comment.
        %v = sdscbundle.input_arg_extract value from %p : !sdscbundle.input_arg<index> -> index
        %m = sdscbundle.device_mem_allocate 65536 bytes : index
        %c0 = arith.constant 0 : index
        %c8 = arith.constant 8 : index
        %c1 = arith.constant 1 : index
        scf.for %i = %c0 to %c8 step %c1 {
          %t = affine.apply #map(%i)[%v]
          sdscbundle.sdsc_execute (%t, %m) {sdsc_filename="sdsc_0.json", symbol_ids=[-1, -2]}
        }"""
    statements = parse_body(body, "#map = affine_map<(d0)[s0] -> (s0 + 16384 * d0)>\n")
    apply = Apply("t", ("i",), ("v",), (16384, 1))
    execute = Execute("sdsc_0.json", ("t", "m"), (-1, -2))
    assert statements[1] == Allocate("m", 65536)
    assert statements[-1] == Loop("i", "c0", "c8", "c1", (apply, execute))


@pytest.mark.parametrize(
    ("expression", "coefficients", "offset"),
    [
        ("d0 * 4 + s0", (4, 1), 0),
        ("s0 - 8 * d0 + 16", (-8, 1), 16),
        ("-(d0 - 3) * 2 + d0", (-1, 0), 6),
        ("d0 -4", (1, 0), -4),
        ("0", (0, 0), 0),
    ],
)
def test_affine_expressions(expression, coefficients, offset):
    maps = f"#m = affine_map<(d0)[s0] -> ({expression})>\n"
    (_, apply) = parse_body("%c = arith.constant 1 : index %r = affine.apply #m(%c)[%c]", maps)
    assert (apply.coefficients, apply.offset) == (coefficients, offset)
    again = print_program((Parameter("p"),), (IndexConstant("c", 1), apply))
    assert parse_program(again, "f")[1][1] == apply


ERRORS = {
    "%a = arith.addi %p, %p : index": ("3:17", "The parameter %p is not an index; extract its value first."),
    "%a = sdscbundle.input_arg_extract value from %a : !sdscbundle.input_arg<index> -> index": (
        "3:46",
        "Expected the name of a parameter of the function here.",
    ),
    "%a = arith.addi %q, %p : index": ("3:17", "The value %q is not defined before its use."),
    "%p = arith.constant 1 : index": ("3:1", "The value %p is defined twice."),
    "%a = arith.muli %p, %p : index": ("3:6", "The operation 'arith.muli' is not an operation of a bundle."),
    "%a = arith.constant x : index": ("3:21", "Expected an integer here but found 'x'."),
    "%a = affine.apply #m(%p)": ("3:19", "Expected the name of an affine map defined above but found '#m'."),
    "%a = arith.constant 1 : index %b = arith.addi %a %p : index": (
        "3:50",
        "Expected ',' here but found '%p'.",
    ),
    "sdscbundle.sdsc_execute () {sdsc_filename=sdsc_0.json, symbol_ids=[]}": (
        "3:43",
        "Expected a file name in double quotes but found sdsc_0.json.",
    ),
    "%a = sdscbundle.input_arg_extract size from %p : !sdscbundle.input_arg<index> -> index": (
        "3:35",
        "Expected value, granularity or max_value but found 'size'.",
    ),
    "%a = sdscbundle.input_arg_extract value from %p : !sdscbundle.input_arg<index, max_value=1> -> index": (
        "3:91",
        "The type differs from the type of the parameter %p.",
    ),
    "%c = arith.constant 1 : index scf.for %i = %c to %c step %c "
    "{ %a = arith.constant 1 : index } %b = arith.addi %a, %a : index": (
        "3:111",
        "The value %a is not defined before its use.",
    ),
    "test.op": ("3:1", "Expected 'return' here but found 'test.op'."),
}


@pytest.mark.parametrize("body", ERRORS)
def test_errors_name_line_and_column(body):
    place, message = ERRORS[body]
    with pytest.raises(CompileError) as caught:
        parse_body(body)
    assert (caught.value.location, caught.value.message) == (f"bundle.mlir:{place}", message)


def test_a_map_must_be_linear():
    with pytest.raises(CompileError, match="must be linear") as caught:
        parse_body("", "#m = affine_map<(d0, d1) -> (d0 * d1)>\n")
    assert caught.value.location == "bundle.mlir:1:35"


def test_any_cut_of_the_text_is_an_error_with_a_place():
    text = print_program(*_program("loop"))
    for end in range(0, len(text) - 2, 7):
        with pytest.raises(CompileError) as caught:
            parse_program(text[:end], "bundle.mlir")
        assert caught.value.location.startswith("bundle.mlir:")
