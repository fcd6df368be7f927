# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""spyre-report: draw programs, layouts and scratchpads.

    spyre-report DIR
    spyre-report DIR -o report.html
    spyre-report --layout 512x240xf16 -o layout.svg
    spyre-report --layout 5x100x150xf16 --dim-order 1,0,2 --show 1,2 -o layout.svg
    spyre-report --layout laid-out.mlir --tensor %4 -o layout.svg
    spyre-report --lx DIR -o lx.html

DIR alone writes an HTML page about the program in a bundle folder: summary, graph, divisions, scratchpads, timeline,
roofline, and tables of the operations and, if the folder has remarks, of the compiler's decisions. For a program of
several steps, one page covers all steps. Without -o the page is DIR.html in the current folder, whose name is printed.
With -o FILE.json the output is the figures and the data of the page, with -o FILE.svg it is the timeline.

--layout draws the layout of a tensor as SVG: the logical grid with the id of each stick, and next to it device memory
in address order. The layout is the default layout, or the layout that --stick-dims, --dim-order and --stick-outermost
describe. For a module with layouts, --tensor names the tensor as in the table of spyre-opt --print-layouts.

--lx draws the scratchpads of the program in the bundle folder DIR over time: the address and live range of each buffer,
the occupancy, and why other buffers are in device memory. The output is an HTML page with tables; with -o FILE.svg it
is only the picture.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from spyre_mlir import files
from spyre_mlir.errors import CompileError
from spyre_mlir.target.target import default_target
from spyre_mlir.tools import _common

if TYPE_CHECKING:
    from spyre_mlir.layout import StickLayout
    from spyre_mlir.layout.listing import ListedTensor

_TYPE = re.compile(r"((?:\d+x)*)([a-z]\w*)")

#: Options that choose the layout of a type, and all options that require --layout.
_LAYOUT_CHOICES = ("stick_dims", "dim_order", "stick_outermost")
_LAYOUT_OPTIONS = ("tensor", "function", *_LAYOUT_CHOICES, "show")


@_common.tool
def main(argv: Sequence[str] | None = None) -> int:
    """Run spyre-report; return 0 on success, 1 after a diagnostic on stderr."""
    options = _parser().parse_args(argv)
    drawers = {"folder": _draw_report, "lx": _draw_map, "layout": _draw_layout}
    subjects = [name for name in drawers if getattr(options, name) is not None]
    if len(subjects) != 1:
        raise CompileError("One of DIR, --layout and --lx is required; see 'spyre-report --help'.")
    (subject,) = subjects
    is_named = options.output is not None
    if not is_named:
        # A page in the terminal helps nobody.
        folder = Path(getattr(options, subject)).resolve().name
        options.output = "-" if subject == "layout" else f"{folder}{'.lx' if subject == 'lx' else ''}.html"
    files.write_text(options.output, drawers[subject](options))
    if not is_named and options.output != "-":
        print(options.output)
    return 0


def _draw_report(options: argparse.Namespace) -> str:
    from spyre_mlir.bundle.folder import is_program
    from spyre_mlir.report.program_report import form_of

    _refuse_layout_options(options, "a report")
    form = ".html" if options.output == "-" else form_of(options.output)
    name = Path(options.folder).resolve().name
    is_page_of_bundle = form == ".html" and not is_program(Path(options.folder))
    try:
        return _page_of_bundle(options, name) if is_page_of_bundle else _draw_program(options, form, name)
    except ValueError as error:
        raise CompileError(str(error)) from None


def _page_of_bundle(options: argparse.Namespace, name: str) -> str:
    """Return the page of one bundle, without loading the bindings, which a program of several steps needs."""
    from spyre_mlir.bundle.folder import read_bundle, read_remarks
    from spyre_mlir.report.page import page
    from spyre_mlir.report.program_facts import program_facts

    bundle, remarks = read_bundle(options.folder), read_remarks(options.folder)
    return page(program_facts(bundle, remarks, lx_backend_fraction=options.lx_backend_fraction), bundle, name)


