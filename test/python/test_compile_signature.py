# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``compile`` exposes its options to ``help``, to ``inspect``, and to type checkers and editors."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from pathlib import Path

import pytest

import spyre_mlir
from spyre_mlir.driver.compilation import CompileKeywords, PipelineKeywords
from spyre_mlir.options import default_of, documentation_of
from spyre_mlir.pipelines.pipeline_options import PipelineOptions

FIELDS = {field.name: field for field in dataclasses.fields(PipelineOptions)}
EXPLICIT = {"device", "sencores", "precision", "passes", "target"}
PARAMETERS = inspect.signature(spyre_mlir.compile).parameters


@pytest.mark.parametrize("name", FIELDS)
def test_every_option_is_documented(name: str) -> None:
    """In one place, its field; the texts of ``help`` are made of these."""
    text = documentation_of(FIELDS[name])
    assert text and not text.endswith(".")
    shown = " ".join((spyre_mlir.compile.__doc__ or "").split())
    # Options with other types in Python are documented with the arguments of ``compile``.
    expected = f" {name}: " if name in EXPLICIT else f": {text}."
    assert expected in shown and (name in EXPLICIT or f"{name}: " in shown)


@pytest.mark.parametrize("name", FIELDS)
def test_every_option_is_a_keyword(name: str) -> None:
    parameter = PARAMETERS[name]
    assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
    if name not in ("device", "sencores", "passes"):
        assert parameter.default == default_of(FIELDS[name])


def test_there_are_no_other_keywords() -> None:
    """The signature has no ``**options`` left."""
    assert all(each.kind is not inspect.Parameter.VAR_KEYWORD for each in PARAMETERS.values())
    assert set(PARAMETERS) == {
        *typing.get_type_hints(CompileKeywords),
        "module_or_mlir",
        "inputs",
        "dynamic",
        "mesh",
    }


def test_type_checkers_see_the_same_options() -> None:
    """Names and types equal the fields, except options that ``compile`` accepts in other forms too."""
    types = typing.get_type_hints(PipelineOptions)
    keywords = typing.get_type_hints(PipelineKeywords)
    assert keywords == {name: type_ for name, type_ in types.items() if name not in EXPLICIT}
    assert EXPLICIT < typing.get_type_hints(CompileKeywords).keys()


def test_a_misspelt_option_is_an_error() -> None:
    with pytest.raises(spyre_mlir.CompileError, match="has no option 'lx-planing'; its options: lx_planning"):
        spyre_mlir.compile("module {}", **{"lx-planing": True})


def test_the_defaults_of_the_environment_are_no_part_of_the_signature(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Defaults from the environment are documented as such, and apply when ``compile`` is called."""
    assert "LX_PLANNING of the environment" in (spyre_mlir.compile.__doc__ or "")
    monkeypatch.setenv("LX_PLANNING", "0")
    assert PARAMETERS["lx_planning"].default is True and PipelineOptions().lx_planning is False


def test_types_are_in_the_package() -> None:
    """``py.typed`` is in the package, and in the files of a wheel."""
    package = Path(spyre_mlir.__file__).parent
    assert (package / "py.typed").is_file()
    assert '"py.typed"' in (package.parent / "pyproject.toml").read_text(encoding="utf-8")


def test_dir_has_the_public_names() -> None:
    """``dir`` has the public names, also names that are imported on first use."""
    assert set(spyre_mlir.__all__) <= set(dir(spyre_mlir))
    assert not {"annotations", "importlib", "TYPE_CHECKING", "sys"} & set(dir(spyre_mlir))
