# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""spyre-run: execute a SuperDSC bundle on simulated Spyre cores.

    spyre-run softmax.bundle --inputs in.npz --outputs out.npz
    spyre-run softmax.bundle --inputs in.npz --stats --numerics dl16
    spyre-run softmax.bundle --random --stats
    spyre-run softmax.bundle --timeline trace.json
    spyre-run softmax.bundle --timeline out.json --measured trace.json --calibration measured.csv
    spyre-run softmax.bundle --summary

The arrays of in.npz have the names of the bundle's arguments, or arr_0, arr_1, .. in the order of its inputs. Constants
and parameters that in.npz does not have are read from the bundle's constants.npz, or as device images from its
device_weights.npy. For a folder of another writer, without a manifest.json, the arrays have the names of the tensors of
its design, such as Tensor0, which spyre-validate prints. The folder is validated first, as by spyre-validate, unless
--no-validate is given. An invalid memory access is reported with the operation, the tensor, the core and the address.
The output file is written only on success.

--dma-execution-mode, --random-seed and --uninitialized-memory run the operations, and the cores of each operation, in
another order that the data flow allows (docs/concurrency.md): the results are the same unless there is a race, which
--detect-races reports. With --no-validate, a bundle with a race runs in such an order.

A folder of KTIR (spyre-compile --target ktir) runs on ktir-cpu, if that is installed (docs/ktir.md); --stats then
prints the time of the plan by the model of ktir-cpu and by ours.

--timeline predicts the time of the bundle, which needs no inputs. Without --inputs, --outputs and --stats, the bundle
does not run. Open the file in ui.perfetto.dev or chrome://tracing. Use the times to rank plans, not as predictions.

--measured joins a trace of torch.profiler on a card with the timeline by debug handles: tables of predicted over
measured times by operation and by module, and the kernels in the trace of --timeline. --calibration writes the matmuls
that were measured alone as a table for spyre-calibrate.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from spyre_mlir import files
from spyre_mlir.bundle.folder import is_foreign, is_program, read_arrays, read_bundle
from spyre_mlir.bundle.instances import at_arrays
from spyre_mlir.bundle.model import Bundle
from spyre_mlir.bundle.regular_files import Header, read_arrays_like
from spyre_mlir.bundle.transfer import misfit, read_images
from spyre_mlir.bundle.validate import Finding, races, sound_context, validate, validate_sequence
from spyre_mlir.driver.checking import HostArray, random_arguments
from spyre_mlir.driver.ktir_program import is_ktir
from spyre_mlir.errors import CompileError, RangeWarning, counted
from spyre_mlir.report import summary
from spyre_mlir.report.measured_trace import (
    MeasuredGroup,
    calibration_table,
    comparison_lines,
    joined,
    measured_bars,
    read_trace,
)
from spyre_mlir.report.modules import module_lines
from spyre_mlir.report.program_facts import Operation, program_facts
from spyre_mlir.simulator import Result, Schedule, Statistics, described, require_first, run
from spyre_mlir.simulator.schedule import DMA_EXECUTION_MODES, EAGER, UNINITIALIZED_MEMORY
from spyre_mlir.tables import aligned
from spyre_mlir.target.formats import MODES
from spyre_mlir.timeline import Timeline
from spyre_mlir.timeline.events import OVERLAPS, PARTS
from spyre_mlir.timeline.roofline import of_program
from spyre_mlir.timeline.trace import trace_text
from spyre_mlir.tools import _common

Value = TypeVar("Value")


@_common.tool
def main(argv: Sequence[str] | None = None) -> int:
    """Run spyre-run; return 0 on success, 1 after a diagnostic on stderr."""
    options = _parser().parse_args(argv)
    if (options.measured and not options.timeline) or (options.calibration and not options.measured):
        raise CompileError("--measured requires --timeline, and --calibration requires --measured.")
    fraction = _common.lx_fraction(options.lx_backend_fraction)
    chosen = options.dma_execution_mode, options.random_seed, options.uninitialized_memory
    if all(choice is None for choice in chosen):
        schedule = None
    else:
        mode, seed, contents = chosen
        schedule = Schedule(mode or EAGER, seed or 0, contents or "nan", is_checked=not options.no_validate)
    if schedule and is_ktir(options.folder):
        raise CompileError("A schedule requires bundles.", options.folder)
    runs = options.inputs or options.outputs or options.stats or options.random is not None or schedule
    if options.summary:
        if is_ktir(options.folder):
            raise CompileError(
                "--summary requires bundles; --stats prints the time of a KTIR program.", options.folder
            )
        from spyre_mlir.driver.program import Program

        print(Program.load(options.folder).summary())
        if not (runs or options.timeline or options.detect_races):
            return 0
    if is_program(options.folder):
        return _run_program(options, schedule)
    if is_ktir(options.folder):
        return _run_ktir(options)
    bundle = read_bundle(options.folder)
    if not options.no_validate:
        _require_valid(bundle, options.folder, fraction)
    if options.detect_races and (found := races(bundle, fraction)):
        raise CompileError(str(found[0]), options.folder)
    # If only a timeline is requested, the bundle does not run.
    result = _run(bundle, options, fraction, schedule) if runs or not options.timeline else None
    if options.timeline:
        facts = program_facts(bundle, lx_backend_fraction=fraction, overlap=options.overlap)
        lx_loads = [facts.map.occupancy(group[0]).load for group in facts.timeline.core_groups]
        groups = _measured(options, facts.operations)
        files.write_text(options.timeline, trace_text(facts.timeline, lx_loads, list(measured_bars(groups))))
        if options.timeline != "-":
            print("\n".join((times(facts.timeline), *module_lines(facts.operations))))
            if groups:
                print("\n".join(("", *comparison_lines(groups, facts.operations))))
    if result is not None and options.outputs:
        _write(options.outputs, result.outputs)
    if result is not None and options.stats:
        print(table(result.statistics))
    return 0


