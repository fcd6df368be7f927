# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Strategy B: the search over all combinations, and its leaves against the real passes on the real IR."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest
import torch
from division_spaces import Operand, legal_splits, space_of
from lx_programs import FUNCTIONS, inputs_of
from programs import Apply

import spyre_mlir
from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.analysis.buffer_uses import Usage
from spyre_mlir.dialects import context
from spyre_mlir.division import Division
from spyre_mlir.division_search.division_candidates import DividedOp
from spyre_mlir.division_search.strategy_b import Leaf, StrategyBCoOptimizingAllocator
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend import import_torch
from spyre_mlir.mlir import ir
from spyre_mlir.passes.co_optimize_strategy_b import CoOptimizeStrategyB
from spyre_mlir.pipelines import SpyrePipeline, run_pipeline
from spyre_mlir.remarks import Remark, Remarks
from spyre_mlir.rewriting.divider import Divider, blocked_dims
from spyre_mlir.scratchpad import LifetimeBoundBuffer, MemorySpace, PlanError

LX = MemorySpace(1024)
UNARY = space_of((512, 1024), Operand((0, 1)), Operand((0, 1)))
ROWS = DividedOp("exp", UNARY, Division.of((16, 1), UNARY.units))


def moving(bytes_: dict[str, int]):
    """Leaves that plan nothing: ``bytes_`` by the dims that are split, r and c, all others 100."""

    def leaf_of(divisions: tuple[Division, ...]) -> Leaf:
        key = "".join("r" if each.splits == (16, 1) else "c" for each in divisions)
        return Leaf((), bytes_.get(key, 100))

    return leaf_of


def dims(divisions: tuple[Division, ...]) -> str:
    return "".join("r" if each.splits == (16, 1) else "c" for each in divisions)


def test_the_fewest_bytes_win():
    """The fewest bytes win for any distance from the seeds."""
    found = StrategyBCoOptimizingAllocator().allocate([ROWS] * 3, moving({"rrr": 90, "crc": 80}), LX)
    assert (dims(found.divisions), found.before, found.after) == ("crc", 90, 80)
    assert (found.scored, found.leaves) == (8, 8)


@pytest.mark.parametrize("equal", ({}, {"rcr": 70, "ccc": 70}))
def test_the_earlier_of_two_equal_leaves_wins(equal: dict[str, int]):
    """The seeds are the first leaf, and the last operation is varied first."""
    found = StrategyBCoOptimizingAllocator().allocate([ROWS] * 3, moving(equal), LX)
    assert dims(found.divisions) == (min(equal, default="rrr", key=lambda key: key.replace("r", "a")))


def test_every_leaf_is_planned_once():
    """No leaf is pruned, however bad the leaves before it are."""
    seen: list[str] = []

    def leaf_of(divisions: tuple[Division, ...]) -> Leaf:
        seen.append(dims(divisions))
        return Leaf((), len(seen))

    StrategyBCoOptimizingAllocator().allocate([ROWS] * 3, leaf_of, LX)
    assert seen == ["rrr", "rrc", "rcr", "rcc", "crr", "crc", "ccr", "ccc"]


def test_what_the_solver_cannot_pin_is_left():
    """Of two buffers that are live at once one fits; the bytes of the other are added to the bytes of the leaf."""
    buffers = tuple(LifetimeBoundBuffer(name, 1024, (0, 1)) for name in "ab")

    def leaf_of(divisions: tuple[Division, ...]) -> Leaf:
        return Leaf(buffers if dims(divisions) == "r" else buffers[:1], 10_000)

    found = StrategyBCoOptimizingAllocator().allocate([ROWS], leaf_of, LX)
    assert (found.before, found.after) == (10_000 + 2 * 1024, 10_000)


def test_the_bound_on_leaves():
    """The pass returns the best of the first leaves, and reports the number of leaves."""
    bytes_ = {"rrc": 90, "ccc": 0}
    found = StrategyBCoOptimizingAllocator(leaves=7).allocate([ROWS] * 3, moving(bytes_), LX)
    assert (dims(found.divisions), found.scored, found.leaves) == ("rrc", 7, 8)
    found = StrategyBCoOptimizingAllocator(leaves=8).allocate([ROWS] * 3, moving(bytes_), LX)
    assert (dims(found.divisions), found.scored, found.leaves) == ("ccc", 8, 8)


