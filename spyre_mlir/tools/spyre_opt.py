"""spyre-opt: run passes on MLIR and print the result; it feels like mlir-opt.

    spyre-opt model.mlir --spyre-pipeline="sencores=4" --to-level=placed -o placed.mlir
    spyre-opt --pass-pipeline="builtin.module(canonicalize,choose-layouts)" < model.mlir
    spyre-opt model.mlir --canonicalize --work-distribution="sencores=4" --mlir-print-ir-after-all

Every pass is a flag, ours and upstream's: --NAME or --NAME="x=1 y=2". Pipelines and passes run in the order
given. Nothing is written unless all passes succeed.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spyre_mlir.errors import CompileError
from spyre_mlir.tools import _common

if TYPE_CHECKING:
    from spyre_mlir.diagnostics import Diagnostic
    from spyre_mlir.mlir import ir
    from spyre_mlir.pipelines import Pipeline, Printing, Timing
    from spyre_mlir.remarks import Remarks


@_common.tool
def main(argv: Sequence[str] | None = None) -> int:
    """Run spyre-opt; 0 on success, 1 after diagnostics on stderr."""
    parser = _parser()
    options = parser.parse_args(_passes_as_flags(sys.argv[1:] if argv is None else argv, parser))
    if options.list_passes is not None or options.show_dialects:
        from spyre_mlir.tools import _listing

        if options.list_passes is not None:
            return _print(_listing.passes(options.list_passes))
        return _print(_listing.dialects())
    return _optimize(options)


def _print(text: str) -> int:
    _common.write_text("-", text)
    return 0


@dataclass
class _ToolRun:
    """One run of the tool: the pipeline for each chunk of the input, and the remarks of all chunks."""

    options: argparse.Namespace
    context: ir.Context
    pipeline: Pipeline
    printing: Printing
    timing: Timing | None
    remarks: Remarks

    def process(self, text: str | None) -> str | None:
        """Return the IR of one chunk of the input, None after errors; ``text`` is None for a whole file."""
        if self.options.verify_diagnostics:
            return self._verified(text)
        collected: list[Diagnostic] = []
        start = len(self.remarks)
        try:
            return self._transformed(text, collected)
        except CompileError as error:
            _common.report(error, self.source)
            return None
        finally:
            # After an error, too: what was collected before may explain it.
            for diagnostic in collected:
                _common.show(str(diagnostic), self.source)
            _common.show_warnings(self.remarks[start:], self.source)

    @property
    def source(self) -> str:
        """The name of the input in diagnostics."""
        return "<stdin>" if self.options.input == "-" else self.options.input

    def _transformed(self, text: str | None, collected: list[Diagnostic]) -> str:
        from spyre_mlir.diagnostics import collecting
        from spyre_mlir.pipelines import run_pipeline

        with collecting(self.context, collected):
            module = _common.parse_module(self.options.input, self.context, text)
            run_pipeline(
                module,
                self.pipeline,
                printing=self.printing,
                verify_each=self.options.verify_each,
                timing=self.timing,
                remarks=self.remarks,
            )
        return _asm(module, self.options)

    def _verified(self, text: str | None) -> str | None:
        """Check the diagnostics against the comments; an expected error is a success with an empty result."""
        from spyre_mlir.diagnostics import diagnostics_of, of_remark
        from spyre_mlir.tools._verify_diagnostics import mismatches

        # The comments are in the text, which the parser drops.
        text = _common.read_text(self.options.input) if text is None else text
        collected: list[Diagnostic] = []
        start, result = len(self.remarks), ""
        try:
            result = self._transformed(text, collected)
        except CompileError as error:
            collected += diagnostics_of(error)
        remarks = [of_remark(remark) for remark in self.remarks[start:]]
        wrong = list(mismatches(text, collected, remarks, self.source))
        for diagnostic in wrong:
            _common.show(str(diagnostic), self.source)
        return None if wrong else result


def _optimize(options: argparse.Namespace) -> int:
    from spyre_mlir import dialects
    from spyre_mlir.pipelines import Timing, check
    from spyre_mlir.remarks import Remarks

    context = dialects.context()
    context.allow_unregistered_dialects = options.allow_unregistered_dialect
    pipeline = _pipeline(options)
    # Once for all chunks: a misspelt pass is no error of each of them.
    check(pipeline, context)
    if options.dump_pass_pipeline:
        print(pipeline, file=sys.stderr)
    timing = Timing() if options.mlir_timing else None
    run = _ToolRun(options, context, pipeline, _printing(options), timing, Remarks())
    results = [run.process(chunk) for chunk in _chunks(options)]
    if timing is not None:
        print(timing.report(), end="", file=sys.stderr)
    # An empty result is a success: that of a chunk whose errors were expected.
    if None in results:
        return 1
    _common.write_text(options.output, "// -----\n".join(filter(None, results)))
    if options.remarks:
        _common.write_text(options.remarks, run.remarks.json_lines())
    return 0


def _chunks(options: argparse.Namespace) -> Iterator[str | None]:
    """Split the input at ``// -----``; blank lines in front of a chunk keep its line numbers."""
    if not options.split_input_file:
        yield None
        return
    text = _common.read_text(options.input)
    start = 0
    for marker in [*re.finditer(r"^// -----[ \t]*\n", text, re.MULTILINE), None]:
        end = marker.start() if marker else len(text)
        yield "\n" * text.count("\n", 0, start) + text[start:end]
        start = marker.end() if marker else end


