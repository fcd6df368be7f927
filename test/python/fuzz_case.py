# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A random program as text: its statements, its inputs, how it is compiled, and what PyTorch says that it gives.

A case is data: it is pickled to the process that runs it, cut down by the minimiser, and written as a file that runs
alone. PyTorch evaluates the same text twice, in the types of the model and with every floating type in float64.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import fuzz_loops
import torch
from fuzz_inputs import Input
from torch import Tensor

from spyre_mlir.faults import faults_kept

#: Results of a program: how its ``return`` writes them.
RESULTS = {"tuple": "({}, )", "list": "[{}]", "dict": "{{{}}}"}

#: Runs a program: ``run(make, calls, options, how)`` has the model of ``make()``, the inputs of each call by name, the
#: options of ``compile`` and options of the case itself. It returns the observed values, in order.
Run: TypeAlias = Callable[
    [Callable[[], torch.nn.Module], list[dict[str, Tensor]], dict[str, Any], dict[str, Any]], list[Any]
]

_FLOATING = re.compile(r"torch\.(bfloat16|float16|float32)\b")


@dataclass(frozen=True)
class Statement:
    """``target = text`` with ``{0}``, ``{1}``, .. for the operands; an update in place if there is no target."""

    target: str
    text: str
    operands: tuple[str, ...]

    def __str__(self) -> str:
        expression = self.text.format(*self.operands)
        return f"{self.target} = {expression}" if self.target else expression


@dataclass(frozen=True)
class Case:
    """A program, its inputs, and the options of ``compile``.

    ``how`` says more of how it is run. All kinds know "calls", their number; "sizes", one for each call, of the dims
    that "sized" has by the name of the input; "alias", inputs or buffers that are another one, by name; and
    "violated", inputs that have "any" values after the first call.
    """

    inputs: tuple[Input, ...]
    statements: tuple[Statement, ...]
    results: tuple[str, ...]
    structure: str = "tuple"
    by_keyword: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    how: dict[str, Any] = field(default_factory=dict)

    def source(self) -> str:
        """Return the text of the class ``Model``; its constructor takes the buffers, and ``forward`` the inputs."""
        buffers = [each.name for each in self.inputs if each.role == "buffer"]
        arguments = [each.name for each in self.inputs if each.role == "input"]
        lines = ["class Model(torch.nn.Module):"]
        if buffers:
            lines += [f"    def __init__(self, {', '.join(buffers)}):", "        super().__init__()"]
            lines += [f'        self.register_buffer("{name}", {name})' for name in buffers]
            lines.append("")
        lines.append(f"    def forward(self, {', '.join(arguments)}):")
        lines += [f"        {name} = self.{name}" for name in buffers]
        lines += [f"        {statement}" for statement in self.statements]
        lines.append(f"        return {self._returned()}")
        return "\n".join(lines) + "\n"

    def _returned(self) -> str:
        if len(self.results) == 1 and self.structure == "tuple":
            return self.results[0]
        names = (f'"{name}": {name}' for name in self.results) if self.structure == "dict" else self.results
        return RESULTS[self.structure].format(", ".join(names)).replace(", )", ",)")

    def model(self, source: str = "", exact: bool = False, is_plain: bool = False) -> torch.nn.Module:
        """Return the module with its own buffers; its loops are loops of PyTorch, or plain Python loops."""
        source = source or self.source()
        loops = fuzz_loops.of_pytorch() if fuzz_loops.is_used(source) and not is_plain else fuzz_loops.PLAIN
        namespace: dict[str, Any] = {"torch": torch, "F": torch.nn.functional, **loops}
        exec(compile(source, "<fuzz>", "exec"), namespace)
        return namespace["Model"](**self.tensors("buffer", exact))

    def calls(self, exact: bool = False) -> list[dict[str, Tensor]]:
        """New tensors of the inputs of each call, by name."""
        return [self.tensors("input", exact, call) for call in range(self.how.get("calls", 1))]

    def tensors(self, role: str = "input", exact: bool = False, call: int = 0) -> dict[str, Tensor]:
        """New tensors of the inputs of a role by name, floating ones in float64 where ``exact``."""
        made = {each.name: self.at(each, call).tensor() for each in self.inputs if each.role == role}
        if exact:
            made = {name: x.double() if x.is_floating_point() else x for name, x in made.items()}
        alias = self.how.get("alias", {})
        return {name: made.get(alias.get(name, name), x) for name, x in made.items()}

    def at(self, given: Input, call: int) -> Input:
        """An input as a call has it: with its sizes and, after the first call, with other numbers."""
        sizes, sized = self.how.get("sizes"), self.how.get("sized", {}).get(given.name, ())
        if given.role == "buffer" or given.literal is not None:
            return given
        shape = tuple(sizes[call] if dim in sized else size for dim, size in enumerate(given.shape))
        values = "any" if call and given.name in self.how.get("violated", ()) else given.values
        return replace(given, shape=shape, seed=given.seed + call, values=values)

    @property
    def floor(self) -> float:
        """The error that is always allowed, of the largest value: a thousandth in 16 bits, by the coarsest type."""
        text = self.source() + " ".join(each.dtype for each in self.inputs)
        floor = 1e-4
        if "torch.float16" in text or ".half()" in text:
            floor = 1e-3
        if "bfloat16" in text:
            floor = 8e-3
        return floor * self.coarseness

    @property
    def coarseness(self) -> int:
        """Factor of DL16, which has a bit of mantissa less than fp16; bounds of ``clip`` are DL16 for any numerics."""
        return 2 if self.options.get("numerics") == "dl16" or "clamp(" in self.source() else 1


