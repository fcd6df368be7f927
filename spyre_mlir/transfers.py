"""What passes between host and device in a program of several steps: as little as the layouts allow.

The bundles of a sequence have one device memory: what is brought to one of them is there for those behind it.

A value that one bundle makes and later ones read stays in device memory over the host functions between them, if all
want it laid out as it is made. It is the program that transfers, not the bundle: the simulator loads each argument from
the host's array, which has the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spyre_mlir.bundle.model import Argument
from spyre_mlir.bundle.transfer import same_moves
from spyre_mlir.steps import BundleStep, HostStep, Step


@dataclass(frozen=True)
class Transfers:
    """Of one bundle step: the values that each call brings to the device before it, and takes to the host after it.

    ``kept`` are inputs that are in device memory already.
    """

    to_device: tuple[Argument, ...] = ()
    to_host: tuple[Argument, ...] = ()
    kept: tuple[Argument, ...] = ()


def transfers(steps: Sequence[Step], weights: Sequence[str], returned: Sequence[str]) -> list[Transfers]:
    """Of each step, none for those of the host; ``weights`` are on the device already, ``returned`` go to the host."""
    made = {name: argument for step in steps for name, argument in _results(step)}
    wanted = set(returned)
    for step in steps:
        if isinstance(step, HostStep):
            wanted.update(step.inputs)
    kept: dict[int, tuple[Argument, ...]] = {}
    brought: dict[int, tuple[Argument, ...]] = {}
    present: set[str] = set()
    for at, step in enumerate(steps):
        given = [each for each in _given(step) if each.array_name not in weights]
        if not _is_continued(step):
            present = set()
        stays = {each.name for each in given if each.name in present or _stays(each, made)}
        kept[at] = tuple(each for each in given if each.name in stays)
        brought[at] = tuple(each for each in given if each.name not in stays)
        wanted.update(each.array_name for each in brought[at])
        present.update(each.name for each in given)
    return [
        Transfers(
            brought[at], tuple(argument for name, argument in _results(step) if name in wanted), kept[at]
        )
        for at, step in enumerate(steps)
    ]


def _is_continued(step: Step) -> bool:
    """Whether a step is a bundle that goes on in the memory of the one before."""
    return isinstance(step, BundleStep) and bool(step.bundle.manifest.expects)


def _given(step: Step) -> list[Argument]:
    """The arguments of a bundle that are values of the program, those with a second layout too."""
    if isinstance(step, HostStep):
        return []
    return [each for each in step.bundle.manifest.arguments if each.array_name in step.inputs]


def _results(step: Step) -> list[tuple[str, Argument]]:
    if isinstance(step, HostStep):
        return []
    results = [each for each in step.bundle.manifest.arguments if each.kind == "result"]
    return list(zip(step.outputs, results, strict=True))


def _stays(argument: Argument, made: dict[str, Argument]) -> bool:
    """Whether an argument is, byte for byte, what a bundle has made; its padding is what that left there."""
    source = made.get(argument.array_name)
    return (
        source is not None
        and argument.fill is None
        and (source.data_format, source.bytes) == (argument.data_format, argument.bytes)
        and same_moves(source.transfer, argument.transfer)
    )
