# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The work of a shuffle, computed from divided IR, and from its design."""

from __future__ import annotations

import random

import numpy as np
import pytest
import relayouts
from bundles import relayout_bundle

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.analysis.buffer_uses import Usage
from spyre_mlir.bundle.context import Context
from spyre_mlir.cost.cost_model import operation_cost
from spyre_mlir.cost.of_space import operation_work
from spyre_mlir.cost.ring_traffic import relayout_traffic
from spyre_mlir.cost.work import OperationWork
from spyre_mlir.dialects import context
from spyre_mlir.division.relayout import Relayout
from spyre_mlir.lowering.export import export
from spyre_mlir.mlir import ir
from spyre_mlir.pipelines import run_pipeline
from spyre_mlir.timeline import timeline
from spyre_mlir.timeline.of_design import DesignWork

MODULE = """
#layout = affine_map<{layout}>
#id = affine_map<(d0, d1) -> (d0, d1)>
!mat = tensor<{rows}x{columns}xf16, #stick.layout<#layout>>
func.func @main(%x: !mat {{sdsc.host = #sdsc.host<"x", "input", "f16">}})
    -> (!mat {{sdsc.host = #sdsc.host<"result0", "result", "f16">}}) {{
  %e = tensor.empty() : !mat
  %0 = linalg.generic {{indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}}
      ins(%x : !mat) outs(%e : !mat)
      attrs = {{sdsc.op = #sdsc.op<"exp", {{}}>, sdsc.division = #sdsc.division<{source}>,
               sdsc.placement = #sdsc.lx<0 : i64>}} {{
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  }} -> !mat
  %1 = "sdsc.shuffle"(%0) {{sdsc.copies = {copies} : i64, sdsc.division = #sdsc.division<{target}>,
      sdsc.placement = #sdsc.lx<524288 : i64>}} : (!mat) -> !mat
  %2 = linalg.generic {{indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}}
      ins(%0 : !mat) outs(%e : !mat)
      attrs = {{sdsc.op = #sdsc.op<"abs", {{}}>, sdsc.division = #sdsc.division<{source}>,
               sdsc.placement = #sdsc.hbm<"result0", 0 : i64>}} {{
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  }} -> !mat
  return %2 : !mat
}}
"""
BY_COLUMN = "(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)"
BY_ROW = "(d0, d1) -> (d0, d1 floordiv 64, d1 mod 64)"

ROWS_32 = "[32, 1], affine_map<(d0) -> (d0, 0)>"
ROWS_AND_COLUMNS = "[8, 4], affine_map<(d0) -> (d0 mod 8, d0 floordiv 8)>"
#: Layout, rows, columns, copies, division of the source, division of the target.
CASES = {
    "all-to-all": (BY_COLUMN, 512, 2048, 1, ROWS_32, "[1, 32], affine_map<(d0) -> (0, d0)>"),
    "all-to-all by rows": (BY_ROW, 512, 2048, 1, ROWS_32, "[1, 32], affine_map<(d0) -> (0, d0)>"),
    "in two dims": (BY_COLUMN, 512, 2048, 1, ROWS_AND_COLUMNS,
        "[4, 8], affine_map<(d0) -> (d0 floordiv 8, d0 mod 8)>"),
    "gathered by neighbours": (BY_COLUMN, 512, 2048, 8, ROWS_AND_COLUMNS,
        "[1, 4, 8], affine_map<(d0) -> (0, d0 floordiv 8, d0 mod 8)>"),
    "gathered by cores apart": (BY_ROW, 512, 2048, 8, ROWS_AND_COLUMNS,
        "[1, 4, 8], affine_map<(d0) -> (0, d0 mod 4, d0 floordiv 4)>"),
    "padded rows of sticks": (BY_COLUMN, 96, 200, 1, "[4, 1], affine_map<(d0) -> (d0, 0)>",
        "[1, 4], affine_map<(d0) -> (0, d0)>"),
}  # fmt: skip


def module_of(name: str) -> ir.Module:
    layout, rows, columns, copies, source, target = CASES[name]
    text = MODULE.format(
        layout=layout, rows=rows, columns=columns, copies=copies, source=source, target=target
    )
    return ir.Module.parse(text, context())


def of_space(module: ir.Module) -> OperationWork:
    """Return the work of a shuffle of the result of the first operation."""
    (func,) = functions(module.operation)
    usage = Usage(func)
    _, shuffle, _ = usage.ops
    return operation_work("shuffle", shuffle.space, shuffle.division, relayout=usage.relayout(shuffle))


def of_design(module: ir.Module) -> OperationWork:
    """Return the work from the design in the bundle of the module."""
    run_pipeline(module, "convert-sdsc-to-sdscbundle")
    designs = [step.design for step in Context(export(module)[0]).steps]
    (design,) = (each for each in designs if each.opcode == "shuffle")
    return DesignWork(design).work


@pytest.mark.parametrize("name", CASES)
def test_a_design_has_the_work_of_its_space(name):
    """Traffic of every link and price; dims are numbered otherwise in a design."""
    module = module_of(name)
    one, other = of_space(module), of_design(module)
    assert one.relayout is not None and other.relayout is not None
    assert relayout_traffic(one.relayout) == relayout_traffic(other.relayout)
    assert relayout_traffic(one.relayout).links.busiest_bytes > 0
    assert operation_cost(one) == operation_cost(other)
    assert [each.in_lx for each in other.operands] == [True, True]
    facts = ("opcode", "cores", "sticks_per_core", "parts", "outputs_per_core", "results", "broadcast")
    assert [getattr(one, each) for each in facts] == [getattr(other, each) for each in facts]
    pairs = zip(one.operands, other.operands, strict=True)
    assert all((a.bytes, a.core_bytes, a.fan_out) == (b.bytes, b.core_bytes, b.fan_out) for a, b in pairs)


def test_two_cores_that_exchange_halves():
    """128 rows of 4 sticks by rows, then by columns: 64 rows of 2 sticks each way, 128 columns of them runs."""
    bundle = relayout_bundle()
    work = DesignWork(bundle.designs["sdsc_1.json"]).work
    assert isinstance(work.relayout, Relayout)
    traffic = relayout_traffic(work.relayout)
    assert (traffic.bytes_per_core, traffic.split) == (64 * 4 * 128, 2)
    for loads in (traffic.links.clockwise, traffic.links.counterclockwise):
        assert loads == (64 * 2 * 128, *[0] * 31)


@pytest.mark.parametrize("seed", range(60))
def test_bytes_that_change_the_core_are_those_of_the_simulator(seed: int):
    """Uneven slices, padding, cores without or with equal slices: the bytes that each core sends over the ring."""
    design = relayouts.random_relayout(random.Random(seed))
    space, _ = relayouts.memories(design, np.random.default_rng(seed))
    moved = DesignWork(design).work.relayout
    assert moved is not None
    assert relayout_traffic(moved).moved_bytes == relayouts.moved(design, space)


def test_a_shuffle_is_on_the_ring_behind_its_writer():
    """Exp, the shuffle, abs: the shuffle has no body, and its time is time of the ring."""
    found = timeline(relayout_bundle())
    before, event, after = found.run.events
    price = operation_cost(found.executions[1].work).ring_ns
    assert before.ring_end == event.body_begin == event.body_end
    assert event.ring_end - event.body_end == round(1000 * price) == found.shares.ring
    assert after.body_begin == event.ring_end
    assert found.executions[1].bound_by == "ring"