def in_float64(source: str) -> str:
    """The text of a program with every floating type replaced by float64."""
    return _FLOATING.sub("torch.float64", source)


@contextlib.contextmanager
def quiet_float64() -> Iterator[None]:
    """Python numbers are float64, and PyTorch's warnings are nobody's."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_default_dtype(before)


def leaves(results: Any) -> list[Any]:
    """The tensors of a result in order."""
    if isinstance(results, dict):
        return [leaf for value in results.values() for leaf in leaves(value)]
    if isinstance(results, tuple | list):
        return [leaf for value in results for leaf in leaves(value)]
    return [results]


def call(model: Any, case: Case, inputs: dict[str, Tensor]) -> list[Any]:
    """Return the results of a model or a program, and then its inputs, which the call may change in place."""
    results = model(**inputs) if case.by_keyword else model(*inputs.values())
    return [*leaves(results), *inputs.values()]


@dataclass(frozen=True)
class Oracle:
    """The results of PyTorch: in the model's types, in float64, and in float64 from inputs rounded as the device."""

    typed: list[Tensor]
    exact: list[Tensor]
    rounded: list[Tensor]


def _called(
    make: Callable[[], torch.nn.Module], calls: list[dict[str, Tensor]], _: Any, how: Any
) -> list[Any]:
    (inputs,) = calls
    return call(make(), how["case"], inputs)


def oracle(case: Case, reference: Run = _called) -> Oracle:
    """Runs the case in PyTorch; raises what PyTorch raises."""
    how = {**case.how, "case": case}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        typed = reference(partial(case.model, is_plain=True), case.calls(), case.options, how)
    make = partial(case.model, in_float64(case.source()), exact=True, is_plain=True)
    with quiet_float64():
        exact = reference(make, case.calls(exact=True), case.options, how)
        rounded = exact
        if case.coarseness > 1:
            calls = [
                {name: _with_nine_bits(x) for name, x in inputs.items()} for inputs in case.calls(exact=True)
            ]
            rounded = reference(lambda: _with_rounded_buffers(make()), calls, case.options, how)
    return Oracle(typed, exact, rounded)


def _with_rounded_buffers(model: torch.nn.Module) -> torch.nn.Module:
    for buffer in model.buffers():
        buffer.copy_(_with_nine_bits(buffer))
    return model


def _with_nine_bits(x: Tensor) -> Tensor:
    if not x.is_floating_point():
        return x
    mantissa, exponent = torch.frexp(x)
    return torch.where(torch.isfinite(x), torch.ldexp(torch.round(mantissa * 2**10) / 2**10, exponent), x)


