# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The search for findings: propose changes from the figures of a program, and try the changes that may pay."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple, TypeAlias

from spyre_mlir.bundle.model import Bundle, KernelArgument
from spyre_mlir.errors import counted
from spyre_mlir.records import dataclass
from spyre_mlir.remarks import HOST, TOO_SMALL, Remark
from spyre_mlir.report.findings import ProgramFinding
from spyre_mlir.report.program_facts import Operation, ProgramFacts

# A compiled program as input of the search for findings: only figures and names.


@dataclass(frozen=True)
class Resize:
    """Change the size of every dim of the inputs that has ``size`` elements."""

    size: int
    to: int


@dataclass(frozen=True)
class Batch:
    """Multiply the number of samples by ``times`` in every input whose first dim has ``size`` elements."""

    size: int
    times: int


class InputKey(NamedTuple):
    """Key of an input: its index among the tensors of a call, and its name, the key in a mapping of inputs."""

    position: int
    name: str


@dataclass(frozen=True)
class Freeze:
    """Make the given example inputs buffers of the model."""

    inputs: tuple[InputKey, ...]


@dataclass(frozen=True)
class Halve:
    """Convert the model and its inputs from wider floating-point types to float16."""


@dataclass(frozen=True)
class MovedStick:
    """Give a device tensor among the inputs the stick dim ``stick_dim``."""

    input: InputKey
    stick_dim: int


@dataclass(frozen=True)
class Untranspose:
    """Remove the model's transposes in the functions that contain ``lines``, each a file and a line number."""

    lines: tuple[tuple[str, int], ...]


ModelEdit: TypeAlias = Resize | Batch | Freeze | Halve | MovedStick | Untranspose


@dataclass(frozen=True)
class Remedy:
    """A change with the problem that it solves.

    ``problem`` and ``cause`` are sentences; ``text`` is what the user has to write. ``options`` are the options of
    ``compile`` that change, ``edit`` is the change of the model and its inputs. ``most_ns`` is roughly the most that
    the change can save; it orders the trials. Changes with the same ``kind`` are alternatives, of which only the best
    is reported. ``module`` and ``location`` say where the problem is, if that is known without a trial. ``samples`` is
    the factor by which the samples of a run grow: times are then divided by it.
    """

    kind: str
    problem: str
    cause: str
    text: str
    most_ns: float
    options: Mapping[str, Any] = field(default_factory=dict)
    edit: ModelEdit | None = None
    module: str = ""
    location: str = ""
    samples: int = 1


#: Rates of the host: float operations per nanosecond, and bytes per nanosecond between host and device. Both are
#: assumptions about a server, not measurements (docs/findings.md): findings about the host need a cost.
HOST_FLOPS_PER_NS = 100.0
HOST_BYTES_PER_NS = 16.0


@dataclass(frozen=True)
class HostWork:
    """The host's part of a call: float operations, all operations, and bytes moved to and from its steps."""

    float_operations: int = 0
    operations: int = 0
    moved_bytes: int = 0

    @property
    def ns(self) -> float:
        """The assumed time of the work."""
        return self.float_operations / HOST_FLOPS_PER_NS + self.moved_bytes / HOST_BYTES_PER_NS


@dataclass(frozen=True)
class ExampleInput:
    """An input of a model: its index among the tensors of a call, its name, its shape, and its type on the host.

    If ``is_on_device``, the input is a ``DeviceTensor``, whose layout the caller chose.
    """

    position: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    is_on_device: bool = False

    @property
    def key(self) -> InputKey:
        """Key by which an edit of the inputs finds this input."""
        return InputKey(self.position, self.name)


