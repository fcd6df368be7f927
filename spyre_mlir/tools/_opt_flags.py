# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The flags of spyre-opt, with the names and meanings of mlir-opt's flags (comparison: docs/mlir-opt-flags.md)."""

from __future__ import annotations

import argparse
import itertools
import re
from collections.abc import Sequence

from spyre_mlir.tools import _common

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


def parse(parser: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments; flags that the parser does not define are passes, in ``invocations``."""
    return parser.parse_args(_passes_as_flags(argv, parser))


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


def parser(documentation: str | None) -> _common.ArgumentParser:
    """Return the parser of spyre-opt."""
    parser = _common.ArgumentParser("spyre-opt", documentation)
    parser.add_argument("input", nargs="?", default="-", help="MLIR file, - for stdin (the default)")
    _common.add_output(parser, "-o", "FILE", "output file, - for stdout", dest="output", default="-")
    _add_run(parser.add_argument_group("what to run, in the order given"))
    _add_reading(parser.add_argument_group("input"))
    _add_printing(parser.add_argument_group("printing the IR between passes"))
    _add_forms(parser.add_argument_group("how the IR is written"))
    _add_reports(parser.add_argument_group("what else to show"))
    return parser


def _add_flags(group: argparse._ArgumentGroup, *flags: tuple[str, str]) -> None:
    for flag, text in flags:
        group.add_argument(flag, action="store_true", help=text)


def _add_run(group: argparse._ArgumentGroup) -> None:
    append = {"action": _AppendInvocation, "dest": "invocations"}
    group.add_argument("--pass-pipeline", **append, metavar="TEXT", help="builtin.module(..)")
    group.add_argument("--spyre-pipeline", **append, metavar="OPTIONS",
                       help="from linalg to a bundle; alone or =\"sencores=4 verify-each\"")  # fmt: skip
    group.add_argument("--pass", **append, help=argparse.SUPPRESS)
    group.add_argument("--to-level", metavar="NAME", help="stop the spyre pipeline after this level")
    group.add_argument("--verify-each", type=_boolean, default=True, metavar="BOOL",
                       help="check the IR after each pass, and what a pass takes (default: true)")  # fmt: skip
    group.add_argument("--mlir-disable-threading", action="store_true",
                       help="run in one thread, as this tool always does")  # fmt: skip
    group.add_argument(
        "--run-reproducer", action="store_true", help="run the pipeline in the resources of the input"
    )
    _common.add_output(
        group,
        "--mlir-pass-pipeline-crash-reproducer",
        "FILE",
        "write the input and the pipeline to FILE if a pass fails or crashes",
    )
    group.add_argument("--mlir-pass-pipeline-local-reproducer", action="store_true",
                       help="with the one before: the IR before the pass that fails, and the pass")  # fmt: skip
    _common.add_output(
        group,
        "--mlir-generate-reproducer",
        "FILE",
        "write the input and the pipeline to FILE, without a failure",
    )


def _add_reading(group: argparse._ArgumentGroup) -> None:
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
        ("--no-implicit-module", "take the one operation of the input as it is, without a module around it"),
        (
            "--verify-roundtrip",
            "check that the input is equal once it is printed and parsed, as text and bytecode",
        ),
    )
    group.add_argument("--irdl-file", metavar="FILE", help="define the dialects of an IRDL file first")


def _add_printing(group: argparse._ArgumentGroup) -> None:
    for place in ("before", "after"):
        flag = f"--mlir-print-ir-{place}"
        group.add_argument(flag, type=_names, default=[], metavar="PASSES", help=f"print IR {place} these")
        group.add_argument(f"{flag}-all", action="store_true", help=f"print IR {place} every pass")
    _add_flags(
        group,
        ("--mlir-print-ir-after-change", "print IR after a pass only if it has changed"),
        ("--mlir-print-ir-after-failure", "print IR after a pass only if it has failed"),
    )
    group.add_argument("--mlir-print-ir-module-scope", type=_boolean, default=True, metavar="BOOL",
                       help="the whole module for a pass on functions, too (default: true)")  # fmt: skip
    group.add_argument("--mlir-print-ir-tree-dir", default="", metavar="DIR",
                       help="print each to a file in this folder, not to stderr")  # fmt: skip


def _add_forms(group: argparse._ArgumentGroup) -> None:
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
                       help="shorten constants of more elements")  # fmt: skip
    group.add_argument("--mlir-elide-resource-strings-if-larger", type=_common.number(int, 0, 1 << 62), metavar="N",
                       help="shorten resources of more characters")  # fmt: skip
    group.add_argument("--emit-bytecode", action="store_true", help="write bytecode")
    group.add_argument("--emit-bytecode-version", type=_common.number(int, 0, 1 << 31), metavar="N",
                       help="the version of the bytecode (default: the newest)")  # fmt: skip


def _add_reports(group: argparse._ArgumentGroup) -> None:
    _add_flags(
        group,
        ("--dump-pass-pipeline", "print the passes that run, as a text for --pass-pipeline, to stderr"),
        ("--mlir-timing", "print what stages, passes and their parts took to stderr"),
        ("--mlir-pass-statistics", "print how many decisions of each kind passes took to stderr"),
        ("--mlir-disable-diagnostic-notes", "leave out the notes of diagnostics"),
        ("--show-dialects", "list the dialects and exit"),
    )
    group.add_argument("--mlir-timing-display", choices=("tree", "list"), default="tree",
                       help="times inside of each other, or the longest first")  # fmt: skip
    group.add_argument(
        "--mlir-output-format", choices=("text", "json"), default="text", help="the form of times"
    )
    group.add_argument("--mlir-pass-statistics-display", choices=("pipeline", "list"), default="pipeline",
                       help="passes in the order of the pipeline, or by name")  # fmt: skip
    group.add_argument("--mlir-diagnostic-verbosity-level", choices=("errors", "warnings", "remarks"),
                       default="warnings", help="diagnostics to print (default: warnings)")  # fmt: skip
    group.add_argument("--mlir-print-op-on-diagnostic", type=_boolean, default=True, metavar="BOOL",
                       help="the operation of an error as a note (default: true)")  # fmt: skip
    _common.add_output(
        group, "--remarks --remarks-output-file", "FILE", "write every decision as a JSON line"
    )
    group.add_argument("--remarks-filter", type=_regex, metavar="REGEX",
                       help="only decisions whose 'pass: kind' has a match, written and shown")  # fmt: skip
    group.add_argument("--list-passes", nargs="?", const="", metavar="NAME",
                       help="list all passes with their options, the manual of one, or spyre-pipeline")  # fmt: skip
