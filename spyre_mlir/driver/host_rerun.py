# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program as one function of the host, for calls with integers that the device has not.

The device has integers of 32 bits, and whether those of 64 bits fit is known with the values of a call. Where they do
not, nothing of the call has an effect yet, and the host runs all of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from spyre_mlir.dialects import context as new_context
from spyre_mlir.dialects import parsed
from spyre_mlir.driver.build import Value
from spyre_mlir.errors import CompileError, HostWorkWarning
from spyre_mlir.host import HostFunction
from spyre_mlir.simulator import IntegerRangeError


def run_on_host(
    source: str, arguments: Sequence[Value], arrays: Mapping[str, NDArray[Any]], error: IntegerRangeError
) -> list[NDArray[Any]]:
    """Results of a program, given as text of its linalg, after the device has refused its integers with ``error``.

    Warns of it. Raises ``error`` where the host has not all operations.
    """
    try:
        function = HostFunction(parsed(source, new_context()))
    except CompileError:
        raise error from error.__cause__
    warnings.warn(
        f"The host runs all of this call, as the device has integers of 32 bits: {error.message}",
        HostWorkWarning,
        stacklevel=4,
    )
    return function(*(arrays[argument.name] for argument in arguments))
