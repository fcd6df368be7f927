# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs with dynamic sizes: ``spyre_mlir.compile(model, inputs, dynamic={"S": (64, 4096)})``.

If the model is the same program at every size, one bundle takes the sizes as parameters (``SymbolicProgram``).
Otherwise each multiple of the granularity has its own program, compiled when a call first needs it. A call with another
size is padded to the next multiple if padding is proven not to change the result (``frontend/module_pairs.py``), where
reductions skip padding by masks (``frontend/padding_masks.py``). Any other size has its own program.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Generic, TypeVar

from spyre_mlir.bundle.folder import SIZES
from spyre_mlir.bundle.json_fields import write_json
from spyre_mlir.bundle.replacing import replacing
from spyre_mlir.dialects import context as new_context
from spyre_mlir.driver.program import Program, specialized
from spyre_mlir.driver.report_files import write_page_of_programs
from spyre_mlir.errors import AlgorithmError, CompileError, RecompileWarning
from spyre_mlir.faults import entry_points
from spyre_mlir.frontend.dynamic_inputs import DynamicInputs
from spyre_mlir.frontend.importer import Imported, capture_torch, import_torch
from spyre_mlir.frontend.module_pairs import (
    DifferentPrograms,
    SizePair,
    check_padding_safety,
    check_symbolic,
    mark_symbolic,
)
from spyre_mlir.frontend.padding_masks import PaddingMasks
from spyre_mlir.records import dataclass
from spyre_mlir.remarks import SIZE, Remark
from spyre_mlir.target.target import compiling_for
from spyre_mlir.tensors.device_state import DeviceState

#: Sizes of the dynamic dims, in the order of the option.
Sizes = tuple[int, ...]


#: A bundle of all sizes gets a remark if its time divided by the time of a bundle for one size exceeds this ratio.
_REMARK_RATIO = 1.1

#: The number of sizes with separate programs from which a warning is issued.
_MOST_UNWARNED = 3

ProgramT = TypeVar("ProgramT", bound=Program)


