"""What a program does on the host: functions that upstream compiles for its processor."""

from spyre_mlir.host.function import HostFunction

__all__ = ["HostFunction"]
