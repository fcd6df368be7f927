# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch_spyre._inductor.config``: the configuration of compilations.

``sencores``, ``lx_planning``, ``co_optimizing_lx_planning``, ``dxp_lx_frac_avail`` and ``lx_boundary_clones`` are
options of this compiler, and apply to ``torch.compile`` on the device. Another field can be set and read, and does not
change programs; the first time that it is set, a warning names it. ``patch`` sets fields in a context or a function.
"""

from __future__ import annotations

import contextlib
import os
import sys
import types
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from spyre_mlir.frontend.torch_programs import torch_backend
from spyre_mlir.target.target import default_target

#: Options of this compiler, by the fields that set them.
_OPTIONS = {
    "sencores": ("sencores",),
    "lx_planning": ("lx_planning",),
    "co_optimizing_lx_planning": ("co_optimizing_lx_planning",),
    "dxp_lx_frac_avail": ("lx_frac_avail",),
    "lx_boundary_clones": ("clone_inputs", "clone_outputs"),
}

sencores: int = int(os.environ.get("SENCORES", default_target().device_cores))


class _Config(types.ModuleType):
    """The module, whose fields are checked when they are set."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OPTIONS:
            _given.add(name)
        elif not name.startswith("_") and name not in _named:
            _named.add(name)
            warnings.warn(
                f"The field '{name}' of torch_spyre's config does not change programs here.", stacklevel=2
            )
        super().__setattr__(name, value)


#: Fields of options that were set, and other fields that a warning has named.
_given: set[str] = set()
_named: set[str] = set()


def patch(*arguments: Any, **fields: Any) -> Any:
    """Context or decorator that sets fields, given as a mapping, as a name and a value, or as keywords."""
    if len(arguments) == 2:
        fields[arguments[0]] = arguments[1]
    for mapping in arguments[:1] if len(arguments) == 1 else ():
        fields |= mapping
    return _patched(fields)


@contextlib.contextmanager
def _patched(fields: Mapping[str, Any]) -> Iterator[None]:
    config, missing = sys.modules[__name__], object()
    before = {name: getattr(config, name, missing) for name in fields}
    try:
        for name, value in fields.items():
            setattr(config, name, value)
        yield
    finally:
        for name, value in before.items():
            if value is missing:
                delattr(config, name)
            else:
                setattr(config, name, value)


def _options() -> dict[str, Any]:
    """Return the options of the compiler that the fields set."""
    config = sys.modules[__name__]
    given = [(name, getattr(config, name)) for name in _OPTIONS if name in _given and hasattr(config, name)]
    return {option: value for name, value in given for option in _OPTIONS[name]}


sys.modules[__name__].__class__ = _Config
torch_backend.defaults = _options