def _pipeline(options: argparse.Namespace) -> Pipeline:
    from spyre_mlir.pipelines import Pipeline, SpyrePipeline

    invocations = options.invocations or []
    if options.to_level and not any(flag == "--spyre-pipeline" for flag, _ in invocations):
        raise CompileError("--to-level stops the spyre pipeline, so it needs --spyre-pipeline.")
    pipeline = Pipeline()
    for flag, text in invocations:
        if flag == "--spyre-pipeline":
            pipeline += SpyrePipeline.parse(text).pipeline(options.to_level)
        elif flag == "--pass-pipeline":
            pipeline += Pipeline.parse(text)
        else:
            name, _, value = text.partition("=")
            pass_options = value[1:-1] if value[:1] == "{" and value[-1:] == "}" else value
            # Without a source: this text is put together here, and no user could look up a place in it.
            pipeline += Pipeline.parse(f"{name}{{{pass_options}}}" if pass_options else name, "")
    return SpyrePipeline().with_checks(pipeline) if options.verify_each else pipeline


def _printing(options: argparse.Namespace) -> Printing:
    from spyre_mlir.pipelines import Printing

    after = frozenset(options.mlir_print_ir_after)
    return Printing(
        before=frozenset(options.mlir_print_ir_before),
        after=after,
        before_all=options.mlir_print_ir_before_all,
        # Alone, the flag for changes is about all passes; with names, about those.
        after_all=options.mlir_print_ir_after_all or (options.mlir_print_ir_after_change and not after),
        only_on_change=options.mlir_print_ir_after_change,
        debug_info=options.mlir_print_debuginfo,
        elide_larger_than=options.mlir_elide_elementsattrs_if_larger,
    )


def _asm(module: ir.Module, options: argparse.Namespace) -> str:
    text = module.operation.get_asm(
        enable_debug_info=options.mlir_print_debuginfo,
        print_generic_op_form=options.mlir_print_op_generic,
        large_elements_limit=options.mlir_elide_elementsattrs_if_larger,
    )
    return text.rstrip("\n") + "\n"


