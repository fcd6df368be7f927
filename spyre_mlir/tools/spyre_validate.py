"""spyre-validate: check a SuperDSC bundle folder against the semantic rules of the format."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from spyre_mlir.bundle import read_bundle
from spyre_mlir.bundle.context import statements_in_order
from spyre_mlir.bundle.model import Execute
from spyre_mlir.bundle.validate import validate
from spyre_mlir.tools._common import ArgumentParser, tool


@tool
def main(argv: Sequence[str] | None = None) -> int:
    """Print what breaks a rule; the exit status is 1 if anything does."""
    parser = ArgumentParser("spyre-validate", __doc__)
    parser.add_argument("folder", metavar="DIR", help="the bundle folder")
    fraction = "part of LX that the backend keeps (default: the device's)"
    parser.add_argument("--lx-backend-fraction", type=float, metavar="F", help=fraction)
    arguments = parser.parse_args(argv)
    bundle = read_bundle(arguments.folder)
    findings = validate(bundle, arguments.lx_backend_fraction)
    for finding in findings:
        print(finding)
    if findings:
        return 1
    executes = sum(isinstance(each, Execute) for each in statements_in_order(bundle.statements))
    print(f"{arguments.folder}: valid ({len(bundle.designs)} designs, {executes} executes)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
