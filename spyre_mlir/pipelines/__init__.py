"""Pipelines: their text, the named one as a value, and the run."""

from spyre_mlir.pipelines.run import Printing, Timing, check, run_pipeline
from spyre_mlir.pipelines.spyre import SpyrePipeline
from spyre_mlir.pipelines.text import Pipeline, Step

__all__ = ["Pipeline", "Printing", "SpyrePipeline", "Step", "Timing", "check", "run_pipeline"]
