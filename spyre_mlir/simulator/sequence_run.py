# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs of bundles: a single bundle, or several, each of which leaves data to the next."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir import logs
from spyre_mlir.bundle.elements import Elements
from spyre_mlir.bundle.instances import at_arrays
from spyre_mlir.bundle.model import Buffer, Bundle, IdentityTable, KernelArgument, Manifest, executes_of
from spyre_mlir.bundle.sequence import LX
from spyre_mlir.bundle.transfer import (
    Images,
    Part,
    fill,
    filled_parts,
    fills_all,
    from_raw,
    index_out_of_range,
    misfit,
    part_of,
    to_raw,
)
from spyre_mlir.errors import listed
from spyre_mlir.records import dataclass
from spyre_mlir.simulator.machine import Advance, Machine, Result
from spyre_mlir.simulator.memory import AddressSpace, Memory
from spyre_mlir.simulator.run_outcome import SimulationError
from spyre_mlir.simulator.schedule import UNINITIALIZED_MEMORY, Schedule
from spyre_mlir.simulator.workers import keep_freed_memory, single_threaded_blas
from spyre_mlir.target.formats import FORMATS, IEEE, Numerics
from spyre_mlir.timing import scope


def run(
    bundle: Bundle,
    arrays: Mapping[str, NDArray[Any]],
    numerics: str | None = None,
    lx_backend_fraction: float | None = None,
    images: Images | None = None,
    schedule: Schedule | None = None,
) -> Result:
    """Execute a bundle on host arrays, whose shapes determine the run-time sizes.

    Args:
        bundle: The bundle.
        arrays: An array by name for every argument that is not a result, of its dtype and shape (bfloat16: uint16
            bits or float32); one with a source takes the array of its source, one without an array may have an image.
        numerics: "ieee" or "dl16"; by default the numerics that the bundle needs: "dl16" for bfloat16.
        lx_backend_fraction: The fraction of LX, 0 to 1, that the bundle may not use; by default from its target.
        images: The device bytes of arguments.
        schedule: The order of operations and cores, for tests of races; by default the order of the program.

    Raises:
        SimulationError: The bundle misuses memory, or an array is missing or has another form.
    """
    calls = [BundleCall(bundle, arrays, images or Images())]
    (result,) = run_sequence(calls, numerics, lx_backend_fraction, schedule)
    return result


# Progress of a long simulation, as a line on the terminal: never in a log, a pipe or a notebook.

#: Seconds before the line is first shown, and between two updates.
PATIENCE_SECONDS, INTERVAL_SECONDS = 2.0, 0.2


@contextlib.contextmanager
def simulation_progress(executes: int) -> Iterator[Advance]:
    """Yield a function to call at each of the ``executes``; it is called repeatedly for an execute in a loop."""
    shown = time.monotonic() + PATIENCE_SECONDS - INTERVAL_SECONDS

    def advance(index: int, opcode: str) -> None:
        nonlocal shown
        now = time.monotonic()
        if now < shown + INTERVAL_SECONDS:
            return
        shown = now
        logs.show_wait(f"[{index + 1}/{executes}] simulate > {opcode}")

    try:
        yield advance
    finally:
        logs.clear_wait()


@dataclass(frozen=True)
class BundleCall:
    """A bundle with its host arrays and images."""

    bundle: Bundle
    arrays: Mapping[str, NDArray[Any]]
    images: Images = field(default_factory=Images)


