"""From which operation to which a buffer is needed, by the scopes of its values: what checks go by, not plans."""

from __future__ import annotations

from dataclasses import dataclass, field

from spyre_mlir.analysis.aliasing import Memory, is_compute
from spyre_mlir.analysis.loops import LOOP, block_of, body_block
from spyre_mlir.mlir import ir


@dataclass
class Lived:
    """A buffer in one execution of the block that makes it: the first and last position at which it is touched."""

    root: ir.Value
    first: int
    last: int


@dataclass
class Lives:
    """``order`` are the operations as they run, each loop twice; the lives of buffers are positions in it.

    A buffer that is made in a loop is another one in each iteration, for values do not outlive their block; what
    a loop carries is made before it.
    """

    memory: Memory
    order: list[ir.Operation] = field(default_factory=list)
    all: list[Lived] = field(default_factory=list)
    of_root: dict[ir.Value, list[Lived]] = field(default_factory=dict)

    @classmethod
    def of(cls, memory: Memory) -> Lives:
        """Those of a function."""
        lives = cls(memory)
        lives._run(memory.block, {})
        return lives

    def _run(self, block: ir.Block, alive: dict[ir.Block, dict[ir.Value, Lived]]) -> None:
        alive = {**alive, block: {}}
        for op in (each.operation for each in block.operations):
            if op.name == LOOP:
                for _ in range(2):
                    self._run(body_block(op), alive)
            elif is_compute(op):
                for value in self.memory.operands(op):
                    self._touch(self.memory.place(value).buffer, alive)
                self.order.append(op)

    def _touch(self, root: ir.Value, alive: dict[ir.Block, dict[ir.Value, Lived]]) -> None:
        known = alive[block_of(root)]
        if root not in known:
            known[root] = Lived(root, len(self.order), len(self.order))
            self.all.append(known[root])
            self.of_root.setdefault(root, []).append(known[root])
        known[root].last = len(self.order)