def _draw_program(options: argparse.Namespace, form: str, name: str) -> str:
    from spyre_mlir.bundle.folder import read_remarks
    from spyre_mlir.driver.program import Program
    from spyre_mlir.report.program_report import FORMS

    program, folder = Program.load(options.folder), Path(options.folder)
    for step in program.bundles:
        step.lx_frac_avail = options.lx_backend_fraction
        step.remarks = read_remarks(folder if program.is_one_bundle else folder / step.name)
    return FORMS[form](program.as_report(name))


def _refuse_layout_options(options: argparse.Namespace, subject: str) -> None:
    if flags := _flags(options, _LAYOUT_OPTIONS):
        raise CompileError(f"{flags[0]} is for --layout, not for {subject}.")


def _draw_layout(options: argparse.Namespace) -> str:
    from spyre_mlir.report.layout_picture import picture

    if options.lx_backend_fraction is not None:
        raise CompileError("--lx-backend-fraction is for --lx, not for --layout.")
    layout, name = _layout(options)
    try:
        return picture(layout, options.show, name)
    except ValueError as error:
        raise CompileError(str(error)) from None


def _draw_map(options: argparse.Namespace) -> str:
    from spyre_mlir.bundle import read_bundle
    from spyre_mlir.report.lx_map import lx_map, picture
    from spyre_mlir.report.page import lx_page
    from spyre_mlir.report.program_facts import program_facts

    _refuse_layout_options(options, "--lx")
    # Report an invalid name before the bundle is read.
    if options.output != "-" and not options.output.endswith((".svg", ".html")):
        raise CompileError(f"The name '{options.output}' of the map must end in .svg or .html.")
    name = Path(options.lx).resolve().name
    try:
        bundle = read_bundle(options.lx)
        if options.output.endswith(".svg"):
            return picture(lx_map(bundle, options.lx_backend_fraction), name)
        facts = program_facts(bundle, lx_backend_fraction=options.lx_backend_fraction)
    except ValueError as error:
        raise CompileError(str(error)) from None
    return lx_page(facts, bundle, name)


def _flags(options: argparse.Namespace, names: Sequence[str]) -> list[str]:
    """Return the flags of the named options that the command line sets."""
    # Compared with None and False: the empty dims of ``--stick-dims none`` count as set.
    return [f"--{name.replace('_', '-')}" for name in names if getattr(options, name) not in (None, False)]


def _layout(options: argparse.Namespace) -> tuple[StickLayout, str]:
    """Return the layout to draw, and the name of its tensor, which is empty for a type."""
    type_match = _TYPE.fullmatch(options.layout)
    flags = _flags(options, _LAYOUT_CHOICES)
    if type_match is None and flags:
        raise CompileError(
            f"{flags[0]} is for a type such as 512x240xf16: the layouts of a file are in the file."
        )
    if type_match is None:
        return _of_module(options.layout, options.tensor, options.function), options.tensor
    if options.tensor or options.function:
        flag = "--tensor" if options.tensor else "--function"
        raise CompileError(f"{flag} is for a file with layouts, not for the type '{options.layout}'.")
    from spyre_mlir.layout.requests import LayoutRequest, device_dtype
    from spyre_mlir.layout.stick_layout import ELEMENT_BITS

    shape, dtype = tuple(map(int, type_match[1].split("x")[:-1])), type_match[2]
    if device_dtype(dtype) not in ELEMENT_BITS:
        known = ", ".join(ELEMENT_BITS)
        raise CompileError(f"The device has no element type '{dtype}'; it has {known}.")
    request = LayoutRequest(options.stick_dims, options.dim_order, options.stick_outermost)
    return request.layout(default_target(), shape, dtype, f"'{options.layout}'"), ""


