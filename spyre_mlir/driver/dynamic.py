# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs for many sizes: ``spyre_mlir.compile(model, inputs, dynamic={"S": (64, 4096)})``.

Where the model is the same program at every size, one bundle runs all of them: it takes the sizes as parameters
(``symbolic_program.py``). Else a dynamic dim has a program per multiple of its granularity, compiled when a call first
needs it. A call of another size is padded to the next multiple where that is proven to change no number
(``frontend/padding_safety.py``), and is an error elsewhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from spyre_mlir.bundle.folder import SIZES
from spyre_mlir.bundle.json_fields import write_json
from spyre_mlir.bundle.replacing import replacing
from spyre_mlir.dialects import context as new_context
from spyre_mlir.driver.program import Program
from spyre_mlir.driver.program_figures import ProgramFigures
from spyre_mlir.driver.report_files import write_page_of_programs
from spyre_mlir.errors import AlgorithmError, CompileError
from spyre_mlir.faults import entry_points
from spyre_mlir.records import dataclass
from spyre_mlir.remarks import SIZE, Remark
from spyre_mlir.report.program_report import ProgramReport
from spyre_mlir.target.target import compiling_for
from spyre_mlir.tensors.device_state import DeviceState

if TYPE_CHECKING:
    from spyre_mlir.frontend.dynamic_inputs import DynamicInputs
    from spyre_mlir.frontend.importer import Imported


__all__ = ["DynamicDim", "DynamicProgram"]


#: Sizes of the dynamic dims, in the order of the option.
Sizes = tuple[int, ...]


class StaticProgram(Protocol):
    """A program of one size, as ``DynamicProgram`` uses it; ``program.Program`` is one."""

    #: Whether it is the program of all sizes at some.
    is_instance: bool
    state: DeviceState

    def __call__(self, *inputs: Any, **named: Any) -> Any: ...
    def call(self, operands: Any, finish: Any) -> Any: ...
    def summary(self, *, findings: bool = True) -> str: ...
    def save(self, folder: str | Path) -> None: ...
    def as_report(self, name: str) -> ProgramReport: ...


#: A bundle of all sizes that takes this many times as long as one of the size alone is worth a remark.
_DEAR = 1.1

ProgramT = TypeVar("ProgramT", bound=StaticProgram)


