# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiling that can be replaced: which of some candidates an operation or a run of operations is tiled by."""

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
    """Loops around so many ``operations``: for each, from the outer to the inner one, the dim and its tiles.

    A dim is that of the operation that the problem is about; the last tile may be smaller.
    """

    operations: int
    loops: tuple[tuple[int, int], ...]

    @property
    def tiles(self) -> int:
        """The number of tiles of all loops together."""
        return math.prod(count for _, count in self.loops)


@dataclass(frozen=True, eq=False)
class TilingProblem:
    """Candidates for an operation, and what each costs.

    An evaluation compiles the operations of a candidate: it takes long, the first one of each candidate.

    Attributes:
        purpose: "span" where no division lets each core reach its operands, so that it has to be tiled, and "lx" where
            intermediates do not fit.
        opcode: The name of the device operation.
        extents: The elements of each dim of its iteration space.
        live_bytes: Bytes per core that are live at the operation.
        lx_bytes: Bytes of LX per core.
        candidates: The loops to choose from.
        evaluate: The nanoseconds of a candidate, by its index; None if that is not possible.
        untiled: The nanoseconds of its operations without tiles; None if that is not possible.
        pays: Whether a candidate takes less time with the operations around it, too.
    """

    purpose: Literal["span", "lx"]
    opcode: str
    extents: tuple[int, ...]
    live_bytes: int
    lx_bytes: int
    candidates: tuple[TilingCandidate, ...]
    evaluate: Callable[[int], float | None] = field(
        repr=False
    )  #: nanoseconds tiled; None if that is not possible
    untiled: Callable[[int], float | None] = field(
        repr=False
    )  #: those without tiles; None if that is not possible
    pays: Callable[[int], bool] = field(
        repr=False
    )  #: whether it takes less time with the operations around it, too


class TilingChoice(Algorithm):
    """Loops that the compiler puts around operations by itself; what hints tile is not asked about."""

    registry: ClassVar[Registry[TilingChoice]] = REGISTRIES["tiling"]

    @abc.abstractmethod
    def choose(self, problem: TilingProblem) -> int | None:
        """Return the index of a candidate; None for none, on which an operation out of reach is asked about again.

        It is asked with two loops where it takes no single one.

        Args:
            problem: The operation and the candidates.
        """

    def index(self, problem: TilingProblem) -> int | None:
        """Return the checked answer."""
        text = f"'{problem.opcode}' of {list(problem.extents)} ({problem.purpose})"
        with self.guarded(text):
            index = self.choose(problem)
        if index is None or not self.is_foreign():
            return index
        count = len(problem.candidates)
        if not is_integer(index) or not 0 <= index < count:
            self.reject(f"{index!r:.60} is no integer from 0 to {count - 1}, nor None", text)
        if problem.evaluate(index) is None:
            self.reject(f"candidate {index} cannot be compiled", text)
        return int(index)


@register
class LeastTimeTiling(TilingChoice):
    """The candidate that saves most time; out of reach, the fewest tiles of each nest of dims, of these the fastest."""

    name: ClassVar[str] = "least-time"

    def choose(self, problem: TilingProblem) -> int | None:
        """Return the index of a candidate."""
        return self._for_span(problem) if problem.purpose == "span" else self._for_lx(problem)

    def _for_span(self, problem: TilingProblem) -> int | None:
        """Return the fastest of the coarsest tilings of all nests that all cores can reach."""

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

    def _for_lx(self, problem: TilingProblem) -> int | None:
        """Return what saves most time, alone and among its neighbours."""
        best, most = None, 0.0
        for index in range(len(problem.candidates)):
            untiled = problem.untiled(index)
            tiled = None if untiled is None else problem.evaluate(index)
            saved = 0.0 if untiled is None or tiled is None else untiled - tiled
            if saved > most:
                best, most = index, saved
        return best if best is not None and problem.pays(best) else None
