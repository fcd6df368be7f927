# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The forms of KTIR's text, with the versions of the public repositories that write them.

The text of KTIR changes with ktir-mlir-frontend, and ktir-cpu and dataflow-scheduler have files of several versions.
``spyre_mlir/ktir/ktir_text.py`` reads every form of this table with ``is_read``, and refuses the others by name.
"""

from __future__ import annotations

from spyre_mlir.records import dataclass

#: The form that the printer writes by default, and the form of types and roles before.
NEWEST, SINGLE_ROLE = "5f52936", "9e03d63"
#: The versions that the printer can write.
WRITTEN = (NEWEST, SINGLE_ROLE)


@dataclass(frozen=True)
class GrammarForm:
    """One form of the text: an example, its version, and the version whose text the printer writes with it.

    ``version`` is the commit that has the form: of ktir-mlir-frontend, or of ktir-cpu for 9e03d63 and of
    dataflow-scheduler for 69736b4. ``reason`` states why a form is not read.
    """

    example: str
    version: str
    written: tuple[str, ...] = ()
    reason: str = ""

    @property
    def is_read(self) -> bool:
        return not self.reason


#: The forms by name.
FORMS: dict[str, GrammarForm] = {
    "production": GrammarForm(
        "ktdp.inter_tile_produce producer_tiles_per_group = S -> F {..}", NEWEST, (NEWEST,)
    ),
    "production with types": GrammarForm(
        "ktdp.inter_tile_produce producer_tiles_per_group = S : T -> F {..}", SINGLE_ROLE, (SINGLE_ROLE,)
    ),
    "future of roles": GrammarForm("!ktdp.tile_future<(T, U), groups = S>", NEWEST, (NEWEST,)),
    "future of one role": GrammarForm("!ktdp.tile_future<T, groups = S>", SINGLE_ROLE, (SINGLE_ROLE,)),
    "future with a positional set": GrammarForm("!ktdp.tile_future<T, S>", "4633be7"),
    "types without prefix": GrammarForm("ktdp.load %t : <4x64xindex> -> tensor<4x64xf16>", NEWEST),
    "several roles": GrammarForm("%a, %b = ktdp.inter_tile_consume(%f) .. -> T, U", NEWEST),
    "consume": GrammarForm("ktdp.inter_tile_consume(%f) consumer_tiles_per_group = S : F -> T", NEWEST),
    "reduce": GrammarForm(
        "ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = S, identity(%i : T) : F -> T {..}",
        SINGLE_ROLE,
        WRITTEN,
    ),
    "gather": GrammarForm("ktdp.inter_tile_gather(%f) .., gather_dimensions = [0, 1] : F -> T", "4633be7"),
    "scatter": GrammarForm("ktdp.inter_tile_scatter(%f) .., scatter_dimensions = [0] : F -> T", "4633be7"),
    "all-to-all": GrammarForm(
        "ktdp.inter_tile_all_to_all(%f) .., split_dimensions = [1], concat_dimensions = [0] : F -> T",
        "4633be7",
    ),
    "reduce-scatter": GrammarForm(
        "ktdp.inter_tile_reduce_scatter(%f) .., scatter_dimensions = [0], identity(%i : T) : F -> T {..}",
        "4633be7",
    ),
    "dependency": GrammarForm(".., producer_dependency_per_consumer = affine_set<(p)[c, g] : (..)>", NEWEST),
    "enumerated tiles": GrammarForm(
        "producer_tiles_per_group = [[0, 1], [2, 3]]", "4633be7", reason="the document gives no syntax for it"
    ),
    "memory space": GrammarForm("#ktdp.memory_space<ct_local, ct_id = 1>", SINGLE_ROLE, WRITTEN),
    "memory space of Spyre": GrammarForm("#ktdp.spyre_memory_space<LX, core = 1>", "f921b1f"),
    "memory space as text": GrammarForm('memory_space = "DDR"', "69736b4"),
    "sizes of values": GrammarForm(
        "ktdp.construct_memory_view %a, sizes: [%n, 64], strides: [64, 1]", "f921b1f"
    ),
    "symbols of a tile": GrammarForm("ktdp.construct_access_tile %v[%i, %j] symbols(%n) {..}", "f921b1f"),
    "subscripts of sums": GrammarForm("ktdp.construct_access_tile %v[%i * 2, %j + 4] {..}", "f921b1f"),
    "views of several shapes": GrammarForm(
        "ktdp.construct_distributed_memory_view(%a, %b : memref<96x64xf16>, memref<32x64xf16>)", SINGLE_ROLE
    ),
    "run-time argument": GrammarForm("!ktdp.runtime_arg<index, granularity=3, upperbound=300>", "f921b1f"),
    "value of a run-time argument": GrammarForm(
        "ktdp.runtime_arg_extract value from %a : <index> -> index", "f921b1f"
    ),
    "SpyreOp": GrammarForm("spyreop.exp %x : f16", "029662e"),
    "SpyreOp with attributes": GrammarForm(
        "spyreop.slice_reduction %x {reduction_kind = #spyreop.reduction_kind<add>} : T -> T", "c895735"
    ),
    "SpyreOp without types": GrammarForm("spyreop.addi32toi32 %x, %y", "029662e"),
    "SpyreOp with keywords": GrammarForm("spyreop.softplus %x beta 0.2 threshold 0.1 : f16", "029662e"),
}
