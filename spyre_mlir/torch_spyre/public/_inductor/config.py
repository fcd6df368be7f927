# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch_spyre._inductor.config``: the configuration of compilations.

A field has the value of its environment variable, or else its default, until a program sets it. ``patch`` sets fields
in a context or a function. Fields with an option of this compiler apply to ``torch.compile`` on the device, and
``ignore_work_division_hints`` applies to hints. Another field can be set and read, and does not change programs: a
warning names it when it is first set, and one warning names the variables of such fields.
"""

from __future__ import annotations

import contextlib
import os
import sys
import types
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.torch_programs import torch_backend
from spyre_mlir.target.target import default_target

#: The environment variable and the default of each field.
_FIELDS: dict[str, tuple[str, bool | int | float | str]] = {
    "sencores": ("SENCORES", default_target().device_cores),
    "lx_planning": ("LX_PLANNING", True),
    "co_optimizing_lx_planning": ("CO_OPTIMIZING_LX_PLANNING", False),
    "dxp_lx_frac_avail": ("DXP_LX_FRAC_AVAIL", 0.2),
    "lx_boundary_clones": ("LX_BOUNDARY_CLONES", False),
    "ignore_work_division_hints": ("SPYRE_INDUCTOR_IGNORE_HINTS", False),
    "hbm_planning": ("SPYRE_INDUCTOR_MEMORY_PLAN", True),
    "chunk_large_tensors": ("CHUNK_LARGE_TENSORS", False),
    "global_stick_optimizer": ("GLOBAL_STICK_OPTIMIZER", True),
    "allow_all_ops_in_lx_planning": ("", False),
    "max_buckets": ("MAX_BUCKETS", 32),
    "min_default_granularity": ("MIN_DEFAULT_GRANULARITY", 4),
    "core_id_k_fast_emission": ("SPYRE_CORE_ID_K_FAST_EMISSION", True),
    "bundle_symbolic_args": ("BUNDLE_SYMBOLIC_ARGS", False),
    "unroll_loops": ("UNROLL_LOOPS", True),
    "layout_solver": ("", "greedy"),
}

#: Options of this compiler, by the fields that set them.
_OPTIONS = {
    "sencores": ("sencores",),
    "lx_planning": ("lx_planning",),
    "co_optimizing_lx_planning": ("co_optimizing_lx_planning",),
    "dxp_lx_frac_avail": ("lx_frac_avail",),
    "lx_boundary_clones": ("clone_inputs", "clone_outputs"),
}
_OBEYED = {*_OPTIONS, "ignore_work_division_hints"}

#: Variables that do not belong to a field.
_VARIABLES = (
    "DUMP_SPYRE_CODE", "SPYRE_INDUCTOR_LOG", "SPYRE_INDUCTOR_LOG_LEVEL", "SPYRE_LOG_FILE", "TORCH_SPYRE_DEBUG",
)  # fmt: skip


class _Config(types.ModuleType):
    """The module, whose fields are checked when they are set."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OBEYED:
            _given.add(name)
        elif not name.startswith("_") and name not in _named:
            _named.add(name)
            warnings.warn(
                f"The field '{name}' of torch_spyre's config does not change programs here.", stacklevel=2
            )
        super().__setattr__(name, value)


#: Fields of this compiler that were set, and other fields that a warning has named.
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
    before, given = {name: getattr(config, name, missing) for name in fields}, set(_given)
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
        _given.intersection_update(given)


def _options() -> dict[str, Any]:
    """Return the options of the compiler that the fields set."""
    config = sys.modules[__name__]
    given = [(name, getattr(config, name)) for name in _OPTIONS if name in _given and hasattr(config, name)]
    return {option: value for name, value in given for option in _OPTIONS[name]}


def _read_environment() -> None:
    """Set all fields from the environment, and warn about variables that do not change programs."""
    ignored = [variable for variable in _VARIABLES if variable in os.environ]
    for name, (variable, default) in _FIELDS.items():
        globals()[name] = default
        if variable in os.environ:
            text = os.environ[variable]
            try:
                globals()[name] = (
                    text.lower() in ("1", "true", "yes") if isinstance(default, bool) else type(default)(text)
                )
            except ValueError:
                raise CompileError(
                    f"The environment variable {variable} is '{text}'; give a number of type {type(default).__name__}."
                ) from None
            if name in _OBEYED:
                _given.add(name)
            else:
                ignored.append(variable)
    if ignored:
        warnings.warn(
            f"The environment sets {', '.join(ignored)}, which do not change programs here.", stacklevel=2
        )


_read_environment()
sys.modules[__name__].__class__ = _Config
torch_backend.defaults = _options
