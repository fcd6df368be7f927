# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Interpreter of a bundle: runs its statements, passes each operation to ``execute``, and reads the results back."""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.bundle.context import Context
from spyre_mlir.bundle.elements import Elements
from spyre_mlir.bundle.memory_order import WALKED_EXECUTES, memory_order
from spyre_mlir.bundle.model import (
    Add,
    Allocate,
    Apply,
    Bundle,
    Execute,
    Extract,
    IdentityTable,
    IndexConstant,
    KernelArgument,
    Loop,
    Statement,
    executes_of,
)
from spyre_mlir.bundle.transfer import (
    Images,
    Part,
    WideIntegersError,
    filled_parts,
    fills_all,
    from_raw,
    gather,
    lay_out,
    misfit,
    part_of,
)
from spyre_mlir.records import dataclass
from spyre_mlir.simulator.access import (
    Access,
    OperandAccesses,
    access_error,
    relayout,
    relayout_again,
    resolve,
    rows_bytes,
)
from spyre_mlir.simulator.batch_run import BatchRun, ResultWriter
from spyre_mlir.simulator.memory import (
    HOST,
    NOBODY,
    POISON,
    AddressRange,
    AddressSpace,
    Memory,
    is_partial,
    spread,
    stick_tag,
)
from spyre_mlir.simulator.plan import Plan, make_plan
from spyre_mlir.simulator.ranges import RangeCheck, RangeLoss
from spyre_mlir.simulator.run_outcome import (
    ExecuteStatistics,
    IntegerRangeError,
    SimulationError,
    Statistics,
)
from spyre_mlir.simulator.schedule import BURSTS, Schedule, scheduled
from spyre_mlir.simulator.workers import copy_array
from spyre_mlir.target.formats import BIT_TRUE, FORMATS, Numerics
from spyre_mlir.target.ops import DEVICE_OPS, Kind

#: Plans of the designs of bundles, by file name.
_PLANS: IdentityTable[str, Plan] = IdentityTable()

#: A function of the index of an execute in the program text, from 0 on, and its opcode, called at each execution.
Advance = Callable[[int, str], None]

#: The largest number of executions of a recorded run.
_MOST_RECORDED = 1 << 10


@dataclass(frozen=True)
class Result:
    """A run of a bundle.

    Attributes:
        outputs: The results as host arrays by argument name; bfloat16 as float32 numbers.
        statistics: The data that the run moved.
        losses: Numbers that left the range of the device format.
    """

    outputs: dict[str, NDArray[Any]]
    statistics: Statistics
    losses: tuple[RangeLoss, ...] = ()


