# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The README and the manuals do what they say: its files are written, its commands run in order, its outputs compared.

``<!-- file: NAME -->`` before a block makes it a file; ``<!-- output -->`` makes it the expected output of
the block before, where a line with ``...`` stands for any lines and ``...`` at the end of a line for its
rest; the numbers of SSA values do not count.
Blocks of ``sh`` and ``python`` run in one folder; after ``<!-- in the checkout -->`` in the checkout; after
``<!-- make -->`` only the existence of the make targets is checked: .ci/run runs them.
The tools and Python are forked by a server that has imported the package and torch.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))

import fork_server

pytestmark = pytest.mark.documents

ROOT = Path(__file__).parents[2]
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]

#: Modules that are imported before a block starts: third-party modules, and the package.
FOREIGN = ("numpy", "numba", "torch", "torch.export", "torch_mlir.fx")
PACKAGE = (
    "filecheck.main", "spyre_mlir.driver.compilation", "spyre_mlir.frontend",
    "spyre_mlir.pipelines", "spyre_mlir.simulator", "spyre_mlir.report",
    *(f"spyre_mlir.passes.{file.stem}" for file in sorted((ROOT / "spyre_mlir/passes").glob("*.py"))),
)  # fmt: skip

BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>.*?) -->\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    mark: str
    kind: str
    text: str


#: Marks of blocks that are not run in the folder of their page; whatever else a block has to be is checked below.
MARKS = ("file: ", "output", "make", "in the checkout", "picture", "sources", "quoted from ", "run by ")

#: Kinds of blocks that nothing here can check, with the reason.
UNCHECKED = {"lua": "it is for Neovim, which is not installed"}

#: Pages that the build of the site makes (docs/generate).
MADE = (
    *("reference/passes.md", "reference/options.md", "reference/tools.md", "reference/operations.md"),
    *("reference/assumptions.md", "reference/ktir-forms.md", "reference/figures.md"),
    *("gallery.md", "changelog.md", "contributing.md"),
)

#: Every page that a reader opens: of the root, and of the manual.
ALL_PAGES = (
    *("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md"),
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")),
)


def blocks(page: str) -> list[Block]:
    return [
        Block(match["mark"] or "", match["kind"], match["text"])
        for match in BLOCK.finditer((ROOT / page).read_text(encoding="utf-8"))
    ]


