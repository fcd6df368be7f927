# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The text of a pipeline: upstream's syntax, ``builtin.module(a,func.func(b{x=1 y=2}),c)``.

A name that is registered by a ``Pass`` class is one of our passes; all other names are upstream passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field, replace
from typing import NoReturn

from spyre_mlir import passes
from spyre_mlir.errors import CompileError
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class PipelineStep:
    """One pass to run: its name, and the ``Pass`` itself if it is one of ours.

    An upstream pass has its options as text, and runs on the operations ``anchors`` inside the module, outermost first.
    ``stage`` is the level that the pass helps to produce, if the pass belongs to a named pipeline.
    """

    name: str
    ours: Pass | None = None
    options: str = ""
    anchors: tuple[str, ...] = ()
    location: str = field(default="", compare=False)
    stage: str = field(default="", compare=False)

    @classmethod
    def of(cls, pass_: Pass, location: str = "") -> PipelineStep:
        """Return the step that runs one of our passes."""
        return cls(pass_.name, pass_, location=location)

    @property
    def nested_name(self) -> str:
        """The name inside its anchors, ``func.func(cse)``."""
        return "(".join((*self.anchors, self.name)) + ")" * len(self.anchors)

    @property
    def text(self) -> str:
        """The text that upstream reads."""
        name = f"{self.name}{{{self.options}}}" if self.options else self.name
        return replace(self, name=name).nested_name

    def __str__(self) -> str:
        return str(self.ours) if self.ours else self.text


@dataclass(frozen=True)
class Pipeline:
    """Passes in the order in which they run on a module.

    Attributes:
        steps: The passes.
        beyond: The passes after the end of this pipeline. They are run to evaluate the cost of a choice.
    """

    steps: tuple[PipelineStep, ...] = ()
    beyond: tuple[PipelineStep, ...] = ()

    @classmethod
    def parse(cls, text: str, source: str = "pass-pipeline") -> Pipeline:
        """Read a pipeline.

        Args:
            text: ``builtin.module(pass{option=1},..)``.
            source: The name of the text in error locations, ``source:line:col``.

        Raises:
            CompileError: The text is not a pipeline, or a pass does not have a given option. A pass that does not exist
                is reported when the pipeline is run.
        """
        return cls(tuple(_PipelineParser(text, source).parse()))

    def of_stage(self, stage: str) -> Pipeline:
        """Return the pipeline with its steps marked as parts of a stage."""
        return Pipeline(tuple(replace(step, stage=stage) for step in self.steps))

    def after(self, index: int) -> tuple[PipelineStep, ...]:
        """Return the steps after step ``index``, including the steps beyond the end."""
        return self.steps[index + 1 :] + self.beyond

    def __add__(self, other: Pipeline) -> Pipeline:
        # The sum ends where ``other`` ends, so only the steps beyond ``other`` are beyond the sum.
        return Pipeline(self.steps + other.steps, other.beyond)

    def __str__(self) -> str:
        return f"builtin.module({','.join(map(str, self.steps))})"


_NAME = re.compile(r"[A-Za-z_][\w.-]*")


class _PipelineParser:
    """Recursive descent over a list of elements, each ``name{options}`` or ``anchor(element, ..)``."""

    def __init__(self, text: str, source: str) -> None:
        self.text, self.source, self.position = text, source, 0

    def parse(self) -> Iterator[PipelineStep]:
        steps = list(self._elements(()))
        # ``_elements`` stops at the first element that it cannot parse.
        if self.position < len(self.text):
            self._fail(f"A ',' or the end was expected here, not '{self.text[self.position]}'.")
        return iter(steps)

    def _elements(self, anchors: tuple[str, ...]) -> Iterator[PipelineStep]:
        if self._next() in ("", ")"):
            return
        yield from self._element(anchors)
        while self._accept(","):
            yield from self._element(anchors)

    def _element(self, anchors: tuple[str, ...]) -> Iterator[PipelineStep]:
        self._next()
        start = self.position
        match = _NAME.match(self.text, start)
        if match is None:
            self._fail("The name of a pass was expected here.")
        self.position = match.end()
        if not self._accept("("):
            yield self._step(match[0], self._options(), anchors, start)
            return
        yield from self._elements((*anchors, match[0]))
        if not self._accept(")"):
            self._fail(f"A ')' that closes '{match[0]}(' was expected here.")

    def _options(self) -> str:
        """Return the text between braces; inner braces nest, and braces in quotes are ignored."""
        if not self._accept("{"):
            return ""
        start, depth, quote = self.position, 1, ""
        for index in range(start, len(self.text)):
            character = self.text[index]
            if quote or character in "\"'":
                quote = "" if character == quote else quote or character
                continue
            depth += (character == "{") - (character == "}")
            if depth == 0:
                self.position = index + 1
                return self.text[start:index]
        self.position = start
        self._fail("The '{' before this has no '}'.")

    def _step(self, name: str, options: str, anchors: tuple[str, ...], start: int) -> PipelineStep:
        location = self._location(start)
        # The module is the outermost anchor of every pipeline, written or not.
        nested = anchors[1:] if anchors[:1] == ("builtin.module",) else anchors
        ours = passes.find(name)
        if ours is None:
            return PipelineStep(name, None, options, nested, location)
        if nested:
            self.position = start
            self._fail(f"The pass '{name}' runs on the whole module, not inside '{nested[-1]}(..)'.")
        try:
            return PipelineStep.of(ours.parse(options), location)
        except CompileError as error:
            raise CompileError(error.message, location) from None

    def _next(self) -> str:
        """Return the next character after blanks; empty at the end."""
        while self.position < len(self.text) and self.text[self.position].isspace():
            self.position += 1
        return self.text[self.position : self.position + 1]

    def _accept(self, character: str) -> bool:
        is_next = self._next() == character
        self.position += is_next
        return is_next

    def _location(self, position: int) -> str:
        if not self.source:
            return ""
        line = self.text.count("\n", 0, position) + 1
        return f"{self.source}:{line}:{position - self.text.rfind(chr(10), 0, position)}"

    def _fail(self, message: str) -> NoReturn:
        # Without a source, the location is described in the message.
        where = "" if self.source else f"In '{self.text}', at character {self.position + 1}: "
        raise CompileError(where + message, self._location(self.position))
