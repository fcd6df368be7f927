# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Source files of a user's program, also in namespace packages, whose folders have no ``__init__.py``."""

from __future__ import annotations

import sys

import pytest

from spyre_mlir.experiments.task import module_file, source_digest


@pytest.mark.parametrize("names", [("a",), ("a", "b"), ("a", "b", "c")])
def test_namespace_packages_are_read_and_not_imported(names, tmp_path, monkeypatch):
    top = f"namespace_{len(names)}"
    folder = tmp_path.joinpath(top, *names)
    folder.mkdir(parents=True)
    (folder / "weights.py").write_text("SIZE = 3\n", encoding="utf-8")
    module = ".".join([top, *names, "weights"])
    (tmp_path / "program.py").write_text(f"from {module} import SIZE\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert module_file(module) == folder / "weights.py" and module_file(f"{top}.a") is None
    digest = source_digest("program")
    (folder / "weights.py").write_text("SIZE = 4\n", encoding="utf-8")
    assert source_digest("program") != digest
    assert top not in sys.modules