#: A tool. The package reads SPYRE_LOG, and the time up to which the cache trusts files, on import, so a call with
#: either imports it again.
TOOL = """#!/bin/sh
if [ "$SPYRE_LOG" ] || [ "$SPYRE_CACHE" = 1 ]; then exec {new} {arguments} "$@"; fi
exec {imported} {arguments} "$@"
"""


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the tools and of Python, which start with torch and the package imported."""
    folder = tmp_path_factory.mktemp("tools")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        servers = fork_server.start(*FOREIGN), fork_server.start(*FOREIGN, *PACKAGE)
    new, imported = (shlex.join(fork_server.command(server)) for server in servers)
    commands = {name: f"-m {script.partition(':')[0]}" for name, script in SCRIPTS.items()}
    for name, arguments in {"python": "", **commands}.items():
        (folder / name).write_text(TOOL.format(new=new, imported=imported, arguments=arguments))
        (folder / name).chmod(0o755)
    return folder


def run(block: Block, folder: Path, tools: Path) -> str:
    """The output of a block; a failing command is a failure of the test."""
    command = ["bash", "-euo", "pipefail", "-c"] if block.kind == "sh" else [str(tools / "python"), "-c"]
    path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    where = ROOT if block.mark == "in the checkout" else folder
    done = subprocess.run([*command, block.text], cwd=where, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{block.text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def matches(expected: str, output: str) -> bool:
    expected, output = (re.sub(r"%\d+", "%0", each) for each in (expected, output))
    parts = [re.escape(part) for part in re.split(r"^ *\.\.\.\n|\.\.\.$", expected, flags=re.MULTILINE)]
    return re.search("(?s:.*?)".join(parts), output) is not None


def is_run(block: Block) -> bool:
    """Return whether a block is a command or a script that runs in the folder of its page, or in the checkout."""
    return block.kind in ("sh", "python") and block.mark in ("", "in the checkout")


PAGES = tuple(page for page in ALL_PAGES if any(map(is_run, blocks(page))))


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_outputs(page: str, tmp_path: Path, tools: Path) -> None:
    """In the order of the page, as a reader would."""
    output = ""
    for block in blocks(page):
        if block.mark.startswith("file: "):
            (tmp_path / block.mark.removeprefix("file: ")).write_text(block.text, encoding="utf-8")
        elif block.mark == "output":
            assert matches(block.text, output), f"{page} says\n{block.text}\nbut it is\n{output}"
        elif is_run(block):
            output = run(block, tmp_path, tools)


TARGETS = [
    "demo",
    "check",
    "check-all",
    "check-changed",
    "check-docs",
    "check-lowest",
    "wheel",
    "package",
    "docs",
    "bench",
    "lint",
    "venv",
    "man",
]


@pytest.mark.parametrize("target", TARGETS)
def test_the_make_targets_of_the_pages_exist(target: str) -> None:
    assert any(f"make {target}" in (ROOT / page).read_text(encoding="utf-8") for page in ALL_PAGES)
    done = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_first_page_links_every_page() -> None:
    """Every page can be found from docs/index.md; API pages have a separate index."""
    for folder in (ROOT / "docs", ROOT / "docs/api"):
        text = (folder / "index.md").read_text(encoding="utf-8")
        assert [page.name for page in sorted(folder.glob("*.md")) if f"({page.name})" not in text] == [
            "index.md"
        ]


def test_the_readme_is_two_screens() -> None:
    """Summary, picture, two commands, an example, links: the manual has the rest."""
    assert (ROOT / "README.md").read_text(encoding="utf-8").count("\n") <= 100


def statement(block: Block) -> str:
    """Return the error of a block that is not run; empty if it agrees with its mark and its kind."""
    if block.mark == "picture":
        missing = [path for path in re.findall(r"[\w/]+\.py\b", block.text) if not _is_in_the_tree(path)]
        return f"it names {missing}" if missing else ""
    if block.mark == "sources":
        return ""  # test_the_comparison_has_its_sources
    if block.mark.startswith("quoted from "):
        source = (ROOT / block.mark.removeprefix("quoted from ")).read_text(encoding="utf-8")
        return "" if " ".join(block.text.split()) in " ".join(source.split()) else "the file does not say it"
    if block.mark.startswith("run by "):
        test = (ROOT / block.mark.removeprefix("run by ")).read_text(encoding="utf-8")
        module = re.findall(r"[\w.]+(?=\.py\b)|(?<=-m )[\w.]+", block.text)
        return (
            ""
            if module and all(name.split(".")[-1] in test for name in module)
            else "that test does not run it"
        )
    return _parsed(block)


def _is_in_the_tree(path: str) -> bool:
    return any(
        (folder / path).is_file() for folder in (ROOT, ROOT / "spyre_mlir", *(ROOT / "spyre_mlir").iterdir())
    )


def _parsed(block: Block) -> str:
    """Return the error of the parser of some data."""
    from spyre_mlir import dialects
    from spyre_mlir.mlir import ir

    try:
        if block.kind == "json":
            json.loads(block.text)
        elif block.kind == "toml":
            tomllib.loads(block.text)
        elif block.kind == "yaml":
            yaml.safe_load(block.text)
        elif block.kind == "mlir":
            with dialects.context():
                parse = ir.Type.parse if block.text.startswith("tensor<") else ir.Module.parse
                parse(block.text)
        else:
            return "" if block.kind in UNCHECKED else "nothing checks it"
    except (ValueError, ir.MLIRError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("page", ALL_PAGES)
def test_what_is_not_run_is_checked(page: str) -> None:
    """Data by its parser, a picture by the files that it names, a quotation by its source."""
    not_run = [
        b for b in blocks(page) if not is_run(b) and not b.mark.startswith(("file: ", "output", "make"))
    ]
    assert [(block.text, problem) for block in not_run if (problem := statement(block))] == []


@pytest.mark.parametrize(
    "block",
    [
        Block("picture", "text", "a  driver/compiling.py"),
        Block("quoted from docs/glossary.md", "text", "no such words are there"),
        Block("run by test/python/test_serve_llama.py", "sh", "python examples/other.py"),
        Block("", "json", "{a: 1}"),
        Block("", "toml", "a = = 1"),
        Block("", "mlir", "func.func @main("),
        Block("", "text", "words"),
    ],
)
def test_a_wrong_block_is_seen(block: Block) -> None:
    assert statement(block)


def test_the_comparison_has_its_sources() -> None:
    """Each source that the page cites is in its list, and each entry of the list is cited."""
    (listed,) = (block.text for block in blocks("docs/comparison.md") if block.mark == "sources")
    cited = re.findall(r"[\[ ]([A-Z]\d+)(?=[,\]])", _prose("docs/comparison.md"))
    assert set(cited) == set(re.findall(r"\b([A-Z]\d+)\b", listed))


@pytest.mark.parametrize("page", ALL_PAGES)
def test_every_fence_is_a_block(page: str) -> None:
    """A block without a kind, or indented, would be neither run nor checked."""
    fences = re.findall(r"^\s*```", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert len(fences) == 2 * len(blocks(page))


@pytest.mark.parametrize("page", ALL_PAGES)
def test_the_name_of_a_file_is_visible(page: str) -> None:
    """The paragraph before a file names it, because readers of the Markdown on GitHub do not see the mark."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for mark in re.finditer(r"^<!-- file: (\S+) -->$", text, re.MULTILINE):
        assert mark[1] in text[: mark.start()].rstrip().rpartition("\n\n")[2]


@pytest.mark.parametrize("page", ALL_PAGES)
def test_links_lead_somewhere(page: str) -> None:
    """To a file of the checkout, and where they name a heading, to one that it has."""
    folder = (ROOT / page).parent
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", _prose(page)):
        path, _, anchor = target.partition("#")
        file = folder / path if path else ROOT / page
        if path and os.path.relpath(file, ROOT / "docs") in MADE:
            continue
        assert file.exists(), f"{page} links {target}"
        assert not anchor or anchor in _anchors(file), f"{page} links {target}"


def test_made_pages_are_not_in_the_checkout() -> None:
    """A link to one is checked by `make docs`, which makes it."""
    assert not any((ROOT / "docs" / path).exists() for path in MADE)


def _prose(page: str) -> str:
    return BLOCK.sub("", (ROOT / page).read_text(encoding="utf-8"))


def _anchors(file: Path) -> set[str]:
    """Return the anchors of the headings."""
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", file.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_an_expected_output_can_leave_lines_out() -> None:
    assert matches("a\n...\nb ...\n", "a\nx\ny\nb 12\n")
    assert not matches("a\n...\nc\n", "a\nb\n")


def test_the_numbers_of_values_do_not_count() -> None:
    assert matches("%1 = foo %12\n", "%7 = foo %8\n")


@pytest.mark.parametrize("page", ALL_PAGES)
def test_the_first_mark_of_every_block_is_known(page: str) -> None:
    """A misspelt mark would silently turn a check off."""
    assert [b.mark for b in blocks(page) if b.mark and not b.mark.startswith(MARKS)] == []
