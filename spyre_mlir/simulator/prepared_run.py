# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A run of a bundle that is repeated with other numbers: memory, views and batches of a run before it are kept.

Addresses, and the writer of each byte, do not depend on numbers where no operation gathers rows and no parameter is an
index. The run that is kept has checked them. A repetition lays out the arguments, computes, and looks at numbers as
every run does. A repetition that finds an error gives up, and an ordinary run reports the error.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.bundle.identity_table import IdentityTable
from spyre_mlir.bundle.model import Bundle, KernelArgument
from spyre_mlir.bundle.transfer import (
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
from spyre_mlir.simulator.machine import Machine, Result
from spyre_mlir.simulator.memory import Memory
from spyre_mlir.simulator.simulation_error import SimulationError
from spyre_mlir.simulator.workers import single_threaded_blas
from spyre_mlir.target.formats import FORMATS, Numerics

#: Bytes of simulated memory that a kept run has at most, and that all of them have.
MOST_BYTES, _MOST_BYTES_OF_ALL = 1 << 20, 1 << 26


class _PreparedArgument:
    """An argument at its place in a memory."""

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
        # The type and shape of the last array that fits.
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
        """Copy the elements to an array of the host."""
        argument = self.argument
        host = np.zeros(argument.host_shape, self._raw)
        for part, device in self._parts:
            np.copyto(part_of(host, self._first, self._raw, argument.transfer.host_strides, part), device)
        return from_raw(host, argument.host_dtype, argument.data_format, self._numerics)


class PreparedRun:
    """A machine after a run that was recorded, ready to run again."""

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
        #: Context of products, which other runs need not enter.
        self._blas = single_threaded_blas if machine.multiplies else contextlib.nullcontext
        self.nbytes: int = space.keep_bytes_alone()

    def run(self, arrays: Mapping[str, NDArray[Any]]) -> Result | None:
        """Run with other arrays; None where an ordinary run has to report an error, or if the memory is in use."""
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
    """Kept runs by bundle; the least recently used ones are given up where all together have too many bytes."""

    def __init__(self) -> None:
        #: By the choices of a run: None once a bundle ran, False for one that cannot be kept.
        self._runs: IdentityTable[Any, PreparedRun | bool | None] = IdentityTable()
        self._used: OrderedDict[int, tuple[PreparedRun, dict[Any, Any], Any]] = OrderedDict()
        # Reentrant: a collection of garbage may give up runs inside of ``keep``.
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
        """Return whether the next run of a bundle is worth recording: the second one, of what may be repeated."""
        entries = self._runs.entries_of(bundle)
        if choices in entries:
            return entries[choices] is None
        entries[choices] = None if _is_repeatable(bundle) else False
        return False

    def keep(self, machine: Machine, choices: Any) -> None:
        """Keep the run of a machine that was recorded."""
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
        """Give up a kept run."""
        with self._lock:
            if key in self._used:
                run, entries, choices = self._used.pop(key)
                entries.pop(choices, None)
                self.nbytes -= run.nbytes


def _is_repeatable(bundle: Bundle) -> bool:
    """Return whether the accesses of a bundle do not depend on numbers."""
    manifest = bundle.manifest
    return not (manifest.sizes or manifest.indices or manifest.expects or manifest.non_terminal)


#: Kept runs of this process.
prepared_runs = PreparedRuns()
