"""Attention without the matrix of scores: numbers on the simulator, and what it moves at full size."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from programs import check_close
from test_programs import MOST
from tilings import classes_of, tile

import spyre_mlir
from spyre_mlir.bundle.validate import validate
from spyre_mlir.dialects import context
from spyre_mlir.frontend import Imported, import_torch
from spyre_mlir.mlir import ir
from spyre_mlir.passes._tile_nests import Tiled
from spyre_mlir.pipelines import SpyrePipeline, run_pipeline

