# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The caches of transformers' models as trees of tensors, so that a model may take, change and return them.

What transformers itself registers fills a new cache by the operations of the model, which a trace would see.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

import torch
from torch.utils import _pytree as pytree


def register_caches() -> None:
    """Register every kind of cache that transformers has as a pytree node, if transformers is imported at all."""
    cache_utils = sys.modules.get("transformers.cache_utils")
    if cache_utils is None:
        return
    for kind in vars(cache_utils).values():
        if inspect.isclass(kind) and issubclass(kind, (cache_utils.Cache, cache_utils.CacheLayerMixin)):
            if kind not in pytree.SUPPORTED_NODES:
                _register(kind)


def _register(kind: type) -> None:
    """Register a class as a pytree node.

    Its children are the attributes that are tensors, layers or caches; all others are its context.
    """

    def unflatten(parts: Any, context: tuple[tuple[str, ...], dict[str, Any]]) -> Any:
        """An object of the class with these attributes."""
        names, others = context
        # Without __init__, which takes a configuration and may allocate tensors.
        cache = object.__new__(kind)
        vars(cache).update(others, **dict(zip(names, parts, strict=True)))
        return cache

    pytree.register_pytree_node(kind, _parts, unflatten, flatten_with_keys_fn=_named_parts)


def _parts(value: Any) -> tuple[list[Any], tuple[tuple[str, ...], dict[str, Any]]]:
    """Children of a cache; their names, and all other attributes, which have to be the same in each call."""
    parts = {name: part for name, part in vars(value).items() if _is_part(part)}
    others = {name: part for name, part in vars(value).items() if name not in parts}
    return list(parts.values()), (tuple(parts), others)


def _named_parts(value: Any) -> tuple[list[tuple[Any, Any]], Any]:
    parts, context = _parts(value)
    return [(pytree.GetAttrKey(name), part) for name, part in zip(context[0], parts, strict=True)], context


def _is_part(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, list)) or type(value) in pytree.SUPPORTED_NODES
