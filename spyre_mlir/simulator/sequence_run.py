# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs bundles: one, or several one after the other with what each leaves to the next."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from numpy.typing import NDArray

from spyre_mlir.bundle.elements import Elements
from spyre_mlir.bundle.images import Images
from spyre_mlir.bundle.instances import at_arrays
from spyre_mlir.bundle.model import Buffer, Bundle, Manifest
from spyre_mlir.bundle.sequence import LX
from spyre_mlir.errors import listed
from spyre_mlir.records import dataclass
from spyre_mlir.simulator.machine import Machine, Result, executes_of
from spyre_mlir.simulator.memory import AddressSpace
from spyre_mlir.simulator.prepared_run import MOST_BYTES, prepared_runs
from spyre_mlir.simulator.progress import simulation_progress
from spyre_mlir.simulator.simulation_error import SimulationError
from spyre_mlir.simulator.workers import keep_freed_memory, single_threaded_blas
from spyre_mlir.target.formats import IEEE, Numerics
from spyre_mlir.timing import scope


def run(
    bundle: Bundle,
    arrays: Mapping[str, NDArray[Any]],
    numerics: str | None = None,
    lx_backend_fraction: float | None = None,
    images: Images | None = None,
) -> Result:
    """Execute a bundle on host arrays. Run-time sizes are those of the arrays.

    Args:
        bundle: The bundle.
        arrays: An array by name for every argument that is not a result, of its dtype and shape (bfloat16: uint16
            bits or float32); one with a source takes that of its source, and one without an array may have an image.
        numerics: "ieee" or "dl16", by default what the bundle needs: "dl16" for bfloat16.
        lx_backend_fraction: The part of LX, 0 to 1, that the bundle may not use; by default that of its target.
        images: Bytes of arguments as the device holds them.

    Raises:
        SimulationError: The bundle misuses memory, or an array is missing or has another form.
    """
    (result,) = run_sequence([BundleCall(bundle, arrays, images or Images())], numerics, lx_backend_fraction)
    return result


@dataclass(frozen=True)
class BundleCall:
    """A bundle and what the host gives it."""

    bundle: Bundle
    arrays: Mapping[str, NDArray[Any]]
    images: Images = field(default_factory=Images)


def run_sequence(
    sequence: Sequence[BundleCall], numerics: str | None = None, lx_backend_fraction: float | None = None
) -> list[Result]:
    """Execute bundles one after the other on one machine, of which each but the first expects what is left there.

    Parameters of one name are one address in all of them. LX is what the bundle before has left if that is
    non-terminal; otherwise nothing is there any more.

    Args:
        sequence: The bundles, with the arrays of each.
        numerics: As ``run`` takes them.
        lx_backend_fraction: As ``run`` takes it.

    Raises:
        SimulationError: As of ``run``, or a bundle does not follow the one before it.
    """
    first, choices = sequence[0], (numerics, lx_backend_fraction)
    is_single = len(sequence) == 1 and not first.images.by_name
    if is_single and (prepared := prepared_runs.find(first.bundle, choices)) is not None:
        result = prepared.run(first.arrays)
        if result is not None:
            return [result]
    is_recorded = is_single and prepared_runs.wants(first.bundle, choices)
    results, machines = _run(sequence, numerics, lx_backend_fraction, is_recorded)
    if is_recorded:
        prepared_runs.keep(machines[0], choices)
    return results


@scope("simulate", "stages")
def _run(
    sequence: Sequence[BundleCall], numerics: str | None, lx_backend_fraction: float | None, is_recorded: bool
) -> tuple[list[Result], list[Machine]]:
    """Results of an ordinary run, in which all is checked, and the machines of the bundles."""
    sequence = [replace(entry, bundle=at_arrays(entry.bundle, entry.arrays)) for entry in sequence]
    _check_order([entry.bundle for entry in sequence])
    keep_freed_memory()
    target = sequence[0].bundle.target
    space = AddressSpace(
        target if lx_backend_fraction is None else target.with_backend_fraction(lx_backend_fraction)
    )
    needed = numerics or next((form for entry in sequence if (form := entry.bundle.manifest.numerics)), IEEE)
    machines = [Machine(entry.bundle, Numerics(needed), space) for entry in sequence]
    _allocate(machines, space)
    if is_recorded and space.most_bytes <= MOST_BYTES:
        space.keep()
        machines[0].recording = []
    results, elements, executes = [], Elements(target), 0
    kept, total = _expected_bases(machines), sum(executes_of(entry.bundle.statements) for entry in sequence)
    with simulation_progress(total) as advance:
        for machine, entry in zip(machines, sequence, strict=True):
            machine.elements, machine.first_execute, machine.advance = elements, executes, advance
            machine.load(entry.arrays, entry.images)
            with single_threaded_blas():
                machine.run(kept)
            results.append(Result(machine.results(), machine.statistics, machine.losses()))
            space.finish_loads()
            executes += executes_of(entry.bundle.statements)
            if not entry.bundle.manifest.non_terminal:
                # Behind a terminal bundle other programs may use the LX.
                space.wipe_lx()
                elements = Elements(target)
    return results, machines


def _expected_bases(machines: Sequence[Machine]) -> set[str]:
    """The memory in which bundles expect what those before them leave."""
    manifests = [machine.bundle.manifest for machine in machines]
    names = {resident.buffer for manifest in manifests for resident in manifest.expects}
    return {buffer.base for manifest in manifests for buffer in manifest.buffers if buffer.name in names}


def require_first(manifest: Manifest) -> None:
    """``SimulationError`` for a bundle that expects something of one before it."""
    if manifest.expects:
        names = listed(resident.buffer for resident in manifest.expects)
        text = f"the bundle goes on with what the one before it leaves ({names}); run the program that it is a part of."
        raise SimulationError("resident", text)


def _check_order(bundles: Sequence[Bundle]) -> None:
    """Check that a bundle runs before each that expects buffers, and is non-terminal if they are in LX."""
    require_first(bundles[0].manifest)
    for before, bundle in itertools.pairwise(bundles):
        bases = {buffer.name: buffer.base for buffer in bundle.manifest.buffers}
        for resident in bundle.manifest.expects:
            if bases.get(resident.buffer) == LX and not before.manifest.non_terminal:
                text = "a bundle expects this buffer in LX, but the one before it is terminal."
                raise SimulationError("resident", text, tensor=resident.buffer)


def _allocate(machines: Sequence[Machine], space: AddressSpace) -> None:
    """Memory for the parameters, allocations and buffers of all machines of a sequence, by their names."""
    sizes: dict[str, int] = {}
    for machine in machines:
        for name, parameter in machine.parameters.items():
            if not parameter.is_address:
                continue
            # One bundle may use less of a parameter than another one; its one address has to hold the largest.
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