def complaint(case: Case, results: Sequence[Any], expected: Oracle) -> str:
    """Return the difference between the results of a run and the expected results; empty if they agree."""
    if len(results) != len(expected.typed):
        return f"{len(results)} results instead of {len(expected.typed)}"
    for index, result in enumerate(results):
        name = f"result {index}" if index < len(case.results) else "an input after the call"
        name = f"value {index}" if case.how else name
        truth = (expected.typed[index], expected.exact[index], expected.rounded[index])
        if text := _of_result(result, *truth, case):
            return f"{name}: {text}"
    return ""


def _of_result(result: Any, typed: Any, exact: Any, rounded: Any, case: Case) -> str:
    if not isinstance(typed, Tensor):
        result = "a tensor" if isinstance(result, Tensor) else result
        return "" if result == typed else f"{result} instead of {typed}"
    if not isinstance(result, Tensor):
        return f"a {type(result).__name__} instead of a tensor"
    if result.shape != typed.shape or result.dtype != typed.dtype:
        return f"{result.dtype} {list(result.shape)} instead of {typed.dtype} {list(typed.shape)}"
    if not typed.is_floating_point():
        wrong = int((result != typed).sum())
        return f"{wrong} of {typed.numel()} elements differ" if wrong else ""
    return _of_numbers(result.double(), typed.double(), exact.double(), rounded.double(), case)


def _of_numbers(result: Tensor, typed: Tensor, exact: Tensor, rounded: Tensor, case: Case) -> str:
    regular = torch.isfinite(typed) & torch.isfinite(exact)
    # Where PyTorch has no number in the type of the model, its value and the float64 value are both right. DL16 has one
    # code for infinities and NaN, and beyond the largest fp16 it has numbers.
    same = (
        (result == typed) | (result.isnan() & (typed.isnan() | exact.isnan())) | _close(result, exact, case)
    )
    if case.coarseness > 1:
        same |= ~torch.isfinite(result) | (result.abs() >= 65504)
    odd = ~regular & ~same
    if odd.any():
        at = int(odd.reshape(-1).nonzero()[0])
        return f"{_at(result, at)} instead of {_at(typed, at)} (float64: {_at(exact, at)}) at {at}"
    if not regular.any():
        return ""
    got, own, true = result[regular], typed[regular], exact[regular]
    errors, allowed = (got - true).abs(), _allowed(own, true, rounded[regular], case)
    errors[torch.isnan(errors)] = torch.inf
    worst = int((errors - allowed).argmax())
    if float(errors[worst]) <= float(allowed[worst]):
        return ""
    where = int(regular.reshape(-1).nonzero()[worst])
    return (
        f"{_at(result, where)} instead of {_at(exact, where)} (PyTorch: {_at(typed, where)}) at {where}, "
        f"error {float(errors[worst]):.3g}, allowed {float(allowed[worst]):.3g}, "
        f"{int((errors > allowed).sum())} of {result.numel()} elements"
    )


def _allowed(own: Tensor, true: Tensor, rounded: Tensor, case: Case) -> Tensor:
    """Return the error allowed for each element: the error of PyTorch, and a fraction of the value."""
    if case.how.get("elementwise"):
        # The square of a number of more than 1e18 is not one of float32, in which PyTorch may have float64.
        true = torch.where(true.abs() > 1e18, torch.inf, true)
        smallest = 2**-22 if case.floor >= 1e-3 else 2**-120
        return 16 * torch.maximum((own - true).abs(), case.floor * true.abs()) + smallest
    allowed = max(4 * case.coarseness * float((own - true).abs().max()), case.floor * float(true.abs().max()))
    shift = torch.nan_to_num((rounded - true).abs(), 0, 0, 0)
    return torch.full_like(true, allowed + 2 * float(shift.max()))


def _close(result: Tensor, exact: Tensor, case: Case) -> Tensor:
    factor = 16 if case.how.get("elementwise") else 4
    return (result == exact) | ((result - exact).abs() <= factor * case.floor * exact.abs())