def _measured(options: argparse.Namespace, operations: Sequence[Operation]) -> list[MeasuredGroup]:
    """Return the groups of kernels and operations of a measured trace, and write the rows for a calibration."""
    if not options.measured:
        return []
    kernels = read_trace(files.read_text(options.measured), options.measured)
    groups = joined(kernels, operations, options.measured)
    if options.calibration:
        files.write_text(options.calibration, calibration_table(groups, Path(options.measured).stem))
    return groups


def _run(
    bundle: Bundle, options: argparse.Namespace, fraction: float | None, schedule: Schedule | None
) -> Result:
    require_first(bundle.manifest)
    # An argument with a source is the array of another argument in a second layout, so it needs no array.
    arguments = [argument for argument in bundle.manifest.arguments if argument.source is None]
    is_numeric = is_foreign(options.folder)

    def at_sizes(headers: Mapping[str, Header]) -> Sequence[HostArray]:
        """Return the arguments at the run-time sizes that the arrays have."""
        return at_arrays(bundle, headers).manifest.arguments

    inputs = _read(options.inputs, arguments, at_sizes, is_numeric=is_numeric) if options.inputs else {}
    images = read_images(options.folder, bundle.manifest.arguments)
    arrays = _with_random(
        options.random, arguments, {**read_arrays(options.folder), **inputs}, images.by_name
    )
    result = run(bundle, arrays, options.numerics, fraction, images, schedule)
    for sentence in described(result.losses):
        warnings.warn(sentence, RangeWarning, stacklevel=1)
    return result


def _run_ktir(options: argparse.Namespace) -> int:
    """Run a KTIR folder on ktir-cpu; statistics are the time of the plan by the model of ktir-cpu and by ours."""
    from spyre_mlir.driver.ktir_program import latency_table, read_ktir, run_interpreter

    if options.timeline:
        raise CompileError(
            "--timeline requires a bundle; --stats prints the time of a KTIR program.", options.folder
        )
    text, manifest = read_ktir(options.folder)
    if options.detect_races:
        from spyre_mlir.ktir.races import ktir_races

        for finding in ktir_races(text, options.folder, manifest):
            raise CompileError(finding.message, finding.where)
    arguments = [argument for argument in manifest.arguments if argument.source is None]
    inputs = _read(options.inputs, arguments) if options.inputs else {}
    arrays = _with_random(options.random, arguments, {**read_arrays(options.folder), **inputs})
    result = run_interpreter(text, manifest, arrays, options.stats)
    if options.outputs:
        _write(options.outputs, result.outputs)
    if options.stats:
        print(latency_table(result, manifest.predicted_us))
    return 0


def _run_program(options: argparse.Namespace, schedule: Schedule | None) -> int:
    """Run a folder of several steps: bundles on the simulator, host functions on this machine."""
    from spyre_mlir.driver.checking import require_no_races
    from spyre_mlir.driver.program import Program
    from spyre_mlir.driver.steps import BundleStep, HostStep, sequences

    if options.timeline:
        raise CompileError("--timeline requires one bundle; name the bundle of a step.", options.folder)
    program = Program.load(options.folder, options.numerics)
    fraction = _common.lx_fraction(options.lx_backend_fraction)
    for step in program.bundles:
        step.lx_frac_avail = fraction
        if not options.no_validate:
            _require_valid(step.bundle, f"{options.folder}/{step.name}", fraction)
    if options.detect_races:
        require_no_races(program.steps)
    # Bundles that are valid individually may still disagree about the LX content passed between them.
    for unit in () if options.no_validate else sequences(program.steps):
        if isinstance(unit, list):
            names, bundles = [step.name for step in unit], [step.bundle for step in unit]
            _require_none(validate_sequence(names, bundles, fraction), options.folder)
    inputs = _read(options.inputs, program.arguments) if options.inputs else {}
    arrays = _with_random(options.random, program.arguments, {**program.arrays, **inputs})
    results = program.run(arrays, schedule)
    if options.outputs:
        names = [value.name for value in program.results]
        _write(options.outputs, dict(zip(names, results, strict=True)))
    if options.stats:
        for step in program.steps:
            if isinstance(step, BundleStep) and step.last_run is not None:
                print(f"{step.name}\n{table(step.last_run.statistics)}")
            else:
                print(f"{step.name}: on the {'host' if isinstance(step, HostStep) else 'link'}")
    return 0