def run_sequence(
    sequence: Sequence[BundleCall],
    numerics: str | None = None,
    lx_backend_fraction: float | None = None,
    schedule: Schedule | None = None,
) -> list[Result]:
    """Execute bundles one after the other on one machine; each but the first uses the data that earlier ones left.

    Parameters of one name have one address in all bundles. LX keeps its contents after a non-terminal bundle;
    otherwise its contents are lost.

    Args:
        sequence: The bundles, with the arrays of each.
        numerics: See ``run``.
        lx_backend_fraction: See ``run``.
        schedule: See ``run``; the bundles still run one after the other.

    Raises:
        SimulationError: See ``run``; or a bundle does not follow the bundle that it expects.
    """
    first, choices = sequence[0], (numerics, lx_backend_fraction)
    is_single = len(sequence) == 1 and not first.images.by_name and schedule is None
    if is_single and (prepared := prepared_runs.find(first.bundle, choices)) is not None:
        result = prepared.run(first.arrays)
        if result is not None:
            return [result]
    is_recorded = is_single and prepared_runs.wants(first.bundle, choices)
    results, machines = _run(sequence, numerics, lx_backend_fraction, is_recorded, schedule)
    if is_recorded:
        prepared_runs.keep(machines[0], choices)
    return results


@scope("simulate", "stages")
def _run(
    sequence: Sequence[BundleCall],
    numerics: str | None,
    lx_backend_fraction: float | None,
    is_recorded: bool,
    schedule: Schedule | None,
) -> tuple[list[Result], list[Machine]]:
    """Return the results of an ordinary run, in which everything is checked, and the machines of the bundles."""
    sequence = [replace(entry, bundle=at_arrays(entry.bundle, entry.arrays)) for entry in sequence]
    # Check that each bundle with expected buffers follows a bundle, which is non-terminal if the buffers are
    # in LX.
    bundles = [entry.bundle for entry in sequence]
    require_first(bundles[0].manifest)
    for before, bundle in itertools.pairwise(bundles):
        bases = {buffer.name: buffer.base for buffer in bundle.manifest.buffers}
        for resident in bundle.manifest.expects:
            if bases.get(resident.buffer) == LX and not before.manifest.non_terminal:
                text = "a bundle expects this buffer in LX, but the previous bundle is terminal."
                raise SimulationError("resident", text, tensor=resident.buffer)
    keep_freed_memory()
    target = sequence[0].bundle.target
    if lx_backend_fraction is not None:
        target = target.with_backend_fraction(lx_backend_fraction)
    space = AddressSpace(target)
    if schedule is not None:
        space = AddressSpace(target, UNINITIALIZED_MEMORY[schedule.uninitialized_memory], schedule.is_checked)
        space.keep()
    needed = numerics or next((form for entry in sequence if (form := entry.bundle.manifest.numerics)), IEEE)
    machines = [Machine(entry.bundle, Numerics(needed), space, schedule) for entry in sequence]
    _allocate(machines, space)
    if is_recorded and space.most_bytes <= MOST_BYTES:
        space.keep()
        machines[0].recording = []
    results, elements, executes = [], Elements(target), 0
    manifests = [entry.bundle.manifest for entry in sequence]
    # Bundles expect data in these bases, which earlier bundles leave.
    names = {resident.buffer for manifest in manifests for resident in manifest.expects}
    kept = {buffer.base for manifest in manifests for buffer in manifest.buffers if buffer.name in names}
    counts = [len(executes_of(entry.bundle.statements)) for entry in sequence]
    with simulation_progress(sum(counts)) as advance:
        for machine, entry, count in zip(machines, sequence, counts, strict=True):
            machine.elements, machine.first_execute, machine.advance = elements, executes, advance
            machine.load(entry.arrays, entry.images)
            with single_threaded_blas():
                machine.run(kept)
            results.append(Result(machine.results(), machine.statistics, machine.losses()))
            space.finish_loads()
            executes += count
            if not entry.bundle.manifest.non_terminal:
                # After a terminal bundle other programs may use the LX.
                space.wipe_lx()
                elements = Elements(target)
    return results, machines


def require_first(manifest: Manifest) -> None:
    """Raise ``SimulationError`` for a bundle that expects data of a previous bundle."""
    if manifest.expects:
        names = listed(resident.buffer for resident in manifest.expects)
        text = (
            f"the bundle expects buffers of the previous bundle ({names}); run the program that contains it."
        )
        raise SimulationError("resident", text)


