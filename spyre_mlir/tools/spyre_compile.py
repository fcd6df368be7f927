# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""spyre-compile: from a linalg program in MLIR, or an ONNX file, to a bundle folder and a page about it.

    spyre-compile softmax.mlir -o softmax.bundle --sencores 4
    spyre-compile softmax.mlir -o softmax.bundle --check
    spyre-compile softmax.mlir -o softmax.bundle --pipeline "lx-planning=false"
    spyre-compile linear.mlir -o linear.bundle --layout 0 stick-dims=0 --layout arg1 dim-order=1,0
    spyre-compile softmax.mlir -o softmax.bundle --save-plan plan.json
    spyre-compile softmax.mlir -o pinned.bundle --use-plan plan.json
    spyre-compile softmax.mlir -o changed.bundle --load my_pass.py --passes "laid-out=my-pass{limit=3}"

--layout chooses the layout of an argument, by its name (spyre.name, or arg<k>) or by the position of an input:
stick-dims=0 puts dim 0 in the stick and keeps the default order of the other dims (stick-dims= is stick-sparse);
dim-order=1,0 is the order of all dims, the stick dim last; stick-outermost puts the stick count first.

--check reads the folder back, runs it on the simulator with seeded random arguments, and compares the results with
the CPU, which runs the original program on numpy arrays, with sums in float64 and one rounding per operation. It prints
the largest error and the allowed error. It also saves the random arguments of kind "parameter" in the bundle; with
--lay-out-weights, as device images. The exit status is 1 if an error is too large; the bundle is kept for inspection.

--target ktir writes a program in KTIR, the tile programs of RFC 0682 (docs/ktir.md); --check then runs the program on
ktir-cpu.

--emit torch-spyre writes hints.patch, a patch of the model's source for the public interface of torch-spyre, and
spyre_hints.py, a module with the same hints as a context manager (docs/torch-spyre.md). It also prints the patch. The
locations in the MLIR file must name the source.

