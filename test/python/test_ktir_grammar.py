# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The forms of KTIR's text: each is read or refused by name, and a text that was read prints to a text that is read."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

from spyre_mlir.dialects import context
from spyre_mlir.errors import CompileError
from spyre_mlir.ktir.grammar import FORMS, NEWEST, WRITTEN
from spyre_mlir.ktir.ktir_text import parse_ktir, to_text
from spyre_mlir.ktir.races import ktir_races

PAIRS = "affine_set<(i)[g] : (i - 2 * g >= 0, -i + 2 * g + 1 >= 0)>"
GROUPS = "affine_set<(g) : (g >= 0, -g + 1 >= 0)>"
T = "tensor<1x64xf16>"
FUTURE = f"!ktdp.tile_future<({T}), groups = {GROUPS}>"


def produced(types: str = "", future: str = FUTURE, producers: str = PAIRS) -> str:
    return (
        f"%f = ktdp.inter_tile_produce producer_tiles_per_group = {producers} {types} -> {future} {{\n"
        f"^bb0(%gid: index):\n  ktdp.yield_partial %x : {T}\n}}\n"
    )


def delivered(name: str, attributes: str, result: str = T, future: str = FUTURE, body: str = "") -> str:
    waiting = f"%r = ktdp.inter_tile_{name}(%f) consumer_tiles_per_group = {PAIRS}{attributes}"
    return f"{produced()}{waiting}\n  : {future} -> {result}{body}\n"


SUM = f"""
{{
^bb0(%lhs: {T}, %rhs: {T}):
  %s = arith.addf %lhs, %rhs : {T}
  ktdp.yield_reduced %s : {T}
}}"""
VIEW = """%v = ktdp.construct_memory_view %a, sizes: [4, 64], strides: [64, 1] {
  coordinate_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 63 >= 0)>,
  memory_space = #ktdp.memory_space<global>
} : memref<4x64xf16>
"""
SETS = """{access_tile_set = affine_set<(d0, d1) : (d0 >= 0, d1 >= 0)>,
  access_tile_order = affine_map<(d0, d1) -> (d0, d1)>}"""
TILE = (
    f"%t = ktdp.construct_access_tile %v[%n, %n] {SETS} : memref<4x64xf16> -> !ktdp.access_tile<1x64xindex>\n"
)

RUNTIME = "%z = builtin.unrealized_conversion_cast %n : index to !ktdp.runtime_arg"

