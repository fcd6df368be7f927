"""spyre-translate: from MLIR at the bundle level to the folder of a SuperDSC bundle.

    spyre-opt --spyre-pipeline softmax.mlir | spyre-translate - --to-bundle softmax.bundle

The folder is written whole or not at all, in place of a bundle that is there already. Values of parameters
are not in MLIR: ``spyre-run`` takes them as inputs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from spyre_mlir.tools import _common


@_common.tool
def main(argv: Sequence[str] | None = None) -> int:
    """Run spyre-translate; 0 on success, 1 after a diagnostic on stderr."""
    options = _parser().parse_args(argv)

    from spyre_mlir import dialects
    from spyre_mlir.bundle import write_bundle
    from spyre_mlir.errors import CompileError
    from spyre_mlir.lowering.export import cuts_of, export
    from spyre_mlir.mlir import location_of

    module = _common.parse_module(options.input, dialects.context())
    if cuts_of(module):
        text = "this module is a sequence of bundles, which spyre-compile writes as a program"
        raise CompileError(text, location_of(module.operation.location))
    bundle, arrays = export(module)
    write_bundle(bundle, options.to_bundle, arrays)
    return 0


def _parser() -> _common.ArgumentParser:
    parser = _common.ArgumentParser("spyre-translate", __doc__)
    parser.add_argument("input", nargs="?", default="-", help="MLIR file, - for stdin (the default)")
    parser.add_argument("--to-bundle", metavar="DIR", required=True, help="the folder to write")
    return parser


if __name__ == "__main__":
    sys.exit(main())