@dataclass(frozen=True)
class PlannedProgram:
    """A compiled program with the inputs and options that it was compiled for.

    ``parts`` are the bundles with their facts, ``inputs`` the example inputs of a call, ``options`` the options of
    ``compile`` that the caller set. ``is_model`` is true for a PyTorch model, whose inputs can change.
    """

    parts: Sequence[tuple[Bundle, ProgramFacts]]
    device_ns: float
    host: HostWork
    remarks: Sequence[Remark]
    inputs: Sequence[ExampleInput]
    result_shapes: Sequence[tuple[int, ...]]
    options: Mapping[str, Any]
    is_model: bool

    @property
    def ns(self) -> float:
        """Time of one call: predicted time on the device plus assumed time on the host."""
        return self.device_ns + self.host.ns

    @property
    def device_cores(self) -> int:
        """Number of cores of the device."""
        return max((bundle.target.device_cores for bundle, _ in self.parts), default=1)

    @property
    def host_remarks(self) -> list[Remark]:
        """The operations that the host runs, with the reasons."""
        return [remark for remark in self.remarks if remark.kind == HOST]

    @property
    def operations(self) -> Iterator[Operation]:
        """The operations of all bundles."""
        for _, facts in self.parts:
            yield from facts.operations

    def by_module(self) -> dict[str, float]:
        """Return the device time in ns of each module path."""
        times: dict[str, list[float]] = {}
        for operation in self.operations:
            times.setdefault(operation.module, []).append(operation.execution.total_ns)
        return {module: math.fsum(values) for module, values in times.items()}

    def arguments(self) -> Iterator[tuple[KernelArgument, list[Operation]]]:
        """Yield each argument of a bundle with the operations that read or write the argument or a copy of it."""
        for bundle, facts in self.parts:
            for argument in bundle.manifest.arguments:
                buffers = bundle.manifest.buffers
                copies = {buffer.name for buffer in buffers if buffer.base == argument.parameter}
                accessing = []
                for operation in facts.operations:
                    if copies.isdisjoint(operation.buffers):
                        continue
                    accessing.append(operation)
                    if operation.category == "clone" and operation.buffers[0] in copies:
                        copies.add(operation.buffers[-1])
                yield argument, accessing


#: Changes of the rows of a call: for few rows, more samples are the only remedy.
_FEW, _MORE = "few rows", "more samples"

#: Maximum number of operations, of reasons, and of lines of a source that a sentence names.
_NAMED, _REASONS, _LINES = 3, 2, 3


def _ns(operations: Iterable[Operation]) -> float:
    return math.fsum(operation.execution.total_ns for operation in operations)


def _longest(operations: Iterable[Operation]) -> list[Operation]:
    """Return operations by falling time."""
    return sorted(operations, key=lambda operation: -operation.execution.total_ns)


# -- options of the caller, each tried with its default ----------------------------------------------------------

#: Options of ``compile`` that define the program or the part of the device that it may use; they are not tried.
_MEANING = frozenset({
    "device", "sencores", "lx_frac_avail", "numerics", "layouts", "plan", "fallback", "autocast", "cache", "insert",
    "passes", "use_plan", "save_plan", "from_level", "verify_each", "reuse", "dynamic",
})  # fmt: skip


def _costly_options(program: PlannedProgram) -> Iterator[Remedy]:
    """Yield the default of each option that the caller set to another value."""
    for name, value in program.options.items():
        if name in _MEANING or value is None:
            continue
        yield Remedy(
            f"option {name}",
            f"The option {name}={value!r} makes the program slower than its default does.",
            "It was given to compile.",
            f"leave out {name}={value!r}",
            program.ns,
            {name: None},
        )


# -- types: host work moves to the device, and tensors wider than fp16 need fewer bytes ----------------------------


def _host_work(program: PlannedProgram) -> Iterator[Remedy]:
    """Yield changes of types, and inputs that may be buffers, for a program that runs partly on the host."""
    if not program.is_model or not program.host.operations:
        return
    first = program.host_remarks[0] if program.host_remarks else None
    module, location = (first.module, first.op_location) if first else ("", "")
    problem = f"The host runs {program.host.operations:,} operations of each call"
    if program.host.float_operations:
        problem += f", {program.host.float_operations:,} calculations with floats"
    reasons = Counter(
        f"{remark.op_name}: {remark.reason.partition(';')[0]}"
        for remark in program.host_remarks
        if remark.reason != TOO_SMALL
    )
    named = [f"{count:,} x {reason}" for reason, count in reasons.most_common(_REASONS)]
    more = f", and {len(reasons) - _REASONS} more reasons" if len(reasons) > _REASONS else ""
    cause = f"The device cannot run them: {', '.join(named)}{more}."

    def remedy(text: str, **change: Any) -> Remedy:
        about = "work on the host", f"{problem}.", cause, text, program.ns
        return Remedy(*about, **change, module=module, location=location)

    if program.options.get("autocast") is None:
        text = "spyre_mlir.compile(model, inputs, autocast=torch.float16)"
        yield remedy(text, options={"autocast": "float16"})
    yield remedy("model.half(), called with inputs of torch.float16", edit=Halve())
    whole = [value for value in program.inputs if "int" in value.dtype or value.dtype == "bool"]
    if whole and len(whole) < len(program.inputs):
        names = ", ".join(f"'{value.name}'" for value in whole)
        be, it = ("is", "it") if len(whole) == 1 else ("are", "them")
        text = (
            f"if {names} {be} the same at each call: keep what the model computes of {it} in a buffer,"
            " self.register_buffer(..)"
        )
        yield remedy(text, edit=Freeze(tuple(value.key for value in whole)))


