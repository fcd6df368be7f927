# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The gallery of the site: pictures and pages that the tools make, each with the commands that made it."""

from __future__ import annotations

import functools
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: Programs of the zoo that commands name as ``NAME.mlir``.
_TEXTS = ("softmax", "attention_512", "layer_64")


_INTRODUCTION = """# Gallery

Pictures and pages of the tools, written by the commands next to them when this site was built. The programs are in the
[zoo](zoo.md); for example `python -c "from spyre_mlir import zoo; print(zoo.load('linalg/softmax')[0])" > softmax.mlir`
writes one. Pages do not load other files; open a page in a separate tab to use it."""


@dataclass(frozen=True)
class Exhibit:
    """A picture (``.svg``) or a separate page (``.html``), and the commands that write it.

    ``commands`` run in one folder for all exhibits, so a later command may read files of an earlier one. The file
    contains the text ``shows``, to which the title refers.
    """

    title: str
    says: str
    commands: tuple[str, ...]
    file: str
    shows: str


EXHIBITS = (
    Exhibit(
        "A layout",
        "A tensor of 512 x 240 elements of fp16 on the device: its logical grid with the number of each stick, and "
        "device memory in order. The last stick of a row is padded.",
        ("spyre-report --layout 512x240xf16 -o layout.svg",),
        "layout.svg",
        "padding: no element",
    ),
    Exhibit(
        "The same tensor with rows in the stick",
        "Another dim in the stick: each column is a run of sticks.",
        ("spyre-report --layout 512x240xf16 --stick-dims 0 -o layout-rows.svg",),
        "layout-rows.svg",
        "stick d0 x 64",
    ),
    Exhibit(
        "A softmax in the scratchpads",
        "Which buffer lies where in LX and when, and how full it is.",
        (
            "spyre-compile softmax.mlir -o softmax.bundle --remarks softmax.jsonl",
            "spyre-report --lx softmax.bundle -o softmax-lx.svg",
        ),
        "softmax-lx.svg",
        "in LX",
    ),
    Exhibit(
        "Its timeline",
        "When each engine, memory and ring works, as the simulator of time has it.",
        ("spyre-report softmax.bundle -o softmax-timeline.svg",),
        "softmax-timeline.svg",
        "memory read",
    ),
    Exhibit(
        "The report of a decoder layer",
        "One page about a program: what it attains, its graph, divisions, scratchpads, timeline, roofline, operations "
        "and the decisions of the passes.",
        (
            "spyre-compile layer_64.mlir -o layer.bundle --remarks layer.jsonl",
            "spyre-report layer.bundle -o layer.html",
        ),
        "layer.html",
        "Roofline",
    ),
    Exhibit(
        "Two plans side by side",
        "The same softmax with and without buffers in the scratchpads: what that does to operations, traffic and time.",
        (
            "spyre-compile softmax.mlir -o spilled.bundle --pipeline lx-planning=false",
            "spyre-diff spilled.bundle softmax.bundle -o softmax-diff.html",
        ),
        "softmax-diff.html",
        "buffers in LX",
    ),
    Exhibit(
        "Attention, spilled and why",
        "The scratchpads of an attention over 512 keys as a page. It is not tiled here, and has a tenth of LX: below "
        "the map are the buffers that are in device memory, each with its reason.",
        (
            "spyre-compile attention_512.mlir -o attention.bundle --remarks attention.jsonl "
            '--pipeline "lx-frac-avail=0.9 tile-attention=false tile-for-lx=false"',
            "spyre-report --lx attention.bundle -o attention-lx.html",
        ),
        "attention-lx.html",
        "too large",
    ),
)


@functools.cache
def files() -> dict[str, bytes]:
    """Run all commands and return the files of the exhibits by name."""
    from spyre_mlir import zoo

    with tempfile.TemporaryDirectory() as work:
        for name in _TEXTS:
            Path(work, f"{name}.mlir").write_text(zoo.load(f"linalg/{name}")[0], encoding="utf-8")
        for exhibit in EXHIBITS:
            for command in exhibit.commands:
                _run(command, work)
        return {exhibit.file: _shown(exhibit, Path(work)) for exhibit in EXHIBITS}


def _shown(exhibit: Exhibit, folder: Path) -> bytes:
    """Return the file of an exhibit; RuntimeError where it does not show what its title speaks of."""
    data = (folder / exhibit.file).read_bytes()
    if exhibit.shows.encode() not in data:
        raise RuntimeError(f"The file '{exhibit.file}' of the gallery does not show '{exhibit.shows}'.")
    return data


def _run(command: str, folder: str) -> None:
    """Run a command with the tools of this checkout; RuntimeError with what it said where it fails."""
    tool, *arguments = shlex.split(command)
    module = f"spyre_mlir.tools.{tool.replace('-', '_')}"
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=folder, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(f"The command '{command}' of the gallery failed:\n{done.stderr}")


def page() -> str:
    """Return the page of the gallery."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    for exhibit in EXHIBITS:
        link = f"gallery/{exhibit.file}"
        yield from ("", f"## {exhibit.title}", "", exhibit.says, "", "```sh", *exhibit.commands, "```", "")
        if exhibit.file.endswith(".svg"):
            yield f"![{exhibit.title}]({link})"
        else:
            yield f"[Open the page]({link})"
            yield ""
            yield f'<iframe src="{link}" title="{exhibit.title}" loading="lazy" width="100%" height="600"></iframe>'
