# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The experts of transformers' models as dense products: every expert processes every token.

transformers sorts tokens by expert, so that the sizes of its matmuls depend on data, or it gathers the weights that a
token needs. Here a gate of 0 has the effect of not sending the token to the expert: nothing is sorted or gathered, and
all floating-point work is matmuls of known sizes. The work equals the work for a batch that needs every expert. Large
experts run one after another in a loop, which reads the weights of each expert once.

A graph of Dynamo contains the sorted tokens already. Its grouped products become dense in the same way, with one row
for each expert that a token has chosen.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from spyre_mlir.frontend.tile_loops import for_each_tile

#: Module in which transformers registers implementations; a model that uses it has imported it.
_REGISTRY_MODULE = "transformers.integrations.moe"

#: Matrix bytes per expert up to which all experts are multiplied together: starting the operations of a loop takes
#: longer than reading this number of bytes.
MOST_TOGETHER_BYTES = 1 << 20


def dense_experts() -> contextlib.AbstractContextManager:
    """Context in which models of transformers use ``_dense`` for experts, whichever implementation they select."""
    registry_module = sys.modules.get(_REGISTRY_MODULE)
    if registry_module is None:
        return contextlib.nullcontext()
    return mock.patch.object(
        registry_module.ExpertsInterface, "get_interface", lambda registry, name, default: _dense
    )


def _dense(experts: Any, tokens: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
    """sum_e gate[t, e] * down_e(activation(up_e(tokens))), with the gates of [tokens, top_k] choices.

    ``experts`` is a module as described by ``use_experts_implementation`` of transformers. A chosen expert that another
    process has does not get a gate.
    """
    weights = weights.to(tokens.dtype)
    # Weight of each expert for each token, [tokens, experts, 1]; the device cannot compare integers.
    every = torch.arange(experts.num_experts, device=chosen.device).to(torch.float32)
    is_chosen = chosen[:, :, None].to(torch.float32) == every
    gates = torch.where(is_chosen, weights[:, :, None], 0.0).sum(1)[:, :, None]
    name = "gate_up_proj" if experts.has_gate else "up_proj"
    up, down = getattr(experts, name), experts.down_proj
    if up.nbytes + down.nbytes > MOST_TOGETHER_BYTES * experts.num_experts:
        return _in_turn(experts, tokens, gates)
    up = up if experts.is_transposed else up.transpose(1, 2)
    # First product of all experts in one matmul: [tokens, experts, width].
    inner = (tokens @ up.transpose(0, 1).flatten(1)).unflatten(1, (experts.num_experts, -1))
    inner = inner + getattr(experts, f"{name}_bias") if experts.has_bias else inner
    inner = experts._apply_gate(inner) if experts.has_gate else experts.act_fn(inner)
    down = down if experts.is_transposed else down.transpose(1, 2)
    if experts.has_post_expert_norm:
        product = torch.bmm(inner.transpose(0, 1), down).transpose(0, 1)
        product = product + experts.down_proj_bias if experts.has_bias else product
        return (experts.post_expert_norm(product) * gates).sum(1)
    # Second products, weighted and summed over the experts, as one matmul: [tokens, hidden].
    product = (inner * gates).flatten(1) @ down.flatten(0, 1)
    return product + gates.squeeze(2) @ experts.down_proj_bias if experts.has_bias else product


def _in_turn(experts: Any, tokens: Tensor, gates: Tensor) -> Tensor:
    """Add the products of one expert after another, so that only one expert's intermediates exist at a time."""
    up_name = "gate_up_proj" if experts.has_gate else "up_proj"
    biases = [getattr(experts, f"{up_name}_bias"), experts.down_proj_bias] if experts.has_bias else []

    def expert(total: Tensor, gate: Tensor, up: Tensor, down: Tensor, *biases: Tensor) -> tuple[Tensor, None]:
        """Add the products of one more expert to the sum."""
        up, down = (matrix[0] if experts.is_transposed else matrix[0].T for matrix in (up, down))
        inner = tokens @ up + biases[0][0] if biases else tokens @ up
        inner = experts._apply_gate(inner) if experts.has_gate else experts.act_fn(inner)
        product = inner @ down + biases[1][0] if biases else inner @ down
        product = experts.post_expert_norm(product) if experts.has_post_expert_norm else product
        return total + product * gate[0], None

    operands = [gates.transpose(0, 1), getattr(experts, up_name), experts.down_proj, *biases]
    return for_each_tile(expert, *operands, tile=1, carried=torch.zeros_like(tokens))[0]


def grouped_products() -> dict[torch._ops.OpOverload, Callable[..., Any]]:
    """Decompositions of operations on sorted tokens, including transformers' own operation if it is imported."""
    table: dict[torch._ops.OpOverload, Callable[..., Any]] = {
        torch.ops.aten.histc.default: _histogram,
        torch.ops.aten._grouped_mm.default: _grouped_product,
    }
    if _REGISTRY_MODULE in sys.modules:
        table[torch.ops.transformers.grouped_mm_fallback.default] = _grouped_product
    return table


def _histogram(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """``histc``: count of numbers in each of the bins from ``min`` to ``max``; the last one includes its upper end."""
    # PyTorch then uses the smallest and the largest number.
    if min == max:
        return NotImplemented
    x = x.flatten()
    # Clamped, because a number equal to ``max`` belongs to the last bin.
    places = torch.clamp(torch.floor((x - min) / (max - min) * bins), max=bins - 1).long()
    counted = (places[:, None] == torch.arange(bins)) & ((x >= min) & (x <= max))[:, None]
    return counted.sum(0).to(x.dtype)


def _grouped_product(
    rows: Tensor, matrices: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype=None
) -> Tensor:
    """``_grouped_mm`` for groups of rows: group e has the rows from offs[e - 1] to offs[e].

    Computed as one matmul: each row has its numbers in the columns of its group, and zeros in all other columns. Other
    kinds are not decomposed.
    """
    if rows.ndim != 2 or matrices.ndim != 3 or offs is None or bias is not None or out_dtype is not None:
        return NotImplemented
    row = torch.arange(rows.shape[0])[:, None]
    starts = torch.cat((torch.zeros_like(offs[:1]), offs[:-1]))
    is_member = (row >= starts) & (row < offs)
    spread = torch.where(is_member[:, :, None], rows[:, None, :], 0.0)
    return spread.flatten(1) @ matrices.flatten(0, 1)