def _allocate(machines: Sequence[Machine], space: AddressSpace) -> None:
    """Allocate the parameters, allocations and buffers of all machines of a sequence, by their names."""
    sizes: dict[str, int] = {}
    for machine in machines:
        for name, parameter in machine.parameters.items():
            if not parameter.is_address:
                continue
            # Bundles may use different sizes of one parameter; its address has to hold the largest size.
            sizes[name] = max(sizes.get(name, 0), machine.parameter_bytes(name))
    for name, size in sizes.items():
        space.allocate(name, size)
    for machine in machines:
        machine.allocate()
    known: dict[str, Buffer] = {}
    for machine in machines:
        # Reasons are texts for reports, which may differ.
        buffers = {buffer.name: replace(buffer, reasons=()) for buffer in machine.bundle.manifest.buffers}
        for name in buffers.keys() & known.keys():
            if buffers[name] != known[name]:
                text = "two bundles of a sequence have this buffer at different places."
                raise SimulationError("manifest", text, tensor=name)
        for buffer in machine.bundle.manifest.buffers:
            if buffer.name not in known:
                space.add_buffer(buffer.name, buffer.base, buffer.offset, buffer.bytes)
        known |= buffers


# Repetition of a run with other numbers: the memory, views and batches of an earlier run are kept.
#
# Addresses and the writer of each byte do not depend on numbers if no operation gathers rows and no parameter is
# an index. The kept run has checked them. A repetition lays out the arguments, computes, and checks numbers
# like every run. If a repetition finds an error, it stops, and an ordinary run reports the error.

#: The largest number of bytes of simulated memory of a kept run, and of all kept runs together.
MOST_BYTES, _MOST_BYTES_OF_ALL = 1 << 22, 1 << 27


class _PreparedArgument:
    """An argument at its address in a memory."""

    def __init__(self, argument: KernelArgument, memory: Memory, numerics: Numerics) -> None:
        self.argument, self._numerics = argument, numerics
        self._raw = FORMATS[argument.data_format].raw
        transfer = argument.transfer
        self._bytes = memory.data[: argument.bytes]
        self._fills_all = fills_all(argument)
        self._parts: list[tuple[Part, NDArray[Any]]] = [
            (part, part_of(memory.data, 0, self._raw, transfer.device_strides, part))
            for part in filled_parts(transfer)
        ]
        # The type and shape of the last accepted array.
        self._dtype, self._shape = None, None
        self._first = transfer.host_offset * self._raw.itemsize

    def load(self, array: NDArray[Any]) -> bool:
        """Lay out an array; return False if the array does not fit."""
        argument = self.argument
        is_known = array.dtype == self._dtype and array.shape == self._shape
        if not is_known and misfit(argument, array):
            return False
        if argument.index_bounds is not None and index_out_of_range(argument, array):
            return False
        self._dtype, self._shape = array.dtype, array.shape
        raw = to_raw(array, argument.host_dtype, argument.data_format, self._numerics)
        host = np.ascontiguousarray(raw)
        if not self._fills_all:
            fill(argument, self._numerics, self._bytes)
        for part, device in self._parts:
            np.copyto(device, part_of(host, self._first, self._raw, argument.transfer.host_strides, part))
        return True

    def read(self) -> NDArray[Any]:
        """Copy the elements to a host array."""
        argument = self.argument
        host = np.zeros(argument.host_shape, self._raw)
        for part, device in self._parts:
            np.copyto(part_of(host, self._first, self._raw, argument.transfer.host_strides, part), device)
        return from_raw(host, argument.host_dtype, argument.data_format, self._numerics)


