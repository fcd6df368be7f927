# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""spyre-diff: compare two SuperDSC bundles side by side.

    spyre-diff before.bundle after.bundle
    spyre-diff before.bundle after.bundle -o diff.html

The report begins with totals: operations, traffic, LX, predicted time. Then it lists the operations and buffers that
differ, with the change: division, memory, layout, bytes, time. Operations are matched by source line and opcode, and
operations between two matches by opcode only. Buffers are matched by the operation that writes them. The host values of
constants and parameters are not compared.

The exit status is 0 whether or not the bundles differ; with --exit-code it is 1 if they differ. After an error, the
exit status is 1, with a diagnostic.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spyre_mlir import files
from spyre_mlir.errors import CompileError
from spyre_mlir.tools import _common

if TYPE_CHECKING:
    from spyre_mlir.report.program_facts import ProgramFacts


@_common.tool
def main(argv: Sequence[str] | None = None) -> int:
    """Run spyre-diff; return 0 on success, 1 after a diagnostic on stderr, or for a difference with --exit-code."""
    options = _parser().parse_args(argv)

    from spyre_mlir.report.difference import facts_difference, page, text

    is_page = options.output.endswith(".html")
    # Report an invalid name before the bundles are read.
    if options.output != "-" and not is_page:
        raise CompileError(f"The name '{options.output}' of the page must end in .html.")
    difference = facts_difference(_facts(options.before), _facts(options.after))
    render = page if is_page else text
    rendered = render(difference, options.before, options.after)
    files.write_text(options.output, rendered if is_page else f"{rendered}\n")
    return 1 if difference and options.exit_code else 0


def _facts(folder: str) -> ProgramFacts:
    from spyre_mlir.bundle import read_bundle
    from spyre_mlir.report.program_facts import program_facts

    bundle = read_bundle(folder)
    try:
        return program_facts(bundle)
    except CompileError as error:
        # Locations in the two bundles look alike, so the message names the folder.
        raise CompileError(error.message, f"{folder}: {error.location}") from None


def _parser() -> _common.ArgumentParser:
    parser = _common.ArgumentParser("spyre-diff", __doc__)
    parser.add_argument("before", metavar="DIR_A", help="first bundle folder")
    parser.add_argument("after", metavar="DIR_B", help="second bundle folder, compared with the first")
    _common.add_output(parser, "-o", "FILE.html",
                       "write the comparison as an HTML page (default: a table on stdout)", dest="output",
                       default="-")  # fmt: skip
    parser.add_argument("--exit-code", action="store_true", help="exit with status 1 if the bundles differ")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
