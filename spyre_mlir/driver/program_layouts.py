# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layouts that a caller chooses for a program: fixed for arguments, reached at the least cost for results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spyre_mlir import problems
from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.dialects import stick
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.driver.argument_layouts import Choice, request_results, returned, set_layouts, split_results
from spyre_mlir.errors import AlgorithmError, CompileError
from spyre_mlir.layout import StickLayout
from spyre_mlir.layout.layout_text import same_order
from spyre_mlir.mlir import ir
from spyre_mlir.pipelines import SpyrePipeline, run_pipeline
from spyre_mlir.remarks import Remarks

#: Builders of a request for a result's layout: pin its producer, or convert after it.
_REQUESTS = (stick.pin, stick.requested_restickify)

#: Costs of a request that breaks a rule. If both do, the conversion is chosen, whose compilation reports why.
_IMPOSSIBLE = {stick.pin: 2e30, stick.requested_restickify: 1e30}


def lay_out(
    module: ir.Module,
    pipeline: SpyrePipeline,
    input_layouts: Mapping[Any, Choice],
    chosen: Mapping[Any, Choice],
) -> None:
    """Set the layouts of inputs, and those chosen by name, in a ``linalg`` module.

    Results are either produced in their layouts or converted to them, whichever costs less in the cost model of
    ``choose-layouts``; all results alike.
    """
    target = pipeline.target_from(target_of(module))
    arguments, results = split_results(module, target, chosen)
    set_layouts(module, target, input_layouts, arguments)
    if results:
        # ``min`` takes the first of equals, so a tie is decided for the pin, without a conversion.
        best = min(_REQUESTS, key=lambda request: _cost(module, pipeline, results, request))
        request_results(module, results, best)


def _cost(
    module: ir.Module,
    pipeline: SpyrePipeline,
    results: Mapping[int, StickLayout],
    request: Callable[..., Any],
) -> float:
    """Cost of the layouts (predicted ns) with one kind of request; that of ``_IMPOSSIBLE`` if it breaks a rule."""
    trial = module.operation.clone()
    request_results(trial, results, request)
    remarks = Remarks()
    try:
        with problems.collecting(None):
            run_pipeline(trial, pipeline.pipeline("laid-out"), remarks=remarks)
    except AlgorithmError:
        raise
    except CompileError:
        return _IMPOSSIBLE[request]
    # A pin of a view does not change the layout of its source, which is returned as it was.
    if not all(_has_layout(trial, index, layout) for index, layout in results.items()):
        return _IMPOSSIBLE[request]
    return sum(remark.after or 0 for remark in remarks if remark.kind == "layouts")


def _has_layout(module: ir.OpView, index: int, layout: StickLayout) -> bool:
    """Return whether a result of a laid-out module has a layout, padding aside."""
    produced = stick.layout_of(returned(functions(module.operation)[0])[index].type, target_of(module))
    return produced is not None and same_order(produced, layout)