class Machine:
    """SSA values and statistics of one bundle, and the memory in which it runs."""

    def __init__(
        self, bundle: Bundle, numerics: Numerics, space: AddressSpace, schedule: Schedule | None = None
    ) -> None:
        self.bundle, self.numerics, self.space, self.schedule = bundle, numerics, space, schedule
        self.rng = random.Random(schedule.random_seed) if schedule else None
        self._deferred: list[tuple[Execute, int, dict[int, int]]] | None = None
        self.statistics = Statistics()
        self.ranges = RangeCheck(bundle.manifest, numerics)
        wide, self.wide_sums = Numerics(BIT_TRUE), frozenset(bundle.manifest.wide_sums)
        self._wide = wide, RangeCheck(bundle.manifest, wide)
        self.values: dict[str, int] = {}
        self.plans = _PLANS.entries_of(bundle)
        self.elements = Elements(bundle.target)
        self.first_execute = 0
        self.advance: Advance | None = None
        self.recording: Recording | None = None
        self.parameters = {parameter.name: parameter for parameter in bundle.parameters}
        self.indices: dict[str, int] = {}
        for argument in bundle.manifest.arguments:
            check_form(argument)

    def allocate(self) -> None:
        """Reserve the memory that the bundle allocates itself."""
        allocates = [s for s in self.bundle.statements if isinstance(s, Allocate)]
        if sum(s.bytes for s in allocates) > self.bundle.target.pool_bytes:
            text = f"the allocations exceed the {self.bundle.target.pool_bytes} bytes of the pool."
            raise SimulationError("capacity", text)
        for statement in allocates:
            if statement.result in self.space.allocations:
                text = f"'{statement.result}' is allocated twice."
                raise SimulationError("allocate", text)
            self.space.allocate(statement.result, statement.bytes)

    def parameter_bytes(self, name: str) -> int:
        """Return the bytes of a parameter; a parameter without host argument is a pool, as large as its buffers."""
        manifest = self.bundle.manifest
        sizes = [argument.bytes for argument in manifest.arguments if argument.parameter == name]
        ends = [buffer.offset + buffer.bytes for buffer in manifest.buffers if buffer.base == name]
        return max(sizes or ends, default=0)

    def load(self, arrays: Mapping[str, NDArray[Any]], images: Images) -> None:
        """Put the host arrays into simulated HBM; an argument without an array must have an image."""
        inputs = [argument for argument in self.bundle.manifest.arguments if argument.kind != "result"]
        names = list(dict.fromkeys(argument.array_name for argument in inputs))
        unknown = sorted(set(arrays) - set(names))
        if unknown:
            text = f"there is no such input; the inputs are {', '.join(names) or 'none'}."
            raise SimulationError("argument", text, tensor=unknown[0])
        for argument in inputs:
            name = argument.array_name
            image = images.find(argument, self.numerics.mode) if name not in arrays else None
            if image is not None:
                load = functools.partial(load_image, address=0, argument=argument, image=image)
            elif name not in arrays:
                raise SimulationError(
                    "argument",
                    "no array was given for this input; give an array with its name, or random numbers "
                    "(spyre-run --random).",
                    tensor=name,
                )
            else:
                array = np.asarray(arrays[name])
                check_array(argument, array)
                load = functools.partial(
                    load_argument, address=0, argument=argument, array=array, numerics=self.numerics
                )
            self._check_parameter(argument)
            self.space.load(argument.parameter, load)
        self.indices = index_values(self.bundle, self.space, self.numerics)

    def run(self, kept: Collection[str]) -> None:
        """Run the statements; free arguments after their last use, except those ``kept`` for other bundles."""
        if self.schedule is not None and self.rng is not None:
            self._run_scheduled(self.schedule.dma_execution_mode, self.rng)
            return
        last = self._last_uses(kept)
        index = 0
        for statement in self.bundle.statements:
            index = self.block((statement,), index)
            for parameter in [name for name, end in last.items() if end <= index]:
                self.space.release(parameter)
                del last[parameter]

    def _run_scheduled(self, mode: str, rng: random.Random) -> None:
        """Run the executes in another order than the program's; no value of the program depends on an execute."""
        order = memory_order(Context(self.bundle))
        deferred = self._deferred = list[tuple[Execute, int, dict[int, int]]]()
        self.block(self.bundle.statements, 0)
        if len(order.runs) != len(deferred):
            text = f"the bundle runs {len(deferred)} operations; a schedule can order {WALKED_EXECUTES}."
            raise SimulationError("schedule", text)
        is_copy = [DEVICE_OPS[run.step.design.opcode].is_copy for run in order.runs]
        scheduled(order.waits, is_copy, mode, rng, lambda number: self._parts(*deferred[number]))

    def _last_uses(self, kept: Collection[str]) -> dict[str, int]:
        """For each parameter that holds only inputs, return the index after the last execute that uses it."""
        manifest = self.bundle.manifest
        results = {argument.parameter for argument in manifest.arguments if argument.kind == "result"}
        inputs = {argument.parameter for argument in manifest.arguments} - results - set(kept)
        bases = {buffer.name: buffer.base for buffer in manifest.buffers}
        return {
            bases[name]: index + 1
            for index, names in enumerate(manifest.uses)
            for name in names
            if bases.get(name) in inputs
        }

    def results(self) -> dict[str, NDArray[Any]]:
        """Return the host arrays of the result arguments."""
        arrays = {}
        for argument in self.bundle.manifest.arguments:
            if argument.kind == "result":
                self._check_parameter(argument)
                memory = self.space.hbm(argument.parameter)
                is_checked = self.space.is_checked
                array = read_argument(memory, 0, argument, self.numerics, is_checked=is_checked)
                self.ranges.read(argument, array)
                arrays[argument.name] = array
        return arrays

    @property
    def multiplies(self) -> bool:
        """Return whether the machine has run products of matrices."""
        return any(plan.op.kind.on_array for plan in self.plans.values())

    @property
    def all_ranges(self) -> tuple[RangeCheck, RangeCheck]:
        """The range checks: of the numerics of the run, and of wide sums."""
        return self.ranges, self._wide[1]

    def losses(self) -> tuple[RangeLoss, ...]:
        """Return the numbers that left the range of the numerics so far; for wide sums, the range of DL16."""
        return (*self.ranges.losses, *self._wide[1].losses)

    def _check_parameter(self, argument: KernelArgument) -> None:
        if argument.parameter not in self.parameters:
            text = f"its parameter '{argument.parameter}' is not a parameter of the bundle."
            raise SimulationError("manifest", text, tensor=argument.name)

    def block(self, statements: tuple[Statement, ...], index: int) -> int:
        """Run statements; ``index`` is the index of the next execute in the program text. Return the next index."""
        for statement in statements:
            if isinstance(statement, Loop):
                index = self._loop(statement, index)
            elif isinstance(statement, Execute):
                self._execute(statement, index)
                index += 1
            else:
                self.values[statement.result] = self._value(statement)
        return index

    def _loop(self, loop: Loop, index: int) -> int:
        lower, upper, step = (self._named(name) for name in (loop.lower, loop.upper, loop.step))
        if step < 1:
            raise SimulationError("loop", f"the step of the loop over '{loop.induction}' is {step}.")
        trips = range(lower, upper, step)
        # Checked before the loop runs: a wrong bound could keep the simulator busy for days.
        if len(trips) > self.bundle.target.loop_iterations:
            text = f"has {len(trips)} iterations; {self.bundle.target.loop_iterations} are possible."
            raise SimulationError("loop", f"the loop over '{loop.induction}' {text}")
        for position in trips:
            self.values[loop.induction] = position
            self.block(loop.body, index)
        return index + len(executes_of(loop.body))

    def _value(self, statement: Extract | Allocate | IndexConstant | Add | Apply) -> int:
        match statement:
            case Extract(_, name, what):
                parameter = self.parameters.get(name)
                if parameter is None:
                    raise SimulationError("value", f"parameter '{name}' is not declared.")
                if what == "value":
                    is_index = name in self.indices
                    return self.indices[name] if is_index else self.space.allocations[name][0]
                limits = {"granularity": parameter.granularity, "max_value": parameter.max_value}
                if (value := limits.get(what)) is None:
                    raise SimulationError("value", f"parameter '{name}' has no {what}.")
                return value
            case Allocate():
                if statement.result not in self.space.allocations:
                    raise SimulationError("allocate", "memory can be allocated in the entry block only.")
                return self.space.allocations[statement.result][0]
            case IndexConstant():
                return statement.value
            case Add():
                return self._named(statement.lhs) + self._named(statement.rhs)
            case Apply():
                names = (*statement.dims, *statement.symbols)
                terms = zip(names, statement.coefficients, strict=True)
                return statement.offset + sum(self._named(name) * factor for name, factor in terms)

    def _named(self, name: str) -> int:
        if name not in self.values:
            raise SimulationError("value", f"value '%{name}' is used before it is defined.")
        return self.values[name]

    def _execute(self, statement: Execute, index: int) -> None:
        """Run one execute, or defer it until a schedule runs it."""
        design = self.bundle.designs.get(statement.filename)
        if design is None:
            raise SimulationError("design", f"the bundle has no file '{statement.filename}'.")
        if len(statement.operands) != len(statement.symbol_ids):
            text = f"{len(statement.operands)} operands do not pair with {len(statement.symbol_ids)} symbols."
            raise SimulationError("symbol", text, design=design)
        symbols: dict[int, int] = {}
        for symbol, name in zip(statement.symbol_ids, statement.operands, strict=True):
            address = self._named(name)
            if symbols.setdefault(symbol, address) != address:
                text = f"symbol {symbol} is bound to two addresses."
                raise SimulationError("symbol", text, design=design, address=address)
        if self._deferred is not None:
            self._deferred.append((statement, index, symbols))
        else:
            for _ in self._parts(statement, index, symbols):
                pass

    def _parts(self, statement: Execute, index: int, symbols: dict[int, int]) -> Iterator[None]:
        """Plan the design of an execute on first use, run all cores, and add the bytes to the statistics.

        With a schedule, other operations may run after each part.
        """
        design = self.bundle.designs[statement.filename]
        uses = self.bundle.manifest.uses
        # A manifest that is too short gets the error below and not an IndexError.
        names = uses[index] if index < len(uses) else ()
        if len(names) != len(design.operands):
            text = f"the manifest names {len(names)} buffers for its {len(design.operands)} operands."
            raise SimulationError("manifest", text, design=design)
        for name in names:
            if name not in self.space.regions:
                raise SimulationError(
                    "manifest", "the manifest does not describe this buffer.", design=design, tensor=name
                )
        regions = tuple(self.space.regions[name] for name in names)
        # Layers share designs, and calls of a program share its bundle.
        plan = self.plans.get(statement.filename)
        if plan is None or plan.design is not design:
            plan = self.plans[statement.filename] = make_plan(
                design, tuple(region.name for region in regions)
            )
        statistics = self.statistics.executes.setdefault(
            index, ExecuteStatistics(index, statement.filename, design.opcode, design.cores)
        )
        if self.advance is not None:
            self.advance(self.first_execute + index, design.opcode)
        numerics, ranges = self._wide if index in self.wide_sums else (self.numerics, self.ranges)
        if plan.op.kind is Kind.GATHER or len(self.recording or ()) >= _MOST_RECORDED:
            self.recording = None
        yield from execute(
            plan, regions, symbols, self.space, numerics, statistics, ranges, self.recording, self.rng
        )
        # A read in LX must yield the elements that the slices of the design denote.
        for operand, region in enumerate(regions[:-1] if self.space.is_checked else ()):
            if problem := self.elements.problem(self.first_execute + index, design, operand):
                raise SimulationError("elements", problem, design=design, tensor=region.name)
        self.elements.write(self.first_execute + index, design)
        end = max((region.end for region in regions if region.lx), default=0)
        high = self.statistics.lx_high_water_bytes
        for core in range(design.cores if end else 0):
            high[core] = max(high.get(core, 0), end)


