# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small good bundles for tests: an add on two cores, a reduction over the stick in LX, loops of tiles, a lookup."""

from __future__ import annotations

from dataclasses import replace

from spyre_mlir.bundle.model import (
    INPUT,
    KERNEL,
    KERNEL_IDX,
    OUTPUT,
    Add,
    Allocate,
    Apply,
    Buffer,
    Bundle,
    Constant,
    DebugHandle,
    Design,
    Execute,
    Extract,
    HeldSlices,
    IndexConstant,
    KernelArgument,
    Loop,
    Manifest,
    Operand,
    Parameter,
    Statement,
    Transfer,
)

FP16, INT32 = "SEN169_FP16", "IEEE_INT32"
STICK_BYTES, LANES, INT32_LANES = 128, 64, 32


def operand(role: str, dims: str, start: tuple[int, ...], **changes) -> Operand:
    """An fp16 operand with the dims (innermost first, the stick dim being ``out``) of normal scale."""
    order = tuple(dims.split())
    fields = {
        "role": role,
        "data_format": FP16,
        "memory": "hbm" if start[0] < 0 else "lx",
        "dim_order": order,
        "stick_dim": "out",
        "stick_elements": LANES,
        "scale": dict.fromkeys(order, 1),
        "start": start,
    }
    return Operand(**{**fields, **changes})


def two_core_design(index: int, opcode: str, operands: tuple[Operand, ...], **changes) -> Design:
    """A design over (mb, out) = (128, 256) whose rows are divided over two cores."""
    fields = {
        "index": index,
        "opcode": opcode,
        "unit": "sfp",
        "data_format": FP16,
        "sizes": {"mb": 128, "out": 256},
        "slices": {"mb": 2, "out": 1},
        "shares": {"mb": 64, "out": 256},
        "core_slices": ({"mb": 0, "out": 0}, {"mb": 1, "out": 0}),
        "operands": operands,
    }
    return Design(**{**fields, **changes})


def in_file(design: Design) -> Design:
    """Return the design without the padding of its dims, which is in the manifest."""
    return replace(design, padding={})


def say_padding(value: dict, padding: dict[str, int]) -> None:
    """Write the padding of dims into the JSON of a design, as it was before the manifest had it."""
    (body,) = value.values()
    (dsc,) = body["dscs_"][0].values()
    sizes = {dim: {"padBack_": pad, "totalSize_": dsc["N_"][f"{dim}_"]} for dim, pad in padding.items()}
    dsc["N_"].update({"paddingSizes_": sizes} if sizes else {})


