# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Activity of the device: whatever runs an operation or moves a tensor records it here, and listeners count it.

Four functions are called where the work happens, once for each piece of work, in the order in which the work is done:

- ``record_device(operation, program)``: a program of the device ran the operation. ``operation`` is an ``OpOverload``
  of PyTorch, or the function of a compiled graph; ``program`` is the ``Program`` that ran.
- ``record_host(operation, reason)``: PyTorch's kernel on the host ran an operation on tensors of the device.
  ``reason`` is a sentence for the reader of a report: why the operation has no form on the device.
- ``record_copy(nbytes, to_device)``: the host copied this number of bytes to the device, or from the device.
- ``record_compilation(operation, program)``: the compiler made a program, which a later call may take from a cache.

Without a listener each of them returns at once. ``listening`` adds a listener for a block of code. Gradients are
computed in threads of PyTorch, so a listener hears all threads.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator
from typing import Any


class Listener:
    """Receiver of the activity; a subclass overrides the methods that it needs."""

    def on_device(self, operation: str, program: Any) -> None:
        """Note that a program ran an operation on the device."""

    def on_host(self, operation: str, reason: str) -> None:
        """Note that the host ran an operation, and why."""

    def on_copy(self, nbytes: int, to_device: bool) -> None:
        """Note that bytes were moved to the device, or from the device."""

    def on_compilation(self, operation: str, program: Any) -> None:
        """Note that a program was compiled."""


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
    """Record that PyTorch's kernel on the host ran an operation on tensors of the device, and why."""
    if _listeners:
        _notify("on_host", name_of(operation), reason)


def record_copy(nbytes: int, to_device: bool) -> None:
    """Record that bytes were copied from the host to the device, or from the device to the host."""
    if _listeners:
        _notify("on_copy", nbytes, to_device)


def record_compilation(operation: Any, program: Any) -> None:
    """Record that a program was compiled."""
    if _listeners:
        _notify("on_compilation", name_of(operation), program)


def name_of(operation: Any) -> str:
    """Return the name of an operation as PyTorch writes it: ``aten.add.Tensor``, or ``compiled graph`` for others."""
    return str(operation) if isinstance(operation, str) or hasattr(operation, "_schema") else "compiled graph"


def _notify(method: str, *facts: Any) -> None:
    """Call a method of all listeners."""
    with _lock:
        for listener in tuple(_listeners):
            getattr(listener, method)(*facts)


def listen(listener: Listener) -> None:
    """Let a listener receive the activity of all threads, from now on."""
    _listeners.append(listener)


def predicted_us(program: Any) -> float:
    """Return the predicted time of one run of a program's bundles in microseconds; the host's part is not predicted."""
    return math.fsum(line.total_ns for line in program.timelines) / 1000
