# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch.spyre``: the device functions that PyTorch and its users call, as in ``torch.cuda``.

There is one device, always available and in order: a program has finished when its call returns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from spyre_mlir.frontend import allocated_memory as memory
from spyre_mlir.frontend.allocated_memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_peak_memory_stats,
)
from spyre_mlir.frontend.device_streams import (
    DeviceEvent,
    Stream,
    check_device,
    current_stream,
    default_stream,
    set_stream,
)
from spyre_mlir.frontend.tensor_layouts import (
    DataFormats,
    SpyreTensorLayout,
    get_device_dtype,
    get_elem_in_stick,
)
from spyre_mlir.target.target import default_target

# Random generators of the device: the host draws the numbers, so a seed gives the same numbers as on the CPU.
#
# The default generator of the device is the default generator of the host: a model draws the same numbers on both, in
# the same order, wherever its operations run. ``torch.Generator(device="spyre")`` is a separate generator.

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


#: Types that autocast casts to. PyTorch reads them through ``get_amp_supported_dtype``.
_AMP_DTYPES = (torch.float16, torch.bfloat16)

_initialized = True

Event = DeviceEvent

default_generators = (torch.default_generator,)

manual_seed_all = manual_seed
seed_all = seed


class DeviceProperties(NamedTuple):
    """The name of the device, the bytes of its memory and its cores."""

    name: str
    total_memory: int
    multi_processor_count: int


class device:
    """Context in which a device is the current one; there is one device, so nothing changes."""

    def __init__(self, device: Any) -> None:
        self.idx = check_device(device)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


class stream:
    """Context in which a stream is the current one; None changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *_: object) -> None:
        if self.stream is not None:
            self.stream.__exit__(None, None, None)


def init() -> None:
    """Do nothing: the device needs no initialization."""


def is_initialized() -> bool:
    """Return True: the device needs no initialization."""
    return True


def is_available() -> bool:
    """Return True: programs run on the simulator."""
    return True


def device_count() -> int:
    """Number of devices."""
    return 1


def current_device() -> int:
    """Index of the only device."""
    return 0


def set_device(device: Any) -> None:
    """Make a device the current one; RuntimeError for any but the only device."""
    check_device(device)


def synchronize(device: Any = None) -> None:
    """Return at once: a program has finished when its call returns."""
    check_device(device)


def get_device_properties(device: Any = None) -> DeviceProperties:
    """Name, memory and cores of the device."""
    check_device(device)
    target = default_target()
    return DeviceProperties("Spyre (simulator)", target.hbm_bytes, target.cores)


def get_device_name(device: Any = None) -> str:
    """Name of the device."""
    return get_device_properties(device).name


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Types that ``torch.autocast`` casts to on the device."""
    return list(_AMP_DTYPES)


def is_bf16_supported() -> bool:
    """Return True: bfloat16 is DL16 on the device."""
    return True


def get_rng_state_all() -> list[torch.Tensor]:
    """State of the generator of each device."""
    return [get_rng_state()]


def set_rng_state_all(states: Any) -> None:
    """Set the state of the generator of each device."""
    for state in states:
        set_rng_state(state)


def _is_in_bad_fork() -> bool:
    """Return False: a process that forks may use the device."""
    return False


__all__ = [
    "DataFormats", "DeviceProperties", "Event", "Generator", "SpyreTensorLayout", "Stream",
    "current_device", "current_stream", "default_generators", "default_stream", "device", "device_count",
    "empty_cache", "get_amp_supported_dtype", "get_device_dtype", "get_device_name",
    "get_device_properties", "get_elem_in_stick", "get_rng_state", "get_rng_state_all", "init",
    "initial_seed", "is_available", "is_bf16_supported", "is_initialized", "manual_seed", "manual_seed_all",
    "max_memory_allocated", "max_memory_reserved", "mem_get_info", "memory", "memory_allocated",
    "memory_reserved", "memory_stats", "reset_peak_memory_stats", "seed", "seed_all", "set_device",
    "set_rng_state", "set_rng_state_all", "set_stream", "stream", "synchronize",
]  # fmt: skip