def _with_random(
    seed: int | None, arguments: Sequence[HostArray], arrays: dict[str, Any], images: Collection[str] = ()
) -> dict[str, Any]:
    """Return the arrays, with random numbers for the other arguments if there is a seed."""
    if seed is None:
        return arrays
    missing = [
        argument for argument in arguments if argument.name not in arrays and argument.name not in images
    ]
    return random_arguments(missing, seed) | arrays


def _require_valid(bundle: Bundle, folder: str, lx_backend_fraction: float | None) -> None:
    """Raise ``CompileError`` for a broken structure rule, at its file, or with the validator's first finding."""
    sound_context(bundle, lx_backend_fraction)
    _require_none(validate(bundle, lx_backend_fraction), folder)


def _require_none(findings: Sequence[Finding], folder: str) -> None:
    """Raise ``CompileError`` with the first finding, if there are findings."""
    if findings:
        more = f", and {len(findings) - 1} more" if len(findings) > 1 else ""
        text = f"{findings[0]}{more}; spyre-validate lists all, and --no-validate runs the bundle."
        raise CompileError(f"The bundle is not valid: {text}", folder)


def table(statistics: Statistics) -> str:
    """Return a table of HBM bytes per operation and in total, the largest LX use of a core, and ring bytes."""
    rows: list[tuple[str, ...]] = [("operation", "op", "runs", "cores", "HBM read", "HBM written")]
    for execute in sorted(statistics.executes.values(), key=lambda execute: execute.index):
        counts = (execute.runs, execute.cores, execute.read_bytes, execute.write_bytes)
        rows.append((execute.filename, execute.opcode, *(f"{count:,}" for count in counts)))
    runs = sum(execute.runs for execute in statistics.executes.values())
    totals = (runs, statistics.cores, statistics.read_bytes, statistics.write_bytes)
    rows.append(("total", "", *(f"{count:,}" for count in totals)))
    lines = aligned(rows, "<<>>>>")
    highest = max(statistics.lx_high_water_bytes.values(), default=0)
    lines.append(f"HBM read, per-core sum: {statistics.core_read_bytes:,} bytes")
    lines.append(f"LX high water: {highest:,} bytes")
    if statistics.relayout_bytes:
        lines.append(f"Sent over the ring: {statistics.relayout_bytes:,} bytes")
    return "\n".join(lines)


def times(timeline: Timeline) -> str:
    """Return a table of the predicted time, its bounds, its shares by limiting resource, and the roofline."""
    shares = timeline.shares
    rows = [
        ("predicted time", f"{timeline.total_ns / 1000:,.1f} us"),
        ("overlap", timeline.overlap),
        ("sequential", f"{timeline.sequential_ns / 1000:,.1f} us"),
        *((("buffer waits", waits),) if (waits := summary.buffer_waits_text(timeline)) else ()),
        ("all overlapped", f"{timeline.lower_ns / 1000:,.1f} us"),
        ("all serial", f"{timeline.upper_ns / 1000:,.1f} us"),
    ]
    for part in PARTS:
        share = getattr(shares, part) / max(shares.total, 1)
        rows.append((f"bound by {part}", f"{share:.1%}"))
    program = of_program(timeline)
    rows.append(("attained", f"{program.attained_per_ns:,.1f} operations per ns"))
    rows.append(
        ("attainable", f"{program.attainable_per_ns:,.1f} operations per ns, bound by {program.bound_by}")
    )
    return summary.table(rows)


def _named(arguments: Sequence[HostArray], arrays: Mapping[str, Value]) -> dict[str, Value]:
    """Rename ``arr_<k>``, numpy's name for the k-th positional array, to the k-th input; keep argument names."""
    known = {argument.name for argument in arguments}
    inputs = [argument.name for argument in arguments if argument.kind == "input"]
    named: dict[str, Value] = {}
    for key, array in arrays.items():
        position = re.fullmatch(r"arr_(\d{1,6})", key)
        # An argument may itself be called arr_0, so argument names take precedence.
        if key in known or position is None:
            name = key
        elif int(position[1]) < len(inputs):
            name = inputs[int(position[1])]
        else:
            raise CompileError(
                f"Array '{key}' has no argument: the program has {counted(len(inputs), 'input')}."
            )
        if name in named:
            raise CompileError(f"Input '{name}' is given twice, by name and by position.")
        named[name] = array
    return named