@entry_points
class DynamicProgram(Generic[ProgramT]):
    """A model compiled for some sizes of its dynamic dims: call it like the model.

    Attributes:
        dims: The dynamic dims by name, with granularity and largest size in elements.
        programs: The programs of sizes that calls have wanted, by the sizes in the order of ``dims``.
        last: The program of the last call.
    """

    def __init__(
        self,
        model: Any,
        example_inputs: Sequence[Any] | Mapping[str, Any],
        dynamic: Mapping[str, tuple[int, int]],
        compile: Callable[..., ProgramT],
        compile_symbolic: Callable[..., Any] | None = None,
        autocast: Any = None,
        occurrences: Sequence[Any] = (),
    ) -> None:
        """Create a program for the sizes of the example inputs; ``spyre_mlir.compile`` does.

        Args:
            model: The model.
            example_inputs: A tuple, or a mapping for keyword inputs.
            dynamic: Granularity and largest size of each dynamic dim.
            compile: ``compile(model, inputs)`` makes a program of one size.
            compile_symbolic: It makes that of all sizes, if it is wanted.
            autocast: As ``spyre_mlir.compile`` takes it.
            occurrences: The dims in the inputs, if no names say them.

        Raises:
            CompileError: There is no dim, or a size is no multiple of its granularity.
        """
        from spyre_mlir.frontend.dynamic_inputs import DynamicInputs

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
        self._symbolic: SymbolicProgram | None = None
        if compile_symbolic is not None:
            self._symbolic = self._try_symbolic(compile_symbolic)
        # Compiled at once: a model that cannot be compiled is an error here, and not at the first call.
        self._program_for(self._inputs.example_sizes)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Run the program for the sizes of the ``inputs`` and ``named`` inputs, which is compiled on first use."""
        sizes = self._inputs.sizes(inputs, named)
        self.last, padded = program, _ = self._program_for(sizes)
        if padded == sizes:
            return program(*inputs, **named)
        unpadded = self._padding.imported(sizes)
        return program.call(*self._inputs.padded(unpadded, inputs, named, padded, self.state))

    @property
    def symbolic(self) -> Program | None:
        """The program of all sizes, one bundle whose parameters the sizes are; None where each size has its own."""
        return None if self._symbolic is None else self._symbolic.program

    @property
    def sizes(self) -> list[dict[str, int]]:
        """The sizes of the compiled programs, in the order of compilation."""
        return [dict(zip(self.dims, key, strict=True)) for key in self.programs]

    def program(self, **sizes: int) -> ProgramT:
        """Return the program for sizes; compile it on first use.

        Args:
            **sizes: Elements of each dynamic dim, multiples of its granularity.

        Raises:
            CompileError: A dim has no size, or one that is no multiple of its granularity.
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
        """Compile the program of these sizes alone."""
        # The first program lays the state out, and the others share it.
        shared = {"state": self.state} if self.state else {}
        with self._inputs.at_sizes(sizes) as example:
            return self._compile(self._model, example, **shared)

    def _at(self, sizes: Mapping[str, int]) -> Any:
        """Return the program of all sizes at these; None where there is none, or the model is another one at them."""
        from spyre_mlir.frontend.module_pairs import DifferentPrograms

        if self._symbolic is None:
            return None
        try:
            return self._symbolic.at(sizes)
        except DifferentPrograms as error:
            reason = f"at {_shown(sizes)} the model has a bundle of its own: {error.reason}"
            self._reasons.append(_remark(reason, error.location))
            return None

    def _try_symbolic(self, compile: Callable[..., Any]) -> SymbolicProgram | None:
        """Compile the program of all sizes; None, with a remark, where the model is not one program."""
        from spyre_mlir.frontend.module_pairs import DifferentPrograms

        try:
            return SymbolicProgram(self._model, self._inputs, self.dims, compile, self._autocast)
        except AlgorithmError:
            raise
        except DifferentPrograms as error:
            self._reasons.append(
                _remark(f"each size has a bundle of its own: {error.reason}", error.location)
            )
        except CompileError as error:
            self._reasons.append(
                _remark(f"each size has a bundle of its own: {error.message}", error.location)
            )
        return None

    def prices(self) -> list[SizePrice]:
        """Return what one bundle for all sizes costs at each size that calls have wanted; none without such a bundle.

        A bundle is compiled for each of these sizes, once, to compare with.
        """
        for key, program in self.programs.items():
            if program.is_instance and key not in self._prices:
                sizes = dict(zip(self.dims, key, strict=True))
                compared = cast("tuple[ProgramFigures, ProgramFigures]", (program, self._compiled(sizes)))
                self._prices[key] = SizePrice.of(sizes, *compared)
        return list(self._prices.values())

    @property
    def remarks(self) -> list[Remark]:
        """The sizes that have bundles of their own, and why; and those at which one for all takes over a tenth longer.

        The latter are found by ``prices``.
        """
        dear = [_remark(str(price), "") for price in self.prices() if price.ratio > _DEAR]
        return [*self._reasons, *dear]

    def compile_all(self) -> None:
        """Compile the missing programs of all combinations of sizes."""
        for sizes in product(*(dim.sizes for dim in self.dims.values())):
            self.program(**dict(zip(self.dims, sizes, strict=True)))

    def summary(self) -> str:
        """Return the summaries of all compiled programs, under their sizes, without findings, which need trials."""
        pages = zip(self.sizes, self.programs.values(), strict=True)
        return "\n\n".join(f"{_shown(sizes)}\n{program.summary(findings=False)}" for sizes, program in pages)

    def __repr__(self) -> str:
        dims = ", ".join(f"{dim.name} of {dim.granularity} to {dim.max_value}" for dim in self.dims.values())
        compiled = ", ".join(f"({_shown(sizes)})" for sizes in self.sizes)
        return f"<spyre_mlir.DynamicProgram: {dims}; compiled for {compiled or 'no size yet'}>"

    @property
    def state(self) -> DeviceState:
        """The state that all programs share; see ``Program.state``."""
        if self._symbolic is not None:
            return self._symbolic.program.state
        return next((program.state for program in self.programs.values()), DeviceState())

    def report(self, path: str | Path) -> Path:
        """Write one page of HTML with those of all compiled programs, under their sizes, to exactly this ``path``."""
        notes = ["A model with dynamic dims has a program for each size that calls have wanted so far."]
        titles = [_shown(sizes) for sizes in self.sizes]
        reports = [
            (title, program.as_report(title))
            for title, program in zip(titles, self.programs.values(), strict=True)
        ]
        return write_page_of_programs(path, notes, reports)

    def save(self, folder: str | Path) -> None:
        """Write the bundle of all sizes; or a folder per program, and ``sizes.json``, which maps sizes to folders.

        Args:
            folder: The folder, which takes the place of one that this wrote before.
        """
        if self._symbolic is not None and all(program.is_instance for program in self.programs.values()):
            self._symbolic.program.save(folder)
            return
        names = {key: "-".join(map(str, key)) for key in self.programs}
        with replacing(folder) as fresh:
            for key, program in self.programs.items():
                program.save(fresh / names[key])
            write_json(fresh / SIZES, self._index(names))

    def _index(self, names: Mapping[Sizes, str]) -> dict[str, Any]:
        return {
            "dims": [
                {"name": dim.name, "granularity": dim.granularity, "max_value": dim.max_value}
                for dim in self.dims.values()
            ],
            "programs": [
                {"sizes": dict(zip(self.dims, key, strict=True)), "folder": name}
                for key, name in names.items()
            ],
        }

    def _program_for(self, sizes: Mapping[str, int]) -> tuple[ProgramT, dict[str, int]]:
        """Return the program that runs inputs of these sizes, and the sizes that it is compiled for."""
        padded = {name: dim.bucket(sizes[name]) for name, dim in self.dims.items()}
        key = self._key(sizes)
        is_known = padded == sizes or key in self.programs
        if not is_known and not self._padding.prove(self.dims, sizes, padded, self.state):
            self.programs[key] = self._compiled(sizes)
        return (self.programs[key], dict(sizes)) if key in self.programs else (self.program(**padded), padded)

    def _key(self, sizes: Mapping[str, int]) -> Sizes:
        return tuple(sizes[name] for name in self.dims)


