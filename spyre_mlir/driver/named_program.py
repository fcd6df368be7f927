# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names for the dims of a program: one name for all dims that the operations of the program iterate over together.

Every dim of an argument starts as one factor with a name of its own. Names propagate through the program by the rules
for hints. Two operands that name an iteration dim differently unify the names; a view that reads a part of a dim, and
an operand with smaller factors, split a factor. This is repeated until nothing changes. Parameters whose paths differ
only in numbers, such as the weights of equal layers, have the same names.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from typing import Any

from spyre_mlir.analysis.aliasing import all_ops, argument_attributes
from spyre_mlir.analysis.plan_pins import planned_function
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.hint_attributes import DIMS, dims_of
from spyre_mlir.dialects.structured import shape_of
from spyre_mlir.mlir import ir, source_note
from spyre_mlir.passes.propagate_named_dims import NamePropagation, PropagateNamedDims
from spyre_mlir.pipelines import SpyrePipeline, run_pipeline
from spyre_mlir.pipelines.text import Pipeline
from spyre_mlir.records import dataclass
from spyre_mlir.tiling import DigitRun, DimDigits, NamedDim
from spyre_mlir.tiling.names import covered, unnamed, whole


@dataclass(frozen=True)
class NamedOperation:
    """A device operation by its name in plans, with the names of each iteration dim and its source lines.

    ``frames`` are (file, line) pairs of the model's code, the innermost call first. ``module`` is the path of the
    PyTorch module that computes the operation.
    """

    name: str
    dims: tuple[tuple[str, ...], ...]
    frames: tuple[tuple[str, int], ...]
    module: str


@dataclass(frozen=True)
class NamedProgram:
    """The sizes of all names, the names of the dims of each argument, and the operations in program order."""

    sizes: dict[str, int]
    arguments: dict[str, tuple[str, ...]]
    operations: tuple[NamedOperation, ...]


