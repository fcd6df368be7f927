# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Recipes of the programs of each kind: inputs, operations, and ways to run them (``fuzz_ways.py``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import fuzz_reductions  # noqa: F401  registers its operations
from fuzz_case import Case, Run
from fuzz_inputs import SPECIAL
from fuzz_more_operations import ASSERTIONS, BYTES, INTEGERS, LOOPS, MIXED, ROWS, SPECIALS, any_type
from fuzz_operations import OPERATIONS, Operation
from fuzz_programs import BRAIN, HALF, SINGLE, Draw, drawn
from fuzz_ways import WAYS, says_something

#: How often a case is drawn until PyTorch runs it and its results say something.
TRIES = 40


@dataclass(frozen=True)
class Recipe:
    """``draw`` makes a case of a kind from a drawing without values, and ``way`` names how it is run."""

    way: str
    draw: Callable[[Draw], Case | None]

    @property
    def reference(self) -> Run:
        return WAYS[self.way].reference

    def case(self, seed: int) -> Case:
        """The case of a seed."""
        last: Case | None = None
        for attempt in range(TRIES):
            case = self.draw(Draw(seed * TRIES + attempt))
            if case is not None and says_something(case, self.reference):
                return case
            last = case or last
        assert last is not None
        return last


def _named(*names: str) -> list[Operation]:
    return [each for each in OPERATIONS if each.name in names]


def _more_often(operations: Sequence[Operation], weight: float) -> list[Operation]:
    return [replace(each, weight=each.weight * weight) for each in operations]


#: Operations that move elements, so that results share memory with inputs and each other.
VIEWS = _named("reshape", "permute", "index", "view")

#: Operations whose text has no size in it.
SIZELESS = _named(
    "unary", "binary", "with_constant", "comparison", "boolean", "integer", "cast", "rounding", "permute", "index",
    "view", "move", "concatenate", "in_place", "in_place_with", "select", "reduction", "softmax", "norm", "scan",
    "ordering", "matmul", "lookup",
)  # fmt: skip


def _finish(d: Draw, operations: Sequence[Operation], most: int, how: dict[str, Any]) -> Case:
    """The case of a drawing that has inputs; ``how`` is never empty, so that results are named by position."""
    case = drawn(d, operations, d.rng.randint(1, most))
    return replace(case, by_keyword=False, how={"calls": 1, **how})


def _sizes(d: Draw) -> Case | None:
    """A first dim, and all others of as many elements in other inputs, that each call has another size of."""
    granularity = d.rng.choice((0, 0, 0, 4, 8))
    least, size = (
        (granularity, d.rng.choice((8, 24))) if granularity else d.rng.choice(((1, 6), (2, 6), (3, 12)))
    )
    shape = [size, *d.shape(0, 2)]
    if d.chance(0.2):
        shape = [*shape[1:], size]
    d.new(shape)
    case = drawn(d, SIZELESS, d.rng.randint(1, 5))
    sized = {
        each.name: tuple(dim for dim, n in enumerate(each.shape) if n == size)
        for each in case.inputs
        if size in each.shape and each.role == "input" and each.literal is None
    }
    if not sized:
        return None
    sizes = [n for n in (1, 2, 3, 5, 7, 16, 24, 33, 40, 64, 65) if n >= least]
    if granularity and d.chance(0.7):
        sizes = [n for n in sizes if n % granularity == 0]
    how = {
        "calls": 4, "sizes": (size, *d.rng.sample(sizes, 3)), "sized": sized, "least": least, "most": 72,
        "granularity": granularity,
    }  # fmt: skip
    return replace(case, by_keyword=False, how=how)


def _state(d: Draw) -> Case:
    """Buffers and inputs that calls change; some are one tensor."""
    dtype = d.rng.choices((d.float_type, *INTEGERS), (10, 1, 1, 1, 1))[0]
    shape = d.shape(1, 3)
    buffers = [
        d.new(shape if d.chance(0.7) else d.shape(1, 3), dtype, role="buffer")
        for _ in range(d.rng.randint(1, 2))
    ]
    d.new(d.shape(1, 3))
    operations = [*_more_often(ROWS, 4), *_named("in_place", "in_place_with"), *OPERATIONS]
    choices = (None, True, True, [buffers[0].name])
    if (state := d.rng.choice(choices)) is not None:
        d.options["state"] = state
    case = _finish(d, operations, 5, {"calls": 3})
    alias: dict[str, str] = {}
    for role in ("buffer", "input"):
        alike = [each for each in case.inputs if each.role == role]
        pairs = [
            (a.name, b.name)
            for k, a in enumerate(alike)
            for b in alike[k + 1 :]
            if (a.shape, a.dtype) == (b.shape, b.dtype)
        ]
        if pairs and d.chance(0.15):
            first, second = d.rng.choice(pairs)
            alias[second] = first
    names = {each.name for each in case.inputs}
    if isinstance(state, list) and not set(state) <= names:
        case.options.pop("state")
    return replace(case, how={**case.how, **({"alias": alias} if alias else {})})


