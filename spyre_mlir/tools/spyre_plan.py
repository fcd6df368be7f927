# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""spyre-plan: place a table of buffers in a memory, without compiling.

    spyre-plan buffers.csv --capacity 1625344 --alignment 128 --output offsets.csv
    spyre-plan buffers.csv --capacity 1048576 --solver firstfit
    spyre-plan scopes.csv --capacity lx=1625344 --capacity l0=65536
    spyre-plan buffers.csv --capacity 1048576 --solver all

The table (CSV) has the columns id, lower, upper, size: a buffer of size bytes is live at the operations from lower up
to, but not including, upper. Optional columns are alignment, in_place_parent, uses, copies, scope, and the traffic
columns that spyre-compile --save-buffers writes. With scopes, each memory has a name and its own plan. --output writes
a table of id and offset, with an empty offset for a spilled buffer; all plans are checked first. --solver all compares
all solvers in a table, and the offsets come from the first solver with the least traffic.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from spyre_mlir import files
from spyre_mlir.errors import AlgorithmError, CompileError, counted
from spyre_mlir.records import dataclass
from spyre_mlir.tools import _common

if TYPE_CHECKING:
    from spyre_mlir.scratchpad.buffer_table import ScopedBuffer
    from spyre_mlir.scratchpad.buffers import MemorySpace
    from spyre_mlir.scratchpad.solver import MemoryPlan, MemoryPlanSolver

#: Maximum number of spilled buffers that the summary names.
_NAMED_SPILLS = 8

#: The solver of tables that have too many buffers for the default solver.
_LARGE = "bestfit"

#: Maximum bytes of a table.
_MAX_BYTES = 1 << 26


@_common.tool
def main(argv: Sequence[str] | None = None) -> int:
    """Run spyre-plan; return 0 on success, 1 after a diagnostic on stderr."""
    options = _parser().parse_args(argv)

    from spyre_mlir.scratchpad.buffer_table import offsets_table, read_buffers
    from spyre_mlir.scratchpad.buffers import MemorySpace, PlanError
    from spyre_mlir.scratchpad.solvers import solver

    try:
        capacities: dict[str, int] = {}
        for text in options.capacity:
            scope, _, size = text.rpartition("=")
            try:
                capacity = int(size)
            except ValueError:
                raise CompileError(
                    f"The capacity '{text}' is neither a number of bytes nor NAME=BYTES."
                ) from None
            if scope in capacities:
                raise CompileError(f"--capacity is given twice{f' for {scope!r}' if scope else ''}.")
            capacities[scope] = capacity
        if "" in capacities and len(capacities) > 1:
            raise CompileError("Each of several memories needs a name: --capacity NAME=BYTES.")
        spaces = {scope: MemorySpace(size, options.alignment) for scope, size in capacities.items()}
        solvers = _solvers(options)
    except PlanError as error:
        raise CompileError(str(error)) from None
    text = files.read_text(options.file, _MAX_BYTES)
    # With several solvers, a solver that does not support the number of buffers is reported in the table.
    # Fits in one order take about linear time, so they plan tables that are too large for the default solver.
    large = [] if options.solver or options.order_by_size else [solver(_LARGE)]
    most = max(each.most_buffers for each in (*solvers, *large))
    table = read_buffers(text, options.file, options.alignment, most, spaces)
    if large and len(table) > solvers[0].most_buffers:
        print(
            f"note: {len(table):,} buffers are too many for '{solvers[0].name}'; '{_LARGE}' plans them.",
            file=sys.stderr,
        )
        solvers = large
    runs, refusals = [], {}
    for each in solvers:
        try:
            if len(table) > each.most_buffers:
                raise CompileError(f"The solver plans at most {each.most_buffers} buffers.")
            runs.append(_planned(each, table, spaces, options.file))
        except CompileError as error:
            if len(solvers) == 1:
                raise
            refusals[each.name] = error
    if not runs:
        raise next(iter(refusals.values()))
    best = min(runs, key=lambda run: run.traffic)
    if options.output is not None:
        names = (scoped.buffer.name for scoped in table)
        files.write_text(options.output, offsets_table(names, best.addresses))
    stream = sys.stderr if options.output == "-" else sys.stdout
    print(best.summary if len(solvers) == 1 else _comparison(runs, refusals), file=stream)
    if options.require_all and (left := len(table) - len(best.addresses)):
        remedy = "give a larger --capacity, or leave out --require-all"
        raise CompileError(f"The best plan leaves out {counted(left, 'buffer')}; {remedy}.", options.file)
    # An exception of a user-defined solver is an error; a solver with a missing package is not.
    return int(any(isinstance(error, AlgorithmError) for error in refusals.values()))


@dataclass(frozen=True)
class _SolverRun:
    """The plans of one solver for all memories; ``bound`` is the solver's lower bound on the traffic of any plan."""

    solver: str
    addresses: dict[str, int]
    summary: str
    traffic: int
    bound: int
    seconds: float
    proven: bool