def _remark(reason: str, location: str) -> Remark:
    return Remark("compile", location, "", SIZE, reason)


def _shown(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())


# The price of one bundle for all sizes: its time at a size beside that of a bundle made for this size alone.


@dataclass(frozen=True)
class SizePrice:
    """Predicted microseconds of a program at ``sizes``, and of one compiled for them; ``reason`` says what differs."""

    sizes: Mapping[str, int]
    us: float
    own_us: float
    reason: str = ""

    @classmethod
    def of(cls, sizes: Mapping[str, int], program: ProgramFigures, own: ProgramFigures) -> SizePrice:
        """Compare the program of all sizes, at some, with that of these sizes alone."""
        us, own_us = predicted_us(program), predicted_us(own)
        return cls(dict(sizes), us, own_us, _reason(program, own) if us > own_us else "")

    @property
    def ratio(self) -> float:
        """How many times as long the bundle of all sizes takes."""
        return self.us / self.own_us

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} = {size}" for name, size in self.sizes.items())
        text = f"at {sizes} the bundle of all sizes takes {self.us:.1f} us, one made for that {self.own_us:.1f} us"
        return f"{text}: {self.reason}" if self.reason else text


def predicted_us(program: ProgramFigures) -> float:
    """Return the predicted microseconds of a program."""
    return sum(timeline.total_ns for timeline in program.timelines) / 1000


