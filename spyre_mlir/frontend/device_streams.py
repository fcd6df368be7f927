# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Streams and events of the device, and the clock that events read: the predicted time of all programs so far.

A program has finished on the simulator when its call returns, so all streams are in order and nothing waits. The clock
advances by the predicted time of each program, whichever stream is current.
"""

from __future__ import annotations

import functools
import itertools
import threading
from types import TracebackType
from typing import Any

import torch
from torch._C import _autograd

from spyre_mlir.tensors.device_activity import Listener, listen, predicted_us

NAME = "spyre"

_PRIVATE_USE: Any = _autograd.DeviceType.PrivateUse1
_DEVICE_TYPE = int(_PRIVATE_USE)
_numbers = itertools.count(1)
_local = threading.local()


class Clock(Listener):
    """Predicted microseconds of the programs that ran since the clock started."""

    def __init__(self) -> None:
        self.us = 0.0

    def on_device(self, operation: str, program: Any) -> None:
        self.us += predicted_us(program)


@functools.cache
def clock() -> Clock:
    """The clock of the device. It starts at the first call, so that programs are predicted only for timed events."""
    started = Clock()
    listen(started)
    return started


class Stream(torch.Stream):
    """A queue of the device; all queues are in order, so synchronization returns at once."""

    def __new__(cls, device: Any = None, priority: int = 0, **identity: int) -> Stream:
        number = identity.get("stream_id", next(_numbers))
        check_device(device)
        return super().__new__(cls, stream_id=number, device_index=0, device_type=_DEVICE_TYPE)

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()
        self._outer: list[Stream] = []

    def synchronize(self) -> None:
        """Return at once: all programs of the stream have run."""

    def query(self) -> bool:
        """Return True: all programs of the stream have run."""
        return True

    def wait_event(self, event: Any) -> None:
        """Return at once: all programs before the event have run."""

    def wait_stream(self, other: Any) -> None:
        """Return at once: all programs of the other stream have run."""

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Record an event, by default a new one, and return it."""
        event = DeviceEvent() if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        self._outer.append(current_stream())
        set_stream(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        set_stream(self._outer.pop())


class DeviceEvent(torch.Event):
    """A mark between programs; with ``enable_timing`` it records the predicted time."""

    def __new__(cls, device: Any = None, *, enable_timing: bool = False, **options: bool) -> DeviceEvent:
        return super().__new__(cls, NAME, enable_timing=enable_timing, **options)

    def __init__(self, device: Any = None, *, enable_timing: bool = False, **_: bool) -> None:
        super().__init__()
        check_device(device)
        self._is_timed = enable_timing
        self._us: float | None = None
        if enable_timing:
            clock()

    def record(self, stream: Any = None) -> None:
        """Record the predicted time so far."""
        self._us = clock().us if self._is_timed else 0.0

    def wait(self, stream: Any = None) -> None:
        """Return at once: all programs before the event have run."""

    def query(self) -> bool:
        """Return True: all programs before the event have run."""
        return True

    def synchronize(self) -> None:
        """Return at once: all programs before the event have run."""

    def elapsed_time(self, other: Any) -> float:
        """Predicted milliseconds of the programs that ran between two events.

        Raises:
            ValueError: One of the events does not record times, or was not recorded.
        """
        if not (self._is_timed and other._is_timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._us is None or other._us is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (other._us - self._us) / 1000


def check_device(device: Any) -> int:
    """Return the index of the device, which is 0; RuntimeError for another device."""
    if device is None:
        return 0
    chosen = torch.device(NAME, device) if isinstance(device, int) else torch.device(device)
    if chosen.type != NAME or chosen.index not in (None, 0):
        raise RuntimeError(f"There is one device, '{NAME}:0', but this names '{chosen}'.")
    return 0


def default_stream(device: Any = None) -> Stream:
    """Return the stream that is current if no other stream was set."""
    check_device(device)
    return _DEFAULT


def current_stream(device: Any = None) -> Stream:
    """Return the stream that was set in this thread, or the default stream."""
    check_device(device)
    return getattr(_local, "stream", _DEFAULT)


def set_stream(stream: Stream) -> None:
    """Make a stream the current one of this thread."""
    _local.stream = stream


_DEFAULT = Stream(stream_id=0)
