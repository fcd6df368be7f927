# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Counter of the bytes of live device storages, including padding, and of their peak."""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import Any


class LiveStorages:
    """Bytes of live storages: ``allocated_bytes``, and ``peak_bytes``, their maximum since the last reset.

    ``total_allocated_bytes`` and ``total_freed_bytes`` only grow, until ``reset_totals``.
    """

    def __init__(self) -> None:
        self.allocated_bytes = 0
        self.peak_bytes = 0
        self.total_allocated_bytes = 0
        self.total_freed_bytes = 0
        self._references: dict[int, weakref.ref[Any]] = {}
        self._numbers = itertools.count()
        # Reentrant: garbage collection may free storages during ``allocate``.
        self._lock = threading.RLock()

    def allocate(self, storage: Any, nbytes: int) -> None:
        """Count the bytes of a storage until it is garbage-collected."""
        number = next(self._numbers)

        def free(_: weakref.ref[Any]) -> None:
            """Stop counting the bytes."""
            with self._lock:
                self.allocated_bytes -= nbytes
                self.total_freed_bytes += nbytes
                del self._references[number]

        with self._lock:
            self._references[number] = weakref.ref(storage, free)
            self.allocated_bytes += nbytes
            self.total_allocated_bytes += nbytes
            self.peak_bytes = max(self.peak_bytes, self.allocated_bytes)

    def reset_peak(self) -> None:
        """Set the peak to the bytes that are allocated now."""
        self.peak_bytes = self.allocated_bytes

    def reset_totals(self) -> None:
        """Set the total allocated and freed bytes to 0."""
        self.total_allocated_bytes = self.total_freed_bytes = 0


#: The storages of the only device.
live_storages = LiveStorages()
