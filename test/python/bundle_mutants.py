# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bundles with one thing changed at random: addresses, slices, folds, loops, files, transfers, buffers, constants.

``mutants(bundle, seed)`` are other bundles, as values; ``folder_mutants(seed)`` change the files of a folder in place,
by way of the values or as text. All are endless, and the same for one seed.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bundle_edits import argument, buffer, design, manifest, tensor

from spyre_mlir.bundle.folder import read_bundle, write_files
from spyre_mlir.bundle.model import Apply, Bundle, Design, Execute, IndexConstant, Loop, Statement
from spyre_mlir.errors import CompileError
from spyre_mlir.target.ops import DEVICE_OPS


@dataclass(frozen=True)
class Mutant:
    """A bundle with a change of a ``kind``; ``description`` describes the change."""

    kind: str
    description: str
    bundle: Bundle


def mutants(bundle: Bundle, seed: int, kinds: tuple[str, ...] = ()) -> Iterator[Mutant]:
    """Endless mutants of a bundle, of all kinds or of some; ``AssertionError`` if no change of the kinds fits."""
    rng = random.Random(seed)
    chosen = kinds or tuple(KINDS)
    vain = 0
    while vain < 10_000:
        vain += 1
        kind = rng.choice(chosen)
        change = rng.choice(KINDS[kind])
        try:
            made = change(bundle, rng)
        except (IndexError, ValueError):  # the bundle has nothing of the kind
            continue
        if made is not None and made != bundle:
            vain = 0
            yield Mutant(kind, change.__name__.replace("_", " "), made)
    raise AssertionError(f"The bundle has nothing that {', '.join(chosen)} changes.")


def folder_mutants(seed: int) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """Endless changes of the folder of a bundle, each with its description."""
    rng = random.Random(seed)
    while True:
        number = rng.randrange(1 << 30)
        if rng.random() < 0.6:
            yield f"values, seed {number}", lambda folder, number=number: _rewrite(folder, number)
        else:
            damage = rng.choice(DAMAGES)
            words = damage.__name__.replace("_", " ")
            yield (
                f"{words}, seed {number}",
                lambda folder, damage=damage, number=number: damage(folder, random.Random(number)),
            )


def _rewrite(folder: Path, seed: int) -> None:
    """The folder with a mutant of its bundle in place of it; the arrays stay."""
    try:
        mutant = next(mutants(read_bundle(folder), seed))
        for path in folder.glob("sdsc_*.json"):
            path.unlink()
        write_files(mutant.bundle, folder, None, ())
    except CompileError:  # a bundle that cannot be written
        return


# Values


def _number(rng: random.Random, value: int) -> int:
    """Another number: near, far or absurd."""
    near = (
        value + 1,
        value - 1,
        value * 2,
        value // 2,
        -value,
        0,
        1,
        value + 64,
        value - 64,
        value + 128,
        value - 128,
    )
    return rng.choice((*near, *near, value + 8192, 2**31, 2**70))


def _replaced(rng: random.Random, values: tuple[int, ...]) -> tuple[int, ...]:
    at = rng.randrange(len(values))
    return (*values[:at], _number(rng, values[at]), *values[at + 1 :])


def _some_design(bundle: Bundle, rng: random.Random) -> tuple[int, Design]:
    at = rng.randrange(len(bundle.designs))
    return at, list(bundle.designs.values())[at]


def _statements(
    bundle: Bundle, kind: type, change: Callable[[Statement], Statement], rng: random.Random
) -> Bundle:
    """The bundle with one of its statements of a kind changed, loops included."""
    found = sum(1 for each in _flat(bundle.statements) if isinstance(each, kind))
    target, seen = rng.randrange(found), -1

    def rewrite(statements: tuple[Statement, ...]) -> tuple[Statement, ...]:
        nonlocal seen
        made = []
        for statement in statements:
            if isinstance(statement, kind):
                seen += 1
                if seen == target:
                    statement = change(statement)
            if isinstance(statement, Loop):
                statement = replace(statement, body=rewrite(statement.body))
            made.append(statement)
        return tuple(made)

    return replace(bundle, statements=rewrite(bundle.statements))