# Values of the parameters of a bundle that are not addresses: indices that the host reads in arguments.


def index_values(bundle: Bundle, space: AddressSpace, numerics: Numerics) -> dict[str, int]:
    """Read the indices in the arguments, which are already in memory; SimulationError for an index out of range."""
    arguments = {argument.name: argument for argument in bundle.manifest.arguments}
    values: dict[str, int] = {}
    for index in bundle.manifest.indices:
        argument = arguments.get(index.argument)
        if argument is None:
            text = "an index is in this argument, which the bundle does not have."
            raise SimulationError("manifest", text, tensor=index.argument)
        array = read_argument(space.hbm(argument.parameter), 0, argument, numerics)
        try:
            values[index.parameter] = index.value(array)
        except IndexError as error:
            raise SimulationError("argument", str(error), tensor=index.argument) from None
    for parameter in bundle.parameters:
        value, largest = values.get(parameter.name), parameter.max_value
        if largest is not None and (value is None or value > largest):
            text = f"the value of parameter '{parameter.name}' is {value}, not one up to {largest}."
            raise SimulationError("value", text)
    return values


# Execution of one `sdsc_execute`: every core reads, computes and writes.
#
# Cores run concurrently, so the result must not depend on their order: a core must not write data that another
# core reads or writes in the same operation. Within one core an elementwise operation may work in place.
# The last core of each group of a split reduction has the result; in LX, only this core has it.