@entry_points
class DynamicProgram(Generic[ProgramT]):
    """A model with dynamic dims, compiled for each size on demand; call it like the model.

    Attributes:
        dims: The dynamic dims by name, with granularity and largest size in elements.
        programs: The programs of the sizes requested so far, by the sizes in the order of ``dims``.
        masked: The programs of padded sizes whose reductions skip the padding, with their masks, by these sizes.
        last: The program of the last call.
    """

    def __init__(
        self,
        model: Any,
        example_inputs: Sequence[Any] | Mapping[str, Any],
        dynamic: Mapping[str, tuple[int, int]],
        compile: Callable[..., ProgramT],
        compile_marked: Callable[..., ProgramT],
        compile_symbolic: Callable[..., Any] | None = None,
        autocast: Any = None,
        occurrences: Sequence[Any] = (),
    ) -> None:
        """Compile the program for the sizes of the example inputs; ``spyre_mlir.compile`` calls this.

        Args:
            model: The model.
            example_inputs: A tuple, or a mapping for keyword inputs.
            dynamic: Granularity and largest size of each dynamic dim.
            compile: ``compile(model, inputs)`` compiles a program of one size.
            compile_marked: ``compile_marked(model, inputs, mark=function)`` compiles a model that the function changed.
            compile_symbolic: Compiles the program of all sizes, without the host; None for one program per size.
            autocast: The option ``autocast`` of ``spyre_mlir.compile``.
            occurrences: The dims of the inputs that are dynamic, if they are not given by name.

        Raises:
            CompileError: No dim is given, or a size is not a multiple of its granularity.
        """
        if not dynamic:
            raise CompileError("The option 'dynamic' names at least one dim.")
        self.dims: dict[str, DynamicDim] = {name: DynamicDim.of(name, pair) for name, pair in dynamic.items()}
        self.programs: dict[Sizes, ProgramT] = {}
        self.last: ProgramT | None = None
        self._model, self._compile, self._autocast = model, compile, autocast
        self._inputs = DynamicInputs(model, example_inputs, list(dynamic), occurrences)
        self._padding = PaddingProofs(model, self._inputs, autocast)
        self._reasons: list[Remark] = []
        self._prices: dict[Sizes, SizePrice] = {}
        self._separate = 0
        self.masked: dict[Sizes, tuple[ProgramT, PaddingMasks]] = {}
        self._compile_marked = compile_marked
        self._symbolic: SymbolicProgram | None = None
        if compile_symbolic is not None:
            self._symbolic = self._try_symbolic(compile_symbolic)
        # Compiled eagerly: a model that cannot be compiled is an error here, not at the first call.
        self._program_for(self._inputs.example_sizes)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Run the program for the sizes of the ``inputs`` and ``named`` inputs; compile it on first use."""
        sizes = self._inputs.sizes(inputs, named)
        self.last, padded = program, _ = self._program_for(sizes)
        if padded == sizes:
            return program(*inputs, **named)
        unpadded, masks = self._padding.proven[frozenset(sizes.items())]
        return program.call(*self._inputs.padded(unpadded, inputs, named, padded, self.state, masks.arrays))

    @property
    def symbolic(self) -> Program | None:
        """The program of all sizes, one bundle with the sizes as parameters; None if each size has its own program."""
        return None if self._symbolic is None else self._symbolic.program

    @property
    def sizes(self) -> list[dict[str, int]]:
        """The sizes of the compiled programs, in the order of compilation."""
        return [dict(zip(self.dims, key, strict=True)) for key in self.programs]

    def program(self, **sizes: int) -> ProgramT:
        """Return the program for the given sizes; compile it on first use.

        Args:
            **sizes: Elements of each dynamic dim, multiples of its granularity.

        Raises:
            CompileError: A size is missing, or is not a multiple of the dim's granularity.
        """
        if sorted(sizes) != sorted(self.dims):
            raise CompileError(f"A program needs a size of each dynamic dim: {', '.join(self.dims)}.")
        key = self._key(sizes)
        for dim, size in zip(self.dims.values(), key, strict=True):
            if dim.bucket(size) != size:
                raise CompileError(
                    f"The size {size} of dim '{dim.name}' is not a multiple of its granularity {dim.granularity}."
                )
        if key not in self.programs:
            self.programs[key] = self._at(sizes) or self._compiled(sizes)
        return self.programs[key]

    def _compiled(self, sizes: Mapping[str, int]) -> ProgramT:
        """Compile a program for these sizes only."""
        # The first program creates the state in its layouts, and the other programs share it.
        shared = {"state": self.state} if self.state else {}
        with self._inputs.at_sizes(sizes) as example:
            return self._compile(self._model, example, **shared)

    def _at(self, sizes: Mapping[str, int]) -> Any:
        """Return the program of all sizes specialized to ``sizes``; None if the model is another program there."""
        if self._symbolic is None:
            return None
        try:
            return self._symbolic.at(sizes)
        except DifferentPrograms as error:
            reason = f"at {_shown(sizes)} the model has a separate bundle: {error.reason}"
            self._reasons.append(_remark(reason, error.location))
            return None

    def _try_symbolic(self, compile: Callable[..., Any]) -> SymbolicProgram | None:
        """Compile the program of all sizes; return None, with a remark, if the model is not one program."""
        try:
            return SymbolicProgram(self._model, self._inputs, self.dims, compile, self._autocast)
        except AlgorithmError:
            raise
        except (DifferentPrograms, CompileError) as error:
            reason = error.reason if isinstance(error, DifferentPrograms) else error.message
            self._reasons.append(_remark(f"each size has a separate bundle: {reason}", error.location))
        return None

    def prices(self) -> list[SizePrice]:
        """Return the price of one bundle for all sizes, at each size requested so far; empty without such a bundle.

        For the comparison, a bundle is compiled for each of these sizes, once.
        """
        for key, program in self.programs.items():
            if program.is_instance and key not in self._prices:
                sizes = dict(zip(self.dims, key, strict=True))
                self._prices[key] = SizePrice.of(sizes, program, self._compiled(sizes))
        return list(self._prices.values())

    @property
    def remarks(self) -> list[Remark]:
        """Remarks on sizes with their own bundle, and on sizes at which the bundle of all sizes is over 10 % slower.

        The second kind needs the comparisons of ``prices``.
        """
        slow = [_remark(str(price), "") for price in self.prices() if price.ratio > _REMARK_RATIO]
        return [*self._reasons, *slow]

    def compile_all(self) -> None:
        """Compile the missing programs of all combinations of sizes."""
        for sizes in product(*(dim.sizes for dim in self.dims.values())):
            self.program(**dict(zip(self.dims, sizes, strict=True)))

    def summary(self) -> str:
        """Return the summaries of all compiled programs, titled by their sizes, without findings, which need trials."""
        pages = zip(self.sizes, self.programs.values(), strict=True)
        return "\n\n".join(f"{_shown(sizes)}\n{program.summary(findings=False)}" for sizes, program in pages)

    def __repr__(self) -> str:
        dims = ", ".join(f"{dim.name} of {dim.granularity} to {dim.max_value}" for dim in self.dims.values())
        compiled = ", ".join(f"({_shown(sizes)})" for sizes in self.sizes)
        return f"<spyre_mlir.DynamicProgram: {dims}; compiled for {compiled or 'no size yet'}>"

    @property
    def state(self) -> DeviceState:
        """The state, which all programs share; see ``Program.state``."""
        if self._symbolic is not None:
            return self._symbolic.program.state
        return next((program.state for program in self.programs.values()), DeviceState())

    def report(self, path: str | Path) -> Path:
        """Write one HTML page with the reports of all compiled programs, titled by their sizes, to ``path``."""
        notes = ["A model with dynamic dims has a program for each size that calls have requested so far."]
        titles = [_shown(sizes) for sizes in self.sizes]
        reports = [
            (title, program.as_report(title))
            for title, program in zip(titles, self.programs.values(), strict=True)
        ]
        return write_page_of_programs(path, notes, reports)

    def save(self, folder: str | Path) -> None:
        """Write the bundle of all sizes; or one folder per program, and ``sizes.json``, which maps sizes to folders.

        Args:
            folder: The output folder; a folder of an earlier ``save`` is replaced.
        """
        if self._symbolic is not None and all(program.is_instance for program in self.programs.values()):
            self._symbolic.program.save(folder)
            return
        names = {key: "-".join(map(str, key)) for key in self.programs}
        with replacing(folder) as fresh:
            for key, program in self.programs.items():
                program.save(fresh / names[key])
            dims = [
                {"name": dim.name, "granularity": dim.granularity, "max_value": dim.max_value}
                for dim in self.dims.values()
            ]
            programs = [
                {"sizes": dict(zip(self.dims, key, strict=True)), "folder": name}
                for key, name in names.items()
            ]
            write_json(fresh / SIZES, {"dims": dims, "programs": programs})

    def _program_for(self, sizes: Mapping[str, int]) -> tuple[ProgramT, dict[str, int]]:
        """Return the program that runs inputs of these sizes, and the sizes for which it is compiled."""
        padded = {name: dim.bucket(sizes[name]) for name, dim in self.dims.items()}
        key = self._key(sizes)
        if padded == sizes:
            return self.program(**padded), padded
        if key not in self.programs:
            try:
                masks = self._padding.prove(sizes, padded, self.state)
                if masks is not None:
                    return self._padded_program(padded, masks), padded
            except DifferentPrograms as error:
                self._reasons.append(
                    _remark(f"{_shown(sizes)} has a separate program: {error.reason}", error.location)
                )
                self._separate += 1
                if self._separate == _MOST_UNWARNED:
                    warnings.warn(
                        f"{_MOST_UNWARNED} sizes have separate programs, the last {_shown(sizes)}: {error.reason}. "
                        "Each further size is compiled; pad inputs to multiples of the granularity.",
                        RecompileWarning,
                        stacklevel=4,
                    )
            self.programs[key] = self._compiled(sizes)
        return self.programs[key], dict(sizes)

    def _padded_program(self, padded: Mapping[str, int], masks: PaddingMasks) -> ProgramT:
        """Return the program of the ``padded`` sizes with ``masks``; ``DifferentPrograms`` if it has other masks."""
        if not masks.arrays:
            return self.program(**padded)
        if self.state:
            raise DifferentPrograms("an operation combines its elements, and the model has state")
        key = self._key(padded)
        if key not in self.masked:
            with self._inputs.at_sizes(padded) as example:
                program = self._compile_marked(
                    self._model, example, mark=lambda imported, _: masks.apply(imported)
                )
            self.masked[key] = program, masks
        program, known = self.masked[key]
        if known.places != masks.places:
            raise DifferentPrograms("its reductions over padding are others than at another size")
        return program

    def _key(self, sizes: Mapping[str, int]) -> Sizes:
        return tuple(sizes[name] for name in self.dims)


def _remark(reason: str, location: str) -> Remark:
    return Remark("compile", location, "", SIZE, reason)


def _shown(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())


# The price of one bundle for all sizes: its time at a size compared with a bundle compiled for this size only.


@dataclass(frozen=True)
class SizePrice:
    """Predicted us at ``sizes`` of the bundle of all sizes, and of a bundle only for them; ``reason`` compares them."""

    sizes: Mapping[str, int]
    us: float
    own_us: float
    reason: str = ""

    @classmethod
    def of(cls, sizes: Mapping[str, int], program: Program, own: Program) -> SizePrice:
        """Compare the program of all sizes, specialized to ``sizes``, with the program compiled only for them."""
        us, own_us = predicted_us(program), predicted_us(own)
        return cls(dict(sizes), us, own_us, _reason(program, own) if us > own_us else "")

    @property
    def ratio(self) -> float:
        """The time of the bundle of all sizes divided by the time of the bundle for these sizes only."""
        return self.us / self.own_us

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} = {size}" for name, size in self.sizes.items())
        own = f"a bundle for this size alone {self.own_us:.1f} us"
        text = f"at {sizes} the bundle of all sizes takes {self.us:.1f} us, {own}"
        return f"{text}: {self.reason}" if self.reason else text


def predicted_us(program: Program) -> float:
    """Return the predicted microseconds of a program."""
    return sum(timeline.total_ns for timeline in program.timelines) / 1000


def _reason(program: Program, own: Program) -> str:
    """Name the opcode on which the program loses most time, and explain the difference."""
    times, own_times = _by_opcode(program), _by_opcode(own)
    losses = {opcode: time - own_times.get(opcode, (0.0, 0))[0] for opcode, (time, _) in times.items()}
    opcode = max(losses, key=lambda name: losses[name])
    (time, cores), (own_time, own_cores) = times[opcode], own_times.get(opcode, (0.0, 0))
    text = f"most of it is '{opcode}', {time:.1f} us instead of {own_time:.1f} us"
    if cores < own_cores:
        return (
            f"{text}, on {cores} cores instead of {own_cores}, because only a step of the size can be divided"
        )
    return f"{text}, which is divided as for the largest size"


def _by_opcode(program: Program) -> dict[str, tuple[float, int]]:
    """Return, by opcode, the total microseconds and the largest number of cores."""
    times: defaultdict[str, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
    for timeline in program.timelines:
        for execution in timeline.executions:
            time, cores = times[execution.opcode]
            times[execution.opcode] = time + execution.total_ns / 1000, max(cores, execution.work.cores)
    return dict(times)


# Symbolic programs: a model as one bundle whose dims are run-time sizes, compiled at the largest sizes.
#
# The model is imported at the largest and at the smallest sizes; everything that differs between the two imports
# depends on a size (``frontend/module_pairs.py``). At the first call with another size the model is imported again,
# because its code may branch on a size. The bundle runs that size only if the import is the same program.


class SymbolicProgram:
    """One program for all sizes of a model's dynamic dims; ``program`` is the program at the largest sizes."""

    def __init__(
        self,
        model: Any,
        inputs: DynamicInputs,
        dims: Mapping[str, DynamicDim],
        compile: Callable[..., Any],
        autocast: Any,
    ) -> None:
        self._model, self._inputs, self._dims, self._autocast = model, inputs, dims, autocast
        self._largest: Imported | None = None
        self._state: Collection[str] = ()
        with inputs.at_sizes(self._sizes("max_value")) as example:
            # The host fallback is disabled: a program of one bundle does not have host functions.
            program = compile(model, example, mark=self._mark)
        if not isinstance(program, Program) or not program.is_one_bundle or not program.bundle.manifest.sizes:
            raise CompileError("the program is not one bundle")
        self.program = program

    def at(self, sizes: Mapping[str, int]) -> Program:
        """Return the program at ``sizes``, called like the model; raise ``DifferentPrograms`` if the model differs."""
        assert self._largest is not None and self._largest.module is not None
        imported = self._largest
        if dict(sizes) != self._sizes("max_value"):
            with compiling_for(self.program.bundle.target):
                imported = self._imported(sizes, self._largest.module.context)
            check_symbolic(imported, self._largest, self._pairs(sizes))
        return specialized(self.program, sizes, imported.signature)

    def _mark(self, largest: Imported, state: Collection[str]) -> None:
        """Mark the parts of the imported model that depend on a size; ``state`` names the state of the program."""
        if largest.module is None:
            raise CompileError("the model computes nothing on the device")
        self._state, smallest = state, self._sizes("granularity")
        imported = self._imported(smallest, largest.module.context)
        # Cloned, because the pipeline changes the module, and later sizes are compared with the original.
        self._largest = replace(largest, module=largest.module.operation.clone())
        mark_symbolic(imported, largest, self._pairs(smallest))

    def _imported(self, sizes: Mapping[str, int], context: Any) -> Imported:
        with self._inputs.at_sizes(sizes) as example:
            captured = capture_torch(self._model, example, self._autocast)
            return import_torch(captured, example, context=context, state=self._state)

    def _sizes(self, which: str) -> dict[str, int]:
        return {name: getattr(dim, which) for name, dim in self._dims.items()}

    def _pairs(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        return {
            name: SizePair(dim.granularity, sizes[name], dim.max_value) for name, dim in self._dims.items()
        }


# Dynamic dims, and the proof that a model may be padded from one size to another.


@dataclass(frozen=True)
class DynamicDim:
    """A dim of ``granularity``, ``2 * granularity``, .. up to ``max_value`` elements."""

    name: str
    granularity: int
    max_value: int

    @classmethod
    def of(cls, name: str, pair: Any) -> DynamicDim:
        """Create a dim from the pair ``(granularity, max_value)``; raise ``CompileError`` for an invalid value."""
        numbers = list(pair) if isinstance(pair, tuple | list) else []
        if len(numbers) != 2 or not all(type(number) is int and number > 0 for number in numbers):
            raise CompileError(
                f"The dynamic dim '{name}' takes two positive numbers, granularity and largest size, not {pair!r}."
            )
        granularity, max_value = numbers
        if max_value % granularity:
            raise CompileError(
                f"The largest size {max_value} of dim '{name}' is not a multiple of its granularity {granularity}."
            )
        return cls(name, granularity, max_value)

    def bucket(self, size: int) -> int:
        """Round a size up to a multiple of the granularity; raise ``CompileError`` above ``max_value``."""
        if not 0 < size <= self.max_value:
            raise CompileError(f"Dim '{self.name}' has size {size}, but at most {self.max_value}.")
        return -(-size // self.granularity) * self.granularity

    @property
    def sizes(self) -> range:
        """All sizes that a program can be compiled for."""
        return range(self.granularity, self.max_value + 1, self.granularity)


class PaddingProofs:
    """The sizes at which padding a model is proven safe, with the imported model at each of them."""

    def __init__(self, model: Any, inputs: DynamicInputs, autocast: Any) -> None:
        self._model, self._inputs, self._autocast = model, inputs, autocast
        #: The imported model and the masks of padding, by the sizes for which ``prove`` has returned masks.
        self.proven: dict[frozenset[tuple[str, int]], tuple[Imported, PaddingMasks]] = {}

    def prove(
        self, sizes: Mapping[str, int], padded: Mapping[str, int], state: DeviceState
    ) -> PaddingMasks | None:
        """Return the masks with which the program of the padded sizes is correct for ``sizes``.

        Raise ``DifferentPrograms`` if this is not proven. Return None for sizes at which a result is empty, because
        the device program does not return empty results.
        """
        key = frozenset(sizes.items())
        if key in self.proven:
            return self.proven[key][1]
        # Both modules are in one context, so that their attributes and types can be compared.
        context, imported = new_context(), []
        for dim_sizes in (sizes, padded):
            with self._inputs.at_sizes(dim_sizes) as example:
                captured = capture_torch(self._model, example, self._autocast)
                imported.append(import_torch(captured, example, context=context, state=state))
        if len(imported[0].signature.results) < len(imported[1].signature.results):
            return None
        masks = check_padding_safety(*imported, has_masks=True)
        if any(argument.name in masks.arrays for argument in imported[0].arguments):
            raise DifferentPrograms("an argument of the model has the name of a mask")
        self.proven[key] = imported[0], masks
        return masks