def _loops(d: Draw) -> Case:
    d.new(d.shape(1, 3))
    return _finish(d, [*_more_often(LOOPS, 8), *OPERATIONS], 4, {})


def _bytes(d: Draw) -> Case:
    """Inputs of all codes of int8 and uint8."""
    for _ in range(d.rng.randint(1, 2)):
        shape = [256] if d.chance(0.2) else [17, 32] if d.chance(0.2) else d.shape(1, 3)
        d.new(shape, d.rng.choice(("torch.int8", "torch.uint8")), "codes")
    operations = [
        *_more_often(BYTES, 8),
        *_more_often(_named("integer", "cast", "comparison"), 2),
        *OPERATIONS,
    ]
    return _finish(d, operations, 4, {})


def _types(d: Draw) -> Case:
    """Inputs of several types whose numbers are small and whole."""
    for _ in range(2):
        dtype = any_type(d)
        d.new([] if d.chance(0.15) else d.shape(1, 3), dtype, "integers" if "float" in dtype else "any")
    return _finish(d, MIXED, 4, {})


def _specials(d: Draw) -> Case:
    """NaN, infinities, or the largest numbers of their type, in the arithmetic that has them."""
    d.float_type = d.rng.choice((HALF, HALF, SINGLE))
    d.options.pop("numerics", None)
    d.new(d.shape(1, 2), "", SPECIAL)
    return _finish(d, SPECIALS, 2, {"elementwise": True})


def _asserts(d: Draw) -> Case:
    """Assertions that hold in the first call, and maybe not in later ones."""
    d.new(d.shape(2, 3))
    case = _finish(d, [*_more_often(ASSERTIONS, 8), *OPERATIONS], 5, {"calls": 3})
    watched = [each.name for each in case.inputs if each.values == "true" or each.values == "below 8"]
    return replace(case, how={**case.how, "violated": [name for name in watched if d.chance(0.6)]})


def _on_device(d: Draw, backends: Sequence[Any]) -> Case:
    """Some results are written to, as far as PyTorch lets that be."""
    d.new(d.shape(1, 4))
    case = _finish(d, [*_more_often(VIEWS, 2), *OPERATIONS], 5, {"calls": 1})
    written = tuple(index for index in range(len(case.results)) if d.chance(0.3))
    case = replace(case, how={**case.how, "written": written, "backend": d.rng.choice(backends)})
    if says_something(case, WAYS["device"].reference):
        return case
    return replace(case, how={**case.how, "written": ()})


def _eager(d: Draw) -> Case:
    d.options = {}
    return _on_device(d, (None,))


def _graphs(d: Draw) -> Case:
    d.options = {}
    return _on_device(d, ("spyre", "spyre", "spyre", "inductor", "aot_eager"))


def _gradients(d: Draw) -> Case:
    d.options = {}
    d.new(d.shape(1, 3), values="normal")
    how = {
        "device": d.rng.choice(("spyre", "spyre", "cpu")),
        "backend": d.rng.choice(("spyre", "spyre", None)),
    }
    if how["device"] == "cpu":
        how["backend"] = "spyre"
    return _finish(d, OPERATIONS, 5, {"calls": 1, **how})


def _ktir(d: Draw) -> Case:
    """The numbers that the interpreter has."""
    d.options.pop("numerics", None)
    d.float_type = d.rng.choice((HALF, HALF, HALF, SINGLE))
    d.new(d.shape(1, 4))
    return _finish(d, OPERATIONS, 4, {"addresses": d.chance(0.5)})


def _saved(d: Draw) -> Case:
    d.float_type = d.rng.choice((HALF, BRAIN, SINGLE))
    d.new(d.shape(1, 3), d.rng.choices((d.float_type, *INTEGERS, "torch.bool"), (12, 1, 1, 1, 1, 1))[0])
    return _finish(d, OPERATIONS, 4, {"laid out": d.chance(0.3)})


def _threads(d: Draw) -> Case:
    d.new(d.shape(1, 3))
    case = _finish(d, OPERATIONS, 5, {"calls": 2})
    return replace(case, inputs=tuple(replace(each, role="input") for each in case.inputs))


RECIPES: dict[str, Recipe] = {
    "sizes": Recipe("sizes", _sizes),
    "state": Recipe("compiled", _state),
    "loops": Recipe("compiled", _loops),
    "bytes": Recipe("compiled", _bytes),
    "types": Recipe("compiled", _types),
    "specials": Recipe("compiled", _specials),
    "asserts": Recipe("asserts", _asserts),
    "eager": Recipe("device", _eager),
    "graphs": Recipe("device", _graphs),
    "gradients": Recipe("gradients", _gradients),
    "ktir": Recipe("ktir", _ktir),
    "saved": Recipe("saved", _saved),
    "threads": Recipe("threads", _threads),
}
