# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""User-chosen layouts of a program: fixed for arguments, produced or converted at the least cost for results."""

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
from spyre_mlir.layout.requests import same_order
from spyre_mlir.mlir import ir
from spyre_mlir.pipelines import SpyrePipeline, run_pipeline
from spyre_mlir.remarks import Remarks

#: Builders of a layout request for a result: pin the layout of the producer, or convert the result.
_REQUESTS = (stick.pin, stick.requested_restickify)

#: Costs of an illegal request. If both are illegal, the conversion is chosen, and its compilation reports the error.
_IMPOSSIBLE = {stick.pin: 2e30, stick.requested_restickify: 1e30}


def lay_out(
    module: ir.Module,
    pipeline: SpyrePipeline,
    input_layouts: Mapping[Any, Choice],
    chosen: Mapping[Any, Choice],
) -> None:
    """Set the layouts of inputs and the user-chosen layouts in a ``linalg`` module.

    Results are either produced in their layouts or converted to them, whichever costs less in the cost model of
    ``choose-layouts``; the choice is the same for all results.
    """
    target = pipeline.target_from(target_of(module))
    arguments, results = split_results(module, target, chosen)
    set_layouts(module, target, input_layouts, arguments)
    if results:
        # ``min`` returns the first of equal costs, so a tie selects the pin, without a conversion.
        best = min(_REQUESTS, key=lambda request: _cost(module, pipeline, results, request))
        request_results(module, results, best)


def _cost(
    module: ir.Module,
    pipeline: SpyrePipeline,
    results: Mapping[int, StickLayout],
    request: Callable[..., Any],
) -> float:
    """Return the cost of the layouts (predicted ns) with one kind of request; from ``_IMPOSSIBLE`` if illegal."""
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
    # A pin of a view does not change the layout of its source, so a returned view may not have the layout.
    if not all(_has_layout(trial, index, layout) for index, layout in results.items()):
        return _IMPOSSIBLE[request]
    return sum(remark.after or 0 for remark in remarks if remark.kind == "layouts")


def _has_layout(module: ir.OpView, index: int, layout: StickLayout) -> bool:
    """Return whether a result of a laid-out module has a layout, ignoring padding."""
    produced = stick.layout_of(returned(functions(module.operation)[0])[index].type, target_of(module))
    return produced is not None and same_order(produced, layout)
