# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""spyre-opt: run passes on MLIR and print the result, with the flags of mlir-opt.

    spyre-opt model.mlir --spyre-pipeline="sencores=4" --to-level=placed -o placed.mlir
    spyre-opt --pass-pipeline="builtin.module(canonicalize,choose-layouts)" < model.mlir
    spyre-opt model.mlir --canonicalize --work-distribution="sencores=4" --mlir-print-ir-after-all

Every pass is a flag, ours and upstream's: --NAME or --NAME="x=1 y=2". Pipelines and passes run in the given order. An
output file is written only if all passes succeed; for a split input, stdout gets the parts without errors.
"""

from __future__ import annotations

import argparse
import io
import itertools
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from spyre_mlir import files
from spyre_mlir.errors import CompileError, suggestion
from spyre_mlir.records import dataclass
from spyre_mlir.tools import _common

if TYPE_CHECKING:
    from spyre_mlir.diagnostics import Diagnostic
    from spyre_mlir.mlir import ir
    from spyre_mlir.pipelines import Pipeline, Printing, Timing
    from spyre_mlir.pipelines.printing import AsmForm, CrashReproducer, Reproducer
    from spyre_mlir.remarks import Remark, Remarks


@_common.tool
def main(argv: Sequence[str] | None = None) -> int:
    """Run spyre-opt; return 0 on success, 1 after diagnostics on stderr."""
    parser = _parser()
    options = parser.parse_args(_passes_as_flags(sys.argv[1:] if argv is None else argv, parser))
    if options.list_passes is not None or options.show_dialects or options.list_plugins:
        from spyre_mlir.tools import _listing

        if options.list_passes is not None:
            return _print(_listing.passes(options.list_passes))
        return _print(_listing.plugins() if options.list_plugins else _listing.dialects())
    if options.bisect or options.candidates:
        return _of_pipeline(options)
    return _optimize(options, [flag for action in parser._actions for flag in action.option_strings])


def _of_pipeline(options: argparse.Namespace) -> int:
    """Print the result of --bisect or of --candidates, which need a whole spyre pipeline."""
    flag, invocations = "--bisect" if options.bisect else "--candidates", options.invocations or []
    if [name for name, _ in invocations] != ["--spyre-pipeline"] or options.to_level or options.from_level:
        raise CompileError(f"{flag} needs one whole --spyre-pipeline, and no other pass or level.")
    if options.candidates:
        from spyre_mlir.pipelines import SpyrePipeline
        from spyre_mlir.tools._listing import candidates

        pipeline = SpyrePipeline.parse(invocations[0][1])
        return _print(candidates(files.read_text(options.input), pipeline, options.candidates))
    from spyre_mlir import dialects
    from spyre_mlir.tools._bisection import bisection

    module = _common.parse_module(options.input, dialects.context())
    return _print("\n".join([*bisection(module.operation, invocations[0][1], options.bisect), ""]))


def _print(text: str) -> int:
    files.write_text("-", text)
    return 0


@dataclass
class _ToolRun:
    """One run of the tool: the pipeline that runs on each chunk of the input, and the remarks of all chunks."""

    options: argparse.Namespace
    context: ir.Context
    pipeline: Pipeline
    printing: Printing
    form: AsmForm
    timing: Timing | None
    remarks: Remarks
    reproducer: CrashReproducer | None
    #: The name, in diagnostics, of a text without a file; a file may contain locations with the same name.
    text_source: str = "-"
    is_reproduced: bool = False

    def process(self, text: str | None) -> str | bytes | None:
        """Return the IR after the pipeline for one chunk, None after errors; ``text`` is None for a whole file."""
        if self.options.verify_diagnostics:
            return self._verified(text)
        self.text_source = "-" if text is None and self.options.input != "-" else self.source
        collected: list[Diagnostic] = []
        start = len(self.remarks)
        try:
            return self._transformed(text, collected)
        except CompileError as error:
            self._report(error)
            return None
        finally:
            # Also after an error, which earlier diagnostics may explain.
            self._show_collected(collected, start)
            if self.reproducer and self.is_reproduced:
                path = self.reproducer.path
                text = f"A reproducer is in '{path}'; 'spyre-opt --run-reproducer {path}' runs it."
                print(f"note: {text}", file=sys.stderr)

    @property
    def source(self) -> str:
        """The name of the input in diagnostics."""
        return "<stdin>" if self.options.input == "-" else self.options.input

    def _report(self, error: CompileError) -> None:
        if error.__cause__ is None:
            _common.report(error, self.text_source)
            return
        from spyre_mlir.diagnostics import diagnostics_of

        for diagnostic in diagnostics_of(error):
            self._show(diagnostic)

    def _show_collected(self, collected: list[Diagnostic], start: int) -> None:
        """Print warnings and remarks, as the verbosity level requests; pass remarks from index ``start`` on."""
        level = self.options.mlir_diagnostic_verbosity_level
        for diagnostic in collected:
            if level not in ("errors", "warnings") or f"{diagnostic.severity}s" == level:
                self._show(diagnostic)
        if level == "remarks":
            from spyre_mlir.diagnostics import of_remark

            for remark in _filtered(self.remarks[start:], self.options):
                self._show(of_remark(remark))
        elif level != "errors":
            _common.show_warnings(self.remarks[start:], self.text_source)

    def _show(self, diagnostic: Diagnostic) -> None:
        notes = [] if self.options.mlir_disable_diagnostic_notes else diagnostic.notes
        if not self.options.mlir_print_op_on_diagnostic:
            notes = [note for note in notes if not note.message.startswith("see current operation")]
        _common.show(str(replace(diagnostic, notes=tuple(notes))), self.text_source)

    def _transformed(self, text: str | None, collected: list[Diagnostic]) -> str | bytes:
        from spyre_mlir.diagnostics import collecting

        with collecting(self.context, collected):
            operation = self._parsed(text)
            # Drop the parser's warnings about unknown resources of a reproducer.
            unknown = ("'mlir_reproducer'", "'spyre_files'")
            collected[:] = [each for each in collected if not any(name in each.message for name in unknown)]
            if self.options.mlir_generate_reproducer:
                from spyre_mlir.pipelines.printing import Reproducer

                reproducer = Reproducer.of(self.pipeline, self.options.verify_each)
                files.write_text(self.options.mlir_generate_reproducer, reproducer.text(operation))
            self._run(operation)
        return _bytecode(operation, self.options) if self.options.emit_bytecode else self.form.text(operation)

    def _parsed(self, text: str | None) -> ir.Operation:
        parse = _common.parse_operation if self.options.no_implicit_module else _common.parse_module
        operation = parse(self.options.input, self.context, text).operation
        if self.options.verify_roundtrip:
            _verify_roundtrip(operation, self.source)
        return operation

    def _run(self, operation: ir.Operation) -> None:
        from spyre_mlir.pipelines import run_pipeline

        has_failed = True
        try:
            run_pipeline(
                operation,
                self.pipeline,
                printing=self.printing,
                verify_each=self.options.verify_each,
                timing=self.timing,
                remarks=self.remarks,
                observers=[self.reproducer] if self.reproducer else [],
            )
            has_failed = False
        finally:
            if self.reproducer:
                self.is_reproduced = self.reproducer.finish(has_failed)

    def _verified(self, text: str | None) -> str | bytes | None:
        """Check diagnostics against the comments; return an empty result for an expected error, None for mismatches."""
        from spyre_mlir.diagnostics import diagnostics_of, mismatches, of_remark

        # The expectations are in comments, which the parser drops, so the text is read here.
        text = files.read_text(self.options.input) if text is None else text
        collected: list[Diagnostic] = []
        start, result = len(self.remarks), ""
        try:
            result = self._transformed(text, collected)
        except CompileError as error:
            collected += diagnostics_of(error)
        remarks = [of_remark(remark) for remark in self.remarks[start:]]
        only_expected = self.options.verify_diagnostics == "only-expected"
        wrong = list(mismatches(text, collected, remarks, self.source, only_expected))
        for diagnostic in wrong:
            _common.show(str(diagnostic), self.source)
        return None if wrong else result


def _optimize(options: argparse.Namespace, flags: Sequence[str]) -> int:
    """Run the pipeline on each chunk of the input and write the output; return the exit status."""
    from spyre_mlir import dialects
    from spyre_mlir.pipelines import Timing, check
    from spyre_mlir.pipelines.printing import AsmForm
    from spyre_mlir.remarks import Remarks

    _require_consistent(options)
    context = dialects.context()
    context.allow_unregistered_dialects = options.allow_unregistered_dialect
    if options.irdl_file:
        from spyre_mlir.mlir import load_irdl

        load_irdl(_common.parse_module(options.irdl_file, context))
    chunks = list(_chunks(options))
    pipeline = _reproduced(options, chunks) if options.run_reproducer else _pipeline(options, flags)
    # Checked once, so that a misspelt pass is not reported for each chunk.
    check(pipeline, context)
    if options.dump_pass_pipeline:
        print(pipeline, file=sys.stderr)
    form = AsmForm(
        debug_info=options.mlir_print_debuginfo,
        pretty_debug_info=options.mlir_pretty_debuginfo,
        generic=options.mlir_print_op_generic,
        local_scope=options.mlir_print_local_scope,
        value_users=options.mlir_print_value_users,
        skip_regions=options.mlir_print_skip_regions,
        names_of_locations=options.mlir_use_nameloc_as_prefix,
        elide_larger_than=options.mlir_elide_elementsattrs_if_larger,
        elide_resources_larger_than=options.mlir_elide_resource_strings_if_larger,
    )
    timing = Timing() if options.mlir_timing else None
    remarks = Remarks()
    printing = _printing(options, form)
    _require_printed(printing, pipeline)
    reproducer = None
    if path := options.mlir_pass_pipeline_crash_reproducer:
        from spyre_mlir.pipelines.printing import CrashReproducer

        is_local = options.mlir_pass_pipeline_local_reproducer
        reproducer = CrashReproducer(path, pipeline, options.verify_each, is_local)
    run = _ToolRun(options, context, pipeline, printing, form, timing, remarks, reproducer)
    results = [run.process(chunk) for chunk in chunks]
    _print_reports(options, run)
    # An empty result is a success: all errors of the chunk were expected.
    has_failed = None in results
    # A file is written only without errors; stdout gets the chunks without errors, as from mlir-opt.
    if has_failed and (options.output != "-" or not any(results)):
        return 1
    if options.emit_bytecode:
        files.write_bytes(options.output, b"".join(data for data in results if isinstance(data, bytes)))
    else:
        parts = [text for text in results if isinstance(text, str) and text]
        files.write_text(options.output, f"{options.output_split_marker}\n".join(parts))
    if has_failed:
        return 1
    if options.remarks:
        files.write_text(options.remarks, Remarks(_filtered(remarks, options)).json_lines())
    return 0


def _filtered(remarks: Iterable[Remark], options: argparse.Namespace) -> Iterator[Remark]:
    for remark in remarks:
        if not options.remarks_filter or options.remarks_filter.search(f"{remark.pass_name}: {remark.kind}"):
            yield remark


def _require_consistent(options: argparse.Namespace) -> None:
    """Raise ``CompileError`` for incompatible flags."""
    if options.emit_bytecode and options.split_input_file:
        raise CompileError("--emit-bytecode writes one module, so it does not go with --split-input-file.")
    if options.emit_bytecode and options.output == "-" and sys.stdout.isatty():
        raise CompileError("--emit-bytecode does not write to a terminal; name a file with -o.")
    if options.run_reproducer and (options.invocations or options.split_input_file):
        text = (
            "--run-reproducer runs the pipeline of one module, so it takes no pass and no --split-input-file."
        )
        raise CompileError(text)
    if options.mlir_pass_pipeline_local_reproducer and not options.mlir_pass_pipeline_crash_reproducer:
        flag = "--mlir-pass-pipeline-crash-reproducer"
        raise CompileError(f"--mlir-pass-pipeline-local-reproducer requires {flag}.")


def _print_reports(options: argparse.Namespace, run: _ToolRun) -> None:
    """Print the requested reports about the whole run: timing and pass statistics."""
    if run.timing is not None:
        is_json = options.mlir_output_format == "json"
        report = (run.timing.json_report if is_json else run.timing.report)(options.mlir_timing_display)
        print(report, end="", file=sys.stderr)
    if options.mlir_pass_statistics:
        names, display = [step.name for step in run.pipeline.steps], options.mlir_pass_statistics_display
        rule = f"===-{'-' * 73}-==="
        counts: dict[str, Counter[str]] = {name: Counter() for name in names}
        for remark in run.remarks:
            counts.setdefault(remark.pass_name, Counter())[remark.kind] += 1
        if display == "list":
            counts = {name: counts[name] for name in sorted(counts) if counts[name]}
        width = max((len(str(count)) for kinds in counts.values() for count in kinds.values()), default=1)
        lines = [rule, "... Pass statistics report ...".center(len(rule)).rstrip(), rule]
        for name, kinds in counts.items():
            lines.append(name)
            lines += [f"  (S) {kinds[kind]:{width}} {kind}" for kind in sorted(kinds)]
        total = sum(kinds.total() for kinds in counts.values())
        print("\n".join([*lines, f"Total: {total} decisions"]) + "\n", end="", file=sys.stderr)


def _chunks(options: argparse.Namespace) -> Iterator[str | None]:
    """Split the input at lines of the marker; each chunk is preceded by blank lines, which keep its line numbers."""
    if not options.split_input_file:
        # The text of a reproducer is needed twice, but stdin can be read only once.
        yield files.read_text("-") if options.run_reproducer and options.input == "-" else None
        return
    text = files.read_text(options.input)
    start = 0
    marker_line = rf"^[ \t]*{re.escape(options.split_input_file)}[ \t\r]*(?:\n|\Z)"
    for marker in [*re.finditer(marker_line, text, re.MULTILINE), None]:
        end = marker.start() if marker else len(text)
        yield "\n" * text.count("\n", 0, start) + text[start:end]
        start = marker.end() if marker else end


def _reproduced(options: argparse.Namespace, chunks: Sequence[str | None]) -> Pipeline:
    """Return the pipeline in the reproducer resource of the input, which also determines --verify-each."""
    from spyre_mlir.pipelines import Pipeline
    from spyre_mlir.pipelines.printing import Reproducer

    text = files.read_text(options.input) if chunks[0] is None else chunks[0]
    reproducer = Reproducer.parse(text, "-" if options.input == "-" else options.input)
    options.verify_each = options.verify_each and reproducer.verify_each
    text = _with_files(reproducer, options)
    _common.keep_source("reproducer", text)
    return Pipeline.parse(text, "reproducer")


def _with_files(reproducer: Reproducer, options: argparse.Namespace) -> str:
    """Write the files in a reproducer to a folder, load its Python files, and return the pipeline with their paths."""
    if not reproducer.files:
        return reproducer.pipeline
    import atexit
    import shutil
    import tempfile

    from spyre_mlir.loading import load, loaded_files

    text, folder = reproducer.pipeline, Path(tempfile.mkdtemp(prefix="spyre-reproducer-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for number, (path, content) in enumerate(reproducer.files.items()):
        copy = folder / f"{number}-{Path(path).name}"
        copy.write_text(content, encoding="utf-8")
        if not path.endswith(".py"):
            text = text.replace(path, str(copy))
        elif options.load_embedded:
            load(str(copy))
        elif not loaded_files():
            raise CompileError(
                f"The reproducer contains the Python file '{path}'; --load-embedded runs it, --load takes another."
            )
    return text


def _pipeline(options: argparse.Namespace, flags: Sequence[str]) -> Pipeline:
    from spyre_mlir.pipelines import Pipeline, SpyrePipeline

    invocations = options.invocations or []
    for flag, level in (("--from-level", options.from_level), ("--to-level", options.to_level)):
        if level and not any(name == "--spyre-pipeline" for name, _ in invocations):
            raise CompileError(f"{flag} is a level of the spyre pipeline, so it needs --spyre-pipeline.")
    pipeline = Pipeline()
    for flag, text in invocations:
        if flag == "--spyre-pipeline":
            # The last level is a flag or an option, as the first level is.
            text, *levels = re.split(r"(?:^|(?<=\s))to-level=(\S+)", text, maxsplit=1)
            last = levels[0] if levels else options.to_level
            first = [f"from-level={options.from_level}"] if options.from_level else []
            pipeline += SpyrePipeline.parse(" ".join([text, *levels[1:], *first])).pipeline(last)
        elif flag == "--pass-pipeline":
            _common.keep_source("pass-pipeline", text)
            pipeline += Pipeline.parse(text)
        else:
            pipeline += _of_flag(text, flags)
    return SpyrePipeline().with_checks(pipeline) if options.verify_each else pipeline


def _of_flag(text: str, flags: Sequence[str]) -> Pipeline:
    """Return the pipeline of one pass, from the text ``NAME=OPTIONS`` of its flag."""
    from spyre_mlir import passes
    from spyre_mlir.pipelines import Pipeline, upstream

    name, _, value = text.partition("=")
    options = value[1:-1] if value[:1] == "{" and value[-1:] == "}" else value
    text = f"{name}{{{options}}}" if options else name
    if passes.find(name) is None:
        if not upstream.exists(name):
            known = (*passes.load_all(), *upstream.names(), *(flag.lstrip("-") for flag in flags))
            hint = suggestion(name, known) or "'spyre-opt --list-passes' lists all."
            raise CompileError(f"There is no pass named '{name}'; {hint}")
        text = upstream.nested(name, text)
    # Without a source name: the text is generated here, so locations in it would not help the user.
    return Pipeline.parse(text, "")


def _printing(options: argparse.Namespace, form: AsmForm) -> Printing:
    from spyre_mlir.pipelines import Printing

    after = frozenset(options.mlir_print_ir_after)
    on_change, on_failure = options.mlir_print_ir_after_change, options.mlir_print_ir_after_failure
    return Printing(
        before=frozenset(options.mlir_print_ir_before),
        after=after,
        before_all=options.mlir_print_ir_before_all,
        # The flags for changes and failures apply to all passes, or to the named passes if there are names.
        after_all=options.mlir_print_ir_after_all or ((on_change or on_failure) and not after),
        only_on_change=on_change,
        only_on_failure=on_failure,
        module_scope=options.mlir_print_ir_module_scope,
        form=form,
        tree_folder=options.mlir_print_ir_tree_dir,
    )


def _require_printed(printing: Printing, pipeline: Pipeline) -> None:
    """Raise ``CompileError`` for an unknown pass in the print flags; print a note for a pass that does not run."""
    names = printing.before | printing.after
    if not names:
        return
    from spyre_mlir import passes
    from spyre_mlir.pipelines import upstream

    running = {step.name for step in pipeline.steps}
    for name in sorted(names - running):
        if passes.find(name) is None:
            upstream.require(name, tuple(passes.load_all()))
        print(f"note: The pass '{name}' does not run, so no IR is printed for it.", file=sys.stderr)


def _verify_roundtrip(operation: ir.Operation, source: str) -> None:
    """Raise ``CompileError`` for a form in which a module reads back as another module, or cannot be read."""
    from spyre_mlir.mlir import ir
    from spyre_mlir.pipelines.printing import AsmForm

    data = io.BytesIO()
    operation.write_bytecode(data)
    whole = AsmForm(generic=True, debug_info=True, local_scope=True)
    expected = whole.text(operation)
    forms = ["text", "generic text", *(["bytecode"] if operation.name == "builtin.module" else [])]
    for form in forms:
        try:
            if form == "bytecode":
                module = ir.Module.parse(data.getvalue(), operation.context).operation
            else:
                text = AsmForm(debug_info=True, generic=form != "text").text(operation)
                module = ir.Operation.parse(text, context=operation.context).operation
        except ir.MLIRError as error:
            reason = error.error_diagnostics[0].message
            message = f"The module cannot be read after it is written as {form}: {reason}."
            raise CompileError(message, f"{source}:1:1") from None
        if whole.text(module) != expected:
            message = f"The module changes when it is written as {form} and read."
            raise CompileError(message, f"{source}:1:1")


def _bytecode(operation: ir.Operation, options: argparse.Namespace) -> bytes:
    from spyre_mlir.diagnostics import collecting

    buffer, collected = io.BytesIO(), []
    try:
        with collecting(operation.context, collected):
            operation.write_bytecode(buffer, desired_version=options.emit_bytecode_version)
    except ValueError as error:
        reason = collected[0].message if collected else str(error)
        raise CompileError(f"The module cannot be written as bytecode: {reason}.") from None
    return buffer.getvalue()


# The flags, with the names and meanings of mlir-opt's flags (comparison: docs/mlir-opt-flags.md).

_MARKER = "// -----"

#: Flags with an optional value, and their default values. The next argument is never the value: it is the input.
_VALUES = {
    "--mlir-print-ir-module-scope": "true",
    "--mlir-print-op-on-diagnostic": "true",
    "--spyre-pipeline": "",
    "--split-input-file": _MARKER,
    "--verify-diagnostics": "all",
    "--verify-each": "true",
}
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def _passes_as_flags(argv: Sequence[str], parser: argparse.ArgumentParser) -> list[str]:
    """Rewrite flags that the parser does not define to ``--pass=NAME=OPTIONS``, which keeps their order."""
    actions = {flag: action for action in parser._actions for flag in action.option_strings}
    flags = list(itertools.takewhile(lambda argument: argument != "--", argv))
    rewritten = []
    for argument in flags:
        name, equals, value = argument.partition("=")
        # As in mlir-opt, every flag may have one dash or two.
        if len(name) > 1 and name.startswith("-"):
            name = name.lstrip("-")
            name = f"-{name}" if len(name) == 1 else f"--{name}"
        if name in _VALUES:
            rewritten.append(f"{name}={value if equals else _VALUES[name]}")
        elif equals and value in _BOOLEANS and isinstance(actions.get(name), argparse._StoreTrueAction):
            # As in mlir-opt, a boolean flag may have the value false.
            rewritten += [name] if _BOOLEANS[value] else []
        elif name in actions or not name.startswith("--"):
            rewritten.append(name + equals + value)
        else:
            rewritten.append(f"--pass={name[2:]}{equals}{value}")
    return [*rewritten, *argv[len(flags) :]]


class _AppendInvocation(argparse.Action):
    """Append (flag, text) to a common list of pipelines and passes, because argparse does not keep the flag order."""

    def __call__(self, parser, namespace, values, option_string=None) -> None:
        namespace.invocations = [*(namespace.invocations or []), (option_string, values)]


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _regex(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"'{text}' is not a regular expression: {error}") from None


def _boolean(text: str) -> bool:
    if text not in _BOOLEANS:
        raise argparse.ArgumentTypeError(f"'true' or 'false' was expected, not '{text}'")
    return _BOOLEANS[text]


def _parser() -> _common.ArgumentParser:
    parser = _common.ArgumentParser("spyre-opt", __doc__)
    parser.add_argument("input", nargs="?", default="-", help="MLIR file, - for stdin (the default)")
    _common.add_output(parser, "-o", "FILE", "output file, - for stdout", dest="output", default="-")
    _add_run(parser.add_argument_group("passes and pipelines, in the given order"))
    group = parser.add_argument_group("input")
    group.add_argument("--split-input-file", metavar="MARKER",
                       help=f"treat the parts between lines of the marker one by one (alone: '{_MARKER}')")  # fmt: skip
    group.add_argument("--output-split-marker", default=_MARKER, metavar="MARKER",
                       help=f"the line between the parts of the output (default: '{_MARKER}')")  # fmt: skip
    group.add_argument("--verify-diagnostics", metavar="MODE", choices=("all", "only-expected"),
                       help="check the expected-error, -warning and -remark comments, of all diagnostics (alone: "
                            "all) or of those that are only-expected")  # fmt: skip
    _add_flags(
        group,
        ("--allow-unregistered-dialect", "accept operations of unknown dialects"),
        ("--no-implicit-module", "parse one top-level operation, without a module around it"),
        (
            "--verify-roundtrip",
            "check that the input is equal after it is printed and parsed, as text and bytecode",
        ),
    )
    group.add_argument("--irdl-file", metavar="FILE", help="define the dialects of an IRDL file first")
    group = parser.add_argument_group("printing the IR between passes")
    for place in ("before", "after"):
        flag = f"--mlir-print-ir-{place}"
        group.add_argument(
            flag, type=_names, default=[], metavar="PASSES", help=f"print the IR {place} these passes"
        )
        group.add_argument(f"{flag}-all", action="store_true", help=f"print the IR {place} every pass")
    _add_flags(
        group,
        ("--mlir-print-ir-after-change", "print IR after a pass only if it has changed"),
        ("--mlir-print-ir-after-failure", "print IR after a pass only if it has failed"),
    )
    group.add_argument("--mlir-print-ir-module-scope", type=_boolean, default=True, metavar="BOOL",
                       help="print the whole module, also for a pass on functions (default: true)")  # fmt: skip
    group.add_argument("--mlir-print-ir-tree-dir", default="", metavar="DIR",
                       help="print the IR after each pass to a file in this folder, not to stderr")  # fmt: skip
    group = parser.add_argument_group("form of the printed IR")
    _add_flags(
        group,
        ("--mlir-print-debuginfo", "print locations"),
        ("--mlir-pretty-debuginfo", "print locations for people: the text cannot be parsed"),
        ("--mlir-print-op-generic", "print the generic form"),
        ("--mlir-print-local-scope", "print attributes, types and locations in place, without aliases"),
        ("--mlir-print-value-users", "print the users of values as comments"),
        ("--mlir-print-skip-regions", "leave out regions"),
        ("--mlir-use-nameloc-as-prefix", "name values by their locations"),
    )
    group.add_argument("--mlir-elide-elementsattrs-if-larger", type=_common.number(int, 0, 1 << 62), metavar="N",
                       help="shorten constants of more than N elements")  # fmt: skip
    group.add_argument("--mlir-elide-resource-strings-if-larger", type=_common.number(int, 0, 1 << 62), metavar="N",
                       help="shorten resources of more than N characters")  # fmt: skip
    group.add_argument("--emit-bytecode", action="store_true", help="write bytecode instead of text")
    group.add_argument("--emit-bytecode-version", type=_common.number(int, 0, 1 << 31), metavar="N",
                       help="the version of the bytecode (default: the newest)")  # fmt: skip
    _add_reports(parser.add_argument_group("other output"))
    return parser


def _add_flags(group: argparse._ArgumentGroup, *flags: tuple[str, str]) -> None:
    for flag, text in flags:
        group.add_argument(flag, action="store_true", help=text)


def _add_run(group: argparse._ArgumentGroup) -> None:
    append = {"action": _AppendInvocation, "dest": "invocations"}
    group.add_argument("--pass-pipeline", **append, metavar="TEXT",
                       help="run this pipeline, such as builtin.module(cse,choose-layouts)")  # fmt: skip
    group.add_argument("--spyre-pipeline", **append, metavar="OPTIONS",
                       help="run all passes from linalg to a bundle, with options such as "
                            "\"sencores=4 verify-each\"")  # fmt: skip
    group.add_argument("--pass", **append, help=argparse.SUPPRESS)
    group.add_argument("--candidates", metavar="OP",
                       help="list divisions, tilings and argument layouts of an operation of --spyre-pipeline, such as "
                            "exp or exp.0, with the bytes and the time of the program")  # fmt: skip
    group.add_argument("--bisect", metavar="CHECK",
                       help="name the pass and the options of --spyre-pipeline that cause a fault: 'simulator' "
                            "(numbers differ from the CPU) or a limit such as 'total_us>90'")  # fmt: skip
    group.add_argument(
        "--from-level", metavar="NAME", help="skip the passes of the spyre pipeline up to this level"
    )
    group.add_argument("--to-level", metavar="NAME", help="stop the spyre pipeline after this level")
    group.add_argument("--verify-each", type=_boolean, default=True, metavar="BOOL",
                       help="check the IR after each pass, and preconditions (default: true)")  # fmt: skip
    group.add_argument("--mlir-disable-threading", action="store_true",
                       help="run in one thread, as this tool always does")  # fmt: skip
    group.add_argument(
        "--run-reproducer", action="store_true", help="run the pipeline that the resources of the input name"
    )
    group.add_argument("--load-embedded", action="store_true",
                       help="with the previous flag: run the Python files in the reproducer")  # fmt: skip
    _common.add_output(group, "--mlir-pass-pipeline-crash-reproducer", "FILE",
                       "write the input and the pipeline to FILE if a pass fails or crashes")  # fmt: skip
    group.add_argument("--mlir-pass-pipeline-local-reproducer", action="store_true",
                       help="with the previous flag: write the IR before the pass that "
                            "fails, and that pass alone")  # fmt: skip
    _common.add_output(group, "--mlir-generate-reproducer", "FILE",
                       "write the input and the pipeline to FILE, without a failure")  # fmt: skip


def _add_reports(group: argparse._ArgumentGroup) -> None:
    _add_flags(
        group,
        ("--dump-pass-pipeline", "print the passes that run, as a text for --pass-pipeline, to stderr"),
        ("--mlir-timing", "print the times of stages, passes and their parts to stderr"),
        ("--mlir-pass-statistics", "print the number of decisions of each kind to stderr"),
        ("--mlir-disable-diagnostic-notes", "leave out the notes of diagnostics"),
        ("--show-dialects", "list the dialects and exit"),
        ("--list-plugins", "list the algorithms by option, with their files and packages, and exit"),
    )
    group.add_argument("--mlir-timing-display", choices=("tree", "list"), default="tree",
                       help="form of the times: nested, or a list with the longest first")  # fmt: skip
    group.add_argument("--mlir-output-format", choices=("text", "json"), default="text",
                       help="format of the times (default: text)")  # fmt: skip
    group.add_argument("--mlir-pass-statistics-display", choices=("pipeline", "list"), default="pipeline",
                       help="order of the passes: as in the pipeline, or by name")  # fmt: skip
    group.add_argument("--mlir-diagnostic-verbosity-level", choices=("errors", "warnings", "remarks"),
                       default="warnings", help="least severe diagnostics to print (default: warnings)")  # fmt: skip
    group.add_argument("--mlir-print-op-on-diagnostic", type=_boolean, default=True, metavar="BOOL",
                       help="print the operation of an error as a note (default: true)")  # fmt: skip
    _common.add_output(group, "--remarks --remarks-output-file", "FILE",
                       "write every decision of the compiler as a JSON line")  # fmt: skip
    group.add_argument("--remarks-filter", type=_regex, metavar="REGEX",
                       help="write and show only decisions whose 'pass: kind' matches")  # fmt: skip
    group.add_argument("--list-passes", nargs="?", const="", metavar="NAME",
                       help="list all passes with their options, or print the manual of one "
                            "pass or of spyre-pipeline")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
