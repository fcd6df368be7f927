# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compilation of the programs of all ranks of a mesh in one process: the option ``mesh`` of ``compile``."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from spyre_mlir.driver.compilation import ProgramOptions
from spyre_mlir.driver.mesh_program import MeshProgram
from spyre_mlir.errors import CompileError, kind_of
from spyre_mlir.frontend.call_objects import Inputs
from spyre_mlir.frontend.model_compilation import model_program


def front_end(mesh: Any) -> Any:
    """Return the importer of models on a mesh: a sequence of extents, or a mapping from names of dims to extents."""
    return partial(mesh_program, mesh)


def mesh_program(
    mesh: Any, build: Any, inputs: Inputs, dynamic: Any, words: ProgramOptions, options: dict[str, Any]
) -> MeshProgram:
    """Compile the model that ``build`` creates for each rank of the mesh.

    Ranks whose programs are equal but for the data of parameters share one compilation through the cache of programs.
    """
    shape, names = mesh_shape(mesh)
    if not callable(build) or isinstance(build, torch.nn.Module):
        raise CompileError(
            "With the option 'mesh', compile takes a function from a device mesh to the model of one rank, not "
            f"{kind_of(build)}, because each rank has its own model."
        )
    if words.target != "bundle":
        raise CompileError("A program of several ranks has no form in KTIR.")
    programs = []
    numbers = torch.get_rng_state()
    for rank in range(math.prod(shape)):
        # Each rank builds the same model, also from random numbers without a seed.
        torch.set_rng_state(numbers)
        with simulated_rank(rank, shape, names) as device_mesh:
            program = model_program(build(device_mesh), inputs, dynamic, words, dict(options))
        if not hasattr(program, "place"):
            raise getattr(program, "reason", None) or CompileError(
                f"A model on a mesh must be one program, not {kind_of(program)}."
            )
        programs.append(program)
    return MeshProgram(programs, shape)


def mesh_shape(mesh: Any) -> tuple[tuple[int, ...], tuple[str, ...] | None]:
    """Return the extents of the dims of a mesh and their names, None without names; ``CompileError`` for others."""
    names = tuple(map(str, mesh)) if isinstance(mesh, Mapping) else None
    shape = tuple(mesh.values() if isinstance(mesh, Mapping) else mesh)
    if not shape or any(not isinstance(size, int) or size < 1 for size in shape):
        raise CompileError(
            f"The option 'mesh' has the extent of each dim, as (4,) or {{'tp': 4}}, not {mesh!r:.60}."
        )
    return shape, names


@contextlib.contextmanager
def simulated_rank(rank: int, shape: Sequence[int], names: tuple[str, ...] | None) -> Iterator[Any]:
    """Context in which this process is one rank of a mesh without other processes; yields the device mesh.

    PyTorch's group "fake" runs collectives without data, so DTensor takes the shards of the rank from the whole tensor.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import debug
    from torch.distributed.tensor import placement_types as placements
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        raise CompileError(
            "The option 'mesh' runs all ranks in this process, which already has a process group; compile the model of "
            "this rank without 'mesh'."
        )

    def scatter(
        output: torch.Tensor, parts: Sequence[torch.Tensor], mesh: Any, mesh_dim: int = 0, **_: Any
    ) -> None:
        """Take the part of this rank; each rank has all parts."""
        output.copy_(parts[mesh.get_local_rank(mesh_dim)])

    internals: Any = placements
    scattered = internals.mesh_scatter
    dist.init_process_group("fake", rank=rank, world_size=math.prod(shape), store=FakeStore())
    # The cache has meshes of another rank, which are equal to the mesh of this rank.
    debug._clear_sharding_prop_cache()
    try:
        internals.mesh_scatter = scatter
        yield init_device_mesh("cpu", tuple(shape), mesh_dim_names=names)
    finally:
        internals.mesh_scatter = scattered
        dist.destroy_process_group()