def _wide_types(program: PlannedProgram) -> Iterator[Remedy]:
    """Yield the model in float16 for a program that runs on the device and has wider arguments."""
    wide = {
        argument.array_name: argument.bytes
        for argument, _ in program.arguments()
        if argument.host_dtype in ("float32", "float64") and argument.kind in ("input", "parameter")
    }
    if not program.is_model or not wide or program.host.operations:
        return
    largest = sorted(wide, key=lambda name: -wide[name])[:_REASONS]
    yield Remedy(
        "wide types",
        f"The program has {counted(len(wide), 'argument')} wider than fp16: {sum(wide.values()):,} bytes of each call.",
        f"A float32 element takes twice the bytes of an fp16 element; the largest: {', '.join(largest)}.",
        "model.half(), called with inputs of torch.float16",
        program.ns,
        edit=Halve(),
    )


# -- masks of the host, which may become buffers: a plan can then see the values that they hide --------------------

#: Minimum number of elements of a mask along each of its dims.
_LEAST_MASK = 16


def _masks_from_the_host(program: PlannedProgram) -> Iterator[Remedy]:
    """Yield each mask of attention among the inputs as a buffer."""
    if not program.is_model or len(program.inputs) == 1:
        return
    for value in program.inputs:
        # A mask by its name or type, with many keys for many queries.
        is_large = len(value.shape) >= 2 and min(value.shape[-2:]) >= _LEAST_MASK
        if not is_large or not (value.dtype == "bool" or "mask" in value.name):
            continue
        reading = [
            operation
            for argument, operations in program.arguments()
            if argument.array_name == value.name
            for operation in operations
        ]
        if not reading:
            continue
        attention = _ns(operation for operation in program.operations if operation.category == "matmul")
        yield Remedy(
            "mask from the host",
            f"The mask '{value.name}' is an input of each call, so it is read like any other tensor.",
            "Its values are unknown at compile time, so masked elements are computed too.",
            f"self.register_buffer('{value.name}', {value.name}), or is_causal=True where it is the causal mask",
            _ns(reading) + attention / 2,
            edit=Freeze((value.key,)),
        )


# -- layouts of arguments whose readers convert them or reduce along their sticks ----------------------------------

#: Minimum size in bytes of arguments that are tried: smaller ones cost little in any layout.
_LEAST_BYTES = 1 << 15


def _argument_layouts(program: PlannedProgram) -> Iterator[Remedy]:
    """Yield the other stick dims of each large argument that is converted, or reduced along its stick."""
    if not program.is_model:
        return
    given = program.options.get("layouts") or {}
    for argument, operations in program.arguments():
        waiting = [
            operation
            for operation in operations
            if operation.execution.is_restickify or _reduces_sticks(operation)
        ]
        if argument.kind == "constant" or argument.bytes < _LEAST_BYTES or not waiting or argument.source:
            continue
        words = dict.fromkeys(
            "converted" if operation.execution.is_restickify else "reduced along its sticks"
            for operation in waiting
        )
        longest, stick_dim = _longest(waiting)[0], _stick_dim(argument)
        about = (
            f"layout of an argument {argument.name}",
            f"The {argument.kind} '{argument.name}' is {' and '.join(words)} at each call.",
            f"Its stick dim is dim {stick_dim}; the longest of these operations is {longest.opcode}, "
            f"{longest.execution.total_ns / 1000:,.1f} us.",
        )
        on_device = {value.name: value.key for value in program.inputs if value.is_on_device}
        for dim, size in enumerate(argument.host_shape):
            if size == 1 or dim == stick_dim:
                continue
            if argument.name in on_device:
                text = f"spyre_mlir.to_device({argument.name}, stick_dims=[{dim}])"
                edit = MovedStick(on_device[argument.name], dim)
                yield Remedy(*about, text, _ns(waiting), edit=edit)
                continue
            layouts = {**given, argument.name: {"stick_dims": [dim]}}
            text = f"spyre_mlir.compile(model, inputs, layouts={layouts!r})"
            yield Remedy(*about, text, _ns(waiting), {"layouts": layouts})


