# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pages that the build of the site makes, and the check of a built one, which `make docs` runs on all of it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spyre_mlir import passes
from spyre_mlir.target.ops import DEVICE_OPS
from spyre_mlir.tools import man_pages

pytestmark = pytest.mark.documents

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "generate"))

check_site: Any = importlib.import_module("check_site")
hooks: Any = importlib.import_module("hooks")
references: Any = importlib.import_module("references")


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return references.pages()


def test_the_reference_has_every_pass_once(pages: dict[str, str]) -> None:
    headings = [line for line in pages["passes"].splitlines() if line.startswith("### ")]
    assert sorted(headings) == sorted(f"### `{name}`" for name in passes.load_all())


def test_the_reference_has_every_operation_and_command(pages: dict[str, str]) -> None:
    assert [name for name in DEVICE_OPS if f"| `{name}` |" not in pages["operations"]] == []
    assert [tool.prog for tool in man_pages.parsers() if f"\n## {tool.prog}\n" not in pages["tools"]] == []


def test_passes_are_in_the_order_of_the_pipeline(pages: dict[str, str]) -> None:
    places = [pages["passes"].index(f"### `{name}`") for name in ("choose-layouts", "work-distribution")]
    assert places == sorted(places) and pages["passes"].index("## To the level *divided*") < places[1]


def test_a_docstring_is_markdown() -> None:
    text = "Do it.\n\nBefore:\n    a<b>\n\n    c\n\nAfter < all; docs/cost.md.\n"
    expected = "Do it.\n\nBefore:\n\n```text\na<b>\n\nc\n```\n\nAfter &lt; all; [cost](../cost.md)."
    assert references.markdown_of(text) == expected


def test_a_cell_of_a_table_is_one_line() -> None:
    assert list(references.table(("a",), [("x|y\nz `p | q`",)]))[2] == r"| x\|y z `p | q` |"


def test_a_file_has_its_name_as_title() -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="cost.md"), meta={})
    text = "Write `a.mlir`:\n\n<!-- file: a.mlir -->\n```mlir\nmodule {}\n```\n"
    expected = 'Write `a.mlir`:\n\n```mlir title="a.mlir"\nmodule {}\n```\n'
    assert hooks.on_page_markdown(text, page) == expected


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('<a href="b.html#there">b</a>', ""),
        ('<a href="https://example.org/">elsewhere</a>', ""),
        ('<img src="data:image/png;base64,AA==">', ""),
        ('<a href="c.html">c</a>', "not in the site"),
        ('<a href="b.html#gone">b</a>', "not a heading there"),
        ('<a href="../outside.html">up</a>', "not in the site"),
        ('<script src="https://example.org/x.js"></script>', "from the network"),
        ('<link href="//example.org/x.css">', "from the network"),
        ('<iframe src="gone.html"></iframe>', "not in the site"),
        (r"<table><tr><td>a</td><td><code>int \| None</code></td></tr></table>", "a backslash"),
        ("<h1>a</h1><h2>b</h2><h3>c</h3><h2>d</h2>", ""),
        ("<h1>a</h1><h3>c</h3>", "skips a level"),
        ("<table><tr><td><code>int | None</code></td></tr></table>", ""),
    ],
)
def test_references_of_a_site(body: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "outside.html").touch()
    site = tmp_path / "site"
    site.mkdir()
    (site / "a.html").write_text(body)
    (site / "b.html").write_text('<h1 id="there">b</h1>')
    sentences = list(check_site.problems(site))
    assert len(sentences) == bool(problem) and all(problem in sentence for sentence in sentences)
