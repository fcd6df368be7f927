// RUN: spyre-opt %s --split-input-file --name-operations --apply-plan --choose-layouts --name-operations="inserted" --apply-plan="level=laid-out" --work-distribution --joint-planning --apply-plan="level=divided" --scratchpad-planning --place-in-hbm --apply-plan="level=placed" --verify-diagnostics | filecheck %s
// RUN: spyre-opt %s --split-input-file --name-operations --apply-plan | filecheck %s --check-prefix=PINS
// RUN: not spyre-opt %S/save-plan.mlir --name-operations --apply-plan 2>&1 | filecheck %s --check-prefix=NONE
// RUN: not spyre-opt %S/save-plan.mlir --name-operations --apply-plan="file=%t.missing" 2>&1 | filecheck %s --check-prefix=MISSING
// RUN: not spyre-opt %S/apply-plan.mlir --apply-plan --split-input-file 2>&1 | filecheck %s --check-prefix=NAME

// NONE: error: apply-plan needs a file, or a module with the attribute 'sdsc.plan'
// MISSING: error: The file '{{.*}}.missing' cannot be read: No such file or directory.
// NAME: apply-plan.mlir:{{[0-9]+}}:{{[0-9]+}}: error: this operation has no sdsc.name; run name-operations first

// All kinds of pins, and what is left out: another passes' choice. In the end no pin is left.
// PINS-LABEL: func.func @pinned(
// PINS: sdsc.name = "exp.0", {{.*}}sdsc.pins = {layout = #stick.layout<
// CHECK: #[[CORES:map.*]] = affine_map<(d0) -> ((d0 floordiv 4) mod 2, d0 mod 4)>
// CHECK-LABEL: func.func @pinned(
// CHECK: "stick.restickify"(%arg0)
// CHECK: sdsc.division = #sdsc.division<[2, 4], #[[CORES]]>, sdsc.name = "exp.0", sdsc.op = #sdsc.op<"exp", {}>, sdsc.placement = #sdsc.hbm<"pool", 4096
// CHECK: sdsc.name = "abs.0", sdsc.op = #sdsc.op<"abs", {}>, sdsc.placement = #sdsc.lx<1280 : i64>
// CHECK-NOT: sdsc.pins
#id = affine_map<(d0, d1) -> (d0, d1)>
!m = tensor<128x256xf16>
module attributes {sdsc.plan = "{\"version\": 1, \"operations\": [{\"name\": \"exp.0\", \"slices\": [2, 4], \"core_order\": [1, 0], \"result\": {\"layout\": {\"dim_order\": [1, 0]}, \"placement\": {\"pool\": 4096}}}, {\"name\": \"abs.0\", \"result\": {\"placement\": {\"lx\": 1280}}}]}"} {
  func.func @pinned(%x: !m {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> !m {
    %e = tensor.empty() : !m
    %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
    ^bb0(%a: f16, %o: f16):
      linalg.yield %o : f16
    } -> !m
    %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"abs", {}>} {
    ^bb0(%a: f16, %o: f16):
      linalg.yield %o : f16
    } -> !m
    %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%1 : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"neg", {}>} {
    ^bb0(%a: f16, %o: f16):
      linalg.yield %o : f16
    } -> !m
    return %2 : !m
  }
}
// -----
// What cannot hold is an error at the operation.
#id = affine_map<(d0, d1) -> (d0, d1)>
!m = tensor<128x256xf16>
module attributes {sdsc.plan = "{\"version\": 1, \"operations\": [{\"name\": \"exp.0\", \"slices\": [31, 1]}]}"} {
  func.func @pinned(%x: !m {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> !m {
    %e = tensor.empty() : !m
    // expected-error@below {{the plan pins slices [31, 1] for 'exp.0', which is not possible: dim 0 has 128 rows or sticks, so the last of 31 slices has no work}}
    %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
    ^bb0(%a: f16, %o: f16):
      linalg.yield %o : f16
    } -> !m
    return %0 : !m
  }
}