def argument(name: str, kind: str, parameter: str, rows: int, columns: int) -> KernelArgument:
    """A (rows, columns) fp16 argument of the device size (columns / 64, rows, 64)."""
    sticks = -(-columns // LANES)
    return KernelArgument(
        name=name,
        kind=kind,
        parameter=parameter,
        host_dtype="float16",
        host_shape=(rows, columns),
        data_format=FP16,
        device_size=(sticks, rows, LANES),
        bytes=sticks * rows * STICK_BYTES,
        transfer=Transfer((sticks, rows, LANES), (LANES, columns, 1), (rows * LANES, LANES, 1)),
    )


def sparse_argument(name: str, kind: str, parameter: str, rows: int) -> KernelArgument:
    """A (rows,) fp16 argument with one element per stick: device size (rows, 64)."""
    return KernelArgument(
        name=name,
        kind=kind,
        parameter=parameter,
        host_dtype="float16",
        host_shape=(rows,),
        data_format=FP16,
        device_size=(rows, LANES),
        bytes=rows * STICK_BYTES,
        transfer=Transfer((rows,), (1,), (LANES,)),
    )


def per_core_addresses(name: str, parameter: str, core_bytes: int) -> list[Statement]:
    """The base of a parameter as %<name>_0 and the address of the second core as %<name>_1."""
    return [
        Extract(f"{name}_0", parameter),
        IndexConstant(f"{name}_offset", core_bytes),
        Add(f"{name}_1", f"{name}_0", f"{name}_offset"),
    ]


def _names(*tensors: str) -> tuple[str, ...]:
    return tuple(f"{tensor}_{core}" for tensor in tensors for core in range(2))


def _bundle(
    parameters: str, statements: list[Statement], designs: list[Design], manifest: Manifest
) -> Bundle:
    return Bundle(
        parameters=tuple(Parameter(name) for name in parameters.split()),
        statements=tuple(statements),
        designs={design.filename: design for design in designs},
        manifest=manifest,
    )


def add_bundle() -> Bundle:
    """z = x + y for (128, 256) fp16 on two cores, all in HBM."""
    design = two_core_design(
        0,
        "add",
        tuple(
            operand(role, "mb out", start)
            for role, start in ((INPUT, (-1, -2)), (INPUT, (-3, -4)), (OUTPUT, (-5, -6)))
        ),
        debug=DebugHandle(
            "0", "model.py", 12, 5, "aten.add.Tensor", ("linalg.add",), (("rewrite", "match", "one op"),)
        ),
    )
    core_bytes = 64 * STICK_BYTES
    statements = [
        statement
        for name, parameter in (("x", "arg0"), ("y", "arg1"), ("z", "arg2"))
        for statement in per_core_addresses(name, parameter, core_bytes)
    ]
    statements.append(Execute("sdsc_0.json", _names("x", "y", "z"), (-1, -2, -3, -4, -5, -6)))
    arguments = tuple(
        argument(name, kind, parameter, 128, 256)
        for name, kind, parameter in (("x", "input", "arg0"), ("y", "input", "arg1"), ("z", "result", "arg2"))
    )
    buffers = tuple(Buffer(each.name, each.parameter, 0, each.bytes) for each in arguments)
    return _bundle("arg0 arg1 arg2", statements, [design], Manifest(arguments, buffers, (("x", "y", "z"),)))


def window_bundle() -> Bundle:
    """z = x[32:160] + y for (256, 256) fp16 x: the address of the operand is the address of a row of x."""
    bundle = add_bundle()
    design = bundle.designs["sdsc_0.json"]
    x, y, z = design.operands
    roles = (replace(x, role=KERNEL, gap={"mb": 128}), y, z)
    x_argument = argument("x", "input", "arg0", 256, 256)
    statements = [
        Extract("x", "arg0"),
        IndexConstant("first", 32 * STICK_BYTES),
        Add("x_0", "x", "first"),
        *bundle.statements[1:],
    ]
    manifest = replace(
        bundle.manifest,
        arguments=(x_argument, *bundle.manifest.arguments[1:]),
        buffers=(Buffer("x", "arg0", 0, x_argument.bytes), *bundle.manifest.buffers[1:]),
    )
    designs = {design.filename: replace(design, operands=roles)}
    return replace(bundle, statements=tuple(statements), designs=designs, manifest=manifest)


def reduction_bundle() -> Bundle:
    """s = sum(exp(x), dim=1) for (128, 200) fp16 on two cores, exp(x) in LX; lanes 200 to 255 are padding."""
    padding = {"padding": {"out": 56}}
    exp = two_core_design(
        0, "exp", (operand(INPUT, "mb out", (-1, -2)), operand(OUTPUT, "mb out", (0, 0))), **padding
    )
    sparse = operand(OUTPUT, "mb out", (-3, -4), scale={"mb": 1, "out": -2})
    total = two_core_design(
        1,
        "sum",
        (operand(INPUT, "mb out", (0, 0)), sparse),
        masks={"out": (200, 56)},
        mask_constant=0,
        constants=(Constant("samv-maskvalue", FP16, 0),),
        **padding,
    )
    statements = [
        *per_core_addresses("x", "arg0", 64 * STICK_BYTES),
        *per_core_addresses("s", "arg1", 64 * STICK_BYTES),
        Execute("sdsc_0.json", _names("x"), (-1, -2)),
        Execute("sdsc_1.json", _names("s"), (-3, -4)),
    ]
    x = argument("x", "input", "arg0", 128, 200)
    # The last stick of a row holds 8 elements; positions beyond the 200 columns are padding.
    bounded = Transfer(
        x.transfer.ranges, x.transfer.host_strides, x.transfer.device_strides, (((0, 2), (64, 1), 200),)
    )
    x = KernelArgument(**{**vars(x), "transfer": bounded})
    s = sparse_argument("s", "result", "arg1", 128)
    buffers = (
        Buffer("x", "arg0", 0, x.bytes),
        Buffer("e", "lx", 0, 64 * 4 * STICK_BYTES),
        Buffer("s", "arg1", 0, s.bytes),
    )
    return _bundle("arg0 arg1", statements, [exp, total], Manifest((x, s), buffers, (("x", "e"), ("e", "s"))))


def loop_bundle(tiles: int = 8) -> Bundle:
    """z = abs(x) + x for (tiles * 128, 256) fp16 in tiles of 128 rows; abs(x) of a tile is in the pool."""
    rows = tiles * 128
    gap = {"mb": rows - 128}
    absolute = two_core_design(
        0,
        "abs",
        (operand(INPUT, "mb out", (-1, -2), gap=gap), operand(OUTPUT, "mb out", (-3, -4))),
    )
    total = two_core_design(
        1,
        "add",
        (
            operand(INPUT, "mb out", (-3, -4)),
            operand(KERNEL, "mb out", (-1, -2), gap=gap),
            operand(OUTPUT, "mb out", (-5, -6), gap=gap),
        ),
    )
    tile_bytes, core_bytes = 128 * STICK_BYTES, 64 * STICK_BYTES
    advance = [
        Apply(f"{name}_tile_{core}", ("i",), (f"{name}_{core}",), (tile_bytes, 1))
        for name in ("x", "z")
        for core in range(2)
    ]
    body = (
        *advance,
        Execute("sdsc_0.json", _names("x_tile", "a"), (-1, -2, -3, -4)),
        Execute("sdsc_1.json", _names("a", "x_tile", "z_tile"), (-3, -4, -1, -2, -5, -6)),
    )
    statements = [
        Allocate("pool", 65536),
        IndexConstant("a_offset", core_bytes),
        IndexConstant("zero", 0),
        Add("a_0", "pool", "zero"),
        Add("a_1", "a_0", "a_offset"),
        *per_core_addresses("x", "arg0", core_bytes),
        *per_core_addresses("z", "arg1", core_bytes),
        IndexConstant("one", 1),
        IndexConstant("tiles", tiles),
        Loop("i", "zero", "tiles", "one", body),
    ]
    x, z = argument("x", "input", "arg0", rows, 256), argument("z", "result", "arg1", rows, 256)
    buffers = (
        Buffer("x", "arg0", 0, x.bytes),
        Buffer("a", "pool", 0, 4 * tile_bytes),
        Buffer("z", "arg1", 0, z.bytes),
    )
    return _bundle(
        "arg0 arg1", statements, [absolute, total], Manifest((x, z), buffers, (("x", "a"), ("a", "x", "z")))
    )


def accumulating_bundle(tiles: int = 8) -> Bundle:
    """z = the sum over tiles of abs(x), x being (tiles * 128, 256) fp16: abs(x) of a tile and the sum so far lie in LX.

    The first tile begins the sum, before the loop over the others.
    """
    rows = tiles * 128
    tile_bytes, core_bytes = 128 * STICK_BYTES, 64 * 4 * STICK_BYTES
    x_first, x_tile = (
        operand(INPUT, "mb out", start, gap={"mb": rows - 128}) for start in ((-1, -2), (-3, -4))
    )
    a, total = operand(OUTPUT, "mb out", (0, 0)), operand(OUTPUT, "mb out", (core_bytes, core_bytes))
    designs = [
        two_core_design(0, "abs", (x_first, total)),
        two_core_design(1, "abs", (x_tile, a)),
        two_core_design(2, "add", (replace(a, role=INPUT), replace(total, role=KERNEL), total)),
        two_core_design(3, "identity", (replace(total, role=INPUT), operand(OUTPUT, "mb out", (-5, -6)))),
    ]
    advance = [Apply(f"x_tile_{core}", ("i",), (f"x_{core}",), (tile_bytes, 1)) for core in range(2)]
    body = (
        *advance,
        Execute("sdsc_1.json", _names("x_tile"), (-3, -4)),
        Execute("sdsc_2.json", (), ()),
    )
    statements = [
        *per_core_addresses("x", "arg0", tile_bytes // 2),
        *per_core_addresses("z", "arg1", tile_bytes // 2),
        IndexConstant("one", 1),
        IndexConstant("tiles", tiles),
        Execute("sdsc_0.json", _names("x"), (-1, -2)),
        Loop("i", "one", "tiles", "one", body),
        Execute("sdsc_3.json", _names("z"), (-5, -6)),
    ]
    x, z = argument("x", "input", "arg0", rows, 256), argument("z", "result", "arg1", 128, 256)
    buffers = (
        Buffer("x", "arg0", 0, x.bytes),
        Buffer("a", "lx", 0, core_bytes),
        Buffer("total", "lx", core_bytes, core_bytes),
        Buffer("z", "arg1", 0, z.bytes),
    )
    uses = (("x", "total"), ("x", "a"), ("a", "total", "total"), ("total", "z"))
    return _bundle("arg0 arg1", statements, designs, Manifest((x, z), buffers, uses))


def relayout_bundle() -> Bundle:
    """z = abs(exp(x)) for (128, 256) fp16 on two cores: exp by rows, abs by columns; the ring carries exp(x) in LX."""
    by_rows = ({"mb": 0, "out": 0}, {"mb": 1, "out": 0})
    by_columns = {
        "slices": {"mb": 1, "out": 2},
        "shares": {"mb": 128, "out": 128},
        "core_slices": ({"mb": 0, "out": 0}, {"mb": 0, "out": 1}),
    }
    core_bytes = 64 * 4 * STICK_BYTES
    exp = operand(OUTPUT, "mb out", (0, 0))
    written = replace(exp, held=HeldSlices({"mb": 2, "out": 1}, by_rows))
    wanted = replace(exp, start=(core_bytes, core_bytes))
    gathered = replace(wanted, held=HeldSlices(by_columns["slices"], by_columns["core_slices"]))
    z = operand(OUTPUT, "mb out", (-3, -4))
    designs = [
        two_core_design(0, "exp", (operand(INPUT, "mb out", (-1, -2)), exp)),
        two_core_design(1, "shuffle", (written, gathered), **by_columns),
        two_core_design(2, "abs", (wanted, z), **by_columns),
    ]
    statements = [
        *per_core_addresses("x", "arg0", 64 * STICK_BYTES),
        *per_core_addresses("z", "arg1", 2 * 128 * STICK_BYTES),
        Execute("sdsc_0.json", _names("x"), (-1, -2)),
        Execute("sdsc_1.json", (), ()),
        Execute("sdsc_2.json", _names("z"), (-3, -4)),
    ]
    arguments = argument("x", "input", "arg0", 128, 256), argument("z", "result", "arg1", 128, 256)
    buffers = (
        Buffer("x", "arg0", 0, arguments[0].bytes),
        Buffer("e", "lx", 0, core_bytes),
        Buffer("t", "lx", core_bytes, core_bytes),
        Buffer("z", "arg1", 0, arguments[1].bytes),
    )
    uses = (("x", "e"), ("e", "t"), ("t", "z"))
    return _bundle("arg0 arg1", statements, designs, Manifest(arguments, buffers, uses))


def gather_bundle() -> Bundle:
    """y = t[i] for 128 positions in a table of (16, 256) fp16, on two cores: each has all of the table."""
    index = operand(
        KERNEL_IDX,
        "mb out x",
        (-1, -2),
        data_format=INT32,
        stick_elements=INT32_LANES,
        scale={"mb": 1, "out": -2, "x": -1},
    )
    table = operand(KERNEL, "x out mb", (-3, -3), scale={"x": 1, "out": 1, "mb": -1})
    rows = operand(OUTPUT, "mb out x", (-4, -5), scale={"mb": 1, "out": 1, "x": -1})
    design = two_core_design(
        0,
        "gather",
        (index, table, rows),
        sizes={"mb": 128, "out": 256, "x": 16},
        slices={"mb": 2, "out": 1, "x": 1},
        shares={"mb": 64, "out": 256, "x": 16},
        core_slices=({"mb": 0, "out": 0, "x": 0}, {"mb": 1, "out": 0, "x": 0}),
    )
    i = replace(
        sparse_argument("i", "input", "arg0", 128),
        host_dtype="int32",
        data_format=INT32,
        device_size=(128, INT32_LANES),
        transfer=Transfer((128,), (1,), (INT32_LANES,)),
    )
    arguments = i, argument("t", "parameter", "arg1", 16, 256), argument("y", "result", "arg2", 128, 256)
    statements = [
        *per_core_addresses("i", "arg0", 64 * STICK_BYTES),
        Extract("t_0", "arg1"),
        *per_core_addresses("y", "arg2", 64 * STICK_BYTES),
        Execute("sdsc_0.json", ("i_0", "i_1", "t_0", "y_0", "y_1"), (-1, -2, -3, -4, -5)),
    ]
    buffers = tuple(Buffer(each.name, each.parameter, 0, each.bytes) for each in arguments)
    return _bundle("arg0 arg1 arg2", statements, [design], Manifest(arguments, buffers, (("i", "t", "y"),)))


def restickify_bundle(cores: int) -> Bundle:
    """z = abs(x) for (128, 256) fp16 with z's rows in its sticks: abs(x) in LX; invalid on two cores, valid on one."""
    divided = {
        "slices": {"mb": cores, "out": 1},
        "shares": {"mb": 128 // cores, "out": 256},
        "core_slices": tuple({"mb": core, "out": 0} for core in range(cores)),
    }
    a = operand(OUTPUT, "mb out", (0,) * cores)
    z = operand(OUTPUT, "out mb", (-3, -4)[:cores], stick_dim="mb")
    designs = [
        two_core_design(0, "abs", (operand(INPUT, "mb out", (-1, -2)[:cores]), a), **divided),
        two_core_design(1, "ReStickifyOpHBM", (replace(a, role=INPUT), z), **divided),
    ]
    statements = [
        *per_core_addresses("x", "arg0", 64 * STICK_BYTES),
        *per_core_addresses("z", "arg1", 256 * STICK_BYTES),
        Execute("sdsc_0.json", _names("x")[:cores], (-1, -2)[:cores]),
        Execute("sdsc_1.json", _names("z")[:cores], (-3, -4)[:cores]),
    ]
    x, z_argument = argument("x", "input", "arg0", 128, 256), argument("z", "result", "arg1", 128, 256)
    by_rows = Transfer((2, 256, LANES), (LANES * 256, 1, 256), (256 * LANES, LANES, 1))
    z_argument = replace(z_argument, device_size=(2, 256, LANES), transfer=by_rows)
    buffers = (
        Buffer("x", "arg0", 0, x.bytes),
        Buffer("a", "lx", 0, 128 // cores * 4 * STICK_BYTES),
        Buffer("z", "arg1", 0, z_argument.bytes),
    )
    return _bundle(
        "arg0 arg1", statements, designs, Manifest((x, z_argument), buffers, (("x", "a"), ("a", "z")))
    )


GOOD = {
    "add": add_bundle,
    "reduction": reduction_bundle,
    "loop": loop_bundle,
    "accumulator": accumulating_bundle,
    "relayout": relayout_bundle,
    "gather": gather_bundle,
}