def _at(values: Tensor, index: int) -> str:
    return f"{float(values.reshape(-1)[index]):.6g}"


_HEAD = '''"""{header}"""

import torch
import torch.nn.functional as F
{imports}
import spyre_mlir


{source}

{buffers}
'''

_FILE = """inputs = {inputs}
program = spyre_mlir.compile(Model({names}), {example}{options})
print("compiled:", program({call}))
print("PyTorch:", Model({names})({call}))
"""


def as_file(case: Case, header: str) -> str:
    """Return a Python file that compiles and runs the case, and prints its results and the results of PyTorch."""
    inputs = {each.name: each for each in case.inputs if each.role == "input"}
    made = ", ".join(f'"{name}": {_made(each)}' for name, each in inputs.items())
    return head_of_file(case, header) + _FILE.format(
        names=", ".join(each.name for each in case.inputs if each.role == "buffer"),
        inputs=f"{{{made}}}",
        example="inputs" if case.by_keyword else "tuple(inputs.values())",
        options="".join(f", {name}={value!r}" for name, value in case.options.items()),
        call="**inputs" if case.by_keyword else "*inputs.values()",
    )


def head_of_file(case: Case, header: str, imports: str = "") -> str:
    """The beginning of a file: imports, the class ``Model`` and its buffers."""
    source = case.source()
    return _HEAD.format(
        header=header,
        imports=imports + (fuzz_loops.IMPORTS if fuzz_loops.is_used(source) else ""),
        source=source,
        buffers="\n".join(f"{each.name} = {_made(each)}" for each in case.inputs if each.role == "buffer"),
    )


def calls_of_file(case: Case) -> str:
    """The inputs of each call as text, a list of dicts of tensors."""
    count, given = case.how.get("calls", 1), [each for each in case.inputs if each.role == "input"]
    calls = [", ".join(f'"{x.name}": {_made(case.at(x, call))}' for x in given) for call in range(count)]
    names = {each.name for each in given}
    alias = "".join(
        f'for call in calls:\n    call["{name}"] = call["{of}"]\n'
        for name, of in case.how.get("alias", {}).items()
        if {name, of} <= names
    )
    return f"calls = [{', '.join(f'{{{call}}}' for call in calls)}]\n{alias}"


def _made(value: Input) -> str:
    x = value.tensor()
    elements = re.sub(r"\b(inf|nan)\b", r"torch.\1", str(x.reshape(-1).tolist()))
    if len(set(map(repr, x.reshape(-1).tolist()))) == 1:
        return f"torch.full({list(value.shape)}, {elements.strip('[]').split(',')[0]}, dtype={value.dtype})"
    return f"torch.tensor({elements}, dtype={value.dtype}).reshape({list(value.shape)})"


def refusal(error: Any) -> tuple[str, str]:
    """The class of a ``CompileError`` and why: the simulator and verifiers refuse what the compiler itself made.

    Numbers that an argument or the device cannot hold are the caller's.
    """
    notes = " ".join(getattr(error, "__notes__", ()))
    is_ours = getattr(error, "kind", "range") not in ("range", "argument", "value") or "'verify-" in notes
    return ("internal" if is_ours else "refused"), f"{error.message} {notes}".strip()


@faults_kept()
def run(case: Case) -> tuple[str, str]:
    """Compiles and runs a case: ("right" | "wrong" | "refused", why).

    Raises what is neither a result nor a ``CompileError``.
    """
    import spyre_mlir

    expected = oracle(case)
    model, inputs = case.model(), case.tensors()
    example = case.tensors()
    with warnings.catch_warnings(record=True) as said, torch.no_grad():
        warnings.simplefilter("always")
        try:
            example = example if case.by_keyword else tuple(example.values())
            program = spyre_mlir.compile(model, example, **case.options)
            results = call(program, case, inputs)
        except spyre_mlir.CompileError as error:
            return refusal(error)
    text = complaint(case, results, expected)
    if not text:
        return "right", ""
    ranges = [str(each.message) for each in said if each.category.__name__ == "RangeWarning"]
    return ("refused", ranges[0]) if ranges else ("wrong", text)
