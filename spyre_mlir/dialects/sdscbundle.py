# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ``sdscbundle`` dialect: the output form, a SuperDSC bundle.

At this level a module has one ``func.func @sdsc_bundle`` without results, made of the ops below,
``scf.for`` with constant bounds and without iter_args, ``arith.constant``, ``arith.addi`` and
``affine.apply`` on ``index``. The bindings print Python-defined ops in generic form; the writer of the
bundle folder prints the custom syntax of the SuperDSC specification.

* ``sdscbundle.sdsc_execute`` runs the design ``sdsc_filename``; its operands bind ``symbol_ids``.
* ``sdscbundle.device_mem_allocate`` reserves device memory for the whole kernel.
* ``sdscbundle.input_arg_extract`` reads a run-time parameter: an address, or an index if it has a largest value.

The designs and the data for the host are attributes of the module: ``sdscbundle.designs``
(one dictionary per file), ``sdscbundle.manifest`` and ``sdscbundle.constants``. If the program is a sequence of
bundles, ``sdscbundle.cuts`` has the indices of the executes that begin another bundle.
"""

# Annotations must not be postponed: the bindings read the fields of ops and attributes from them.
# pyright: reportInvalidTypeForm=false

from collections.abc import Sequence

from spyre_mlir.dialects.attributes import attribute_of, i64_attr, required
from spyre_mlir.mlir import ext, ir

DESIGNS, MANIFEST, CONSTANTS = "sdscbundle.designs", "sdscbundle.manifest", "sdscbundle.constants"
CUTS = "sdscbundle.cuts"
ENTRY = "sdsc_bundle"


class SdscBundle(ext.Dialect, name="sdscbundle"):
    """The ops of a bundle."""


class InputArgType(SdscBundle.Type, name="input_arg"):
    """``!sdscbundle.input_arg<index, granularity, max_value>``: a run-time parameter.

    Attributes:
        value: The type of the parameter's value.
        granularity: A number that divides the value; 0 if it is unset.
        max_value: The largest value; 0 if it is unset.
    """

    value: ir.TypeAttr
    granularity: ir.IntegerAttr
    max_value: ir.IntegerAttr


class SdscExecuteOp(SdscBundle.Operation, name="sdsc_execute"):
    """Run one design on its cores; operand ``k`` is the value of symbol ``symbol_ids[k]``.

    Attributes:
        arguments: The values of the symbols.
        sdsc_filename: The file of the design.
        symbol_ids: Negative numbers, one for each operand.
    """

    arguments: Sequence[ext.Operand[ir.IndexType]]
    sdsc_filename: ir.StringAttr
    symbol_ids: ir.ArrayAttr

    def verify_invariants(self) -> bool:
        """Require a file name, and distinct negative symbol ids, one per operand."""
        filename, symbols = (attribute_of(self.operation, name) for name in ("sdsc_filename", "symbol_ids"))
        is_list = isinstance(symbols, ir.ArrayAttr) and all(
            isinstance(id_, ir.IntegerAttr) for id_ in symbols
        )
        ids = [symbol.value for symbol in symbols] if is_list else []
        operands = len(self.operation.operands)
        return (
            required(
                self,
                isinstance(filename, ir.StringAttr) and is_list,
                "sdsc_execute names its design in sdsc_filename and its symbol_ids",
            )
            and required(
                self, len(ids) == operands, f"sdsc_execute has {operands} operands but {len(ids)} symbol ids"
            )
            and required(
                self,
                len(set(ids)) == len(ids) and all(symbol < 0 for symbol in ids),
                "symbol ids of sdsc_execute are negative and each is bound once",
            )
        )


class DeviceMemAllocateOp(SdscBundle.Operation, name="device_mem_allocate"):
    """Reserve ``bytes`` of device memory; the result is its ``address``."""

    address: ext.Result[ir.IndexType]
    bytes: ir.IntegerAttr

    def verify_invariants(self) -> bool:
        """Require a positive size."""
        size = attribute_of(self.operation, "bytes")
        is_positive = isinstance(size, ir.IntegerAttr) and size.value > 0
        return required(self, is_positive, "device_mem_allocate reserves a positive number of bytes")


class InputArgExtractOp(SdscBundle.Operation, name="input_arg_extract"):
    """Read ``what`` ("value", "granularity" or "max_value") of a run-time parameter, ``argument``, as ``value``."""

    value: ext.Result[ir.IndexType]
    argument: ext.Operand[InputArgType]
    what: ir.StringAttr

    def verify_invariants(self) -> bool:
        """Require one of the three fields of a parameter."""
        field = attribute_of(self.operation, "what")
        is_field = isinstance(field, ir.StringAttr) and field.value in ("value", "granularity", "max_value")
        return required(self, is_field, "input_arg_extract reads 'value', 'granularity' or 'max_value'")


def input_arg_type(granularity: int | None = None, max_value: int | None = None) -> InputArgType:
    """Build the type of a run-time parameter; None is written as 0."""
    return InputArgType.get(
        ir.TypeAttr.get(ir.IndexType.get()), i64_attr(granularity or 0), i64_attr(max_value or 0)
    )


def bounds_of(type_: InputArgType) -> tuple[int | None, int | None]:
    """Return granularity and largest value of a run-time parameter, None for unset ones."""
    granularity, max_value = (ir.IntegerAttr(attr).value for attr in (type_.granularity, type_.max_value))
    # An index into a dim of size 1 has the largest value 0, whereas an address does not have a granularity.
    return granularity or None, max_value if granularity else max_value or None


def sdsc_execute(
    filename: str, operands: Sequence[ir.Value], symbol_ids: Sequence[int], location: ir.Location
) -> None:
    """Build an execute at the current insertion point."""
    attributes = {
        "sdsc_filename": ir.StringAttr.get(filename),
        "symbol_ids": ir.ArrayAttr.get([i64_attr(symbol) for symbol in symbol_ids]),
    }
    ir.Operation.create(
        "sdscbundle.sdsc_execute", operands=list(operands), attributes=attributes, loc=location
    )


def device_mem_allocate(size_bytes: int) -> ir.Value:
    """Build an allocation at the current insertion point."""
    return ir.Operation.create(
        "sdscbundle.device_mem_allocate",
        results=[ir.IndexType.get()],
        attributes={"bytes": i64_attr(size_bytes)},
    ).result


def input_arg_extract(argument: ir.Value, what: str = "value") -> ir.Value:
    """Build a read of a run-time parameter at the current insertion point."""
    return ir.Operation.create(
        "sdscbundle.input_arg_extract",
        results=[ir.IndexType.get()],
        operands=[argument],
        attributes={"what": ir.StringAttr.get(what)},
    ).result
