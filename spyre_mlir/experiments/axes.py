# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Axes of a sweep: values of options and of device fields, checked before anything runs."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from spyre_mlir.algorithms import REGISTRIES
from spyre_mlir.driver.argument_layouts import choices
from spyre_mlir.errors import CompileError, listed
from spyre_mlir.experiments.task import UserFile
from spyre_mlir.files import read_text
from spyre_mlir.options import default_of, show_value
from spyre_mlir.pipelines import SpyrePipeline
from spyre_mlir.pipelines.pipeline_options import PipelineOptions, entries
from spyre_mlir.plans.plan_file import MAX_BYTES, read_plan
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.buffers import PlanError
from spyre_mlir.target.target import Target, check_fields, default_target

#: Pipeline options by name, the options that are part of the target, and the options that cannot be axes.
_PIPELINE = {field.name: field for field in dataclasses.fields(PipelineOptions)}
_OF_TARGET = ("device", "sencores", "lx_frac_avail")
_REFUSED = {
    "use_plan": "is called 'plan' here",
    "save_plan": "writes a file for each point, which all would share",
    "dynamic": "makes several programs of a point",
}

#: Keywords of ``compile`` that are not pipeline options, with the allowed values or None.
_KEYWORDS = {
    "numerics": (None, "ieee", "dl16"),
    "fallback": (True, False),
    "cache": (None, True, False),
    "autocast": (None, "float16", "bfloat16", "dl16"),
    "plan": None,
    "layouts": None,
}
_FIELD = "device."


class AxisError(CompileError):
    """An error about an axis, with the name of the axis."""

    def __init__(self, axis: str, message: str) -> None:
        super().__init__(message)
        self.axis = axis

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.axis, self.message)


@dataclass(frozen=True)
class AxisValue:
    """A value of an axis, and the text or number that the results show for it."""

    shown: Any
    value: Any


@dataclass(frozen=True)
class SweepAxis:
    """An option or a device field, with its values in order."""

    name: str
    values: tuple[AxisValue, ...]


def parsed_axes(axes: Mapping[str, Any]) -> tuple[SweepAxis, ...]:
    """Parse axes; the values of an axis are a sequence, a mapping by the names to show, or one value.

    Raise ``AxisError`` for an unknown name, and for a value that the option does not accept.
    """
    parsed = tuple(_axis(name, values) for name, values in axes.items())
    names = [axis.name for axis in parsed]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise AxisError(twice, f"The sweep has the axis '{twice}' twice.")
    return parsed


def points(axes: Iterable[SweepAxis]) -> Iterator[dict[str, AxisValue]]:
    """Yield the Cartesian product of the axes as values by name; the last axis changes fastest."""
    axes = tuple(axes)
    for values in itertools.product(*(axis.values for axis in axes)):
        yield {axis.name: value for axis, value in zip(axes, values, strict=True)}


def device_and_options(point: Mapping[str, AxisValue]) -> tuple[str, tuple[tuple[str, Any], ...]]:
    """Convert a point to the fields of a task: the device tables as JSON, and keywords of ``compile``.

    Equivalent points give equal fields, e.g. if one names a default, or sets the number of cores as a device field.
    """
    values = {name: value.value for name, value in point.items()}
    sections = _sections(values)
    options = {name: value for name, value in values.items() if not name.startswith(_FIELD)}
    try:
        target = Target.of_sections(sections, "device")
        target = target.with_options(options.get("sencores"), options.get("lx_frac_avail"))
        sections = target.sections()
    except CompileError:
        # The error concerns only this point, whose compilation will report it.
        of_target = {name: options[name] for name in _OF_TARGET[1:] if name in options}
    else:
        of_target = {}
    pipeline = {
        name: value for name, value in options.items() if name in _PIPELINE and name not in _OF_TARGET
    }
    parsed = SpyrePipeline.of(**{name: value for name, value in pipeline.items() if name != "passes"})
    # Options with defaults from the environment are always among the keywords.
    changed = {
        name: getattr(parsed, name)
        for name, field in _PIPELINE.items()
        if getattr(parsed, name) != default_of(field) or field.default_factory is not dataclasses.MISSING
    }
    keywords = {
        "cache": False,
        **{name: options[name] for name in _KEYWORDS if options.get(name) is not None},
        **({"passes": tuple(pipeline["passes"])} if pipeline.get("passes") else {}),
        **changed,
        **of_target,
    }
    return json.dumps(sections, sort_keys=True), tuple(sorted(keywords.items()))