#: Functions that repeat the operations of a run, in order.
Recording = list[Callable[[], None]]


def execute(
    plan: Plan,
    regions: tuple[AddressRange, ...],
    symbols: dict[int, int],
    space: AddressSpace,
    numerics: Numerics,
    statistics: ExecuteStatistics,
    ranges: RangeCheck,
    recording: Recording | None = None,
    rng: random.Random | None = None,
) -> Iterator[None]:
    """Run one operation; ``regions[k]`` is the buffer of operand ``k``, ``symbols`` are the bound addresses.

    A function that repeats the operation on the same memory is appended to a ``recording``. With ``rng``, the cores run
    in a random order, one part for each item.
    """
    *inputs, outputs = resolve(plan, regions, symbols, space)
    statistics.runs += 1
    if plan.op.kind is Kind.RELAYOUT:
        statistics.relayout_bytes += yield from relayout(plan, list(inputs[0]), list(outputs), space, rng)
        if recording is not None:
            recording.append(relayout_again(plan, list(inputs[0]), list(outputs), space))
        return
    writers = {group[-1] for group in plan.groups}
    written = [outputs[core] for core in outputs.boxes if core in writers]
    # The cores of a split reduction add up at the address of the result; in LX each core has its own copy there.
    used = list(outputs) if outputs.region.lx else written
    if space.is_checked:
        check_conflicts(plan, inputs, used)
    writer = ResultWriter(plan, space, outputs)
    for access in used:
        if access.core not in writers:
            writer.leave_part(access)
    batches = BatchRun(plan, space, numerics, inputs, writer, ranges, statistics.index)
    if recording is not None:
        batches.keep()
        recording.append(batches.run)
    if rng is None:
        batches.run()
    else:
        in_place = any(operand.meets(outputs) for operand in inputs)
        yield from batches.run_in_parts(rng, BURSTS if plan.op.is_copy and not in_place else 1)
    # Cores share a load of the same elements; of a table, the rows that the positions name are loaded.
    loads: list[tuple[Hashable, int]] = []
    for access in (access for operand in inputs if not operand.region.lx for access in operand):
        if plan.op.index is not None and access.operand == plan.op.table:
            positions = inputs[plan.op.index][access.core]
            loads.append(((access.key, positions.key), rows_bytes(plan, positions, access)))
        else:
            loads.append((access.key, access.box.accessed_bytes))
    statistics.read_bytes += sum(dict(loads).values())
    statistics.core_read_bytes += sum(moved for _, moved in loads)
    statistics.write_bytes += sum(access.box.accessed_bytes for access in written if not access.region.lx)


