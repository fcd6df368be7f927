"""spyre-validate: check a SuperDSC bundle folder against the semantic rules of the format."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from spyre_mlir.bundle import read_bundle
from spyre_mlir.bundle.context import statements_in_order
from spyre_mlir.bundle.folder import is_program
from spyre_mlir.bundle.model import Execute
from spyre_mlir.bundle.validate import validate
from spyre_mlir.tools._common import ArgumentParser, lx_fraction, tool


@tool
def main(argv: Sequence[str] | None = None) -> int:
    """Print what breaks a rule; the exit status is 1 if anything does."""
    parser = ArgumentParser("spyre-validate", __doc__)
    parser.add_argument("folder", metavar="DIR", help="the folder of a bundle, or of a program of several")
    text = "part of LX that the backend keeps (default: DXP_LX_FRAC_AVAIL, or the device's)"
    parser.add_argument("--lx-backend-fraction", type=float, metavar="F", help=text)
    arguments = parser.parse_args(argv)
    folders = _bundles(Path(arguments.folder))
    fraction = lx_fraction(arguments.lx_backend_fraction)
    sound = [_validate(folder, fraction) for folder in folders]
    return 0 if all(sound) else 1


def _bundles(folder: Path) -> list[Path]:
    """The folder of a bundle itself, or those of the bundles of a program."""
    if not is_program(folder):
        return [folder]
    from spyre_mlir.program_folder import read_program

    built, _ = read_program(folder)
    return [folder / step.name for step in built.steps if (folder / step.name).is_dir()]


def _validate(folder: Path, lx_backend_fraction: float | None) -> bool:
    bundle = read_bundle(folder)
    findings = validate(bundle, lx_backend_fraction)
    for finding in findings:
        print(finding)
    if not findings:
        executes = sum(isinstance(each, Execute) for each in statements_in_order(bundle.statements))
        print(f"{folder}: valid ({len(bundle.designs)} designs, {executes} executes)")
    return not findings


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
