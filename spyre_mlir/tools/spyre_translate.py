# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""spyre-translate: from MLIR to SuperDSC bundles and to KTIR, and back from KTIR.

    spyre-opt --spyre-pipeline softmax.mlir | spyre-translate - --to-bundle softmax.bundle
    spyre-opt --spyre-pipeline=target=ktir softmax.mlir | spyre-translate - --to-ktir softmax.ktir.mlir
    spyre-translate softmax.ktir.mlir --from-ktir

A bundle is a folder, written atomically; an existing bundle is replaced. The values of parameters are not part of MLIR:
``spyre-run`` takes them as inputs. --ktir-form chooses the version of KTIR. --from-ktir checks a KTIR program of any
writer, and prints it with the operations of the dialect ktdp in generic form.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from spyre_mlir import files
from spyre_mlir.ktir.grammar import NEWEST, WRITTEN
from spyre_mlir.tools import _common


@_common.tool
def main(argv: Sequence[str] | None = None) -> int:
    """Run spyre-translate; return 0 on success, 1 after a diagnostic on stderr."""
    options = _parser().parse_args(argv)

    from spyre_mlir import dialects

    if options.from_ktir:
        from spyre_mlir.ktir.ktir_text import parse_ktir

        print(parse_ktir(files.read_text(options.input), dialects.context(), options.input))
        return 0
    module = _common.parse_module(options.input, dialects.context())
    if options.to_ktir:
        from spyre_mlir.ktir.ktir_text import to_text

        files.write_text(options.to_ktir, to_text(module, options.ktir_form))
        return 0

    from spyre_mlir.bundle import write_bundle
    from spyre_mlir.errors import CompileError
    from spyre_mlir.lowering.export import cuts_of, export
    from spyre_mlir.mlir import location_of

    if cuts_of(module):
        text = "this module is a sequence of bundles, which spyre-compile writes as a program"
        raise CompileError(text, location_of(module.operation.location))
    bundle, arrays = export(module)
    write_bundle(bundle, options.to_bundle, arrays)
    return 0


def _parser() -> _common.ArgumentParser:
    parser = _common.ArgumentParser("spyre-translate", __doc__)
    parser.add_argument("input", nargs="?", default="-", help="MLIR file, - for stdin (the default)")
    forms = parser.add_mutually_exclusive_group(required=True)
    forms.add_argument("--to-bundle", type=_common.require_folder, metavar="DIR",
                       help="write the module as a bundle in this folder")  # fmt: skip
    _common.add_output(forms, "--to-ktir", "FILE", "write the module as KTIR to this file (default: stdout)",
                       nargs="?", const="-")  # fmt: skip
    forms.add_argument("--from-ktir", action="store_true", help="check a KTIR program, and print it as MLIR")
    parser.add_argument("--ktir-form", choices=WRITTEN, default=NEWEST,
                        help="the version of KTIR that --to-ktir writes: a commit of its repository")  # fmt: skip
    return parser


if __name__ == "__main__":
    sys.exit(main())
