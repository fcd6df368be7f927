# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch_spyre.profiler``: the card's profiler; traces of ``torch.profiler`` have the operations of the device."""


def is_available() -> bool:
    """Return False: the card's profiler is not available without a card."""
    return False
