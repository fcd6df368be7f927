# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Records the contents of the padding of each tensor, and masks padding that would affect a result."""

from __future__ import annotations

from typing import ClassVar, Literal

from spyre_mlir.analysis.aliasing import COPIES, AliasAnalysis, all_ops, argument_attributes, functions
from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.structured import defining_op, structured
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.layout import padding
from spyre_mlir.layout.padding import UNDEFINED, Need, State, States, state_text, uniform
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class ResolvePadding(Pass):
    """Record the contents of the padding of each buffer, and a mask wherever an operation needs another number.

    ``host_padding`` is the padding of arguments and constants: ``zero`` if the host that runs the bundle
    fills it with zeros, as the manifest then states. The SuperDSC specification does not guarantee any contents: the
    loops of a transfer write only elements, and operations "are masked as needed" (RFC 0047), so the default is
    ``undefined``. Device operations leave padding undefined. In an argument with several stick dims, padding between
    elements is always zero, because a conversion moves whole pieces.

    Before: level *laid out*, without ``stick.padding`` and ``sdsc.masks``. After: ``verify-padding`` holds.

        %s = linalg.generic .. ins(%x : tensor<8x65xf16, #rows>) .. sdsc.op = #sdsc.op<"sum", {}>
    ->  %s = linalg.generic .. sdsc.op = #sdsc.op<"sum", {}>, sdsc.masks = {d1 = 0.0 : f64}
    """

    name: ClassVar[str] = "resolve-padding"
    host_padding: Literal["undefined", "zero"] = "undefined"

    def run(self, module: ir.Operation) -> None:
        host = UNDEFINED if self.host_padding == "undefined" else 0.0
        for func in functions(module):
            _Resolver(self, func, host).run()


class _Resolver:
    """Padding states of the buffers of one function, and the masks that the states require."""

    def __init__(self, owner: ResolvePadding, func: ir.Operation, host: State) -> None:
        self.owner, self.func, self.host = owner, func, host
        self.memory = AliasAnalysis(func)
        self.host_states: dict[ir.Value, States] = {}  # states of the padding that the host writes, by buffer
        self.undefined: dict[ir.Type, ir.DictAttr | None] = {}

    def run(self) -> None:
        arguments = list(self.func.regions[0].blocks[0].arguments)
        layouts = [self.memory.layout(value) for value in arguments]
        # The padding of an argument is 0 if copies cannot omit the padding.
        known = [uniform(layout, 0.0 if padding.is_scattered(layout) else self.host) for layout in layouts]
        if any(known):
            triples = zip(argument_attributes(self.func), arguments, known, strict=True)
            entries = [{**named, **self._claim(value, states)} for named, value, states in triples]
            self.func.attributes["arg_attrs"] = ir.ArrayAttr.get(
                [ir.DictAttr.get(named) for named in entries]
            )
        for op in all_ops(self.func):
            opcode = sdsc.opcode_of(op)
            if opcode is not None or op.name in COPIES:
                self._leave_undefined(op)
            elif op.name == "arith.constant" and isinstance(op.results[0].type, ir.RankedTensorType):
                states = uniform(self.memory.layout(op.results[0]), self.host)
                for name, attr in self._claim(op.results[0], states).items():
                    op.attributes[name] = attr
            elif op.name == "tensor.insert_slice":
                # Insertions do not write the padding of the buffer that they assemble.
                maker = defining_op(self.memory.place(op.operands[1]).buffer)
                if maker is not None and maker.name == "tensor.empty":
                    self._leave_undefined(maker)
            if opcode is not None and padding.reads_padding(opcode):
                self._mask(op)

    # -- states ---------------------------------------------------------------------------------------

    def _claim(self, value: ir.Value, states: States) -> dict[str, ir.Attribute]:
        """Record the states that the host writes, and return them as an attribute if there is padding."""
        self.host_states[value] = states
        return {stick.PADDING: stick.padding_attr(states)} if states else {}

    def _leave_undefined(self, op: ir.Operation) -> None:
        """Mark the padding of an op's result as undefined: no operation writes padding."""
        type_ = op.results[0].type
        if type_ not in self.undefined:
            states = uniform(self.memory.layout(op.results[0]), UNDEFINED)
            self.undefined[type_] = stick.padding_attr(states) if states else None
        attr = self.undefined[type_]
        if attr is not None:
            op.attributes[stick.PADDING] = attr

    # -- masks ----------------------------------------------------------------------------------------

    def _mask(self, op: ir.Operation) -> None:
        """Mask the dims whose padding is not neutral in all operands. A mask applies to all operands."""
        generic = structured(op)
        if generic is not None:
            # A fast test, which most operations pass: a reduced dim has no padding, even in sticks of one byte per
            # element, which a granule never exceeds.
            longest = target_of(op).stick_bytes
            if all(generic.extents[dim] % longest == 0 for dim in generic.reduced):
                return
        opcode, space, values = self.memory.space(op)
        unmet: dict[int, list[tuple[Need, State]]] = {}
        for need in padding.needs(opcode, space):
            buffer = self.memory.place(values[need.operand]).buffer
            states, view = self.host_states.get(buffer, {}), space.views[need.operand]
            state = padding.operand_padding(
                self.memory.layout(buffer), states, view, need.dim, need.positions
            )
            # An argument that the host fills with the neutral number needs no mask.
            if state != need.value:
                unmet.setdefault(need.dim, []).append((need, state))
        if not unmet:
            return
        op.attributes[sdsc.MASKS] = sdsc.masks_attr(
            {dim: unmet_needs[0][0].value for dim, unmet_needs in unmet.items()}
        )
        for dim, unmet_needs in unmet.items():
            need, _ = unmet_needs[0]
            first, last, shown = need.positions[0], need.positions[-1], []
            for other, state in unmet_needs:
                shown.append(f"padding of operand {other.operand + 1} is {state_text(state)}")
            text = f"mask d{dim} {first}..{last} with {state_text(need.value)}: {', '.join(shown)}"
            self.owner.remark(op, "mask", text)
