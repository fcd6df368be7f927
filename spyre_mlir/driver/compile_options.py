# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Options of ``compile`` as types, and as the signature and the documentation that ``help`` shows.

The options of the pipeline are the fields of ``PipelineOptions``. Type checkers and editors read no dataclass there, so
``PipelineKeywords`` has them once more; a test compares the two.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import textwrap
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypedDict, TypeVar

from spyre_mlir.errors import CompileError
from spyre_mlir.options import Options, default_of, documentation_of, show_value
from spyre_mlir.pipelines.passes_by_level import LevelChoice
from spyre_mlir.pipelines.pipeline_options import PipelineOptions
from spyre_mlir.records import dataclass

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

#: Options of several values.
_SEVERAL = frozenset(
    field.name for field in dataclasses.fields(PipelineOptions) if isinstance(default_of(field), tuple)
)

#: Columns of a documentation.
_WIDTH = 116


class PipelineKeywords(TypedDict, total=False):
    """Options of the pipeline that ``compile`` passes on."""

    verify_each: bool
    uneven_splits: bool
    matmul: Literal["cost", "specified"]
    division: str
    joint_division: str
    layout_choice: str
    tiling: str
    cost_model: str | None
    stick_outermost: bool
    argument_layouts: Literal["price", "default"]
    host_padding: Literal["undefined", "zero"]
    lx_planning: bool
    co_optimizing_lx_planning: bool
    co_optimizer: Literal["joint", "strategy-b"]
    layout_solver: str
    lx_frac_avail: float | None
    clone_inputs: bool
    clone_outputs: bool
    reorder: bool
    moves: bool
    double_buffer: bool
    native_windows: bool
    in_place: bool
    lx_ops: tuple[str, ...]
    order_by_size: bool
    bundle_operations: int
    non_terminal: bool
    tile_attention: bool
    skip_masked_tiles: bool
    tile_for_lx: bool
    tile_for_span: bool
    from_level: str
    insert: tuple[str, ...]
    reuse: bool
    use_plan: str | None
    ktir_addresses: bool
    save_plan: str | None


class CompileKeywords(PipelineKeywords, total=False):
    """All options of ``compile`` but ``dynamic``, by which the type of its result differs."""

    device: str | Path | None
    sencores: int | None
    precision: Literal["device", "strict"]
    numerics: Literal["ieee", "dl16"] | None
    layouts: Mapping[str | int, Any] | None
    plan: Mapping[str, Any] | str | Path | None
    fallback: bool
    autocast: Any
    one_bundle: bool
    target: Literal["bundle", "ktir"]
    cache: bool | None
    passes: Mapping[str, LevelChoice] | Sequence[str] | None
    state: bool | Sequence[str] | Mapping[str, Any] | None


@dataclass(frozen=True)
class ProgramOptions(Options):
    """Words among the options of ``compile`` that are none of the pipeline's, checked as those are."""

    numerics: Literal["ieee", "dl16"] | None = None
    fallback: bool = True
    one_bundle: bool = True
    target: Literal["bundle", "ktir"] = "bundle"
    cache: bool | None = None

    @classmethod
    def title(cls) -> str:
        """The owner of the options, as error messages call it."""
        return "function compile"

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Create an instance from values of Python, of which None is the default."""
        return cls.parse(_text(values))


def pipeline_text(values: Mapping[str, Any]) -> str:
    """Return the options of the pipeline as text; ``CompileError`` for what is no text where one is wanted."""
    types = typing.get_type_hints(PipelineOptions)
    for name, value in values.items():
        if types.get(name) in (str, str | None) and not isinstance(value, str | os.PathLike | None):
            raise CompileError(f"The option '{name}' must be a text, not {value!r}.")
    return _text(
        {
            name: tuple(value) if isinstance(value, list) and name in _SEVERAL else value
            for name, value in values.items()
        }
    )


def _text(values: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={show_value(value)}" for name, value in values.items() if value is not None)


def with_pipeline_options(function: FunctionT) -> FunctionT:
    """Give a function with ``**options`` of the pipeline the signature and the documentation of each of them."""
    signature = inspect.signature(function)
    *parameters, _ = signature.parameters.values()
    names = {parameter.name for parameter in parameters}
    types = typing.get_type_hints(PipelineOptions)
    passed_on = [field for field in dataclasses.fields(PipelineOptions) if field.name not in names]
    keywords = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default_of(field),
            annotation=inspect.formatannotation(types[field.name]),
        )
        for field in passed_on
    ]
    function.__signature__ = signature.replace(parameters=[*parameters, *keywords])  # type: ignore[attr-defined]
    function.__doc__ = (
        f"{inspect.getdoc(function)}\n\nOptions of the pipeline:\n\n{documentation(passed_on)}\n"
    )
    return function


def documentation(fields: Sequence[dataclasses.Field[Any]]) -> str:
    """Return a paragraph for each option: its name, type and default, what it does."""
    types = typing.get_type_hints(PipelineOptions)
    return "\n".join(_paragraph(field, inspect.formatannotation(types[field.name])) for field in fields)


def _paragraph(field: dataclasses.Field[Any], type_: str) -> str:
    text = f"{field.name}: {type_} = {default_of(field)!r}: {documentation_of(field)}."
    return textwrap.fill(text, _WIDTH, subsequent_indent="    ", break_on_hyphens=False)