def _reason(program: ProgramFigures, own: ProgramFigures) -> str:
    """Name the operation on which the program loses most, and the cores that it has in both."""
    times, own_times = _by_opcode(program), _by_opcode(own)
    losses = {opcode: time - own_times.get(opcode, (0.0, 0))[0] for opcode, (time, _) in times.items()}
    opcode = max(losses, key=lambda name: losses[name])
    (time, cores), (own_time, own_cores) = times[opcode], own_times.get(opcode, (0.0, 0))
    text = f"most of it is '{opcode}', {time:.1f} us in place of {own_time:.1f} us"
    if cores < own_cores:
        return f"{text}, on {cores} cores in place of {own_cores}, as only a step of the size can be divided"
    return f"{text}, which is divided as for the largest size"


def _by_opcode(program: ProgramFigures) -> dict[str, tuple[float, int]]:
    """Return the microseconds and the most cores of all operations of each kind."""
    times: defaultdict[str, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
    for timeline in program.timelines:
        for execution in timeline.executions:
            time, cores = times[execution.opcode]
            times[execution.opcode] = time + execution.total_ns / 1000, max(cores, execution.work.cores)
    return dict(times)


# A model as one bundle whose dims follow run-time sizes: compiled at the largest, run at each.
#
# The model is imported at the largest and at the smallest sizes; what differs between the two follows a size
# (``frontend/symbolic_modules.py``). At the first call of each other size it is imported once more, because its code
# may branch on a size: only if that is the same program does the bundle run it.


class SizeRange(Protocol):
    """The sizes of a dynamic dim; ``dynamic.DynamicDim`` is one."""

    @property
    def granularity(self) -> int: ...

    @property
    def max_value(self) -> int: ...


class SymbolicProgram:
    """The program of a model for all sizes of its dynamic dims: ``program`` is that of the largest."""

    def __init__(
        self,
        model: Any,
        inputs: DynamicInputs,
        dims: Mapping[str, SizeRange],
        compile: Callable[..., Any],
        autocast: Any,
    ) -> None:
        self._model, self._inputs, self._dims, self._autocast = model, inputs, dims, autocast
        self._largest: Imported | None = None
        self._state: Collection[str] = ()
        with inputs.at_sizes(self._sizes("max_value")) as example:
            # The host has no part in one bundle.
            program = compile(model, example, mark=self._mark, fallback=False)
        if not isinstance(program, Program) or not program.is_one_bundle or not program.bundle.manifest.sizes:
            raise CompileError("the program is not one bundle")
        self.program = program

    def at(self, sizes: Mapping[str, int]) -> Program:
        """Return the program at these sizes, called as the model is; ``DifferentPrograms`` where it is another one."""
        # These import torch.
        from spyre_mlir.driver.model_program import bind_inputs
        from spyre_mlir.frontend.symbolic_modules import check_symbolic

        assert self._largest is not None and self._largest.module is not None
        imported = self._largest
        if dict(sizes) != self._sizes("max_value"):
            with compiling_for(self.program.bundle.target):
                imported = self._imported(sizes, self._largest.module.context)
            check_symbolic(imported, self._largest, self._pairs(sizes))
        program = self.program.at(**sizes)
        # Weights and constants have their largest sizes.
        bind_inputs(program, imported.signature)
        return program

    def _mark(self, largest: Imported, state: Collection[str]) -> None:
        """Mark what of the imported model follows a size; ``state`` is what the model keeps on the device."""
        from spyre_mlir.frontend.symbolic_modules import mark_symbolic

        if largest.module is None:
            raise CompileError("the model computes nothing on the device")
        self._state, smallest = state, self._sizes("granularity")
        imported = self._imported(smallest, largest.module.context)
        # The pipeline changes the module, and later sizes are compared with it as it came.
        self._largest = replace(largest, module=largest.module.operation.clone())
        mark_symbolic(imported, largest, self._pairs(smallest))

    def _imported(self, sizes: Mapping[str, int], context: Any) -> Imported:
        from spyre_mlir.frontend import capture_torch, import_torch

        with self._inputs.at_sizes(sizes) as example:
            captured = capture_torch(self._model, example, self._autocast)
            return import_torch(captured, example, context=context, state=self._state)

    def _sizes(self, which: str) -> dict[str, int]:
        return {name: getattr(dim, which) for name, dim in self._dims.items()}

    def _pairs(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        from spyre_mlir.frontend.symbolic_modules import SizePair

        return {
            name: SizePair(dim.granularity, sizes[name], dim.max_value) for name, dim in self._dims.items()
        }


# Dims of many sizes, and the proof that a model may be padded from one size to another.


@dataclass(frozen=True)
class DynamicDim:
    """A dim of ``granularity``, ``2 * granularity``, .. up to ``max_value`` positions."""

    name: str
    granularity: int
    max_value: int

    @classmethod
    def of(cls, name: str, pair: Any) -> DynamicDim:
        """Create a dim from the pair ``(granularity, max_value)`` of a user; ``CompileError`` for anything else."""
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
        """Round a size up to a multiple of the granularity; ``CompileError`` above ``max_value``."""
        if not 0 < size <= self.max_value:
            raise CompileError(f"Dim '{self.name}' has size {size}, but at most {self.max_value}.")
        return -(-size // self.granularity) * self.granularity

    @property
    def sizes(self) -> range:
        """All sizes that a program can be compiled for."""
        return range(self.granularity, self.max_value + 1, self.granularity)


class PaddingProofs:
    """The sizes at which a model may be padded, with the model at each of them."""

    def __init__(self, model: Any, inputs: DynamicInputs, autocast: Any) -> None:
        self._model, self._inputs, self._autocast = model, inputs, autocast
        self._imports: dict[frozenset[tuple[str, int]], Imported] = {}

    def imported(self, sizes: Mapping[str, int]) -> Imported:
        """Return the model at sizes for which ``prove`` has held."""
        return self._imports[frozenset(sizes.items())]

    def prove(
        self,
        dims: Mapping[str, DynamicDim],
        sizes: Mapping[str, int],
        padded: Mapping[str, int],
        state: DeviceState,
    ) -> bool:
        """Prove that the program of the padded sizes is right for these; ``CompileError`` where it may not be.

        Return False for sizes at which a result is empty: such a result is not one of the device.
        """
        from spyre_mlir.frontend import capture_torch, import_torch
        from spyre_mlir.frontend.module_pairs import DifferentPrograms
        from spyre_mlir.frontend.padding_safety import check_padding_safety

        key = frozenset(sizes.items())
        if key in self._imports:
            return True
        # In one context, so that attributes and types of both modules compare.
        context, imported = new_context(), []
        for dim_sizes in (sizes, padded):
            with self._inputs.at_sizes(dim_sizes) as example:
                captured = capture_torch(self._model, example, self._autocast)
                imported.append(import_torch(captured, example, context=context, state=state))
        if len(imported[0].signature.results) < len(imported[1].signature.results):
            return False
        try:
            check_padding_safety(*imported)
        except DifferentPrograms as error:
            raise CompileError(_refusal(dims, sizes, padded, error.reason), error.location) from None
        self._imports[key] = imported[0]
        return True


def _refusal(
    dims: Mapping[str, DynamicDim], sizes: Mapping[str, int], padded: Mapping[str, int], reason: str
) -> str:
    """Return the message for a size that is between two multiples, and cannot be padded for a reason."""
    dim = next(dim for name, dim in dims.items() if sizes[name] != padded[name])
    return (
        f"Dim '{dim.name}' has size {sizes[dim.name]}, which is not a multiple of its granularity "
        f"{dim.granularity} (at most {dim.max_value}), and it cannot be padded: {reason}."
    )