def _sections(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the device tables of a point: its device file or the default device, updated by its device fields."""
    tables = values.get("device") or default_target().sections()
    tables = {
        section: dict(table) if isinstance(table, Mapping) else table for section, table in tables.items()
    }
    fields = {name: value for name, value in values.items() if name.startswith(_FIELD)}
    # As in a device file, all cores are usable by default.
    if "device.cores.count" in fields and "device.cores.usable" not in fields:
        tables["cores"].pop("usable", None)
    for name, value in fields.items():
        _, section, key = name.split(".")
        tables.setdefault(section, {})[key] = list(value) if isinstance(value, tuple) else value
    return tables


# -- one axis --------------------------------------------------------------------------------------------


def _axis(name: str, values: Any) -> SweepAxis:
    """Return an axis of a sweep; ``AxisError`` for an unknown option, a field without a section, or no values."""
    key = name if name.startswith(_FIELD) else name.replace("-", "_")
    known = [*_PIPELINE, *_KEYWORDS]
    if key in _REFUSED:
        raise AxisError(name, f"The option '{name}' is not an axis: it {_REFUSED[key]}.")
    if key.startswith(_FIELD) and key.count(".") != 2:
        raise AxisError(
            name, f"The axis '{name}' must name section and key of a device file: device.lx.bytes."
        )
    if not key.startswith(_FIELD) and key not in known:
        raise AxisError(
            name,
            f"There is no option '{name}' to sweep; there are {listed(sorted(known), key)}, and fields of the device, "
            "such as device.lx.bytes.",
        )
    if isinstance(values, Mapping):
        pairs = list(values.items())
    elif values is None or isinstance(values, str | Path) or not isinstance(values, Iterable):
        pairs = [(_shown(values), values)]
    else:
        pairs = [(_shown(value), value) for value in values]
    if not pairs:
        raise AxisError(name, f"The axis '{name}' has no values.")
    shown = [str(text) for text, _ in pairs]
    twice = next((text for text in shown if shown.count(text) > 1), None)
    if twice is not None:
        raise AxisError(name, f"The axis '{name}' has the value '{twice}' twice.")
    try:
        return SweepAxis(key, tuple(AxisValue(text, _checked(key, value)) for text, value in pairs))
    except CompileError as error:
        raise AxisError(name, f"The axis '{name}': {error.message}") from None


def _shown(value: Any) -> Any:
    """Return the representation of a value in the results: a number, a word or a text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value)
    # Convert numpy scalars to Python numbers.
    if hasattr(value, "item"):
        return value.item()
    try:
        return json.dumps(value, default=str)
    except (TypeError, ValueError):
        return str(value)


def _checked(name: str, value: Any) -> Any:
    """Check and convert a value for ``device_and_options``; raise ``CompileError`` if the option rejects it."""
    value = value.item() if hasattr(value, "item") else value
    if name.startswith(_FIELD):
        check_fields(_sections({name: value}), "device")
        return value
    checks = {
        "device": _device, "plan": _plan, "passes": _passes, "layouts": _layouts,
        **{option: functools.partial(_algorithm, option) for option in REGISTRIES},
    }  # fmt: skip
    if name in checks:
        return None if value is None else checks[name](value)
    allowed = _KEYWORDS.get(name)
    if allowed is not None and not any(value is each or value == each for each in allowed):
        raise CompileError(
            f"the value must be one of {', '.join(map(show_value, allowed))}, not {value!r:.80}."
        )
    if name in _PIPELINE and value is not None:
        if isinstance(value, list):
            value = tuple(value)
        SpyrePipeline.of(**{name: value}).pipeline()
    return value


def _device(path: str | Path) -> dict[str, Any]:
    return Target.read(os.fspath(path)).sections()


def _plan(plan: Any) -> str:
    """Return a plan as text, so that workers do not need the file."""
    if isinstance(plan, str | Path):
        text, filename = read_text(str(plan), MAX_BYTES), str(plan)
    else:
        text, filename = json.dumps(plan), "plan"
    read_plan(text, filename)
    return json.dumps(json.loads(text))


def _passes(passes: Any) -> tuple[str, ...]:
    texts = entries([passes] if isinstance(passes, str) else passes)
    SpyrePipeline(passes=texts).pipeline()
    return texts


def _layouts(layouts: Any) -> Any:
    if not isinstance(layouts, Mapping):
        raise CompileError(f"layouts are a mapping by the names of arguments, not {layouts!r:.80}.")
    choices(layouts, False)
    return dict(layouts)


def _algorithm(option: str, name: Any) -> str:
    """Check that an algorithm exists and is not defined in the main script; return its name."""
    registry = REGISTRIES[option]
    if not isinstance(name, str):
        raise CompileError(f"a {registry.noun} is given by its name, not {name!r:.80}.")
    if name == "" and option != "layout_solver":
        return name
    try:
        cls = registry.find(name)
    except (CompileError, PlanError) as error:
        text = error.message if isinstance(error, CompileError) else str(error)
        raise CompileError(text) from None
    if cls.__module__ == "__main__":
        raise CompileError(
            f"Workers do not have the {registry.noun} '{name}' of this script; give its file as 'load'."
        )
    return name


def user_files(load: str | Path | Iterable[str | Path]) -> tuple[UserFile, ...]:
    """Return the user files that workers import."""
    paths = [load] if isinstance(load, str | Path) else load
    resolved = dict.fromkeys(str(Path(path).resolve()) for path in paths)
    return tuple(map(UserFile.read, resolved))