def _of_module(path: str, name: str | None, function: str | None) -> StickLayout:
    """Return the layout of a tensor in the module at ``path``; ``CompileError`` unless it has its own buffer."""
    tensors = _tensors(path, function)
    known = [tensor.name for tensor in tensors]
    if name is None:
        raise CompileError(f"--tensor must name one of the tensors of '{path}': {_first_names(known)}.")
    matches = [tensor for tensor in tensors if tensor.name in (name, f"%{name}")]
    if not matches:
        raise CompileError(f"There is no tensor '{name}' in '{path}'; there are {_first_names(known)}.")
    if len(matches) > 1:
        raise CompileError(f"More than one function of '{path}' has a tensor '{name}'; --function names one.")
    if not matches[0].owns_buffer:
        raise CompileError(f"The tensor '{name}' has no memory of its own ({matches[0].origin}).")
    return matches[0].layout


def _tensors(path: str, function: str | None) -> list[ListedTensor]:
    from spyre_mlir import dialects
    from spyre_mlir.passes.print_layouts import laid_out_tensors

    if not path.endswith(".mlir") and path != "-":
        raise CompileError(f"'{path}' is neither a type such as 512x240xf16 nor a file that ends in .mlir.")
    module = _common.parse_module(path, dialects.context())
    with module.context, module.operation.location:
        functions = dict(laid_out_tensors(module.operation))
    if function is not None and function not in functions:
        raise CompileError(
            f"There is no function '{function}' in '{path}'; there are {_first_names(functions)}."
        )
    selected = functions.values() if function is None else [functions[function]]
    return [tensor for tensors in selected for tensor in tensors]


def _first_names(names: Sequence[str] | dict[str, list[ListedTensor]]) -> str:
    """List at most twelve names, so that a diagnostic stays on one line."""
    first = list(names)[:12]
    return ", ".join(first) + (", .." if len(names) > len(first) else "")


def _dims(text: str) -> tuple[int, ...]:
    if text == "none":
        return ()
    try:
        return tuple(map(int, text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(f"dims are numbers such as 1,0, not '{text}'") from None


def _parser() -> _common.ArgumentParser:
    parser = _common.ArgumentParser("spyre-report", __doc__)
    parser.add_argument("folder", nargs="?", metavar="DIR", help="bundle folder to report on")
    drawn = parser.add_mutually_exclusive_group()
    drawn.add_argument("--layout", metavar="TYPE|FILE.mlir",
                       help="draw the layout of a tensor: its type, or a module in a file (- for stdin)")  # fmt: skip
    drawn.add_argument(
        "--lx", metavar="DIR", help="draw the scratchpads of the bundle in this folder over time"
    )
    parser.add_argument("--tensor", metavar="NAME",
                        help="with --layout FILE.mlir: the tensor to draw, by its name in the module")  # fmt: skip
    parser.add_argument("--function", metavar="NAME",
                        help="function of the tensor, if several functions have a tensor of this name")  # fmt: skip
    parser.add_argument("--stick-dims", metavar="DIMS", type=_dims,
                        help="dims in the stick, from 0, such as 1,0; empty for stick-sparse "
                             "(default: the last dim)")  # fmt: skip
    parser.add_argument("--dim-order", metavar="DIMS", type=_dims,
                        help="all dims in order, the stick dim last (default: the default order)")  # fmt: skip
    parser.add_argument("--stick-outermost", action="store_true",
                        help="the number of sticks is the outermost dim, as in RFC 0047")  # fmt: skip
    parser.add_argument("--show", metavar="ROWS,COLUMNS", type=_dims,
                        help="the two dims to draw, with all others at index 0 (default: "
                             "neighbours in memory)")  # fmt: skip
    parser.add_argument("--lx-backend-fraction", type=float, metavar="F",
                        help="fraction of LX, 0 to below 1, that the backend keeps "
                             "(default: the device's)")  # fmt: skip
    _common.add_output(parser, "-o", "FILE",
                       "file to write: .html, .svg, or .json for a report on DIR; - is stdout (default: DIR.html or "
                       "DIR.lx.html in the current folder, and stdout for --layout)", dest="output")  # fmt: skip
    return parser


if __name__ == "__main__":
    sys.exit(main())