# Check for data races between the cores of one operation, and for overlaps of a core's output with its inputs.
#
# Address ranges decide most cases; where ranges interleave, the sticks themselves are compared.


def check_conflicts(plan: Plan, inputs: Sequence[OperandAccesses], outputs: Sequence[Access]) -> None:
    """Raise if two cores write one stick, or a core reads a stick that the operation writes elsewhere."""
    # A core does not read the LX of another core, so only input and output of one core can overlap in LX.
    is_lx = outputs[0].region.lx
    low, high = min(access.address for access in outputs), max(access.end for access in outputs)
    near = [
        access
        for operand in inputs
        if operand.region.lx == is_lx and len(operand) and operand.span[0] < high and low < operand.span[1]
        for access in operand
    ]
    if is_lx:
        by_core = {output.core: output for output in outputs}
        for access in near:
            if access.core in by_core:
                _check_own(plan, access, by_core[access.core])
        return
    ordered = sorted(outputs, key=lambda access: access.address)
    near = [access for access in near if access.address < high and low < access.end]
    disjoint = all(a.end <= b.address for a, b in itertools.pairwise(ordered))
    # Address ranges decide most operations; lists of sticks cost far more.
    if (disjoint and not near) or _are_apart(near, outputs):
        return
    lists = [_sticks(access) for access in outputs]
    sticks = np.concatenate(lists)
    cores = np.repeat([access.core for access in outputs], [len(addresses) for addresses in lists])
    order = np.argsort(sticks, kind="stable")
    sticks, cores = sticks[order], cores[order]
    twice = np.flatnonzero(sticks[1:] == sticks[:-1])
    if len(twice):
        index = int(twice[0])
        second = next(access for access in outputs if access.core == cores[index + 1])
        text = f"core {cores[index]} writes it too in the same operation."
        raise access_error(plan, second, "write-conflict", text, int(sticks[index]))
    by_core = {output.core: output for output in outputs}
    for access in near:
        mine = _sticks(access)
        # searchsorted returns the length for an address after the last one.
        place = np.minimum(np.searchsorted(sticks, mine), len(sticks) - 1)
        hit = sticks[place] == mine
        other = hit & (cores[place] != access.core)
        if other.any():
            index = int(np.flatnonzero(other)[0])
            text = f"it reads data that core {cores[place[index]]} writes in the same operation."
            raise access_error(plan, access, "race", text, int(mine[index]))
        if hit.any():
            _check_own(plan, access, by_core[access.core])


