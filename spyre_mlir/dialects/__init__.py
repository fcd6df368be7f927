# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Four Python-defined dialects over upstream linalg, and the parser of modules that use them.

``stick`` describes the layout of tensors in memory, ``sdsc`` describes device operations and where they run,
``sdscbundle`` is the output form of the SuperDSC specification, and ``ktdp`` is the output form of RFC 0682.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from spyre_mlir.dialects.forms import CHECKED_NAMESPACES, check_forms
from spyre_mlir.dialects.indices import IndexArgumentOp, ReadIndexOp
from spyre_mlir.dialects.ktdp import Ktdp
from spyre_mlir.dialects.parser_limits import check_survived, check_text, line_of_crash
from spyre_mlir.dialects.sdsc import Sdsc
from spyre_mlir.dialects.sdscbundle import SdscBundle
from spyre_mlir.dialects.stick import Stick
from spyre_mlir.mlir import announce_dialect, ir, load_tm_tensor

_Parsed = TypeVar("_Parsed", ir.Module, ir.OpView)

DIALECTS = (Stick, Sdsc, SdscBundle, Ktdp)
#: Ops of ``sdsc`` that are defined outside of ``sdsc.py``; importing them registers them.
INDICES = (ReadIndexOp, IndexArgumentOp)

for _dialect in DIALECTS:
    announce_dialect(_dialect.DIALECT_NAMESPACE, _dialect.__module__)


def context() -> ir.Context:
    """Create an MLIR context with our dialects loaded."""
    new = ir.Context()
    new.enable_multithreading(
        False
    )  # check_survived forks, and the child would wait for threads it does not have
    load_into(new)
    return new


def parsed(text: str, context: ir.Context, path: str | None = None) -> ir.Module:
    """Parse a module.

    ``tm_tensor``, in which torch-mlir writes scans, scatters and sorts, is loaded only if used: that takes 30 ms.

    Args:
        text: The text of the module.
        context: A context with our dialects, as ``spyre_mlir.dialects.context`` creates it.
        path: The file that ``text`` is the content of; locations name it.

    Raises:
        ir.MLIRError: The syntax is wrong.
            CompileError: The text would crash the parser, or attributes of our dialects are malformed.
    """

    def parse() -> ir.Module:
        return ir.Module.parse(text, context) if path is None else ir.Module.parseFile(path, context)

    return _checked(text, context, path or "-", parse)


def parsed_operation(text: str, context: ir.Context, path: str | None = None) -> ir.OpView:
    """Parse one operation like ``parsed`` parses a module, without an enclosing module."""
    source = path or "-"
    return _checked(
        text, context, source, lambda: ir.Operation.parse(text, source_name=source, context=context)
    )


def _checked(text: str, context: ir.Context, source: str, parse: Callable[[], _Parsed]) -> _Parsed:
    check_text(text, source)
    if "tm_tensor." in text:
        load_tm_tensor(context)
    # The text is parsed twice: the child process that parses it first cannot return a module.
    check_survived(
        parse,
        f"{source}:1:1",
        crash_line=lambda: line_of_crash(text, lambda part: ir.Module.parse(part, context)),
    )
    module = parse()
    # Without such a name in the text there is nothing to check, which saves the walk over all operations.
    if any(prefix in text for prefix in CHECKED_NAMESPACES):
        check_forms(module)
    return module


def load_into(existing: ir.Context) -> None:
    """Load our dialects into the caller's context, which may already have some of them."""
    with existing, ir.Location.unknown():
        for dialect in DIALECTS:
            if not existing.is_dialect_loaded(dialect.DIALECT_NAMESPACE):
                dialect.load()
