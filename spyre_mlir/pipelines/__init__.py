# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pipelines: their text, the named pipeline as a value, and running them."""

from spyre_mlir.pipelines.printing import Printing
from spyre_mlir.pipelines.run import Timing, check, run_pipeline
from spyre_mlir.pipelines.spyre import SpyrePipeline
from spyre_mlir.pipelines.text import Pipeline, PipelineStep

__all__ = ["Pipeline", "PipelineStep", "Printing", "SpyrePipeline", "Timing", "check", "run_pipeline"]
