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
    """Make all kinds of caches known to PyTorch, if transformers is there at all."""
    home = sys.modules.get("transformers.cache_utils")
    if home is None:
        return
    for kind in vars(home).values():
        if inspect.isclass(kind) and issubclass(kind, (home.Cache, home.CacheLayerMixin)):
            if kind not in pytree.SUPPORTED_NODES:
                _register(kind)


def _register(kind: type) -> None:
    """The tensors, layers and caches that are attributes of an object are its parts; it is made without a call."""

    def unflatten(parts: Any, context: tuple[tuple[str, ...], dict[str, Any]]) -> Any:
        names, others = context
        made = object.__new__(kind)
        vars(made).update(others, **dict(zip(names, parts, strict=True)))
        return made

    pytree.register_pytree_node(kind, _parts, unflatten, flatten_with_keys_fn=_named_parts)


def _parts(value: Any) -> tuple[list[Any], tuple[tuple[str, ...], dict[str, Any]]]:
    """Its parts; their names, and all that is no part, which has to be the same in each call."""
    parts = {name: part for name, part in vars(value).items() if _is_part(part)}
    others = {name: part for name, part in vars(value).items() if name not in parts}
    return list(parts.values()), (tuple(parts), others)


def _named_parts(value: Any) -> tuple[list[tuple[Any, Any]], Any]:
    parts, context = _parts(value)
    return [(pytree.GetAttrKey(name), part) for name, part in zip(context[0], parts, strict=True)], context


def _is_part(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, list)) or type(value) in pytree.SUPPORTED_NODES