def _read(
    path: str,
    arguments: Sequence[HostArray],
    at_sizes: Callable[[Mapping[str, Header]], Sequence[HostArray]] | None = None,
    *,
    is_numeric: bool = False,
) -> dict[str, NDArray[Any]]:
    """Read the arrays of an archive by argument name; raise ``CompileError`` before unpacking an unsuitable array.

    ``at_sizes`` returns the arguments at the run-time sizes of the arrays. With ``is_numeric``, an input accepts floats
    of any width, because the bundle of another writer does not specify host types.
    """
    inputs = {argument.name: argument for argument in arguments if argument.kind != "result"}

    def check(headers: Mapping[str, Header]) -> None:
        named = _named(arguments, headers)
        if at_sizes is not None:
            inputs.update(
                {argument.name: argument for argument in at_sizes(named) if argument.name in inputs}
            )
        for name, header in named.items():
            problem = f"there is no such input; the inputs are {', '.join(inputs) or 'none'}."
            if name in inputs:
                fitting = inputs[name].host_dtype if is_numeric and _is_float(inputs[name], header) else None
                problem = misfit(inputs[name], Header(np.dtype(fitting), header.shape) if fitting else header)
            if problem:
                raise CompileError(f"tensor '{name}': {problem}")

    arrays = _named(arguments, read_arrays_like(path, check))
    if is_numeric:
        for name, array in arrays.items():
            if _is_float(inputs[name], array):
                arrays[name] = array.astype(inputs[name].host_dtype)
    return arrays


def _is_float(argument: HostArray, array: Header | NDArray[Any]) -> bool:
    """Return whether both the argument and the array have float types that exist in numpy."""
    return argument.host_dtype in ("float16", "float32") and array.dtype.kind == "f"


def _write(path: str, arrays: dict[str, NDArray[Any]]) -> None:
    """Write the archive atomically."""
    with files.writing(path) as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]


def _parser() -> _common.ArgumentParser:
    parser = _common.ArgumentParser("spyre-run", __doc__)
    parser.add_argument("folder", metavar="DIR", help="folder of the bundle")
    parser.add_argument(
        "--inputs", metavar="FILE.npz", help="archive with the arrays of the inputs, as numpy.savez writes it"
    )
    text = "draw the arrays that no archive has from a generator with this seed, indices within their range"
    parser.add_argument(
        "--random",
        type=_common.number(int, 0, 2**31),
        nargs="?",
        const=0,
        metavar="SEED",
        help=f"{text} (default: 0)",
    )
    _common.add_output(parser, "--outputs", "FILE.npz", "write the results to this archive")
    text = "simulate DL16 as IEEE fp16, or bit by bit (default: ieee; dl16 for programs with bfloat16)"
    parser.add_argument("--numerics", choices=MODES, help=text)
    parser.add_argument("--summary", action="store_true", help="print the summary of the plan, without a run")
    parser.add_argument(
        "--stats", action="store_true", help="print the bytes that each operation reads and writes"
    )
    parser.add_argument(
        "--no-validate", action="store_true", help="run the bundle even if it breaks a rule of the format"
    )
    text = "first check that accesses to the same bytes have an order, as spyre-validate --races does"
    parser.add_argument("--detect-races", action="store_true", help=text)
    text = "run copies as early or as late as the data flow allows, or all operations in a random order"
    parser.add_argument("--dma-execution-mode", choices=DMA_EXECUTION_MODES, help=text)
    text = "seed of the order of operations and cores (default: 0)"
    parser.add_argument("--random-seed", type=int, metavar="N", help=text)
    text = "contents of memory before the first write, with an order of these options (default: nan)"
    parser.add_argument("--uninitialized-memory", choices=UNINITIALIZED_MEMORY, help=text)
    _common.add_output(parser, "--timeline", "FILE.json", "predict the time, and write a trace for Perfetto")
    text = "compare the timeline with a trace of torch.profiler on a card"
    parser.add_argument("--measured", metavar="TRACE.json", help=text)
    text = "write the matmuls of --measured as a table for spyre-calibrate"
    _common.add_output(parser, "--calibration", "FILE.csv", text)
    text = "whether loads begin before the previous operation has ended, for --timeline (default: overlapped)"
    parser.add_argument("--overlap", choices=OVERLAPS, default=OVERLAPS[0], help=text)
    fraction = (
        "fraction of LX, 0 to below 1, that the backend keeps (default: DXP_LX_FRAC_AVAIL, or the device's)"
    )
    parser.add_argument("--lx-backend-fraction", type=float, metavar="F", help=fraction)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