--autocast casts the operands of matmuls and convolutions of f32, and rounds their results (the pass
autocast-products); --check compares with the CPU on the same casts.
"""

from __future__ import annotations

import argparse
import functools
import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from spyre_mlir import files, logs
from spyre_mlir.errors import CompileError
from spyre_mlir.problems import Problems, collecting
from spyre_mlir.tools import _common

if TYPE_CHECKING:
    from spyre_mlir.driver.program import Program
    from spyre_mlir.driver.program_findings import FindingSearch
    from spyre_mlir.layout.requests import LayoutRequest
    from spyre_mlir.mlir import ir
    from spyre_mlir.pipelines import SpyrePipeline


@_common.tool
def main(argv: Sequence[str] | None = None) -> int:
    """Run spyre-compile; return 0 on success, 1 after a diagnostic on stderr or a failed check."""
    options = _parser().parse_args(argv)
    if options.findings_budget is not None:
        options.findings = options.findings_budget
    if options.report:
        from spyre_mlir.report.program_report import form_of

        form_of(options.report)  # report an invalid name before the compilation
    source = _Source(options.input, options.autocast)
    if options.autocast == "dl16" and options.numerics is None:
        options.numerics = "dl16"
    problems = Problems() if options.save_problems or options.save_buffers else None
    with collecting(problems):
        program = _served_or_compiled(source, options)
    if problems is not None:
        _save_problems(problems, options)
    if options.check:
        from spyre_mlir.driver.checking import require_no_races

        require_no_races(program.steps)
    if options.emit:
        hints = program.torch_spyre_hints()
        hints.save(options.output)
        print(hints.patch(), end="")
        return 0
    if options.target == "ktir":
        from spyre_mlir.driver.ktir_program import KtirProgram

        program = KtirProgram.of(program, _pipeline(options).ktir_addresses)
    _common.show_warnings(program.remarks)
    from spyre_mlir.driver.program_figures import host_work_warning

    sentence = host_work_warning(program.steps, program.remarks)
    if sentence and logs.shows(logging.WARNING):
        print(f"warning: {sentence}", file=sys.stderr)
    if options.check:
        status = _check(program, source.original, options)
    else:
        program.save(options.output, lay_out_weights=options.lay_out_weights)
        print(program.summary(findings=options.findings))
        status = 0
    if options.save_plan:
        from spyre_mlir.dialects import sdsc
        from spyre_mlir.mlir import ir

        # The pipeline stored the text of the plan file in an attribute of the module.
        plan = ir.StringAttr(source.module.operation.attributes[sdsc.PLAN]).value
        files.write_text(options.save_plan, plan)
    if options.report:
        program.report(options.report, findings=options.findings)
    if options.metrics:
        files.write_text(options.metrics, json.dumps(program.metrics(), indent=1) + "\n")
    if options.remarks:
        from spyre_mlir.remarks import Remarks

        files.write_text(options.remarks, Remarks([*program.remarks, *program.finding_remarks]).json_lines())
    return status


def _save_problems(problems: Problems, options: argparse.Namespace) -> None:
    """Write the problems of the compilation to files, and print the command that runs solvers on the buffers."""
    from spyre_mlir.driver.problem_files import save_buffers, save_problems

    if options.save_problems:
        save_problems(problems, options.save_problems)
    if options.save_buffers:
        spaces = save_buffers(problems, options.save_buffers)
        names = {scope: f"{scope}=" if len(spaces) > 1 else "" for scope in spaces}
        capacities = " ".join(f"--capacity {names[scope]}{space.capacity}" for scope, space in spaces.items())
        alignment = max((space.alignment for space in spaces.values()), default=1)
        command = f"spyre-plan {options.save_buffers} {capacities} --alignment {alignment} --solver all"
        print(f"note: {command}" if spaces else "note: No buffer is eligible for LX.", file=sys.stderr)


def _search(source: _Source, options: argparse.Namespace) -> FindingSearch:
    """Return the search for findings by compilations of the source with other options."""
    from spyre_mlir.driver.compilation import compile_mlir
    from spyre_mlir.driver.program_findings import FindingSearch, Trials

    pipeline = _pipeline(options)
    given = pipeline.changed()
    if layouts := _layouts(options.layout, pipeline.stick_outermost):
        given["layouts"] = layouts
    if options.no_fallback:
        given["fallback"] = False
    text = str(source.original.operation.get_asm(enable_debug_info=True))
    return FindingSearch(Trials(text, tuple, given, compile_mlir))


class _Source:
    """The source program: its text, and modules parsed from it."""

    def __init__(self, path: str, autocast: str | None) -> None:
        self.path = path
        self.autocast = autocast
        self._file = self._data = files.read_bytes(path)
        self._is_onnx = path.endswith(".onnx")
        if self._is_onnx:
            from spyre_mlir.frontend.model_files import import_onnx  # imports PyTorch

            self._data = str(import_onnx(path)).encode()
        #: The text; for bytecode, one character per byte.
        if _common.is_bytecode(self._data):
            self.text = self._data.decode("latin-1")
        else:
            self.text = files.decoded(self._data, path)

    @functools.cached_property
    def module(self) -> ir.Module:
        """The module, parsed on first use; the compilation changes it in place."""
        return self._parsed()

    @functools.cached_property
    def original(self) -> ir.OpView:
        """A copy of the source module, with the casts of --autocast."""
        return self._parsed().operation.clone()

    def _parsed(self) -> ir.Module:
        # Imported after the flags are parsed, so that a wrong flag and --help do not load the bindings.
        from spyre_mlir import dialects

        content = self.text if self._is_onnx else self._data if self.path == "-" else None
        module = _common.parse_module(self.path, dialects.context(), content)
        if self.autocast is not None:
            from spyre_mlir.passes.autocast_products import AutocastProducts

            AutocastProducts(self.autocast).run(module.operation)
        return module

    def is_unchanged(self) -> bool:
        """Return whether the file has not changed since it was read; always true for stdin."""
        return self.path == "-" or files.read_bytes(self.path) == self._file


def _served_or_compiled(source: _Source, options: argparse.Namespace) -> Program:
    """Read the program from the cache on disk, or compile it and write it to the cache."""
    from spyre_mlir.driver.build import build
    from spyre_mlir.driver.program import Program
    from spyre_mlir.driver.program_cache import ProgramCache

    pipeline, fallback = _pipeline(options), not options.no_fallback
    layouts = _layouts(options.layout, pipeline.stick_outermost)
    search = _search(source, options) if options.findings is not False else None
    # The passes must run for data about them, whatever is in the cache.
    needs_passes = options.no_cache or options.mlir_timing or options.save_problems or options.save_buffers
    programs = ProgramCache.open(pipeline, False if needs_passes else None)
    if programs is None:
        return _compile(source, pipeline, layouts, options, search)
    key = programs.key(
        "mlir",
        source.text,
        source.path,
        repr(sorted(layouts.items(), key=repr)),
        repr(fallback),
        str(source.autocast),
    )
    program = programs.serve(
        key,
        lambda stored: Program.restored(
            stored,
            options.numerics,
            build=lambda module: build(module, pipeline, fallback),
            pipeline=pipeline,
            search=search,
        ),
    )
    if program is None:
        program = _compile(source, pipeline, layouts, options, search)
        if source.is_unchanged():
            programs.keep(key, lambda: program.stored(key))
    return program


def _compile(
    source: _Source,
    pipeline: SpyrePipeline,
    layouts: dict[str | int, LayoutRequest],
    options: argparse.Namespace,
    search: FindingSearch | None,
) -> Program:
    from spyre_mlir.driver.argument_layouts import lay_out
    from spyre_mlir.driver.build import build
    from spyre_mlir.driver.program import Program, Provenance

    module = source.module
    lay_out(module, pipeline, {}, layouts)
    laid_out = module.operation.clone()
    built = build(module, pipeline, not options.no_fallback)
    if options.mlir_timing:
        print(built.passes.report(), end="", file=sys.stderr)
    provenance = Provenance(laid_out.operation, pipeline=pipeline)
    return Program(built, options.numerics, provenance=provenance, search=search)


def _pipeline(options: argparse.Namespace) -> SpyrePipeline:
    """Build the pipeline from ``--pipeline`` and from the flags that are pipeline options."""
    from spyre_mlir.options import show_value
    from spyre_mlir.pipelines import SpyrePipeline

    names = (
        "sencores", "precision", "stick_outermost", "order_by_size", "bundle_operations", "from_level", "use_plan",
    )  # fmt: skip
    flags = {name: getattr(options, name) for name in names}
    flags["save_plan"] = "" if options.save_plan else None
    # For a flag that is not set, the pipeline uses its default.
    texts = [f"{name}={show_value(value)}" for name, value in flags.items() if value is not None]
    pipeline = SpyrePipeline.parse(" ".join([*texts, options.pipeline]))
    return replace(pipeline, passes=(*pipeline.passes, *options.passes))


def _layouts(pairs: list[tuple[str, str]], stick_outermost: bool) -> dict[str | int, LayoutRequest]:
    """Parse the values of ``--layout`` into layout requests by argument name or input position."""
    from spyre_mlir.layout.requests import LayoutRequest

    layouts: dict[str | int, LayoutRequest] = {}
    for name, text in pairs:
        key = int(name) if name.isdigit() else name
        if key in layouts:
            raise CompileError(f"--layout names '{name}' twice.")
        request = LayoutRequest.parse(text)
        # The pipeline option is the default for each layout, as in ``compile``.
        layouts[key] = replace(request, stick_outermost=request.stick_outermost or stick_outermost)
    return layouts


def _check(program: Program, original: ir.OpView, options: argparse.Namespace) -> int:
    """Save the program with random parameters, run it from disk, compare with the CPU; return the exit status."""
    from spyre_mlir.driver.checking import DISTRIBUTION, SEED, compare, random_arguments
    from spyre_mlir.driver.program import Program
    from spyre_mlir.host import HostEvaluator
    from spyre_mlir.passes.decompose_softmax import DecomposeSoftmax

    DecomposeSoftmax().run(original.operation)
    reference = HostEvaluator(original)
    arguments = random_arguments(program.arguments)
    parameters = {argument.name for argument in program.arguments if argument.kind == "parameter"}
    program.arrays.update({name: array for name, array in arguments.items() if name in parameters})
    program.save(options.output, lay_out_weights=options.lay_out_weights)
    inputs = {name: array for name, array in arguments.items() if name not in parameters}
    if options.target == "ktir":
        outputs = program.run({**program.arrays, **inputs})
    else:
        saved = Program.load(options.output, program.numerics)
        outputs = saved.run({**saved.arrays, **inputs})
        for step, saved_step in zip(program.bundles, saved.bundles, strict=True):
            step.last_run = saved_step.last_run  # for the statistics in the summary
    print(program.summary())
    print(f"\ncheck against the CPU (seed {SEED}: {DISTRIBUTION})")
    comparisons = compare(program.results, outputs, reference(*arguments.values()), program.numerics)
    for comparison in comparisons:
        print(comparison)
    return 0 if all(comparison.passed for comparison in comparisons) else 1


def _parser() -> _common.ArgumentParser:
    parser = _common.ArgumentParser("spyre-compile", __doc__)
    parser.add_argument("input", nargs="?", default="-", help="MLIR file, - for stdin (the default)")
    parser.add_argument("-o", dest="output", type=_common.require_folder, metavar="DIR", required=True,
                        help="folder of the bundle to write")  # fmt: skip
    parser.add_argument("--sencores", type=int, metavar="N",
                        help="number of cores that the program may use (default: SENCORES, or all)")  # fmt: skip
    parser.add_argument("--precision", choices=("device", "strict"),
                        help="device: compute f32 between fp16 values in fp16 (the default); "
                             "strict: keep the types of the program")  # fmt: skip
    parser.add_argument("--autocast", choices=("float16", "fp16", "dl16", "bfloat16", "bf16"),
                        help="cast the operands of f32 matmuls and convolutions to this "
                             "type (default: no cast)")  # fmt: skip
    parser.add_argument("--layout", nargs=2, action="append", default=[], metavar=("NAME", "OPTIONS"),
                        help="layout of an argument or a result, such as: x stick-dims=0 "
                             "(default: chosen by the compiler)")  # fmt: skip
    parser.add_argument("--pipeline", metavar="OPTIONS", default="",
                        help='options of the pipeline, such as "lx-planning=false layout-solver=bestfit"')  # fmt: skip
    parser.add_argument("--passes", action="append", default=[], metavar="LEVEL=PASSES",
                        help="run user-defined passes after the passes of a level: laid-out=my-pass{x=1}")  # fmt: skip
    parser.add_argument("--stick-outermost", action="store_true", default=None,
                        help="make the number of sticks the outermost dim of default "
                             "layouts, as in RFC 0047")  # fmt: skip
    parser.add_argument("--order-by-size", action="store_true", default=None,
                        help="place the largest buffers first in all memories")  # fmt: skip
    parser.add_argument("--bundle-operations", type=int, metavar="N",
                        help="cut the program into bundles of at most N operations (default: one bundle)")  # fmt: skip
    parser.add_argument("--from-level", metavar="NAME",
                        help="the level of the input, whose passes and passes before are skipped")  # fmt: skip
    parser.add_argument("--numerics", choices=("ieee", "dl16"),
                        help="with --check: simulate DL16 as IEEE fp16, or bit by bit (default: ieee; "
                             "dl16 for programs with bfloat16)")  # fmt: skip
    _common.add_output(
        parser, "--save-plan", "FILE.json", "write all decisions to a plan file, for --use-plan"
    )
    parser.add_argument("--use-plan", metavar="FILE.json", help="use the decisions of this plan file")
    _common.add_output(parser, "--save-buffers", "FILE.csv",
                       "write a table of the scratchpad buffers, for spyre-plan")  # fmt: skip
    parser.add_argument("--save-problems", metavar="DIR",
                        help="write the search problems of layouts and divisions to this folder, as JSON")  # fmt: skip
    parser.add_argument("--findings", action="store_true",
                        help="search for changes that make the program faster; this compiles "
                             "the program several times")  # fmt: skip
    parser.add_argument("--findings-budget", type=_common.number(float, 0, 1e6), metavar="SECONDS",
                        help="as --findings, but begin no trial after this time")  # fmt: skip
    _common.add_output(parser, "--remarks", "FILE", "write every decision of the compiler as a JSON line")
    _common.add_output(parser, "--metrics", "FILE.json", "write the figures of Program.metrics")
    _common.add_output(
        parser,
        "--report",
        "FILE",
        "write a report with compile times: a page (.html), its data (.json) or the timeline (.svg)",
    )
    parser.add_argument("--mlir-timing", action="store_true",
                        help="print the times of stages, passes and their parts to stderr")  # fmt: skip
    parser.add_argument("--no-cache", action="store_true",
                        help="do not use the cache of compiled programs on disk (docs/cache.md)")  # fmt: skip
    parser.add_argument("--target", choices=("bundle", "ktir"), default="bundle",
                        help="write a SuperDSC bundle (the default), or a program in KTIR")  # fmt: skip
    parser.add_argument("--emit", choices=("torch-spyre",),
                        help="write the decisions as hints for torch-spyre, instead of a bundle")  # fmt: skip
    parser.add_argument("--no-fallback", action="store_true",
                        help="report operations that the device does not support as errors")  # fmt: skip
    parser.add_argument("--lay-out-weights", action="store_true",
                        help="save parameters as device images, in the numbers of --numerics")  # fmt: skip
    parser.add_argument("--check", action="store_true",
                        help="report races, run the program and compare the results with the CPU")  # fmt: skip
    return parser


if __name__ == "__main__":
    sys.exit(main())
