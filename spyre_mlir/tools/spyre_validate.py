# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""spyre-validate: check a SuperDSC bundle folder against the semantic rules of the format.

With --conformance, the designs are instead compared field by field with the output of torch-spyre: every difference is
printed with its file and field, its severity for the back end, and the source of the rule. A design that rests on an
assumption, because no public source decides a field of it, is printed with the id of the assumption.

With --races, only the order of accesses to memory is checked: every two accesses to the same bytes, at least one of
them a write, need an order (docs/concurrency.md). A race is printed with both operations, cores and source lines. With
this flag, DIR may also be a program in KTIR: a folder with program.mlir, or the text of any writer, a file .mlir.

A folder of another writer, without a manifest.json, may contain bundle.mlir and its designs, or only designs, which are
executed in order. For a valid folder, the output has the names, types and shapes of the arrays for spyre-run, and the
fields that are ignored because they have no effect.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from spyre_mlir.bundle import read_bundle
from spyre_mlir.bundle.assumptions import ASSUMPTIONS, assumptions_of_folder
from spyre_mlir.bundle.conformance import Weight, check_folder
from spyre_mlir.bundle.folder import HOW_TO_WRITE, is_foreign, is_program
from spyre_mlir.bundle.model import Bundle, executes_of
from spyre_mlir.bundle.validate import Finding, races, validate, validate_sequence
from spyre_mlir.driver.ktir_program import KTIR, is_ktir, read_ktir
from spyre_mlir.errors import CompileError, counted
from spyre_mlir.files import read_text
from spyre_mlir.tools._common import ArgumentParser, lx_fraction, tool

Check = Callable[[Bundle, "float | None"], "list[Finding]"]


@tool
def main(argv: Sequence[str] | None = None) -> int:
    """Print the findings of the validator; return 1 if there are any, else 0."""
    arguments = _parser().parse_args(argv)
    if arguments.conformance:
        folder = Path(arguments.folder)
        if not folder.is_dir():
            raise CompileError(f"There is no bundle folder with this name; {HOW_TO_WRITE}.", str(folder))
        count, findings = check_folder(folder)
        for finding in findings:
            print(finding)
        for filename, key in assumptions_of_folder(folder):
            print(
                f"{filename}: rests on assumption {key} ({ASSUMPTIONS[key].concerns}): {ASSUMPTIONS[key].sentence}"
            )
        weights = Counter(finding.weight for finding in findings)
        summary = ", ".join(f"{weights[weight]} {weight.value}" for weight in Weight)
        print(f"{folder}: {counted(count, 'design')}; differences: {summary}")
        return 1 if weights[Weight.REFUSED] + weights[Weight.MISREAD] else 0
    folder, fraction = Path(arguments.folder), lx_fraction(arguments.lx_backend_fraction)
    check = races if arguments.races else validate
    if arguments.races and (is_ktir(folder) or folder.suffix == ".mlir"):
        from spyre_mlir.ktir.races import ktir_races

        text, manifest = read_ktir(folder) if is_ktir(folder) else (read_text(str(folder)), None)
        findings = ktir_races(text, str(folder / KTIR if is_ktir(folder) else folder), manifest)
        for finding in findings:
            print(finding)
        if not findings:
            print(f"{folder}: no races")
        return 1 if findings else 0
    if is_program(folder):
        return 0 if _validate_program(folder, fraction, check) else 1
    ignored: list[str] = []
    bundle = read_bundle(folder, ignored)
    is_valid = _validate(folder, bundle, fraction, check)
    if ignored:
        print(f"ignored: {', '.join(ignored)}")
    if is_valid and is_foreign(folder):
        for argument in bundle.manifest.arguments:
            print(f"{argument.kind} {argument.name}: {argument.host_dtype} {list(argument.host_shape)}")
    return 0 if is_valid else 1


def _parser() -> ArgumentParser:
    parser = ArgumentParser("spyre-validate", __doc__)
    parser.add_argument(
        "folder", metavar="DIR", help="folder of a bundle, or of a program of several bundles"
    )
    text = (
        "fraction of LX, 0 to below 1, that the backend keeps (default: DXP_LX_FRAC_AVAIL, or the device's)"
    )
    parser.add_argument("--lx-backend-fraction", type=float, metavar="F", help=text)
    text = "compare the designs with the output of torch-spyre; exit status 1 if a difference may matter"
    parser.add_argument("--conformance", action="store_true", help=text)
    text = "check only that accesses to the same bytes have an order; exit status 1 if there is a race"
    parser.add_argument("--races", action="store_true", help=text)
    return parser


def _validate_program(folder: Path, lx_backend_fraction: float | None, check: Check) -> bool:
    """Validate each bundle of a program, and if all are valid, the LX content passed between them."""
    from spyre_mlir.driver.steps import sequences
    from spyre_mlir.driver.stored_program import read_program

    built, _ = read_program(folder)
    units = [unit for unit in sequences(built.steps) if isinstance(unit, list)]
    steps = [step for unit in units for step in unit]
    # A list, not a generator, so that the findings of all bundles are printed.
    if not all([_validate(folder / step.name, step.bundle, lx_backend_fraction, check) for step in steps]):
        return False
    if check is races:
        # Bundles run one after the other, so only accesses of one bundle can overlap.
        return True
    findings = []
    for unit in units:
        names, bundles = [step.name for step in unit], [step.bundle for step in unit]
        findings += validate_sequence(names, bundles, lx_backend_fraction)
    for finding in findings:
        print(finding)
    return not findings


def _validate(folder: Path, bundle: Bundle, lx_backend_fraction: float | None, check: Check) -> bool:
    findings = check(bundle, lx_backend_fraction)
    for finding in findings:
        print(finding)
    if not findings:
        executes = counted(len(executes_of(bundle.statements)), "execute")
        verdict = "no races" if check is races else "valid"
        print(f"{folder}: {verdict} ({counted(len(bundle.designs), 'design')}, {executes})")
    return not findings


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