def _reduces_sticks(operation: Operation) -> bool:
    """Return whether an operation reduces the stick dim of its first operand."""
    first, *_, last = operation.design.operands
    return operation.category == "reduction" and last.scale.get(first.stick_dim, 1) != 1


def _stick_dim(argument: KernelArgument) -> int:
    """Return the host dim whose elements are adjacent in a stick; -1 if there is none."""
    strides = argument.transfer.host_strides
    innermost, stride = strides[-1] if strides else 0, 1
    for dim in reversed(range(len(argument.host_shape))):
        if innermost == stride and argument.host_shape[dim] > 1:
            return dim
        stride *= argument.host_shape[dim]
    return -1


def _transposes(program: PlannedProgram) -> Iterator[Remedy]:
    """Yield the model without the transposes whose results are converted."""
    converting = [
        operation
        for operation in program.operations
        if operation.execution.is_restickify and operation.origin.file
    ]
    if not program.is_model or not converting:
        return
    lines = sorted({(operation.origin.file, operation.origin.line) for operation in converting})
    names = [f"{file.rpartition('/')[2]}:{line}" for file, line in lines]
    more = f" and {len(names) - _LINES} more lines" if len(names) > _LINES else ""
    most = _ns(operation for operation in program.operations if operation.category == "clone")
    most += _ns(converting)
    runs = sum(operation.runs for operation in converting)
    yield Remedy(
        "transposes",
        f"Transposes cause {counted(runs, 'conversion')} of sticks, {most / 1000:,.1f} us with the copies around them.",
        f"{_longest(converting)[0].opcode} converts from the stick dim of a writer to the stick dim of a reader; each"
        " transpose changes the stick dim.",
        f"compute in one order of dims: leave out the transposes in the functions around {', '.join(names[:_LINES])}"
        f"{more}, and transpose inputs or weights once, before the call",
        most,
        edit=Untranspose(tuple(lines)),
    )


# -- work for idle cores: unequal slices, more rows, more samples in a call ----------------------------------------

#: Factor by which a trial multiplies the samples of a call, and most samples of a call that a trial multiplies.
_TIMES, _MOST_SAMPLES = 8, 16
#: Besides multiples of the number of cores, trials round a number of rows to multiples of these: the rows of a step
#: of the matrix unit, and the fp16 numbers in a stick.
_STEP, _STICK = 8, 64
#: Rows with which a core's matrix unit attains most of its rate (docs/cost.md).
_FULL_ROWS = 64


