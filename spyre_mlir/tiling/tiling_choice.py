# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Replaceable choice of tiling: selects one of several candidates for an operation or a run of operations."""

from __future__ import annotations

import abc
import itertools
import math
from collections.abc import Callable
from dataclasses import field
from typing import ClassVar, Literal

from spyre_mlir.algorithms import REGISTRIES, Algorithm, Registry, is_integer, register
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class TilingCandidate:
    """A nest of loops around a number of ``operations``: for each loop, outermost first, the dim and its tile count.

    Dims are iteration dims of the operation in the problem. The last tile may be smaller.
    """

    operations: int
    loops: tuple[tuple[int, int], ...]

    @property
    def tiles(self) -> int:
        """The product of the tile counts of all loops."""
        return math.prod(count for _, count in self.loops)


@dataclass(frozen=True, eq=False)
class TilingProblem:
    """Candidates for the tiling of an operation, and functions that return their costs.

    The first evaluation of a candidate compiles its operations, which is slow.

    Attributes:
        purpose: "span" if no division lets each core address its operands, so that the operation must be tiled; "lx" if
            intermediates do not fit in LX.
        opcode: The name of the device operation.
        extents: The elements of each dim of its iteration space.
        live_bytes: Bytes per core that are live at the operation.
        lx_bytes: Bytes of LX per core.
        candidates: The loops to choose from.
        evaluate: Returns the nanoseconds of a candidate, given its index; None if it cannot be compiled.
        untiled: Returns the nanoseconds of the candidate's operations untiled; None if they cannot be compiled.
        pays: Returns whether a candidate also saves time when the operations around it are included.
        together: Returns the nanoseconds of the operations of all candidates, with the loops of one candidate.
    """

    purpose: Literal["span", "lx"]
    opcode: str
    extents: tuple[int, ...]
    live_bytes: int
    lx_bytes: int
    candidates: tuple[TilingCandidate, ...]
    evaluate: Callable[[int], float | None] = field(repr=False)
    untiled: Callable[[int], float | None] = field(repr=False)
    pays: Callable[[int], bool] = field(repr=False)
    together: Callable[[int], float | None] = field(repr=False)


class TilingChoice(Algorithm):
    """Choice of the loops that the compiler inserts around operations without hints."""

    registry: ClassVar[Registry[TilingChoice]] = REGISTRIES["tiling"]

    @abc.abstractmethod
    def choose(self, problem: TilingProblem) -> int | None:
        """Return the index of a candidate of the ``problem``, or None for no candidate.

        For the purpose "span", the method is called again with candidates of two loops after it returns None.
        """

    def index(self, problem: TilingProblem) -> int | None:
        """Return the result of ``choose`` after checking it."""
        text = f"'{problem.opcode}' of {list(problem.extents)} ({problem.purpose})"
        with self.guarded(text):
            index = self.choose(problem)
        if index is None or not self.is_foreign():
            return index
        count = len(problem.candidates)
        if not is_integer(index) or not 0 <= index < count:
            self.reject(f"{index!r:.60} is neither None nor an integer from 0 to {count - 1}", text)
        if problem.evaluate(index) is None:
            self.reject(f"candidate {index} cannot be compiled", text)
        return int(index)


#: Nanoseconds that no program takes.
_IMPOSSIBLE_NS = 1e18


@register
class LeastTimeTiling(TilingChoice):
    """The candidate that saves most time, also with the operations around it.

    For "span", the fastest of the coarsest feasible tilings of all nests.
    """

    name: ClassVar[str] = "least-time"

    def choose(self, problem: TilingProblem) -> int | None:
        """Return the index of a candidate."""
        if problem.purpose == "span":
            return self._for_span(problem)
        # The candidates that save most time, by the number of their operations.
        best = dict[int, tuple[float, int]]()
        for index, candidate in enumerate(problem.candidates):
            # Without loops, a core may not reach its part of a tensor, and any possible candidate is better.
            untiled, tiled = problem.untiled(index), problem.evaluate(index)
            saved = 0.0 if tiled is None else (_IMPOSSIBLE_NS if untiled is None else untiled) - tiled
            if saved > best.get(candidate.operations, (0.0, index))[0]:
                best[candidate.operations] = saved, index
        indices = [index for _, index in sorted(best.values(), key=lambda pair: -pair[0])]
        # Savings of runs of different operations are not comparable: a short run alone also saves its transfers.
        if len(indices) > 1:
            times = {index: problem.together(index) or math.inf for index in indices}
            indices.sort(key=times.__getitem__)
        return indices[0] if indices and problem.pays(indices[0]) else None

    def _for_span(self, problem: TilingProblem) -> int | None:
        """Return the fastest among the coarsest tilings of each nest that let all cores address the operands."""

        def dims(index: int) -> list[int]:
            return [dim for dim, _ in problem.candidates[index].loops]

        possible = []
        for _, nest in itertools.groupby(range(len(problem.candidates)), dims):
            times = ((problem.evaluate(index), index) for index in nest)
            coarsest = next(((time, index) for time, index in times if time is not None), None)
            if coarsest is not None:
                time, index = coarsest
                possible.append((time, [count for _, count in problem.candidates[index].loops], index))
        return min(possible)[-1] if possible else None
