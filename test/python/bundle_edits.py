# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Valid bundles with one change, for tests of findings."""

from __future__ import annotations

from dataclasses import replace

from spyre_mlir.bundle.model import Execute, Loop


def design(bundle, position=0, **changes):
    """The bundle with fields of one design changed."""
    name = f"sdsc_{position}.json"
    return replace(bundle, designs={**bundle.designs, name: replace(bundle.designs[name], **changes)})


def tensor(bundle, number, position=0, **changes):
    """The bundle with fields of one operand of one design, by default the first, changed."""
    operands = list(bundle.designs[f"sdsc_{position}.json"].operands)
    operands[number] = replace(operands[number], **changes)
    return design(bundle, position, operands=tuple(operands))


def program(bundle, old, *new):
    """The bundle with the statement that defines ``old`` replaced; also inside loops."""

    def rewrite(statements):
        for statement in statements:
            if isinstance(statement, Loop):
                statement = replace(statement, body=tuple(rewrite(statement.body)))
            yield from new if getattr(statement, "result", None) == old else (statement,)

    return replace(bundle, statements=tuple(rewrite(bundle.statements)))


def execute(bundle, **changes):
    """The bundle with fields of its first top-level execute changed."""
    statements = list(bundle.statements)
    at = next(i for i, statement in enumerate(statements) if isinstance(statement, Execute))
    statements[at] = replace(statements[at], **changes)
    return replace(bundle, statements=tuple(statements))


def loop(bundle, **changes):
    """The bundle with fields of its loop, the last statement, changed."""
    return replace(bundle, statements=(*bundle.statements[:-1], replace(bundle.statements[-1], **changes)))


def manifest(bundle, **changes):
    return replace(bundle, manifest=replace(bundle.manifest, **changes))


def argument(bundle, number, **changes):
    arguments = list(bundle.manifest.arguments)
    arguments[number] = replace(arguments[number], **changes)
    return manifest(bundle, arguments=tuple(arguments))


def buffer(bundle, number, **changes):
    buffers = list(bundle.manifest.buffers)
    buffers[number] = replace(buffers[number], **changes)
    return manifest(bundle, buffers=tuple(buffers))


def transfer(bundle, number, **changes):
    return argument(bundle, number, transfer=replace(bundle.manifest.arguments[number].transfer, **changes))
