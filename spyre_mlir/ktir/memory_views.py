# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Views of device memory and of scratchpads, and transfers between their tiles and tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from spyre_mlir.dialects import ktdp
from spyre_mlir.ktir.tensor_builder import TensorBuilder
from spyre_mlir.mlir import ir

#: Element index at which the scratchpad of each element type begins. ktir-cpu keeps copies of loaded data from index 0
#: on, and fixes the element type of memory at its first store, so the addresses of a plan begin after the copies.
SCRATCHPADS = {"f16": 1 << 29, "f32": 1 << 29, "i32": (1 << 29) + (1 << 20)}
#: Number of elements from a scratchpad of a plan to its staging area, where relayouts put data for other cores.
STAGING = 1 << 21
#: The largest LX whose addresses do not reach the next area: the numbers of i32, or the staging area of f16.
LARGEST_LX_BYTES = min(4 * (SCRATCHPADS["i32"] - SCRATCHPADS["f32"]), 2 * STAGING)


class MemoryViews:
    """Builder of views; ``known`` has the values that are already built and visible at the insertion point."""

    def __init__(self, build: TensorBuilder) -> None:
        self.build = build
        self.known: dict[tuple, ir.Value] = {}
        self._boxes: dict[tuple, ir.Attribute] = {}
        self._tiles: dict[tuple[int, ...], tuple[ir.Type, ir.Attribute]] = {}

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Forget the values that are built in a body after the body, where they are not visible."""
        known, self.known = self.known, dict(self.known)
        yield
        self.known = known

    def plus(self, value: ir.Value, number: int) -> ir.Value:
        """Build the sum of an index and a constant."""
        return self.build.add(value, self.build.number(number))

    def once(self, what: str, key: tuple, make: Callable[[tuple], ir.Value]) -> ir.Value:
        """Return a value, built at its first use; ``known`` forgets the values of a body after the body."""
        if (what, *key) not in self.known:
            self.known[what, *key] = make(key)
        return self.known[what, *key]

    def view(
        self,
        base: ir.Value,
        sizes: Sequence[int],
        strides: Sequence[int],
        element: str,
        space: str = ktdp.GLOBAL,
    ) -> ir.Value:
        """Build a view of memory from an element index on."""
        return self.once(
            "view",
            (base, tuple(sizes), tuple(strides), element, space),
            lambda _: self.new_view(base, sizes, strides, element, space),
        )

    def local_view(
        self, base: ir.Value, sizes: Sequence[int], strides: Sequence[int], element: str
    ) -> ir.Value:
        """Build a view of the scratchpad of this core."""
        return self.view(base, sizes, strides, element, ktdp.LOCAL)

    def new_view(
        self,
        base: ir.Value,
        sizes: Sequence[int],
        strides: Sequence[int],
        element: str,
        space: str,
        core: int | None = None,
        coordinates: ir.Attribute | None = None,
    ) -> ir.Value:
        """Build a view; ``core`` owns the scratchpad, ``coordinates`` is the part of the view in a distributed view."""
        attributes: dict[str, ir.Attribute] = {
            "sizes": ir.DenseI64ArrayAttr.get(list(sizes)),
            "strides": ir.DenseI64ArrayAttr.get(list(strides)),
            "coordinate_set": coordinates or self.box(sizes),
            "memory_space": ir.StringAttr.get(space),
        }
        if core is not None:
            attributes["ct_id"] = ir.IntegerAttr.get(self.build.i64, core)
        type_ = ir.MemRefType.get(list(sizes), ir.Type.parse(element))
        return self.build.op("ktdp.construct_memory_view", type_, base, **attributes)

    # -- moves --------------------------------------------------------------------------------------------------

    def load_from(
        self, view: ir.Value, subscripts: Sequence[ir.Value], shape: Sequence[int], element: str
    ) -> ir.Value:
        """Build a load of a tile of a view."""
        return self.build.op(
            "ktdp.load", self.build.type(shape, element), self.access_tile(view, subscripts, shape)
        )

    def store_to(self, view: ir.Value, subscripts: Sequence[ir.Value], value: ir.Value) -> None:
        """Build a store of a tensor to a tile of a view."""
        shape = list(ir.RankedTensorType(value.type).shape)
        self.build.op("ktdp.store", None, value, self.access_tile(view, subscripts, shape))

    def access_tile(self, view: ir.Value, subscripts: Sequence[ir.Value], shape: Sequence[int]) -> ir.Value:
        """Build the access tile of a view from its subscripts on."""
        key = tuple(shape)
        if key not in self._tiles:
            order = ir.AffineMapAttr.get(ir.AffineMap.get_identity(len(shape)))
            self._tiles[key] = ktdp.tile_type(shape), order
        type_, order = self._tiles[key]
        return self.build.op(
            "ktdp.construct_access_tile",
            type_,
            view,
            *subscripts,
            access_tile_set=self.box(shape),
            access_tile_order=order,
        )

    def box(self, sizes: Sequence[int], firsts: Sequence[int] | None = None) -> ir.Attribute:
        """Return the set of the coordinates of a box."""
        key = tuple(sizes), tuple(firsts or ())
        if key not in self._boxes:
            self._boxes[key] = _box_set(sizes, firsts)
        return self._boxes[key]


def _box_set(sizes: Sequence[int], firsts: Sequence[int] | None = None) -> ir.Attribute:
    dims = ", ".join(f"d{dim}" for dim in range(len(sizes)))
    begins = firsts or [0] * len(sizes)
    bounds = ", ".join(
        f"d{dim} - {begin} >= 0, -d{dim} + {begin + size - 1} >= 0"
        for dim, (begin, size) in enumerate(zip(begins, sizes, strict=True))
    )
    return ir.Attribute.parse(f"affine_set<({dims}) : ({bounds})>")
