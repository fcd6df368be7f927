# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The device after ``import torch`` alone: PyTorch calls the entry point, and the first use imports the compiler."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]

#: A program on the CPU, with calls of PyTorch that query the accelerator.
ON_THE_CPU = """
import sys
import torch

torch.manual_seed(1)
assert torch.device("spyre").type == torch.accelerator.current_accelerator(check_available=True).type == "spyre"
layer = torch.nn.Linear(3, 3)
layer(torch.ones(2, 3)).sum().backward()
torch.optim.Adam(layer.parameters()).step()
print(any(name.split(".")[0] in ("torch_mlir", "numba") for name in sys.modules))
"""

#: First uses of the device; a process has only one, so each line runs in a process.
FIRST_USES = (
    "torch.nn.Linear(3, 3).to('spyre').weight",
    "torch.load(sys.argv[1], map_location='spyre')",
)


def run(code: str, folder: Path, *arguments: str, others: tuple[str, ...] = ()) -> str:
    """Output of a process in which this package and others have entry points of PyTorch's backends."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    group = project["entry-points"]["torch.backends"] | {f"z{other}": other for other in others}
    info = folder / "test_backends-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: test-backends\nVersion: 1\n")
    lines = [f"{name} = {value}\n" for name, value in group.items()]
    (info / "entry_points.txt").write_text("".join(["[torch.backends]\n", *lines]))
    search = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(folder)!r}]\n"
    done = subprocess.run([sys.executable, "-c", search + code, *arguments], capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return done.stdout.strip()


def test_programs_of_the_cpu_do_not_import_the_compiler(tmp_path: Path) -> None:
    assert run(ON_THE_CPU, tmp_path) == "False"


@pytest.mark.parametrize("use", FIRST_USES)
def test_a_first_use_registers_the_device(use: str, tmp_path: Path) -> None:
    torch.save(torch.ones(2), tmp_path / "saved.pt")
    code = f"import torch; x = {use}; print(x.device, (x + 1).is_spyre, torch.accelerator.memory_allocated() > 0)"
    assert run(code, tmp_path, str(tmp_path / "saved.pt")) == "spyre:0 True True"


#: A backend of another package, which names PyTorch's key "spyre" as well.
OTHER = """
import torch

class Module:
    marks = "other"

def autoload():
    torch.utils.rename_privateuse1_backend("spyre")
    torch._register_device_module("spyre", Module)
"""


def test_another_backend_keeps_the_name(tmp_path: Path) -> None:
    """The entry point of the other backend comes after the entry point of this package."""
    (tmp_path / "another_backend.py").write_text(OTHER)
    code = "import torch, spyre_mlir.frontend; print(torch.spyre.marks)"
    assert run(code, tmp_path, others=("another_backend:autoload",)) == "other"
