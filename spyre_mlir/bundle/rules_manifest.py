"""Rules on the host's side: arguments, their sizes and how they are moved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import prod
from operator import mul

from spyre_mlir.bundle.context import Complaint, Context
from spyre_mlir.bundle.model import Argument, Transfer
from spyre_mlir.bundle.transfer import filled_parts
from spyre_mlir.target.formats import FORMATS

KINDS = ("input", "parameter", "constant", "result")


def arguments(context: Context) -> Iterator[Complaint]:
    parameters = {parameter.name for parameter in context.bundle.parameters}
    for parameter, sharing in context.arguments.items():
        given = [argument.name for argument in sharing if argument.kind != "result"]
        if len(given) > 1:
            text = f"The arguments {' and '.join(given)} are both given in %{parameter}"
            yield f"{text}; expected one of them.", "manifest.json"
    names = [argument.name for argument in context.bundle.manifest.arguments]
    if len(set(names)) != len(names):
        yield "Two arguments have the same name.", "manifest.json"
    for argument in context.bundle.manifest.arguments:
        where = f"manifest.json, argument {argument.name}"
        if argument.kind not in KINDS:
            yield f"Its kind is {argument.kind!r}; expected one of {', '.join(KINDS)}.", where
        if argument.parameter not in parameters:
            yield f"Its parameter %{argument.parameter} is not one of the program.", where
        for problem in _sizes(argument):
            yield problem, where


def sources(context: Context) -> Iterator[Complaint]:
    """An argument takes the array of one that is given itself and looks the same to the host."""
    given = {each.name: each for each in context.bundle.manifest.arguments if each.source is None}
    for argument in context.bundle.manifest.arguments:
        if argument.source is None:
            continue
        where = f"manifest.json, argument {argument.name}"
        source = given.get(argument.source)
        if source is None:
            yield f"Its source {argument.source} is no argument with an array of its own.", where
        elif "result" in (argument.kind, source.kind) or _host(argument) != _host(source):
            yield f"Its source {argument.source} has another kind, type or shape on the host.", where


def _host(argument: Argument) -> tuple:
    return argument.kind, argument.host_dtype, argument.host_shape


def _sizes(argument: Argument) -> Iterator[str]:
    form = FORMATS.get(argument.data_format)
    if form is None:
        yield f"Its format {argument.data_format!r} is unknown; expected one of {', '.join(FORMATS)}."
        return
    lanes = list(
        accumulate(reversed(argument.device_size), mul)
    )  # the last dims may be in one stick together
    if form.stick_elements not in (lanes if form.bytes == 1 else lanes[:1]):
        size = argument.device_size
        yield f"Its device size {size} does not end in a stick of {form.stick_elements} elements."
    expected = prod(argument.device_size) * form.bytes
    if argument.bytes != expected:
        yield f"It has {argument.bytes} bytes; expected {expected} for its device size."


def transfers(context: Context) -> Iterator[Complaint]:
    for argument in context.bundle.manifest.arguments:
        for problem in _transfer(argument):
            yield problem, f"manifest.json, argument {argument.name}"


def _transfer(argument: Argument) -> Iterator[str]:
    transfer = argument.transfer
    loops = len(transfer.ranges)
    if len(transfer.host_strides) != loops or len(transfer.device_strides) != loops:
        yield f"Its transfer has {loops} ranges; expected as many host and device strides."
        return
    steps = (*transfer.host_strides, *transfer.device_strides, transfer.host_offset)
    if min((*transfer.ranges, 1)) < 1 or min(steps) < 0:
        yield "Its transfer has a range below 1, or a negative stride or offset."
        return
    for loop_ids, weights, size in transfer.bounds:
        if len(loop_ids) != len(weights) or size < 1 or not set(loop_ids) <= set(range(loops)):
            yield "A bound of its transfer does not name loops with one weight each and a size."
            return
        if not _counts_once(transfer, loop_ids, weights):
            yield "A bound of its transfer counts a position of its dim twice."
            return
    last, room = _last(transfer.ranges, transfer.device_strides), prod(argument.device_size)
    if last >= room:
        yield f"Its transfer reaches device element {last}; expected less than {room}."
    last, room = _last_host(transfer), prod(argument.host_shape)
    if last >= room:
        yield f"Its transfer reaches host element {last}; expected less than {room}."


def _last(ranges: Sequence[int], strides: Sequence[int]) -> int:
    return sum((count - 1) * stride for count, stride in zip(ranges, strides, strict=True))


def _counts_once(transfer: Transfer, loops: Sequence[int], weights: Sequence[int]) -> bool:
    """Whether the loops of a bound are the digits of a number, each one's weight beyond all that those inside reach."""
    reach = 0
    for weight, loop in sorted(zip(weights, loops, strict=True)):
        if transfer.ranges[loop] > 1 and weight <= reach:
            return False
        reach += weight * (transfer.ranges[loop] - 1)
    return True


def _last_host(transfer: Transfer) -> int:
    """The highest host element of all positions that have one."""
    return max(
        transfer.host_offset + _last([first + count for first, count in part], transfer.host_strides)
        for part in filled_parts(transfer)
    )