#: The body of a function with the arguments %a, %n, %x and %e, for each form.
TEXTS = {
    "production": produced() + f"%r = ktdp.inter_tile_consume(%f) consumer_tiles_per_group = {PAIRS} : {FUTURE} -> {T}",
    "production with types": delivered("consume", "").replace(f"{PAIRS}  ->", f"{PAIRS} : {T} ->", 1),
    "future of roles": delivered("consume", ""),
    "future of one role": delivered("consume", "").replace(f"({T}), groups", f"{T}, groups"),
    "future with a positional set": delivered("consume", "").replace(f"({T}), groups = ", f"{T}, "),
    "types without prefix": delivered("consume", "").replace("!ktdp.tile_future<", "<")
    + VIEW
    + TILE
    + f"%l = ktdp.load %t : <1x64xindex> -> {T}\nktdp.store %l, %t : {T}, <1x64xindex>",
    "several roles": f"""%f = ktdp.inter_tile_produce producer_tiles_per_group = {PAIRS}
      -> <({T}, tensor<8xi32>), groups = {GROUPS}>
    {{ ^bb0(%gid: index): ktdp.yield_partial %x, %e : {T}, tensor<8xi32> }}
    %p, %q = ktdp.inter_tile_consume(%f) consumer_tiles_per_group = {PAIRS}
      : <({T}, tensor<8xi32>), groups = {GROUPS}> -> {T}, tensor<8xi32>""",
    "consume": delivered("consume", ""),
    "reduce": delivered("reduce", f", identity(%x : {T})", body=SUM),
    "gather": delivered("gather", ", gather_dimensions = [0, 1]", "tensor<2x64xf16>"),
    "scatter": delivered("scatter", ", scatter_dimensions = [1]", "tensor<1x32xf16>"),
    "all-to-all": delivered("all_to_all", ", split_dimensions = [1], concat_dimensions = [0]", "tensor<2x32xf16>"),
    "reduce-scatter": delivered(
        "reduce_scatter", f", scatter_dimensions = [1], identity(%x : {T})", "tensor<1x32xf16>", body=SUM
    ),
    "dependency": delivered("consume", ", producer_dependency_per_consumer = affine_set<(p)[c] : (p - c == 0)>"),
    "memory space": VIEW,
    "memory space of Spyre": VIEW.replace("memory_space<global>", "spyre_memory_space<LX, core = 1>"),
    "memory space as text": VIEW.replace("#ktdp.memory_space<global>", '"DDR"'),
    "sizes of values": VIEW.replace("[4, 64]", "[%n, 64]").replace("[64, 1]", "[%n, 1]").replace("4x64x", "?x64x"),
    "symbols of a tile": VIEW + TILE.replace("[%n, %n]", "[%n, %n] symbols(%n)").replace("d1) :", "d1)[s0] :"),
    "subscripts of sums": VIEW + TILE.replace("[%n, %n]", "[%n * 2 + 1, 4]"),
    "views of several shapes": VIEW
    + VIEW.replace("%v", "%w").replace("sizes: [4", "sizes: [2").replace("4x64xf16", "2x64xf16")
    + "%d = ktdp.construct_distributed_memory_view (%v, %w : memref<4x64xf16>, memref<2x64xf16>) : memref<6x64xf16>",
    "run-time argument": f"{RUNTIME}<index, granularity=3>",
    "value of a run-time argument": f"{RUNTIME}<index>\n"
    "%y = ktdp.runtime_arg_extract value from %z : <index> -> index",
    "SpyreOp": "%c = arith.constant 1.0 : f16\n%z = spyreop.realdiv %c, %c : f16",
    "SpyreOp with attributes": f"%z = spyreop.slice_reduction %x {{kind = #spyreop.kind<add>}} : {T}",
    "SpyreOp without types": "%c = arith.constant 1 : i32\n%z = spyreop.addi32toi32 %c, %c",
    "SpyreOp with keywords": "%c = arith.constant 1.0 : f16\n%z = spyreop.softplus %c beta 0.2 threshold 0.1 : f16",
}  # fmt: skip


def function(body: str) -> str:
    return (
        f"func.func @main(%a: index, %n: index, %x: {T}, %e: tensor<8xi32>) attributes {{grid = [4]}} {{\n"
        f"{body}\nreturn\n}}\n"
    )


@pytest.mark.parametrize("name", [name for name, form in FORMS.items() if form.is_read])
@pytest.mark.parametrize("version", WRITTEN)
def test_a_form_is_read_and_printed(name, version):
    """Printing a text that was read, and reading the printed text, changes nothing."""
    with context() as active:
        module = parse_ktir(function(TEXTS[name]), active)
        text = to_text(module, version)
        assert re.sub(r"%\w+", "%", str(parse_ktir(text, active))) == re.sub(r"%\w+", "%", str(module))
    if name == "consume":
        roles = f"({T})" if version == NEWEST else T
        types = "" if version == NEWEST else f" : {T}"
        assert f"{PAIRS}{types} -> !ktdp.tile_future<{roles}, groups = {GROUPS}>\n" in text