class PreparedRun:
    """A machine after a recorded run, ready to run again."""

    def __init__(self, machine: Machine) -> None:
        space, arguments = machine.space, machine.bundle.manifest.arguments
        self._inputs, self._results = (
            [
                _PreparedArgument(argument, space.hbm(argument.parameter), machine.numerics)
                for argument in arguments
                if (argument.kind == "result") == is_result
            ]
            for is_result in (False, True)
        )
        self._names = {entry.argument.array_name for entry in self._inputs}
        self._steps: list[Callable[[], None]] = machine.recording or []
        self._statistics, self._ranges = machine.statistics, machine.all_ranges
        self._lock = threading.Lock()
        #: The context for products, which runs without products do not enter.
        self._blas = single_threaded_blas if machine.multiplies else contextlib.nullcontext
        self.nbytes: int = space.keep_bytes_alone()

    def run(self, arrays: Mapping[str, NDArray[Any]]) -> Result | None:
        """Run with other arrays; None if an ordinary run has to report an error, or if the memory is in use."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            with self._blas():
                return self._run(arrays)
        except SimulationError:
            return None
        finally:
            self._lock.release()

    def _run(self, arrays: Mapping[str, NDArray[Any]]) -> Result | None:
        if arrays.keys() != self._names:
            return None
        for ranges in self._ranges:
            ranges.reset()
        for entry in self._inputs:
            if not entry.load(np.asarray(arrays[entry.argument.array_name])):
                return None
        for step in self._steps:
            step()
        outputs = {}
        for entry in self._results:
            outputs[entry.argument.name] = array = entry.read()
            self._ranges[0].read(entry.argument, array)
        losses = tuple(loss for ranges in self._ranges for loss in ranges.losses)
        return Result(outputs, self._statistics, losses)


class PreparedRuns:
    """Kept runs by bundle; the least recently used runs are dropped if all together have too many bytes."""

    def __init__(self) -> None:
        #: Keyed by the choices of a run: None after the first run of a bundle, False for a bundle that cannot be kept.
        self._runs: IdentityTable[Any, PreparedRun | bool | None] = IdentityTable()
        self._used: OrderedDict[int, tuple[PreparedRun, dict[Any, Any], Any]] = OrderedDict()
        # Reentrant: a garbage collection inside of ``keep`` may drop runs.
        self._lock = threading.RLock()
        self.nbytes = 0

    def find(self, bundle: Bundle, choices: Any) -> PreparedRun | None:
        """Return the kept run of a bundle."""
        known = self._runs.entries_of(bundle).get(choices)
        if not isinstance(known, PreparedRun):
            return None
        with self._lock:
            if id(known) in self._used:
                self._used.move_to_end(id(known))
        return known

    def wants(self, bundle: Bundle, choices: Any) -> bool:
        """Return whether the next run of a bundle is recorded: the second run of a bundle that may be repeated."""
        entries = self._runs.entries_of(bundle)
        if choices in entries:
            return entries[choices] is None
        # The accesses of a bundle that may be repeated do not depend on numbers.
        manifest = bundle.manifest
        depends = manifest.sizes or manifest.indices or manifest.expects or manifest.non_terminal
        entries[choices] = False if depends else None
        return False

    def keep(self, machine: Machine, choices: Any) -> None:
        """Keep the recorded run of a machine."""
        entries = self._runs.entries_of(machine.bundle)
        entries[choices] = False
        if machine.recording is None:
            return
        run = entries[choices] = PreparedRun(machine)
        with self._lock:
            self._used[id(run)] = run, entries, choices
            weakref.finalize(machine.bundle, self._drop, id(run)).atexit = False
            self.nbytes += run.nbytes
            while self.nbytes > _MOST_BYTES_OF_ALL:
                self._drop(next(iter(self._used)))

    def _drop(self, key: int) -> None:
        """Drop a kept run."""
        with self._lock:
            if key in self._used:
                run, entries, choices = self._used.pop(key)
                entries.pop(choices, None)
                self.nbytes -= run.nbytes


#: Kept runs of this process.
prepared_runs = PreparedRuns()