def _flat(statements: tuple[Statement, ...]) -> Iterator[Statement]:
    for statement in statements:
        yield statement
        if isinstance(statement, Loop):
            yield from _flat(statement.body)


def _permuted(rng: random.Random, count: int) -> list[int]:
    """An order of cores: turned by some, two exchanged, or any."""
    order = list(range(count))
    if rng.random() < 0.5:
        by = rng.randrange(1, count)
        return [(core + by) % count for core in order]
    rng.shuffle(order)
    return order


def slices_and_addresses_of_a_design_on_other_cores(bundle: Bundle, rng: random.Random) -> Bundle:
    """Consistent by itself: each core works on another slice and addresses device memory for that."""
    at, made = _some_design(bundle, rng)
    order = _permuted(rng, made.cores)
    operands = tuple(replace(each, start=tuple(each.start[core] for core in order)) for each in made.operands)
    return design(bundle, at, core_slices=tuple(made.core_slices[core] for core in order), operands=operands)


def slices_of_a_design_on_other_cores(bundle: Bundle, rng: random.Random) -> Bundle:
    at, made = _some_design(bundle, rng)
    order = _permuted(rng, made.cores)
    return design(bundle, at, core_slices=tuple(made.core_slices[core] for core in order))


def addresses_of_an_operand_on_other_cores(bundle: Bundle, rng: random.Random) -> Bundle:
    at, made = _some_design(bundle, rng)
    number, order = rng.randrange(len(made.operands)), _permuted(rng, made.cores)
    start = made.operands[number].start
    return tensor(bundle, number, at, start=tuple(start[core] for core in order))


def slices_that_cores_hold_on_other_cores(bundle: Bundle, rng: random.Random) -> Bundle:
    at, made = rng.choice([(i, d) for i, d in enumerate(bundle.designs.values()) if d.operands[0].held])
    held = made.operands[0].held
    assert held is not None
    order = _permuted(rng, made.cores)
    return tensor(
        bundle, 0, at, held=replace(held, core_slices=tuple(held.core_slices[core] for core in order))
    )


def exchanged_dims_of_slices(bundle: Bundle, rng: random.Random) -> Bundle:
    at, made = _some_design(bundle, rng)
    one, other = rng.sample(list(made.sizes), 2)
    swap = {one: other, other: one}
    return design(
        bundle,
        at,
        core_slices=tuple({dim: own[swap.get(dim, dim)] for dim in own} for own in made.core_slices),
    )


def address_in_lx(bundle: Bundle, rng: random.Random) -> Bundle:
    """Change the address of one operand in LX, on all cores, or on one."""
    at, made = _some_design(bundle, rng)
    number = rng.choice([i for i, each in enumerate(made.operands) if each.memory == "lx"])
    start = made.operands[number].start
    by = rng.choice((-8192, -512, -128, 128, 512, 8192))
    if rng.random() < 0.7:
        return tensor(bundle, number, at, start=tuple(each + by for each in start))
    core = rng.randrange(len(start))
    return tensor(bundle, number, at, start=(*start[:core], start[core] + by, *start[core + 1 :]))


def constant_of_the_program(bundle: Bundle, rng: random.Random) -> Bundle:
    return _statements(bundle, IndexConstant, lambda each: replace(each, value=_number(rng, each.value)), rng)


def constant_by_whole_sticks(bundle: Bundle, rng: random.Random) -> Bundle:
    """Change a constant by whole sticks, so that it is still an address."""
    by = 128 * rng.randint(-64, 64)
    return _statements(bundle, IndexConstant, lambda each: replace(each, value=each.value + by), rng)


def coefficient_of_an_address(bundle: Bundle, rng: random.Random) -> Bundle:
    return _statements(
        bundle, Apply, lambda each: replace(each, coefficients=_replaced(rng, each.coefficients)), rng
    )


def operands_of_an_execute(bundle: Bundle, rng: random.Random) -> Bundle:
    def change(each: Statement) -> Statement:
        assert isinstance(each, Execute)
        return replace(each, operands=tuple(rng.sample(each.operands, len(each.operands))))

    return _statements(bundle, Execute, change, rng)