def test_a_form_that_is_not_read_is_refused_by_name():
    text = function(produced(producers="[[0, 1], [2, 3]]"))
    with (
        context() as active,
        pytest.raises(CompileError, match=r"\[enumerated tiles of 4633be7; the document gives no"),
    ):
        parse_ktir(text, active)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (TEXTS["gather"].replace(", gather_dimensions = [0, 1]", ""), "inter_tile_gather' has no gather_dimensions"),
        (TEXTS["consume"].replace("consumer_tiles_per_group =", "consumers ="), "'consumers' is not an attribute of"),
        (TEXTS["memory space"].replace("<global>", "<register>"), r"\[memory space of 9e03d63; expected: #ktdp.memory"),
        (TEXTS["SpyreOp"].replace(" : f16", "").replace("1.0", "1.0 : f16"), r"realdiv' has no type \[SpyreOp"),
        ("ktdf_arch.device @spyre", "'ktdf_arch.device' is of the dialect 'ktdf_arch' of another project, not of KTIR"),
    ],
)  # fmt: skip
def test_a_text_of_no_form_is_an_error_at_its_line(body, message):
    with context() as active, pytest.raises(CompileError, match=message):
        parse_ktir(function(body), active)


def test_each_form_has_an_example_and_a_row_in_the_reference():
    assert {name for name, form in FORMS.items() if form.is_read} == TEXTS.keys()
    sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "generate"))
    page = importlib.import_module("references").pages()["ktir-forms"]
    sys.path.pop(0)
    assert re.findall(r"^\| ([^|`]+) \|", page, re.MULTILINE)[1:] == list(FORMS)


def test_a_future_is_an_argument_of_a_function():
    text = f"func.func @main(%f: !ktdp.tile_future<({T}, tensor<8xi32>), groups = {GROUPS}>) {{ return }}"
    with context() as active:
        assert "!ktdp.tile_future<(tensor<1x64xf16>, tensor<8xi32>), groups" in to_text(
            parse_ktir(text, active)
        )


#: Core 0 and core 1 store to their LX, and core 1 or 3 reads the LX of core 0 after a delivery.
ROUTED = """
#one = affine_set<(i)[g] : (i >= 0, -i + 1 >= 0)>
#read = affine_set<(i)[g] : (i - 2 >= 0, -i + 3 >= 0)>
#group = affine_set<(g) : (g == 0)>
#dep = affine_set<(p)[c, g] : (p - c + DISTANCE == 0)>
#all = affine_set<(d0, d1) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 63 >= 0)>
#order = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%a: index) attributes {grid = [4]} {
  %zero = arith.constant 0 : index
  %two = arith.constant 2 : index
  %core = ktdp.get_compute_tile_id : index
  %own = arith.remui %core, %two : index
  %row = arith.muli %own, %two : index
  %v = ktdp.construct_memory_view %a, sizes: [4, 64], strides: [64, 1] {
    coordinate_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 63 >= 0)>,
    memory_space = #ktdp.memory_space<global>} : memref<4x64xf16>
  %t = ktdp.construct_access_tile %v[%row, %zero] {access_tile_set = #all, access_tile_order = #order}
    : memref<4x64xf16> -> !ktdp.access_tile<1x64xindex>
  %x = tensor.empty() : tensor<1x64xf16>
  %first = arith.cmpi ult, %core, %two : index
  scf.if %first {
    ktdp.store %x, %t : tensor<1x64xf16>, !ktdp.access_tile<1x64xindex>
  }
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #one -> <(tensor<1x64xf16>), groups = #group>
  { ^bb0(%gid: index): ktdp.yield_partial %x : tensor<1x64xf16> }
  %r = ktdp.inter_tile_consume(%f) consumer_tiles_per_group = #read, producer_dependency_per_consumer = #dep
    : <(tensor<1x64xf16>), groups = #group> -> tensor<1x64xf16>
  %second = arith.cmpi uge, %core, %two : index
  scf.if %second {
    %l = ktdp.load %t : !ktdp.access_tile<1x64xindex> -> tensor<1x64xf16>
  }
  return
}
"""


@pytest.mark.parametrize(("route", "count"), [("p - c + 2", 0), ("p + c - 3", 1)])
def test_a_route_orders_a_core_after_its_producer_alone(route, count):
    """Core 2 reads the row of core 0, and core 3 the row of core 1: routes between others leave them unordered."""
    assert len(ktir_races(ROUTED.replace("p - c + DISTANCE", route))) == count