def _idle_cores(program: PlannedProgram) -> Iterator[Remedy]:
    """Yield unequal slices, and other numbers of rows, for a program whose operations leave cores idle."""
    cores = program.device_cores
    idle = [operation for operation in program.operations if operation.cores < cores]
    lost = math.fsum(operation.execution.total_ns * (1 - operation.cores / cores) for operation in idle)
    longest = _longest(idle)[:_NAMED]
    names = ", ".join(
        f"{operation.opcode} ({operation.cores} of {operation.design.target.device_cores} cores)"
        for operation in longest
    )
    names += f" and {len(idle) - _NAMED} more operations" if len(idle) > _NAMED else ""
    divided = "; ".join(dict.fromkeys(operation.slices or "one core" for operation in longest))
    problem = f"{names} {'leaves' if len(idle) == 1 else 'leave'} cores idle."
    cause = f"Slices of equal size do not use all {cores} cores: {divided}."
    if lost and not program.options.get("uneven_splits"):
        text = "spyre_mlir.compile(model, inputs, uneven_splits=True)"
        yield Remedy("idle cores", problem, cause, text, 2 * lost, {"uneven_splits": True})
    if not program.is_model:
        return
    if not idle:
        cause = f"The matrix unit processes {_STEP} rows in a step, and a stick has {_STICK} fp16 elements."
    multiples = (_STEP, cores, _STICK)
    for size in sorted({size for value in program.inputs for size in value.shape if size > cores}):
        if not idle:
            problem = f"{size} rows do not divide into slices of whole steps of the matrix unit."
        sized = _ns(
            operation
            for operation in program.operations
            if any(extent % size == 0 for extent in operation.design.sizes.values())
        )
        for to in sorted({-(-size // multiple) * multiple for multiple in multiples} - {size}):
            text = (
                f"pad the {size} rows of the inputs to {to} and use the first {size} rows of the results: "
                f"name_tensor_dims(..) and compile(.., dynamic={{'ROWS': ({to}, {to})}}), see docs/dynamic.md"
            )
            most = min(2 * lost + 0.05 * sized, sized)
            yield Remedy("idle cores", problem, cause, text, most, edit=Resize(size, to))


def _few_samples(program: PlannedProgram) -> Iterator[Remedy]:
    """Yield more samples in a call for a program whose weights or cores wait for rows."""
    counts = {shape[0] for shape in program.result_shapes if shape}
    if not program.is_model or len(counts) != 1 or not 1 <= (count := counts.pop()) <= _MOST_SAMPLES:
        return
    products = [operation for operation in program.operations if operation.category == "matmul"]
    weighted = {
        (operation.name, operation.execution.filename)
        for argument, operations in program.arguments()
        if argument.kind == "parameter"
        for operation in operations
    }
    waiting = [
        operation
        for operation in products
        if operation.execution.bound_by == "memory"
        and (operation.name, operation.execution.filename) in weighted
    ]
    if not waiting:
        return
    lost = _ns(waiting)
    overhead = math.fsum(operation.execution.shares.overhead for operation in program.operations) / 1000
    rows = _longest(waiting)[0].design.sizes.get("mb", 1)
    yield Remedy(
        _FEW if rows < _FULL_ROWS else _MORE,
        f"A call with {counted(count, 'sample')} waits for memory in {len(waiting)} of "
        f"{len(products)} matmuls, {lost / program.ns:.0%} of its time.",
        f"Each weight is read for {counted(rows, 'row')}; from about {_FULL_ROWS} rows per core on, computing takes "
        "longer than reading.",
        f"call the model with a batch of {count * _TIMES:,} samples (times are per {counted(count, 'sample')})",
        (lost + overhead) * (1 - 1 / _TIMES),
        edit=Batch(count, _TIMES),
        samples=_TIMES,
    )


# -- search ------------------------------------------------------------------------------------------------------

_SOURCES = (
    _host_work, _wide_types, _costly_options, _argument_layouts, _transposes, _masks_from_the_host,
    _idle_cores, _few_samples,
)  # fmt: skip

#: Minimum saving of a change, as a fraction of the time: to be reported (measured), and to be tried (estimated).
LEAST_SAVING, _WORTH_A_TRIAL = 0.01, 0.03
#: Maximum number of trials of a program, each of which compiles it; maximum number of operations of all trials
#: together; number of first trials to which the second limit does not apply.
_MOST_TRIALS, _MOST_OPERATIONS, _LEAST_TRIALS = 10, 2500, 3
#: Weights in the order of trials for savings by more samples in a call. More samples are another use of the model,
#: which not every user has; if matmuls have few rows, they are the only remedy.
_WEIGHTS = {_FEW: 0.25, _MORE: 0.02}
#: Fraction of a saving from which a module is named alone; otherwise the common parent of this number of modules.
_MAIN, _RANKED = 0.5, 3


def remedies(program: PlannedProgram) -> list[Remedy]:
    """Return the remedies worth a trial: first one of each kind, ordered by the largest possible saving.

    A large program, which takes long to compile, gets fewer trials.
    """
    ranked: list[tuple[int, float, Remedy]] = []
    counts = Counter[str]()
    for source in _SOURCES:
        for remedy in source(program):
            if remedy.most_ns >= _WORTH_A_TRIAL * program.ns:
                ranked.append((counts[remedy.kind], -remedy.most_ns, remedy))
                counts[remedy.kind] += 1
    ranked.sort(key=lambda entry: entry[:2])
    operations = sum(1 for _ in program.operations)
    most = min(_MOST_TRIALS, max(_LEAST_TRIALS, _MOST_OPERATIONS // max(operations, 1)))
    return [remedy for _, _, remedy in ranked[:most]]


def search(
    program: PlannedProgram, trial: Callable[[Remedy], PlannedProgram | None]
) -> tuple[ProgramFinding, ...]:
    """Return the findings that save at least ``LEAST_SAVING`` of the time, largest saving first; ``trial`` compiles.

    Of the changes of one kind only the best is returned, and no change that cannot be made or that a trial refutes.
    """
    best: dict[str, tuple[float, ProgramFinding]] = {}
    for remedy in remedies(program):
        changed = trial(remedy)
        finding = changed and _finding(program, remedy, changed)
        if not finding:
            continue
        rank = _WEIGHTS.get(remedy.kind, 1.0) * finding.saved_us / max(program.ns / 1000, finding.before_us)
        if remedy.kind not in best or rank > best[remedy.kind][0]:
            best[remedy.kind] = rank, finding
    return tuple(finding for _, finding in sorted(best.values(), key=lambda entry: -entry[0]))


def _finding(program: PlannedProgram, remedy: Remedy, changed: PlannedProgram) -> ProgramFinding | None:
    """Return the finding of a trial; None if it saves too little."""
    before, after = program.device_ns, changed.device_ns / remedy.samples
    problem = remedy.problem
    if program.host.ns or changed.host.ns:
        # Compare device times only if they show the saving: then no assumption about the host is needed.
        host_ns = program.host.ns - changed.host.ns / remedy.samples
        if before - after >= LEAST_SAVING * before and host_ns >= 0:
            problem += f" The change also saves about {host_ns / 1000:,.1f} us of the host (an assumed rate)."
        else:
            before, after = program.ns, changed.ns / remedy.samples
            problem += " Times count the host, at an assumed rate."
    if before - after < LEAST_SAVING * before:
        return None
    module, location = _place(program, changed, remedy.samples)
    return ProgramFinding(
        problem=problem,
        cause=remedy.cause,
        module=remedy.module or module,
        location=remedy.location or location,
        change=remedy.text,
        before_us=before / 1000,
        after_us=after / 1000,
    )


def _place(program: PlannedProgram, changed: PlannedProgram, samples: int) -> tuple[str, str]:
    """Return the module that saves most, with the modules of equal layers, and the line of its longest operation."""
    after = changed.by_module()
    saved: dict[str, float] = {}
    members: dict[str, list[str]] = {}
    for module, nanoseconds in program.by_module().items():
        pattern = re.sub(r"\b\d+\b", "*", module)
        saved[pattern] = saved.get(pattern, 0.0) + nanoseconds - after.get(module, 0.0) / samples
        members.setdefault(pattern, []).append(module)
    if not saved:
        return "", ""
    ranked = sorted(saved, key=lambda pattern: -saved[pattern])
    chosen = ranked[0]
    if saved[chosen] < _MAIN * math.fsum(value for value in saved.values() if value > 0):
        # The innermost module that contains all; the model, if there is no other, has an empty path.
        paths = [module.split(".") for module in ranked[:_RANKED]]
        common = itertools.takewhile(lambda names: len(set(names)) == 1, zip(*paths, strict=False))
        chosen = ".".join(names[0] for names in common) or chosen
    modules = members.get(chosen, [chosen])
    named = modules[0] if len(modules) == 1 else f"{modules[0]} and {len(modules) - 1} like it"
    inside = set(members.get(ranked[0], ()))
    operations = _longest(operation for operation in program.operations if operation.module in inside)
    sources = (operation.origin.source for operation in operations)
    return named, next(filter(None, sources), "")
