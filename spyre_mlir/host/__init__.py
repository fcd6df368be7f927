"""Evaluation of a program's host functions: linalg on numpy arrays."""

from spyre_mlir.host.evaluator import Evaluator
from spyre_mlir.host.function import HostFunction

__all__ = ["Evaluator", "HostFunction"]
