"""What a program does on the host: functions of linalg, evaluated on numpy arrays."""

from spyre_mlir.host.evaluator import Evaluator
from spyre_mlir.host.function import HostFunction

__all__ = ["Evaluator", "HostFunction"]
