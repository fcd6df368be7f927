"""The layouts that a caller chooses for a program: those of arguments hold, those of results come at the least cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spyre_mlir.argument_layouts import Choice, request_results, returned, set_layouts, split_results
from spyre_mlir.dialects import stick
from spyre_mlir.errors import CompileError
from spyre_mlir.layout import StickLayout
from spyre_mlir.layout.layout_text import same_order
from spyre_mlir.mlir import ir
from spyre_mlir.passes._memory import functions
from spyre_mlir.pipelines import SpyrePipeline, run_pipeline
from spyre_mlir.remarks import Remarks

#: How a result comes to its layout: it is made so, or made as is best and then converted.
_WAYS = (stick.pin, stick.requested_restickify)

#: The price of a way that breaks a rule. If both do, the conversion stays, and its compilation says why.
_IMPOSSIBLE = {stick.pin: 2e30, stick.requested_restickify: 1e30}


def lay_out(
    module: ir.Module,
    pipeline: SpyrePipeline,
    input_layouts: Mapping[Any, Choice],
    chosen: Mapping[Any, Choice],
) -> None:
    """Give a ``linalg`` module the layouts that inputs have and those that are chosen by name.

    A result is made in its layout, or converted to it: whichever costs less by the prices of ``choose-layouts``, all
    results alike.
    """
    arguments, results = split_results(module, chosen)
    set_layouts(module, input_layouts, arguments)
    if results:
        best = min(_WAYS, key=lambda way: _cost(module, pipeline, results, way))
        request_results(module, results, best)


def _cost(
    module: ir.Module, pipeline: SpyrePipeline, results: Mapping[int, StickLayout], way: Callable[..., Any]
) -> float:
    """What the layouts of a module cost where results come to theirs in one way; infinite if that breaks a rule."""
    trial = module.operation.clone()
    request_results(trial, results, way)
    remarks = Remarks()
    try:
        run_pipeline(trial, pipeline.pipeline("laid-out"), remarks=remarks)
    except CompileError:
        return _IMPOSSIBLE[way]
    if not all(_lies_so(trial, at, layout) for at, layout in results.items()):
        return _IMPOSSIBLE[way]  # what is pinned is a view, whose source is made and returned as it was
    return sum(remark.after or 0 for remark in remarks if remark.kind == "layouts")


def _lies_so(module: ir.OpView, at: int, layout: StickLayout) -> bool:
    """Whether a result of a laid-out module has a layout, room aside."""
    made = stick.layout_of(returned(functions(module.operation)[0])[at].type)
    return made is not None and same_order(made, layout)
