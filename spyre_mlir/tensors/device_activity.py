# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Device activity: code that runs an operation or moves a tensor records it here, and listeners count it.

Each piece of work calls one of four functions once, in the order in which the work is done:

- ``record_device(operation, program)``: a device program ran the operation. ``operation`` is a PyTorch ``OpOverload``,
  or the function of a compiled graph; ``program`` is the ``Program`` that ran.
- ``record_host(operation, reason)``: PyTorch's host kernel ran an operation on device tensors. ``reason`` is a sentence
  for a report: why the device does not run the operation.
- ``record_copy(tensor, to_device)``: the host copied a tensor to the device, or from the device.
- ``record_compilation(operation, program)``: the compiler created a program, which later calls may reuse.

Without a listener, these functions return immediately. ``listening`` adds a listener for a block of code. PyTorch
computes gradients in its own threads, so a listener receives the activity of all threads.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator
from typing import Any


class Listener:
    """Receiver of device activity; a subclass overrides the methods that it needs."""

    def on_device(self, operation: str, program: Any) -> None:
        """Handle an operation that a program ran on the device."""

    def on_host(self, operation: str, reason: str) -> None:
        """Handle an operation that the host ran, with the reason."""

    def on_copy(self, tensor: Any, to_device: bool) -> None:
        """Handle a copy of a tensor to the device, or from the device."""

    def on_compilation(self, operation: str, program: Any) -> None:
        """Handle the compilation of a program."""


_listeners: list[Listener] = []
_lock = threading.RLock()


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Context in which a listener receives the activity of all threads."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def record_device(operation: Any, program: Any) -> None:
    """Record that a program ran an operation on the device."""
    if _listeners:
        _notify("on_device", name_of(operation), program)


def record_host(operation: Any, reason: str) -> None:
    """Record that PyTorch's host kernel ran an operation on device tensors, and why."""
    if _listeners:
        _notify("on_host", name_of(operation), reason)


def record_copy(tensor: Any, to_device: bool) -> None:
    """Record that a tensor was copied from the host to the device, or from the device to the host."""
    if _listeners:
        _notify("on_copy", tensor, to_device)


def record_compilation(operation: Any, program: Any) -> None:
    """Record that a program was compiled."""
    if _listeners:
        _notify("on_compilation", name_of(operation), program)


def name_of(operation: Any) -> str:
    """Return the PyTorch name of an operation, such as ``aten.add.Tensor``, or ``compiled graph`` for a graph."""
    return str(operation) if isinstance(operation, str) or hasattr(operation, "_schema") else "compiled graph"


def _notify(method: str, *facts: Any) -> None:
    """Call a method of all listeners."""
    with _lock:
        for listener in tuple(_listeners):
            getattr(listener, method)(*facts)


def listen(listener: Listener) -> None:
    """Add a listener for the activity of all threads, permanently."""
    _listeners.append(listener)


def predicted_us(program: Any) -> float:
    """Return the predicted time of one run of a program's bundles in microseconds, without host functions."""
    return math.fsum(line.total_ns for line in program.timelines) / 1000