def bound_of_a_loop(bundle: Bundle, rng: random.Random) -> Bundle:
    loops = [each for each in _flat(bundle.statements) if isinstance(each, Loop)]
    loop = rng.choice(loops)
    name = rng.choice((loop.lower, loop.upper, loop.step))
    statements = tuple(
        replace(each, value=_number(rng, each.value))
        if isinstance(each, IndexConstant) and each.result == name
        else each
        for each in bundle.statements
    )
    return replace(bundle, statements=statements)


def file_of_an_execute(bundle: Bundle, rng: random.Random) -> Bundle:
    names = (*bundle.designs, *bundle.designs, "../sdsc_0.json", "/dev/zero", "sdsc_9.json", "a\0b", ".")
    return _statements(bundle, Execute, lambda each: replace(each, filename=rng.choice(names)), rng)


def files_of_two_executes_exchanged(bundle: Bundle, rng: random.Random) -> Bundle:
    """Another order of operations, where they take the same operands."""
    one, other = rng.sample(list(bundle.designs), 2)
    exchanged = {one: other, other: one}

    def rewrite(statements: tuple[Statement, ...]) -> tuple[Statement, ...]:
        return tuple(
            replace(statement, body=rewrite(statement.body))
            if isinstance(statement, Loop)
            else replace(statement, filename=exchanged.get(statement.filename, statement.filename))
            if isinstance(statement, Execute)
            else statement
            for statement in statements
        )

    return replace(bundle, statements=rewrite(bundle.statements))


