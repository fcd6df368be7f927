# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random generators of the device: the host draws the numbers, so a seed gives the same numbers as on the CPU.

The default generator of the device is the default generator of the host: a model draws the same numbers on both, in the
same order, wherever its operations run. ``torch.Generator(device="spyre")`` is a separate generator.
"""

from __future__ import annotations

from typing import Any

import torch

_Generator: Any = torch._C.Generator


class Generator(_Generator):
    """A host generator whose device is ``spyre``."""

    def __new__(cls, device: Any = None) -> Generator:
        return super().__new__(cls)

    @property
    def device(self) -> torch.device:
        """The device for which the generator draws."""
        return torch.device("spyre", 0)

    def clone_state(self) -> Generator:
        """Return another generator in the same state."""
        return _restored(self.get_state())

    def __reduce__(self) -> Any:
        return _restored, (self.get_state(),)


def _restored(state: torch.Tensor) -> Generator:
    generator = Generator()
    generator.set_state(state)
    return generator


def manual_seed(seed: int) -> None:
    """Seed the generator that draws for the device, which is the generator of the host."""
    torch.default_generator.manual_seed(int(seed))


def seed() -> int:
    """Seed the generator with a random number, and return that number."""
    return torch.default_generator.seed()


def initial_seed() -> int:
    """Return the seed of the generator."""
    return torch.default_generator.initial_seed()


def get_rng_state(device: Any = None) -> torch.Tensor:
    """State of the generator that draws for the device."""
    return torch.get_rng_state()


def set_rng_state(state: torch.Tensor, device: Any = None) -> None:
    """Set the state of the generator that draws for the device."""
    torch.set_rng_state(state)