def _planned(
    solver: MemoryPlanSolver, table: Sequence[ScopedBuffer], spaces: dict[str, MemorySpace], path: str
) -> _SolverRun:
    """Plan all memories with a solver, and check the plans."""
    from spyre_mlir.scratchpad.buffers import PlanError
    from spyre_mlir.scratchpad.check import check_plan
    from spyre_mlir.scratchpad.spill_and_reload import spill_and_reload_bound

    addresses: dict[str, int] = {}
    summaries, traffic, bound, seconds, proven = [], 0, 0, 0.0, True
    for scope, space in spaces.items():
        buffers = [scoped.buffer for scoped in table if scoped.scope == scope]
        start = time.perf_counter()
        try:
            plan = solver.plan(buffers, space)
            # The time of the solver does not include the check.
            of_plan = time.perf_counter() - start
            check_plan(buffers, space, plan)
        except PlanError as error:
            raise CompileError(str(error), path) from None
        addresses |= plan.addresses
        traffic, bound, seconds = traffic + plan.traffic, bound + plan.bound, seconds + of_plan
        proven = proven and plan.proven
        summary = _summary(plan, of_plan, spill_and_reload_bound(buffers, space).traffic)
        summaries.append(f"{'scope':12}{scope}\n{summary}" if scope else summary)
    return _SolverRun(solver.name, addresses, "\n\n".join(summaries), traffic, bound, seconds, proven)


def _comparison(runs: Sequence[_SolverRun], refusals: Mapping[str, CompileError]) -> str:
    """Return a table of solvers: placed buffers, traffic and bound in bytes, whether the plan is proven, seconds."""
    lines = [f"{'solver':18}{'placed':>6}{'traffic':>16}{'bound':>16}{'proven':>8}{'time':>12}"]
    for run in runs:
        proven = "yes" if run.proven else "no"
        figures = f"{len(run.addresses):6}{run.traffic:16}{run.bound:16}{proven:>8}{run.seconds:10.4f} s"
        lines.append(f"{run.solver:18}{figures}")
    return "\n".join([*lines, *(f"{name:18}{error.message}" for name, error in refusals.items())])


def _solvers(options: argparse.Namespace) -> list[MemoryPlanSolver]:
    from spyre_mlir.scratchpad.solvers import DEFAULT, MemoryPlanSolver, solver

    if options.solver == "all" and not options.order_by_size:
        return [solver(name) for name in MemoryPlanSolver.registry.names()]
    if not options.order_by_size:
        return [solver(options.solver or DEFAULT)]
    if options.solver not in (None, "largest-first"):
        raise CompileError(f"--order-by-size is the solver 'largest-first', not '{options.solver}'.")
    return [solver("largest-first")]


def _summary(plan: MemoryPlan, seconds: float, moving: int) -> str:
    """Return a summary, one figure per line; ``moving`` is the least traffic (bytes) with spills and reloads."""
    quality = "proven: no plan moves less" if plan.proven else f"gap {plan.gap}"
    facts = {
        "solver": plan.solver,
        "placed": f"{len(plan.addresses)} of {len(plan.addresses) + len(plan.spilled)} buffers",
        "spilled": len(plan.spilled),
        "traffic": f"{plan.traffic} bytes",
        "bound": f"{plan.bound} bytes ({quality})",
        "moving": f"{moving} bytes at least with spills and reloads (gap {plan.traffic - moving})",
        "peak": f"{plan.peak} bytes",
        "load": f"{plan.load} bytes",
        "peak / load": f"{plan.peak / plan.load:.4f}" if plan.load else "1.0000",
        "work": f"{plan.work} steps",
        "time": f"{seconds:.4f} s",
    }
    reasons = [f"  '{name}': {reason}" for name, reason in list(plan.spilled.items())[:_NAMED_SPILLS]]
    if len(plan.spilled) > _NAMED_SPILLS:
        reasons.append("  ..")
    lines = []
    for name, fact in facts.items():
        lines += [f"{name:12}{fact}", *(reasons if name == "spilled" else [])]
    return "\n".join(lines)


def _parser() -> _common.ArgumentParser:
    parser = _common.ArgumentParser("spyre-plan", __doc__)
    parser.add_argument("file", metavar="FILE.csv", help="table of buffers, - for stdin")
    parser.add_argument("--capacity", metavar="[NAME=]BYTES", action="append", required=True,
                        help="size of the memory in bytes; for a table with scopes, once per scope")  # fmt: skip
    parser.add_argument("--alignment", metavar="BYTES", type=int, default=1,
                        help="addresses are multiples of this power of two, in bytes (default: 1)")  # fmt: skip
    parser.add_argument(
        "--solver",
        metavar="NAME",
        help="solver that plans the addresses, or all to compare the solvers (default: portfolio)",
    )
    parser.add_argument(
        "--require-all", action="store_true", help="fail if the best plan leaves out a buffer"
    )
    parser.add_argument("--order-by-size", action="store_true",
                        help="place the largest buffers first: the same as --solver largest-first")  # fmt: skip
    _common.add_output(
        parser, "-o --output", "FILE.csv", "write the offset of each buffer in bytes, - for stdout"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
