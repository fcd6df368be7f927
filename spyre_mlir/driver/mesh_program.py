# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The programs of all ranks of a mesh, which run together in one process."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from spyre_mlir.bundle.replacing import replacing
from spyre_mlir.driver.collectives import CollectiveStep, combine
from spyre_mlir.driver.mesh_timeline import MeshTimeline, mesh_timeline
from spyre_mlir.driver.program import Program
from spyre_mlir.driver.program_calls import bind, on_the_host, warn_of_losses
from spyre_mlir.driver.steps import stepped
from spyre_mlir.errors import CompileError
from spyre_mlir.faults import entry_points

#: The folder of the program of a rank.
RANK_FOLDER = "rank_{}"

_Run = Generator[tuple[CollectiveStep, NDArray[Any]], NDArray[Any], dict[str, NDArray[Any]]]


@entry_points
class MeshProgram:
    """The programs of the ranks of a mesh; a call runs all of them and exchanges the data of their collectives.

    Attributes:
        ranks: The program of each rank.
        shape: The extent of each dim of the mesh.
    """

    def __init__(self, ranks: Sequence[Program], shape: Sequence[int]) -> None:
        """Create the program of a mesh; ``compile`` calls this.

        Args:
            ranks: The program of each rank.
            shape: The extent of each dim of the mesh.
        """
        self.ranks: Sequence[Program] = ranks
        self.shape: tuple[int, ...] = tuple(shape)

    def __call__(self, *inputs: Any, **named: Any) -> list[Any]:
        """Run the programs of all ranks and return their results, in the order of the ranks.

        Args:
            *inputs: The inputs of the model, the same for each rank.
            **named: Keyword inputs of the model.

        Raises:
            CompileError: The ranks call different collectives, or a rank waits for a rank that does not answer.
        """
        calls = [
            bind(one.inputs, one.results, one.signature, one.state, one.is_instance, inputs, named)
            for one in self.ranks
        ]
        runs = [
            stepped(one.steps, {**one.arrays, **on_the_host(one._built, one.state, operands)}, one.numerics)
            for one, (operands, _) in zip(self.ranks, calls, strict=True)
        ]
        results = []
        for one, values, (_, finish) in zip(self.ranks, run_together(runs), calls, strict=True):
            warn_of_losses(one._built)
            results.append(finish([values[name] for name in one.returned]))
        return results

    def timeline(self) -> MeshTimeline:
        """Return the time of each engine of each rank; it ranks plans and does not predict times.

        Raises:
            CompileError: The device file does not have the rates of the link between cards, which are assumptions.
        """
        return mesh_timeline(self.ranks)

    def report(self, path: str | Path) -> Path:
        """Write the timeline of all ranks as a picture, and return its path.

        Args:
            path: The output file, which ends in ``.svg``.

        Raises:
            CompileError: The path has another ending, or the device file does not have the rates of the link.
        """
        if Path(path).suffix != ".svg":
            raise CompileError(
                f"The picture of a mesh is an .svg file, not {str(path)!r}; a rank has other reports."
            )
        Path(path).write_text(self.timeline().svg(Path(path).stem), encoding="utf-8")
        return Path(path)

    def save(self, folder: str | Path) -> None:
        """Write the program of each rank, with its own weights, to a folder ``rank_<number>``.

        Args:
            folder: The output folder; an existing program is replaced.

        Raises:
            CompileError: The folder contains something other than a program.
        """
        with replacing(folder) as fresh:
            for number, program in enumerate(self.ranks):
                program.save(fresh / RANK_FOLDER.format(number))

    @classmethod
    def load(cls, folder: str | Path, numerics: str | None = None) -> MeshProgram:
        """Load the programs of all ranks from a folder that ``save`` wrote; call them with arrays by position.

        Args:
            folder: The folder.
            numerics: Numerics of the simulator, "ieee" or "dl16"; the numerics of the saved program by default.

        Raises:
            CompileError: The program of a rank is missing or damaged.
        """
        first = Program.load(Path(folder) / RANK_FOLDER.format(0), numerics)
        place = first.place
        if place is None:
            raise CompileError("The program does not name its mesh.", str(folder))
        others = [
            Program.load(Path(folder) / RANK_FOLDER.format(rank), numerics) for rank in range(1, place.size)
        ]
        for rank, program in enumerate(others, 1):
            if program.place is None or (program.place.rank, program.place.shape) != (rank, place.shape):
                raise CompileError(
                    f"The program is not the program of rank {rank} of the mesh {list(place.shape)}.",
                    str(Path(folder) / RANK_FOLDER.format(rank)),
                )
        return cls([first, *others], place.shape)

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.shape))
        return f"<spyre_mlir.MeshProgram: {shape} ranks, rank 0: {self.ranks[0]._described()}>"


def run_together(runs: Sequence[_Run]) -> list[dict[str, NDArray[Any]]]:
    """Run the programs of all ranks from collective to collective; return the values of each.

    Raises:
        CompileError: No collective can run, because each waits for a rank that ended or waits at another collective.
    """
    finished: dict[int, dict[str, NDArray[Any]]] = {}
    waiting: dict[int, tuple[CollectiveStep, NDArray[Any]]] = {}

    def proceed(rank: int, result: NDArray[Any] | None) -> None:
        """Run one rank to its next collective or to its end."""
        waiting.pop(rank, None)
        try:
            waiting[rank] = next(runs[rank]) if result is None else runs[rank].send(result)
        except StopIteration as end:
            finished[rank] = end.value

    for rank in range(len(runs)):
        proceed(rank, None)
    while waiting:
        group = _complete_group(waiting)
        results = combine([waiting[rank][0] for rank in group], [waiting[rank][1] for rank in group])
        for rank, result in zip(group, results, strict=True):
            proceed(rank, result)
    return [finished[rank] for rank in range(len(runs))]


def _complete_group(waiting: Mapping[int, tuple[CollectiveStep, NDArray[Any]]]) -> tuple[int, ...]:
    """Return the ranks of a collective that all of its ranks wait at; ``CompileError`` if there is none."""
    stuck = []
    for rank, (step, _) in waiting.items():
        absent = [
            other for other in step.ranks if other not in waiting or waiting[other][0].ranks != step.ranks
        ]
        if not absent:
            return step.ranks
        other = absent[0]
        state = f"waits at {waiting[other][0].call_text}" if other in waiting else "has ended"
        stuck.append(f"rank {rank} waits at {step.call_text} for rank {other}, which {state}")
    raise CompileError(f"No collective can run: {'; '.join(stuck)}.")