def _passes_as_flags(argv: Sequence[str], parser: argparse.ArgumentParser) -> list[str]:
    """Rewrite every flag that is not the parser's into ``--pass=NAME=OPTIONS``, so that order is kept."""
    flags = {flag for action in parser._actions for flag in action.option_strings}
    rewritten = []
    for argument in argv:
        name, equals, value = argument.partition("=")
        # As in mlir-opt one dash does for a long flag; -o, of two characters, stays.
        name = f"--{name.lstrip('-')}" if len(name) > 2 and name.startswith("-") else name
        if name == "--spyre-pipeline":
            # Always with its '=': argparse would else take the input file for the options of the
            # pipeline.
            rewritten.append(f"{name}={value}")
        elif name in flags or not name.startswith("--"):
            rewritten.append(name + equals + value)
        else:
            rewritten.append(f"--pass={name[2:]}{equals}{value}")
    return rewritten


class _AppendInvocation(argparse.Action):
    """Append (flag, text) to the one list of pipelines and passes: argparse forgets the order of flags."""

    def __call__(self, parser, namespace, values, option_string=None) -> None:
        namespace.invocations = [*(namespace.invocations or []), (option_string, values)]


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _boolean(text: str) -> bool:
    if text not in ("true", "false", "1", "0"):
        raise argparse.ArgumentTypeError(f"'true' or 'false' was expected, not '{text}'")
    return text in ("true", "1")


def _parser() -> argparse.ArgumentParser:
    parser = _common.ArgumentParser("spyre-opt", __doc__)
    parser.add_argument("input", nargs="?", default="-", help="MLIR file, - for stdin (the default)")
    parser.add_argument("-o", dest="output", default="-", metavar="FILE", help="output file, - for stdout")
    run = parser.add_argument_group("what to run, in the order given")
    append = {"action": _AppendInvocation, "dest": "invocations"}
    run.add_argument("--pass-pipeline", **append, metavar="TEXT", help="builtin.module(..)")
    run.add_argument("--spyre-pipeline", **append, metavar="OPTIONS",
                     help="from linalg to a bundle; alone or =\"sencores=4 verify-each\"")  # fmt: skip
    run.add_argument("--pass", **append, help=argparse.SUPPRESS)
    run.add_argument("--to-level", metavar="NAME", help="stop the spyre pipeline after this level")
    run.add_argument("--verify-each", type=_boolean, default=True, metavar="BOOL",
                     help="check the IR after each pass, and what a pass takes (default: true)")  # fmt: skip
    reading = parser.add_argument_group("input")
    for flag, text in (
        ("--split-input-file", "treat the parts between '// -----' lines one by one"),
        ("--verify-diagnostics", "check the expected-error, -warning and -remark comments"),
        ("--allow-unregistered-dialect", "accept operations of unknown dialects"),
    ):
        reading.add_argument(flag, action="store_true", help=text)
    showing = parser.add_argument_group("what to show")
    for place in ("before", "after"):
        flag = f"--mlir-print-ir-{place}"
        showing.add_argument(flag, type=_names, default=[], metavar="PASSES", help=f"print IR {place} these")
        showing.add_argument(f"{flag}-all", action="store_true", help=f"print IR {place} every pass")
    for flag, text in (
        ("--mlir-print-ir-after-change", "print IR after a pass only if it has changed"),
        ("--mlir-print-debuginfo", "print locations"),
        ("--mlir-print-op-generic", "print the generic form"),
        ("--dump-pass-pipeline", "print the passes that run, as a text for --pass-pipeline, to stderr"),
        ("--mlir-timing", "print what stages, passes and their parts took to stderr"),
        ("--show-dialects", "list the dialects and exit"),
    ):
        showing.add_argument(flag, action="store_true", help=text)
    showing.add_argument("--mlir-elide-elementsattrs-if-larger", type=_common.number(int, 0, 1 << 62), metavar="N",
                         help="shorten constants of more elements")  # fmt: skip
    showing.add_argument("--remarks", metavar="FILE", help="write every decision as a JSON line")
    showing.add_argument("--list-passes", nargs="?", const="", metavar="NAME",
                         help="list our passes with their options, the manual of one, or spyre-pipeline")  # fmt: skip
    return parser


if __name__ == "__main__":
    sys.exit(main())