def test_the_cap_on_variants():
    """With one variant each there is nothing to search."""
    found = StrategyBCoOptimizingAllocator(variant_cap=1).allocate([ROWS] * 3, moving({"ccc": 0}), LX)
    assert (dims(found.divisions), found.leaves) == ("rrr", 1)


def test_a_fixed_division_has_no_variants():
    """A division that a plan file pins, with its core order, has one candidate."""
    fixed = DividedOp("exp", UNARY, ROWS.division, fixed=True)
    found = StrategyBCoOptimizingAllocator().allocate([fixed, ROWS], moving({"cc": 0, "rc": 1}), LX)
    assert (dims(found.divisions), found.leaves) == ("rc", 2)


@pytest.mark.parametrize("options", ({"leaves": 0}, {"variant_cap": 0}, {"layout_solver": "best"}))
def test_options_that_allow_no_search(options: dict):
    """An empty search and an unknown solver are refused."""
    with pytest.raises(PlanError):
        StrategyBCoOptimizingAllocator(**options).allocate([ROWS], moving({}), LX)


# -- programs -----------------------------------------------------------------------------------------

#: Programs with several leaves, and cores.
SMALL = (
    ("softmax of 512 x 1024", 16),
    ("softmax over rows", 4),
    ("matmul and pointwise", 4),
    ("two matmuls", 2),
    ("two dims as rows", 2),
)


@functools.cache
def seeds(name: str, cores: int) -> str:
    """The text of a program as work-distribution divides it."""
    function, _ = FUNCTIONS[name]
    module = import_torch(Apply(function).half(), inputs_of(name), context=context()).module
    run_pipeline(module, SpyrePipeline(sencores=cores, co_optimizing_lx_planning=False).pipeline("divided"))
    return str(module.operation.get_asm(enable_debug_info=True))


def planned(text: str, splits: tuple[tuple[int, ...], ...] | None = None) -> float:
    """The bytes that scratchpad-planning reports, of a program or of one with other splits."""
    module = ir.Module.parse(text, context())
    (func,) = functions(module.operation)
    with module.context:
        for each, own in zip(Usage(func).ops, splits or (), strict=bool(splits)):
            Divider().divide(each.op, each.opcode, each.space, own)
    (plan,) = remarks_of(module, "scratchpad-planning").of_kind("plan")
    assert plan.after is not None
    return plan.after


def remarks_of(module: ir.Module, passes: str) -> Remarks:
    remarks = Remarks()
    run_pipeline(module, passes, remarks=remarks)
    return remarks


def searched(text: str, options: str = "") -> tuple[Remark, tuple[tuple[int, ...], ...]]:
    """Return the remark of the pass, and the splits in its result."""
    module = ir.Module.parse(text, context())
    (told,) = remarks_of(module, f"co-optimize-strategy-b{{{options}}}").of_kind("divisions")
    (func,) = functions(module.operation)
    return told, tuple(each.division.splits for each in Usage(func).ops)


def combinations(text: str) -> list[tuple[tuple[int, ...], ...]]:
    """The splits of all leaves, from all legal divisions of each operation; the seeds first."""
    module, variants = ir.Module.parse(text, context()), []
    (func,) = functions(module.operation)
    for each in Usage(func).ops:
        own, factor = each.division.splits, max(each.division.splits)
        fixed = each.space.reduced | blocked_dims(each.op)
        flippable = math.prod(own) == factor > 1 and own.index(factor) not in fixed
        flips = [
            splits
            for splits in sorted(legal_splits(each.space.units, factor), reverse=True)
            if sorted(splits) == sorted(own) and splits != own and splits.index(factor) not in fixed
        ]
        variants.append([own, *(flips if flippable else [])])
    return list(itertools.product(*variants))


@pytest.mark.parametrize("cores", (1, 4, 32))
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_seeds_score_what_planning_reports(name: str, cores: int):
    """Scores equal the bytes of planning, for the unchanged program."""
    module = ir.Module.parse(seeds(name, cores), context())
    (func,) = functions(module.operation)
    found = CoOptimizeStrategyB().search(Usage(func))
    assert found.before == planned(seeds(name, cores))


def test_the_seeds_score_what_planning_reports_of_loops():
    """An operation in a loop moves its bytes in every iteration."""

    def chain(x, y):
        return torch.exp(x + y) * y

    inputs = (torch.zeros(2048, 1024).half(),) * 2
    module = import_torch(Apply(chain).half(), inputs, context=context()).module
    pipeline = SpyrePipeline(sencores=8, co_optimizing_lx_planning=False, lx_frac_avail=0.99)
    run_pipeline(module, pipeline.pipeline("divided"))
    assert "scf.for" in str(module)
    (func,) = functions(module.operation)
    found = CoOptimizeStrategyB().search(Usage(func))
    (plan,) = remarks_of(module, "scratchpad-planning").of_kind("plan")
    assert found.before == plan.after
    assert found.leaves > 1


