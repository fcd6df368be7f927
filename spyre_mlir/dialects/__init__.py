"""The nouns of the compiler: three Python-defined dialects over upstream linalg.

``stick`` says how tensors lie in memory, ``sdsc`` what a device operation is and where it runs,
``sdscbundle`` is the public output form.
"""

from __future__ import annotations

from spyre_mlir.dialects.forms import PREFIXES, check_forms
from spyre_mlir.dialects.parser_limits import check_survived, check_text
from spyre_mlir.dialects.sdsc import Sdsc
from spyre_mlir.dialects.sdscbundle import SdscBundle
from spyre_mlir.dialects.stick import Stick
from spyre_mlir.mlir import announce_dialect, ir, load_tm_tensor

DIALECTS = (Stick, Sdsc, SdscBundle)

for _dialect in DIALECTS:
    announce_dialect(_dialect.DIALECT_NAMESPACE, _dialect.__module__)


def context() -> ir.Context:
    """A new MLIR context with our dialects loaded."""
    made = ir.Context()
    made.enable_multithreading(False)  # a child process that reads with it would have no threads
    load_into(made)
    return made


def parsed(text: str, context: ir.Context, path: str | None = None) -> ir.Module:
    """A module from text, or from the file at ``path`` whose text it is; ``ir.MLIRError`` for what is none.

    ``CompileError`` for text that the parser would not survive, and for attributes of ours that are malformed.
    ``tm_tensor``, in which torch-mlir writes scans, scatters and sorts, is loaded where it is used: that takes 30 ms.
    """
    check_text(text, path or "-")
    if "tm_tensor." in text:
        load_tm_tensor(context)

    def parse() -> ir.Module:
        return ir.Module.parse(text, context) if path is None else ir.Module.parseFile(path, context)

    check_survived(parse, path or "-")
    module = parse()
    if any(prefix in text for prefix in PREFIXES):
        check_forms(module)
    return module


def load_into(existing: ir.Context) -> None:
    """Load our dialects into a context that somebody else made; those that it has already stay."""
    with existing, ir.Location.unknown():
        for dialect in DIALECTS:
            if not existing.is_dialect_loaded(dialect.DIALECT_NAMESPACE):
                dialect.load()
