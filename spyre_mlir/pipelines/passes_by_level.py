# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""User-defined passes at the end of a level, as ``compile`` accepts them and as the pipeline option ``passes``.

{"laid-out": [MyPass(limit=3), "canonicalize"]}   ->   ("laid-out=my-pass{limit=3}", "laid-out=canonicalize")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from spyre_mlir.errors import CompileError, kind_of, with_suggestion
from spyre_mlir.passes.base import PASSES, Pass
from spyre_mlir.pipelines.text import Pipeline

#: Passes of one level: instances, or texts of a pipeline.
LevelChoice: TypeAlias = str | Pass | Sequence[str | Pass]


def entries(choices: Mapping[str, LevelChoice] | Sequence[str]) -> tuple[str, ...]:
    """Return the option ``passes`` for a mapping of levels to passes; texts of the option are returned unchanged."""
    if not isinstance(choices, Mapping):
        if (
            isinstance(choices, str)
            or not isinstance(choices, Sequence)
            or not all(isinstance(choice, str) for choice in choices)
        ):
            raise CompileError(
                "The option 'passes' takes passes by level, such as {'laid-out': [MyPass()]}, or texts such as "
                "'laid-out=my-pass'."
            )
        return tuple(choices)
    texts = []
    for level, choice in choices.items():
        for pass_ in choice if isinstance(choice, Sequence) and not isinstance(choice, str) else [choice]:
            if isinstance(pass_, str):
                texts += [f"{level}={step}" for step in Pipeline.parse(pass_, "").steps]
            else:
                _require_text(pass_)
                texts.append(f"{level}={pass_}")
    return tuple(texts)


def _require_text(pass_: Pass) -> None:
    """Raise ``CompileError`` for a pass that its text does not describe, or that is not a pass."""
    if not isinstance(pass_, Pass):
        shown = f"the class {pass_.__name__}" if isinstance(pass_, type) else kind_of(pass_)
        raise CompileError(f"A pass is an instance of a class of passes, or a text, not {shown}.")
    if PASSES.get(pass_.name) is not type(pass_):
        raise CompileError(f"The class of the pass '{pass_.name}' was defined again; make a new instance.")
    if Pipeline.parse(str(pass_), "").steps[0].ours != pass_:
        raise CompileError(f"The pass '{pass_.name}' has options that cannot be written as text: {pass_!r}.")


def by_level(option: Sequence[str], levels: Sequence[str]) -> dict[str, Pipeline]:
    """Return the passes by level, from the option ``passes``; ``CompileError`` for an unknown level."""
    pipelines: dict[str, Pipeline] = {}
    for entry in option:
        level, equals, text = entry.partition("=")
        if not equals or not text.strip():
            raise CompileError(
                f"passes is '{entry}'; it takes LEVEL=PASS, with a level of {', '.join(levels)}."
            )
        if level not in levels:
            raise no_level(level, levels)
        pipelines[level] = pipelines.get(level, Pipeline()) + Pipeline.parse(text, "")
    return pipelines


def no_level(level: str, levels: Sequence[str]) -> CompileError:
    """Return the error for a level that does not exist."""
    sentence = f"There is no level '{level}'; the levels are {', '.join(levels)}."
    return CompileError(with_suggestion(sentence, level, levels))
