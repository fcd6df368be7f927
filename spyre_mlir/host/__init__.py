# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Evaluation of a program's host functions: linalg on numpy arrays."""

from spyre_mlir.host.host_evaluator import HostEvaluator, HostFunction

__all__ = ["HostEvaluator", "HostFunction"]