def _are_apart(inputs: Sequence[Access], outputs: Sequence[Access]) -> bool:
    """Return whether no stick is written twice and ``inputs`` do not read a written stick."""
    unit = outputs[0].box.stick_bytes
    low, high = min(access.address for access in outputs), max(access.end for access in outputs)
    first, last = low // unit, -(-high // unit)
    # Accesses that begin inside of a stick are compared by the lists of sticks.
    if any(access.address % unit for access in (*inputs, *outputs)):
        return False
    written = np.zeros(last - first, bool)
    for access in outputs:
        _marks(access, written, first)[...] = True
    total = sum(math.prod(access.box.whole.count_of_sticks) for access in outputs)
    if np.count_nonzero(written) != total:
        return False
    for access in inputs:
        begin = access.address // unit
        inside = first <= begin and -(-access.end // unit) <= last
        if not inside or _marks(access, written, first).any():
            return False
    return True


def _marks(access: Access, marks: NDArray[np.bool_], first: int) -> NDArray[np.bool_]:
    """Return a view of the marks of the sticks of an access; ``first`` is the index of the first marked stick."""
    window, unit = access.box.whole, access.box.stick_bytes
    strides = tuple(stride // unit for stride in window.stride_of_sticks)
    return np.ndarray(window.count_of_sticks, np.bool_, marks, access.address // unit - first, strides)


def _check_own(plan: Plan, source: Access, output: Access) -> None:
    """Check that a core's input and output are disjoint, or that an elementwise operation works in place."""
    if source.end <= output.address or output.end <= source.address:
        return
    aligned = source.address == output.address and source.box.same_place(output.box)
    if plan.elementwise and aligned:
        return
    common = np.intersect1d(_sticks(source), _sticks(output))
    if len(common):
        text = f"it overlaps the output '{output.region.name}', which is not possible in place."
        raise access_error(plan, source, "overlap", text, int(common[0]))


def _sticks(access: Access) -> NDArray[np.int64]:
    return access.address + access.box.stick_offsets


# Transfers between host arrays and simulated HBM, checked byte by byte.

#: Host types that numpy does not support.
_OWN_DTYPES = ("bfloat16", "float8_e4m3fn")


def check_form(argument: KernelArgument) -> None:
    """Check that the type, the format and the loops of an argument permit a transfer."""
    if argument.data_format not in FORMATS:
        text = f"its data format '{argument.data_format}' is unknown."
        raise SimulationError("argument", text, tensor=argument.name)
    try:
        is_type = argument.host_dtype in _OWN_DTYPES or np.dtype(argument.host_dtype).kind in "biuf"
    # np.dtype raises for an unknown name.
    except TypeError:
        is_type = False
    if not is_type:
        text = f"its type on the host, '{argument.host_dtype}', is unknown."
        raise SimulationError("argument", text, tensor=argument.name)
    transfer, loops = argument.transfer, len(argument.transfer.ranges)
    good = len(transfer.host_strides) == len(transfer.device_strides) == loops and all(
        len(inside) == len(weights) and set(inside) <= set(range(loops)) and min((1, *weights)) > 0
        for inside, weights, _ in transfer.bounds
    )
    if not good or min((0, *argument.host_shape, *argument.device_size, argument.bytes)) < 0:
        text = (
            "its transfer does not have two strides for each loop, a bound no weights, or a size is negative."
        )
        raise SimulationError("transfer", text, tensor=argument.name)


def load_argument(
    memory: Memory, address: int, argument: KernelArgument, array: NDArray[Any], numerics: Numerics
) -> None:
    """Lay out a host array at ``address``; all other bytes of the argument become the fill value.

    Without a fill value, the other bytes become undefined and must not be read.
    """
    check_array(argument, array)
    parts = _checked_parts(argument)
    try:
        lay_out(argument, array, numerics, _bytes_of(memory, address, argument), copy_array)
    except WideIntegersError as error:
        raise IntegerRangeError("argument", str(error), tensor=argument.name) from None
    except ValueError as error:
        raise SimulationError("argument", str(error), tensor=argument.name) from None
    _tag(memory, address, argument, parts)


def load_image(memory: Memory, address: int, argument: KernelArgument, image: NDArray[np.uint8]) -> None:
    """Put an image at ``address``: the result of ``load_argument``, laid out ahead of time.

    An image of the whole memory is not copied: it becomes the memory.
    """
    if image.dtype != np.uint8 or image.shape != (argument.bytes,):
        text = f"its image holds {image.size} elements of {image.dtype}, but it has {argument.bytes} bytes."
        raise SimulationError("argument", text, tensor=argument.name)
    parts = _checked_parts(argument)
    if image.size == memory.data.size:
        memory.data = image.view()
        memory.data.flags.writeable = False
    else:
        _bytes_of(memory, address, argument)[...] = image
    _tag(memory, address, argument, parts)


def _bytes_of(memory: Memory, address: int, argument: KernelArgument) -> NDArray[np.uint8]:
    memory.own()
    return memory.data[address : address + argument.bytes]


def _tag(memory: Memory, address: int, argument: KernelArgument, parts: list[Part]) -> None:
    """Record that the host wrote an argument: its elements, and all bytes if it writes the padding."""
    raw, end, unit = FORMATS[argument.data_format].raw, address + argument.bytes, memory.stick_bytes
    if argument.fill is not None or fills_all(argument):
        if address % unit == 0 and end % unit == 0:
            memory.stick_tags[address // unit : end // unit] = stick_tag(HOST, raw)
        else:
            memory.shadow_of(address, end)[address:end].view(raw)[...] = spread(HOST, raw)
        return
    shadow = memory.shadow_of(address, end)
    shadow[address:end] = NOBODY
    for part in parts:
        part_of(shadow, address, raw, argument.transfer.device_strides, part)[...] = spread(HOST, raw)
    if address % unit == 0 and end % unit == 0:
        # Most sticks between padded sticks are whole: these get a stick tag.
        tags = shadow[address:end].view(np.uint16).reshape(-1, unit // 2)
        whole = (tags[:, :1] != NOBODY)[:, 0] & (tags == tags[:, :1]).all(axis=1)
        memory.stick_tags[address // unit : end // unit] = np.where(whole, tags[:, 0], 0)


def read_argument(
    memory: Memory, address: int, argument: KernelArgument, numerics: Numerics, *, is_checked: bool = True
) -> NDArray[Any]:
    """Return the host array of a result; if checked, SimulationError for padding and bytes that were never written."""
    raw, end = FORMATS[argument.data_format].raw, address + argument.bytes
    parts = _checked_parts(argument)
    sticks = slice(address // memory.stick_bytes, -(-end // memory.stick_bytes))
    # The elements of sticks that were written as a whole are not checked one by one.
    tags = memory.stick_tags[sticks]
    if is_checked and not ((tags != NOBODY) & (tags != stick_tag(POISON, raw)) & ~is_partial(tags)).all():
        shadow = memory.shadow_of(address, end)
        for part in parts:
            tags = part_of(shadow, address, raw, argument.transfer.device_strides, part)
            wrong = (tags == spread(NOBODY, raw)) | (tags == spread(POISON, raw))
            if wrong.any():
                place = np.argwhere(wrong)[0]
                indices = [start + int(index) for (start, _), index in zip(part, place, strict=True)]
                on_device, on_host = (
                    sum(index * stride for index, stride in zip(indices, strides, strict=True))
                    for strides in (argument.transfer.device_strides, argument.transfer.host_strides)
                )
                text = f"{wrong.sum()} elements of this result were never written, the first at host element {on_host}."
                first = memory.base + address + raw.itemsize * on_device
                raise SimulationError("unwritten-result", text, tensor=argument.name, address=first)
    host = np.zeros(argument.host_shape, raw)
    gather(memory.data, address, host, argument.transfer, copy_array)
    return from_raw(host, argument.host_dtype, argument.data_format, numerics)


def _checked_parts(argument: KernelArgument) -> list[Part]:
    """Return the valid parts, after checking that they stay inside the host array and the device bytes."""
    transfer = argument.transfer
    parts = filled_parts(transfer)
    device_elements = argument.bytes // FORMATS[argument.data_format].bytes
    limits = (
        ("host array", transfer.host_offset, transfer.host_strides, math.prod(argument.host_shape)),
        ("device bytes", 0, transfer.device_strides, device_elements),
    )
    for what, first, strides, size in limits:
        for part in parts:
            steps = zip(part, strides, strict=True)
            last = first + sum((start + count - 1) * stride for (start, count), stride in steps)
            if last >= size or min((first, *strides)) < 0:
                text = f"its transfer touches element {last} of {size} in the {what}."
                raise SimulationError("transfer", text, tensor=argument.name)
    return parts


def check_array(argument: KernelArgument, array: NDArray[Any]) -> None:
    if problem := misfit(argument, array):
        raise SimulationError("argument", problem, tensor=argument.name)