def named_program(linalg: ir.Operation, pipeline: SpyrePipeline) -> NamedProgram:
    """Return the operations that a plan of the program names before tiling, with names for all dims."""
    passes = replace(pipeline, save_plan="").pipeline("tiled")
    # A plan names the operations of each layer, so layers are not folded.
    steps, beyond = (
        tuple(step for step in part if not step.name.endswith("fold-repeated-layers"))
        for part in (passes.steps, passes.beyond)
    )
    end = [step.name for step in steps].index("name-operations") + 1
    module = linalg.clone().operation
    run_pipeline(module, Pipeline(steps[:end], (*steps[end:], *beyond)))
    func, factors = planned_function(module), _Factors()
    with module.context, func.location:
        while True:
            names = _Unification(func, factors)
            names.run(all_ops(func))
            if not factors.has_changed():
                break
        texts = factors.texts()
        return NamedProgram(
            {text: factors.known[name][1] // factors.known[name][2] for name, text in texts.items()},
            {
                label: tuple(texts[factors.leader(part.name)] for part in factors.of(dims))
                for label, dims in names.arguments.items()
            },
            tuple(
                NamedOperation(
                    str(sdsc.name_of(op)),
                    tuple(tuple(texts[factors.leader(name)] for name in dim) for dim in dims_of(op)),
                    tuple(frames_of(op.location)),
                    source_note(op.location, "module"),
                )
                for op in all_ops(func)
                if DIMS in op.attributes
            ),
        )


def frames_of(location: ir.Location) -> Iterator[tuple[str, int]]:
    """Yield the (file, line) pairs of the calls in a location, the innermost first."""
    if isinstance(location, ir.FileLineColLoc):
        yield str(location.filename), location.start_line
    elif isinstance(location, ir.CallSiteLoc):
        yield from frames_of(location.callee)
        yield from frames_of(location.caller)
    elif isinstance(location, ir.NameLoc):
        yield from frames_of(location.child_loc)
    elif isinstance(location, ir.FusedLoc):
        # Fused operations have several locations; messages are about the first, too.
        found = (list(frames_of(part)) for part in location.locations)
        yield from next((frames for frames in found if frames), ())


#: A dim of an argument: the name of the argument with stars for numbers, the number of the dim, and its size.
_Dim = tuple[str, int, int]


@dataclass
class _Factors:
    """Factors of dims, by names: (dim, positions of the factor and all inside it, positions inside it)."""

    cuts: dict[_Dim, set[int]] = field(default_factory=dict)
    known: dict[str, tuple[_Dim, int, int]] = field(default_factory=dict)
    leaders: dict[str, str] = field(default_factory=dict)
    changes: int = 0

    def has_changed(self) -> bool:
        """Return whether a factor was split, or two names were unified, since the last call."""
        changes, self.changes = self.changes, 0
        return changes > 0

    def of(self, dims: Sequence[_Dim]) -> Iterator[NamedDim]:
        """Yield the factors of the dims of an argument, outermost first."""
        for dim in dims:
            bounds = sorted({1, dim[-1], *self.cuts.get(dim, ())}, reverse=True)
            for outer, inner in itertools.pairwise(bounds):
                name = f"{dim[0]}|{dim[1]}|{outer}|{inner}"
                self.known[name] = dim, outer, inner
                yield NamedDim(self.leader(name), outer // inner)

    def leader(self, name: str) -> str:
        """Return the name that stands for a class of unified names."""
        while name in self.leaders:
            name = self.leaders[name]
        return name

    def unify(self, runs: tuple[DigitRun, DigitRun]) -> None:
        """Unify the names of an iteration dim in two operands, or split their factors at the same positions."""
        bounds = [{math.prod(part.size for part in run[at:]) for at in range(len(run))} for run in runs]
        for run, others in zip(runs, reversed(bounds), strict=True):
            inner = 1
            for part in reversed(run):
                for ratio in (bound // inner for bound in others if bound % inner == 0):
                    self.cut(part, ratio)
                inner *= part.size
        for one, other in zip(*runs, strict=False) if bounds[0] == bounds[1] else ():
            names = [self.leader(part.name) for part in (one, other) if part.name is not None]
            if len({*names}) == 2:
                self.leaders[names[1]] = names[0]
                self.changes += 1

    def cut(self, part: DimDigits, ratio: int) -> None:
        """Split a factor, and the factors unified with it, before the position ``ratio`` of some of its digits."""
        divisor = part.divisor * ratio
        if isinstance(part.dim, NamedDim) and ratio <= part.size and 1 < divisor < part.dim.size:
            for name, (dim, outer, inner) in self.known.items():
                if self.leader(name) == part.dim.name and outer // inner % divisor == 0:
                    bounds = self.cuts.setdefault(dim, set())
                    self.changes += inner * divisor not in bounds
                    bounds.add(inner * divisor)

    def texts(self) -> dict[str, str]:
        """Return a short identifier for each class of names: argument and dim, with a number for a factor."""
        texts: dict[str, str] = {}
        for name in dict.fromkeys(map(self.leader, self.known)):
            (label, number, size), outer, inner = self.known[name]
            stem = re.sub(r"\W+", "_", f"{label}_{number}").strip("_")
            texts[name] = stem if (outer, inner) == (size, 1) else f"{stem}_{outer // inner}_{inner}"
        return texts


class _Silent(PropagateNamedDims):
    """The owner of a propagation in which names may contradict each other: they are unified."""

    def warn(self, op: Any, reason: str) -> None:
        pass


class _Unification(NamePropagation):
    """One propagation of all names."""

    def __init__(self, func: ir.Operation, factors: _Factors) -> None:
        super().__init__(_Silent(), func)
        self.factors = factors
        self.arguments: dict[str, list[_Dim]] = {}

    def run(self, ops: Sequence[ir.Operation]) -> None:
        arguments = self.func.regions[0].blocks[0].arguments
        # A new set of names: a factor that was split has no name any more.
        self.factors.known.clear()
        for argument, attributes in zip(arguments, argument_attributes(self.func), strict=True):
            view = sdsc.host_view_of(ir.DictAttr.get(attributes), shape_of(argument))
            source = attributes.get(sdsc.SOURCE)
            label = ir.StringAttr(attributes[sdsc.HOST].label if source is None else source).value
            key = re.sub(r"(?<![^.])\d+(?![^.])", "*", label)
            dims = [(key, number, size) for number, size in enumerate(view.array_shape) if size > 1]
            self.arguments[label] = dims
            parts = whole(self.factors.of(dims))
            names: list[DigitRun] = []
            for size, (*outer, (_, stride)) in zip(view.shape, view.dims, strict=True):
                names.append(unnamed(size) if outer else covered(parts, size, stride, view.offset))
            self.names[argument] = tuple(names)
        for op in ops:
            self._visit(op)

    def _agreed(self, op: ir.Operation, what: str, candidates: Sequence[DigitRun]) -> DigitRun:
        chosen = super()._agreed(op, what, candidates)
        for run in candidates:
            # Digits that a view or another operand counts are factors of their own.
            for part in run:
                self.factors.cut(part, 1)
                self.factors.cut(part, part.size)
            self.factors.unify((chosen, run))
        return chosen
