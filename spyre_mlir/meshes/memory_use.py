# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Device memory of a model on each card of a mesh, by shapes alone: weights, caches and intermediates.

Nothing is compiled. Weights and caches are the local tensors in whole sticks. The intermediates are the most bytes that
are alive at once in a trace of the model, in the order of its operations; a program needs less, because the compiler
fuses operations and keeps values in LX.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from spyre_mlir.errors import CompileError, kind_of
from spyre_mlir.frontend.call_objects import Inputs
from spyre_mlir.frontend.sharded_models import local_tensor, localized
from spyre_mlir.meshes.mesh_compilation import mesh_shape, simulated_rank
from spyre_mlir.records import dataclass
from spyre_mlir.tables import aligned
from spyre_mlir.target.target import Target, default_target

#: The largest number of cards that is tried.
_MOST_CARDS = 1024


@dataclass(frozen=True)
class MemoryUse:
    """Bytes of device memory that a model needs on one card; printed, a table.

    Attributes:
        mesh: The extents of the mesh.
        weights_bytes: The parameters.
        caches_bytes: The buffers.
        intermediates_bytes: The most bytes of inputs, results and intermediates that are alive at once; 0 without
            example inputs.
        capacity_bytes: The memory of a card.
    """

    mesh: tuple[int, ...]
    weights_bytes: int
    caches_bytes: int
    intermediates_bytes: int
    capacity_bytes: int

    @property
    def bytes(self) -> int:
        """All bytes of a card."""
        return self.weights_bytes + self.caches_bytes + self.intermediates_bytes

    @property
    def fits(self) -> bool:
        """Whether a card has the memory."""
        return self.bytes <= self.capacity_bytes

    def __str__(self) -> str:
        rows = [
            ("mesh", " x ".join(map(str, self.mesh))),
            ("weights", f"{self.weights_bytes:,}"),
            ("caches", f"{self.caches_bytes:,}"),
            ("intermediates", f"{self.intermediates_bytes:,}"),
            ("of a card", f"{self.bytes / self.capacity_bytes:.1%} of {self.capacity_bytes:,} bytes"),
        ]
        return "\n".join(aligned(rows, "<>"))


def memory(
    model: Any,
    mesh: Sequence[int] | Mapping[str, int] | None = None,
    *,
    inputs: Inputs = (),
    device: str | Path | None = None,
) -> MemoryUse:
    """Return the memory that a model needs on each card of a mesh, by shapes alone.

    Args:
        model: A model, or a function from a ``DeviceMesh`` to the model of one rank; its tensors may be on the meta
            device.
        mesh: The extents of the mesh, as in ``compile``. By default a model is on one card, and a function is tried on
            1, 2, 4 and more cards until the memory suffices.
        inputs: Example inputs, which intermediates depend on.
        device: A device file (default: SPYRE_DEVICE, or the packaged one).

    Raises:
        CompileError: The model fails, or no number of cards has the memory.
    """
    target = default_target() if device is None else Target.read(str(device))
    if isinstance(model, torch.nn.Module) or not callable(model):
        if mesh is not None or not isinstance(model, torch.nn.Module):
            raise CompileError(
                "The memory of a mesh is computed for a function from a device mesh to the model of one rank, not for "
                f"{kind_of(model)}."
            )
        return _of_model(model, (1,), inputs, target)
    if mesh is not None:
        return _of_mesh(model, mesh, inputs, target)
    cards, use = 1, _of_mesh(model, (1,), inputs, target)
    while not use.fits:
        cards *= 2
        larger = _of_mesh(model, (cards,), inputs, target) if cards <= _MOST_CARDS else use
        if larger.bytes >= use.bytes:
            raise CompileError(
                f"The model needs {use.bytes:,} bytes on each of {use.mesh[0]} cards, more cards need no less, and a "
                f"card has {use.capacity_bytes:,}."
            )
        use = larger
    return use


def _of_mesh(build: Callable[[Any], Any], mesh: Any, inputs: Inputs, target: Target) -> MemoryUse:
    shape, names = mesh_shape(mesh)
    with simulated_rank(0, shape, names) as device_mesh:
        return _of_model(build(device_mesh), shape, inputs, target)


def _of_model(model: Any, shape: tuple[int, ...], inputs: Inputs, target: Target) -> MemoryUse:
    weights, caches = (
        sum(_bytes(local_tensor(tensor), target) for tensor in tensors)
        for tensors in (
            (model.parameters(), model.buffers()) if isinstance(model, torch.nn.Module) else ((), ())
        )
    )
    intermediates = _alive(model, inputs, target) if pytree.tree_leaves(inputs) else 0
    return MemoryUse(shape, weights, caches, intermediates, target.hbm_bytes)


def _bytes(tensor: torch.Tensor, target: Target) -> int:
    """The bytes of a tensor in whole sticks along its last dim."""
    *rows, columns = tensor.shape or (1,)
    # The device has no numbers of 8 bytes.
    size = min(tensor.itemsize, 4)
    return math.prod(rows) * -(-columns * size // target.stick_bytes) * target.stick_bytes


def _alive(model: Any, inputs: Inputs, target: Target) -> int:
    """The most bytes of inputs, intermediates and results that are alive at once."""
    local, _ = localized(model, inputs)
    nodes = list(local.operations.graph.nodes)
    tensors = {node: value for node in nodes if isinstance(value := node.meta.get("val"), torch.Tensor)}
    storages = {node: value.untyped_storage()._cdata for node, value in tensors.items()}
    # Views share the memory of their operand. Tensors of the model are counted as weights and caches.
    of_model = {storages[node] for node in nodes[: local.state_count]}
    ends: dict[int, int] = {}
    for number, node in enumerate(nodes):
        ends.update(
            dict.fromkeys(
                (storages[each] for each in (node, *node.all_input_nodes) if each in storages), number
            )
        )
    # The inputs belong to the caller.
    ends.update(
        (storages[node], len(nodes)) for node in nodes if node.op == "placeholder" and node in storages
    )
    sizes: dict[int, int] = {}
    most = 0
    for number, node in enumerate(nodes):
        if node in tensors and storages[node] not in of_model:
            sizes[storages[node]] = max(sizes.get(storages[node], 0), _bytes(tensors[node], target))
        most = max(most, sum(sizes.values()))
        sizes = {storage: size for storage, size in sizes.items() if ends[storage] > number}
    return most
