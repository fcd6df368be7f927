# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Collectives of the program of one rank over the process groups of PyTorch, in a process of ``torchrun``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from spyre_mlir.driver.collectives import CollectiveStep
from spyre_mlir.errors import CompileError, first_sentence, listed
from spyre_mlir.target.element_types import ELEMENT_TYPES

#: The bytes of the text of a call that ranks compare.
_TEXT_BYTES = 512


def over_process_group(step: CollectiveStep, array: NDArray[Any]) -> NDArray[Any]:
    """Run a collective between processes, over the process group of PyTorch that has the ranks of the step.

    Raises:
        CompileError: The process has no process group, a rank has ended or did not answer in time, or the ranks call
            different collectives.
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise CompileError(
            f"{step.name} is a collective of {len(step.ranks)} ranks, and this process has no process group; run the "
            "script with torchrun, or compile the model with the option 'mesh' to run all ranks in this process."
        )
    group = _group_of(step.ranks)
    element = ELEMENT_TYPES[step.element]
    bits = {"bf16": torch.bfloat16, "f8E4M3FN": torch.float8_e4m3fn}.get(element.name)
    tensor = torch.from_numpy(np.array(array))
    tensor = tensor if bits is None else tensor.view(bits)
    try:
        _require_same_call(step, group)
        operator = getattr(torch.ops._c10d_functional, step.operation)
        arguments = {**step.arguments, "group_name": group.group_name}
        result = torch.ops._c10d_functional.wait_tensor(operator(tensor, **arguments))
    except (RuntimeError, ValueError) as error:
        if isinstance(error, CompileError):
            raise
        # PyTorch's error begins with a place in its sources.
        reason = re.sub(r"^\[[^]]*\] ", "", first_sentence(error))
        raise CompileError(
            f"Rank {dist.get_rank()} cannot finish {step.name}, {step.call_text}: {reason}; a rank has "
            "ended or does not call this collective."
        ) from error
    result = result if bits is None else result.view(getattr(torch, str(element.storage)))
    return result.numpy()


def _group_of(ranks: Sequence[int]) -> Any:
    """Return the process group with these ranks; ``CompileError`` if this process has none."""
    groups = dist.distributed_c10d._world.pg_group_ranks
    known = [list(members) for members in groups.values()]
    found = next((group for group, members in groups.items() if list(members) == list(ranks)), None)
    if found is None:
        raise CompileError(
            f"This process has no process group of the ranks {list(ranks)}; its groups are {listed(map(str, known))}."
        )
    return found


def _require_same_call(step: CollectiveStep, group: Any) -> None:
    """Raise ``CompileError`` unless all ranks of the group call the same collective."""
    text = step.call_text.encode()[:_TEXT_BYTES].ljust(_TEXT_BYTES)
    texts = [torch.zeros(_TEXT_BYTES, dtype=torch.uint8) for _ in step.ranks]
    dist.all_gather(texts, torch.frombuffer(bytearray(text), dtype=torch.uint8), group=group)
    calls = [bytes(each.numpy()).decode(errors="replace").strip() for each in texts]
    own = step.ranks.index(dist.get_rank())
    for rank, call in zip(step.ranks, calls, strict=True):
        if call != calls[own]:
            raise CompileError(
                f"Rank {rank} calls {call}, but rank {step.ranks[own]} calls {calls[own]} at {step.name}; all ranks of "
                "a group must call the same collective."
            )
