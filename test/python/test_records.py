# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``spyre_mlir.records.dataclass`` equals the ``dataclass`` of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import itertools
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from spyre_mlir import records

KINDS = {"standard": dataclasses.dataclass, "ours": records.dataclass}
OPTIONS = [
    dict(zip(("frozen", "eq"), flags, strict=True)) for flags in itertools.product((True, False), repeat=2)
]


def classes(base: Callable, derived: Callable, options: dict[str, bool]) -> tuple[type, type, type]:
    @base(**options)
    class Point:
        count: ClassVar[int] = 3
        x: int
        y: list[int] = dataclasses.field(default_factory=list)
        size: int = dataclasses.field(default=2, repr=False, compare=False, metadata={"unit": "mm"})
        key: int = dataclasses.field(default=5, kw_only=True)
        made: list[int] = dataclasses.field(default_factory=lambda: [1], init=False)

    @derived(**options)
    class Pixel(Point):
        x: int = 7
        put: str = "self"

        def __post_init__(self) -> None:
            object.__setattr__(self, "seen", self.x)

        def __repr__(self) -> str:
            return "pixel"

    class Plain(Point):
        pass

    return Point, Pixel, Plain


def outcome(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except Exception as error:
        return type(error), str(error)


def assigned(value: Any, name: str) -> Any:
    setattr(value, name, 1)
    return vars(value)


def answers(of: tuple[type, type, type]) -> list[Any]:
    found: list[Any] = []
    for cls in of:
        make = [
            lambda cls=cls: cls(1), lambda cls=cls: cls(1, [2], 3, key=4), lambda cls=cls: cls(x=2, y=[]),
            lambda cls=cls: cls(), lambda cls=cls: cls(1, nothing=2), lambda cls=cls: cls(1, [2], 3, 4, 5, 6),
        ]  # fmt: skip
        found += [outcome(lambda one=one: vars(one())) for one in make]
        one, same, other = cls(1, [2]), cls(1, [2], 9), cls(2, [2])
        found += [one == same, one == other, one != same, one == 1, one.__eq__(1) is NotImplemented]
        found += [cls.__hash__ is None, outcome(lambda one=one: isinstance(hash(one), int))]
        found += [outcome(lambda cls=cls: hash(cls(1, ())) == hash(cls(1, (), 9)))]
        found += [str(inspect.signature(cls)), cls.__match_args__, repr(one)]
        found += [outcome(lambda one=one, name=name: assigned(one, name)) for name in ("x", "new", "seen")]
        found += [outcome(lambda one=one: delattr(one, "x")), cls.__module__, cls.count, cls.size]
        found += [
            vars(dataclasses.replace(cls(1), x=4)),
            vars(copy.deepcopy(cls(1))),
            dataclasses.asdict(cls(1)),
        ]
        for field in dataclasses.fields(cls):
            found += [
                field.name,
                field.type,
                field.init,
                field.repr,
                field.compare,
                field.kw_only,
                field.metadata,
            ]
    return found


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kinds", [*itertools.product(KINDS, repeat=2)], ids="-".join)
def test_a_dataclass_is_that_of_the_standard_library(kinds, options):
    base, derived = (KINDS[kind] for kind in kinds)
    standard = answers(classes(KINDS["standard"], KINDS["standard"], options))
    assert answers(classes(base, derived, options)) == standard


@records.dataclass(frozen=True)
class Pickled:
    x: int
    y: tuple[int, ...] = ()


def test_pickles_and_recursive_texts():
    assert pickle.loads(pickle.dumps(Pickled(1, (2,)))) == Pickled(1, (2,))
    value = Pickled(1, [])  # pyright: ignore[reportArgumentType]
    value.y.append(value)  # pyright: ignore[reportAttributeAccessIssue]
    assert repr(value) == "Pickled(x=1, y=[...])"
    match value:
        case Pickled(x, _):
            assert x == 1


def test_the_own_methods_of_a_class_stay():
    @records.dataclass(frozen=True)
    class Own:
        x: int

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 4

    assert Own(1) == Own(2) and hash(Own(1)) == 4
