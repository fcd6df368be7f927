// RUN: spyre-opt %s --name-operations --save-plan="file=%t.json" -o /dev/null && filecheck %s < %t.json
// RUN: spyre-opt %s --name-operations --coarse-tiling --choose-layouts --work-distribution --scratchpad-planning --place-in-hbm --save-plan="file=-" -o /dev/null | filecheck %s --check-prefix=PLACED
// RUN: spyre-opt %s --name-operations --save-plan | filecheck %s --check-prefix=MODULE
// RUN: not spyre-opt %s --save-plan 2>&1 | filecheck %s --check-prefix=NAME
// RUN: not spyre-opt %s --name-operations --save-plan="file=%t.missing/plan.json" 2>&1 | filecheck %s --check-prefix=FILE

// What is not decided yet is not there.
// CHECK: "version": 1,
// CHECK-NOT: {{layout|tiling}}
// CHECK: "name": "exp.0",
// CHECK: "opcode": "exp",
// CHECK: save-plan.mlir:{{[0-9]+}}:8",
// CHECK: "result": {"shape": [128, 256], "dtype": "f16"}

// At level placed it is all there, one entry after the other in program order.
// PLACED: "name": "x",
// PLACED: "layout": {"dim_order": [0, 1]}
// PLACED: "name": "exp.0",
// PLACED: "slices": [32, 1],
// PLACED: "core_order": [0],
// PLACED: "cores": 32,
// PLACED: "tiling": [],
// PLACED: "layout": {"dim_order": [0, 1]},
// PLACED: "placement": {"lx": 0}
// PLACED: "name": "abs.0",
// PLACED: "placement": {"argument": "result0"},
// PLACED: "spilled": ["graph input or output: the host reads it", "no reader in LX: no operation reads it"]

// Without a file the module carries it.
// MODULE: module attributes {sdsc.plan = "{\0A  \22version\22: 1,

// NAME: save-plan.mlir:{{[0-9]+}}:8: error: this operation has no sdsc.name; run name-operations first
// FILE: error: The file '{{.*}}.missing/plan.json' cannot be written: No such file or directory.
#id = affine_map<(d0, d1) -> (d0, d1)>
!m = tensor<128x256xf16>
func.func @main(%x: !m {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> !m {
  %e = tensor.empty() : !m
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"abs", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  return %1 : !m
}