@pytest.mark.parametrize(("name", "cores"), SMALL)
def test_the_best_of_all_combinations(name: str, cores: int):
    """Each leaf is written into the program and planned: the pass takes the first with the fewest bytes."""
    text = seeds(name, cores)
    leaves = combinations(text)
    scores = [planned(text, splits) for splits in leaves]
    told, splits = searched(text)
    assert (told.before, told.after) == (scores[0], min(scores))
    assert splits == leaves[scores.index(min(scores))]
    assert f"all {len(leaves)} combinations" in told.reason


def test_the_head_of_softmax_follows_the_maximum():
    """Over rows, 16 cores: sub, exp and div take 16 slices of columns, as max and sum have; 2^3 leaves."""
    told, splits = searched(seeds("softmax of 512 x 1024", 16))
    assert set(splits) == {(1, 16)}
    assert "all 8 combinations" in told.reason
    matrix, vector = 512 * 1024 * 2, 1024 * 2
    assert (told.before, told.after) == (6 * matrix + 4 * vector, 3 * matrix)


def test_a_search_that_ends_early_says_so():
    """The first 4 of 8 combinations do not change the subtraction, which costs bytes."""
    told, _ = searched(seeds("softmax of 512 x 1024", 16), "leaves=4")
    whole, _ = searched(seeds("softmax of 512 x 1024", 16))
    assert "the first 4 of 8 combinations" in told.reason and "a better combination may exist" in told.reason
    assert whole.after is not None and told.after is not None
    assert whole.after < told.after


def test_the_cap_of_the_pass():
    """With one candidate per operation the program does not change, and there is no remark."""
    module = ir.Module.parse(seeds("softmax of 512 x 1024", 16), context())
    before = str(module)
    assert not remarks_of(module, "co-optimize-strategy-b{variant-cap=1}")
    assert str(module) == before


def test_an_unknown_solver_is_an_error():
    """The error is one diagnostic, at the function."""
    module = ir.Module.parse(seeds("softmax of 512 x 1024", 16), context())
    with pytest.raises(CompileError, match="There is no solver 'best'"):
        run_pipeline(module, "co-optimize-strategy-b{layout-solver=best}")


def test_the_pipeline_has_one_of_two_ways(monkeypatch: pytest.MonkeyPatch):
    """CO_OPTIMIZING_LX_PLANNING turns both off."""

    def named(**options) -> bool:
        return "co-optimize-strategy-b" in str(SpyrePipeline(**options).pipeline())

    assert named(co_optimizer="strategy-b") and not named()
    assert not named(co_optimizer="strategy-b", lx_planning=False)
    monkeypatch.setenv("CO_OPTIMIZING_LX_PLANNING", "0")
    assert not named(co_optimizer="strategy-b")


def test_a_count_as_long_as_the_program():
    """40 operations with two divisions each."""

    def chain(x):
        for _ in range(20):
            x = torch.exp(x) * x
        return x

    program = spyre_mlir.compile(
        chain, (torch.zeros(512, 1024).half(),), sencores=16, co_optimizer="strategy-b"
    )
    (told,) = [each for each in program.remarks if each.kind == "divisions"]
    assert "the first 512 of 10^12 combinations" in told.reason


@pytest.mark.parametrize(("name", "cores"), SMALL)
def test_numbers_stay_what_they_are(name: str, cores: int):
    """Splits of sums do not change, so bits equal the program without co-optimisation; the traffic equals the plan."""
    function, _ = FUNCTIONS[name]
    compiled = functools.partial(spyre_mlir.compile, Apply(function).half(), inputs_of(name), sencores=cores)
    without = compiled(co_optimizing_lx_planning=False)
    program = compiled(co_optimizer="strategy-b", verify_each=True)
    assert np.array_equal(program(*inputs_of(name)), without(*inputs_of(name)))
    (plan,) = [each for each in program.remarks if each.kind == "plan"]
    assert program.traffic().read_bytes + program.traffic().written_bytes == plan.after
    moved = without.traffic().read_bytes + without.traffic().written_bytes
    assert plan.after is not None and plan.after <= moved
