"""The caches of keys and values of transformers' models as trees of tensors, so that models return and take them."""

from __future__ import annotations

import sys
from typing import Any

from torch.utils import _pytree as pytree


def register_caches() -> None:
    """Make the caches known to PyTorch, if transformers is there at all."""
    caches = sys.modules.get("transformers.cache_utils")
    if caches is None or caches.EncoderDecoderCache in pytree.SUPPORTED_NODES:
        return
    from transformers.integrations.executorch import register_dynamic_cache_export_support

    register_dynamic_cache_export_support()
    pytree.register_pytree_node(
        caches.EncoderDecoderCache, _parts, lambda parts, _: caches.EncoderDecoderCache(*parts)
    )


def _parts(cache: Any) -> tuple[list[Any], None]:
    return [cache.self_attention_cache, cache.cross_attention_cache], None