def sizes_of_a_design(bundle: Bundle, rng: random.Random) -> Bundle:
    """Change the sizes of one dim: size, share or slices, or both sizes."""
    at, made = _some_design(bundle, rng)
    dim, field = rng.choice(list(made.sizes)), rng.choice(("sizes", "shares", "slices"))
    value = _number(rng, getattr(made, field)[dim])
    changes = {field: {**getattr(made, field), dim: value}}
    if field == "sizes" and rng.random() < 0.5:
        changes["shares"] = {**made.shares, dim: -(-value // max(1, made.slices[dim]))}
    return design(bundle, at, **changes)


def gap_of_an_operand(bundle: Bundle, rng: random.Random) -> Bundle:
    at, made = _some_design(bundle, rng)
    number = rng.randrange(len(made.operands))
    operand = made.operands[number]
    dim = rng.choice(operand.dim_order)
    return tensor(bundle, number, at, gap={**operand.gap, dim: _number(rng, operand.gap.get(dim, 0))})


def order_of_dims(bundle: Bundle, rng: random.Random) -> Bundle:
    at, made = _some_design(bundle, rng)
    role = rng.choice(made.operands).role
    order = rng.sample(made.operands[0].dim_order, len(made.operands[0].dim_order))
    operands = tuple(
        replace(each, dim_order=tuple(order))
        if each.role == role and set(order) == set(each.dim_order)
        else each
        for each in made.operands
    )
    return design(bundle, at, operands=operands)


def scale_of_a_dim(bundle: Bundle, rng: random.Random) -> Bundle:
    at, made = _some_design(bundle, rng)
    number = rng.randrange(len(made.operands))
    operand = made.operands[number]
    dim = rng.choice(operand.dim_order)
    return tensor(bundle, number, at, scale={**operand.scale, dim: rng.choice((1, -1, -2))})


def padding_of_a_dim(bundle: Bundle, rng: random.Random) -> Bundle:
    at, made = _some_design(bundle, rng)
    dim = rng.choice(list(made.sizes))
    return design(bundle, at, padding={**made.padding, dim: _number(rng, made.padding.get(dim, 0))})


def numbers_of_a_transfer(bundle: Bundle, rng: random.Random) -> Bundle:
    at = rng.randrange(len(bundle.manifest.arguments))
    moved = bundle.manifest.arguments[at].transfer
    field = rng.choice(("ranges", "host_strides", "device_strides", "host_offset", "bounds"))
    if field == "host_offset":
        return argument(bundle, at, transfer=replace(moved, host_offset=_number(rng, 0)))
    if field == "bounds":
        number = rng.randrange(len(moved.bounds))
        loops, weights, size = moved.bounds[number]
        bounds = list(moved.bounds)
        bounds[number] = (
            (loops, _replaced(rng, weights), size) if rng.random() < 0.5 else (loops, weights, size // 2)
        )
        return argument(bundle, at, transfer=replace(moved, bounds=tuple(bounds)))
    return argument(bundle, at, transfer=replace(moved, **{field: _replaced(rng, getattr(moved, field))}))


def loops_of_a_transfer(bundle: Bundle, rng: random.Random) -> Bundle:
    """Two exchange their strides on the host, or one list is longer than the others."""
    at = rng.randrange(len(bundle.manifest.arguments))
    moved = bundle.manifest.arguments[at].transfer
    strides = list(moved.host_strides)
    one, other = rng.sample(range(len(strides)), 2)
    strides[one], strides[other] = strides[other], strides[one]
    more = (*moved.host_strides, 1)
    return argument(
        bundle, at, transfer=replace(moved, host_strides=rng.choice((tuple(strides), more, more[:-2])))
    )


def field_of_an_argument(bundle: Bundle, rng: random.Random) -> Bundle:
    at = rng.randrange(len(bundle.manifest.arguments))
    made = bundle.manifest.arguments[at]
    changes = rng.choice(
        (
            {"kind": rng.choice(("input", "result", "parameter", "constant", "other"))},
            {"host_shape": _replaced(rng, made.host_shape)},
            {"host_dtype": rng.choice(("zzz", "float32", "int8", "bool", "bfloat16", "O", ""))},
            {"data_format": rng.choice(("zzz", "IEEE_FP32", "IEEE_INT32"))},
            {"device_size": _replaced(rng, made.device_size)},
            {"bytes": _number(rng, made.bytes)},
            {"parameter": rng.choice(bundle.parameters).name},
            {"name": rng.choice(("a\0b", "", rng.choice(bundle.manifest.arguments).name))},
            {"source": rng.choice(bundle.manifest.arguments).name},
        )
    )
    return argument(bundle, at, **changes)


def argument_that_is_missing(bundle: Bundle, rng: random.Random) -> Bundle:
    arguments = list(bundle.manifest.arguments)
    del arguments[rng.randrange(len(arguments))]
    return manifest(bundle, arguments=tuple(arguments))


def place_of_a_buffer(bundle: Bundle, rng: random.Random) -> Bundle:
    at = rng.randrange(len(bundle.manifest.buffers))
    made = bundle.manifest.buffers[at]
    bases = ("lx", "nowhere", *(parameter.name for parameter in bundle.parameters))
    changes = rng.choice(
        (
            {"offset": _number(rng, made.offset)},
            {"bytes": _number(rng, made.bytes)},
            {"base": rng.choice(bases)},
        )
    )
    return buffer(bundle, at, **changes)


def buffers_of_an_execute(bundle: Bundle, rng: random.Random) -> Bundle:
    uses = [list(each) for each in bundle.manifest.uses]
    names = rng.choice(uses)
    names[rng.randrange(len(names))] = rng.choice(bundle.manifest.buffers).name
    return manifest(bundle, uses=tuple(map(tuple, uses)))


def value_of_a_constant(bundle: Bundle, rng: random.Random) -> Bundle:
    at, made = _some_design(bundle, rng)
    number = rng.randrange(len(made.constants))
    constants = list(made.constants)
    constants[number] = replace(constants[number], bits=rng.randrange(1 << 15))
    return design(bundle, at, constants=tuple(constants))


def other_operation(bundle: Bundle, rng: random.Random) -> Bundle:
    at, made = _some_design(bundle, rng)
    op = DEVICE_OPS.get(made.opcode)
    names = [each.name for each in DEVICE_OPS.values() if op and each.arity == op.arity]
    return design(bundle, at, opcode=rng.choice(names))


KINDS: dict[str, tuple[Callable[[Bundle, random.Random], Bundle], ...]] = {
    "address": (
        address_in_lx,
        constant_of_the_program,
        constant_by_whole_sticks,
        coefficient_of_an_address,
        operands_of_an_execute,
        addresses_of_an_operand_on_other_cores,
    ),
    "slice map": (
        slices_and_addresses_of_a_design_on_other_cores,
        slices_of_a_design_on_other_cores,
        slices_that_cores_hold_on_other_cores,
        exchanged_dims_of_slices,
    ),
    "fold": (sizes_of_a_design, gap_of_an_operand, order_of_dims, scale_of_a_dim, padding_of_a_dim),
    "loop bound": (bound_of_a_loop,),
    "filename": (file_of_an_execute, files_of_two_executes_exchanged),
    "transfer": (numbers_of_a_transfer, loops_of_a_transfer, field_of_an_argument, argument_that_is_missing),
    "buffer": (place_of_a_buffer, buffers_of_an_execute),
    "constant": (value_of_a_constant, other_operation),
}


# Text and files


def _file(folder: Path, rng: random.Random) -> Path:
    return rng.choice(sorted(path for path in folder.rglob("*") if path.is_file()))


def _text_file(folder: Path, rng: random.Random) -> Path:
    names = (".json", ".mlir", ".jsonl")
    return rng.choice(sorted(path for path in folder.rglob("*") if path.suffix in names))


def a_number_of_the_text(folder: Path, rng: random.Random) -> None:
    path = _text_file(folder, rng)
    text = path.read_text(encoding="utf-8")
    numbers = list(re.finditer(r"-?\d+", text))
    if numbers:
        number = rng.choice(numbers)
        path.write_text(
            f"{text[: number.start()]}{_number(rng, int(number[0]))}{text[number.end() :]}", "utf-8"
        )


def some_of_the_text(folder: Path, rng: random.Random) -> None:
    """Left out, doubled, or replaced by something odd."""
    path = _text_file(folder, rng)
    text = path.read_text(encoding="utf-8")
    first = rng.randrange(len(text))
    last = min(len(text), first + rng.randrange(1, 40))
    odd = (
        "",
        text[first:last] * 2,
        "\0",
        "[" * 20_000,
        "{" * 20_000,
        "NaN",
        "9" * 5000,
        "\ud7ff",
        "null",
        "%",
        "(",
    )
    path.write_text(text[:first] + rng.choice(odd) + text[last:], "utf-8")


def a_member_of_the_json(folder: Path, rng: random.Random) -> None:
    """Some value anywhere in a JSON file is another one, or gone."""
    path = rng.choice(sorted(folder.rglob("*.json")))
    root = json.loads(path.read_text(encoding="utf-8"))
    value, places = root, []
    while isinstance(value, dict | list) and value:
        key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
        places.append((value, key))
        value = value[key]
    inside, key = rng.choice(places)
    if rng.random() < 0.3:
        del inside[key]
    else:
        inside[key] = rng.choice((None, "", "..", 0, -1, 2**70, 1.5, True, [], {}, [[]], "/dev/zero", "\0"))
    path.write_text(json.dumps(root), "utf-8")


def bytes_of_a_file(folder: Path, rng: random.Random) -> None:
    path = _file(folder, rng)
    data = bytearray(path.read_bytes())
    for _ in range(rng.randrange(1, 4)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    path.write_bytes(data[: rng.choice((len(data), len(data), rng.randrange(len(data))))])


def a_file_of_another_kind(folder: Path, rng: random.Random) -> None:
    """Replace a file by a folder, a fifo or a link to the outside, or remove it."""
    path = _file(folder, rng)
    path.unlink()
    kind = rng.randrange(5)
    if kind == 1:
        path.mkdir()
    elif kind == 2:
        os.mkfifo(path)
    elif kind == 3:
        path.symlink_to("/dev/zero")
    elif kind == 4:
        outside = folder.with_name(f"{folder.name}.outside")
        shutil.copyfile("/dev/null", outside)
        path.symlink_to(outside)


DAMAGES = (
    a_number_of_the_text,
    some_of_the_text,
    a_member_of_the_json,
    bytes_of_a_file,
    a_file_of_another_kind,
)
