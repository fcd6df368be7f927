// RUN: spyre-opt %s --split-input-file --attach-target="sencores=1 lx-frac-avail=0.2" --auto-tiling --verify-device-ops --remarks=%t | filecheck %s
// RUN: filecheck %s --check-prefix=REMARK --input-file=%t
// RUN: spyre-opt %s --split-input-file --attach-target="sencores=1 lx-frac-avail=0.2" --auto-tiling="spans=false" | filecheck %s --check-prefix=SPILLS
// RUN: spyre-opt %s --split-input-file --attach-target="sencores=1 lx-frac-avail=0.2" --auto-tiling="spills=false" | filecheck %s --check-prefix=SPANS
// RUN: spyre-opt %s --split-input-file --attach-target="sencores=1 lx-frac-avail=0.2" --auto-tiling="bundle-operations=2" | filecheck %s --check-prefix=TWO
// RUN: spyre-opt %s --split-input-file --attach-target="sencores=1 lx-frac-avail=0.2" --auto-tiling="bundle-operations=1" | filecheck %s --check-prefix=ONE

// 512 MiB are more than a core reaches. Only columns can be cut: sticks of them are outermost in memory.
// CHECK-LABEL: func.func @out_of_reach(
// CHECK: "exp", {}>, sdsc.tiling = [{dim = {{[01]}} : i64, loop = "span", tiles = 4 : i64}]
// REMARK: "kind": "tiling", "reason": "'exp' in 4 tiles of d1, as no division fits the span limit; 4 tiles of d1: {{.*}} bytes
// SPILLS-LABEL: func.func @out_of_reach(
// SPILLS-NOT: sdsc.tiling
// SPANS-LABEL: func.func @out_of_reach(
// SPANS: loop = "span"
#out_of_reach_a = affine_map<(d0, d1) -> (d0, d1)>
func.func @out_of_reach(%a: tensor<16384x16384xf16>) -> tensor<16384x16384xf16> {
  %e0 = tensor.empty() : tensor<16384x16384xf16>
  %0 = linalg.generic {indexing_maps = [#out_of_reach_a, #out_of_reach_a], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<16384x16384xf16>) outs(%e0 : tensor<16384x16384xf16>)
      attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    %r = math.exp %a0 : f16
    linalg.yield %r : f16
  } -> tensor<16384x16384xf16>
  return %0 : tensor<16384x16384xf16>
}

// -----

// 2097169 is a prime number: two tiles that all cores could share, and a smaller one.
// CHECK-LABEL: func.func @prime(
// CHECK: "exp", {}>, sdsc.tiling = [{dim = 0 : i64, loop = "span", tile = 1048584 : i64, tiles = 3 : i64}]
// REMARK: "'exp' in 3 tiles of d0, the last smaller, as no division fits the span limit; 3 tiles of d0, the last smaller: {{.*}} bytes
// SPILLS-LABEL: func.func @prime(
// SPANS-LABEL: func.func @prime(
#prime_a = affine_map<(d0, d1) -> (d0, d1)>
func.func @prime(%a: tensor<2097169x64xf16>) -> tensor<2097169x64xf16> {
  %e0 = tensor.empty() : tensor<2097169x64xf16>
  %0 = linalg.generic {indexing_maps = [#prime_a, #prime_a], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<2097169x64xf16>) outs(%e0 : tensor<2097169x64xf16>)
      attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    %r = math.exp %a0 : f16
    linalg.yield %r : f16
  } -> tensor<2097169x64xf16>
  return %0 : tensor<2097169x64xf16>
}

// -----

// The intermediate of 4 MiB does not fit the scratchpad of 2 MiB: in tiles it does.
// CHECK-LABEL: func.func @spilled(
// CHECK: "add", {}>, sdsc.tiling = [{dim = [[DIM:[01]]] : i64, loop = "[[LOOP:lx[0-9]+]]", tiles = [[TILES:[0-9]+]] : i64}]
// CHECK: "mul", {}>, sdsc.tiling = [{dim = [[DIM]] : i64, loop = "[[LOOP]]", tiles = [[TILES]] : i64}]
// REMARK: "kind": "tiling", "reason": "2 operations in {{[0-9]+}} tiles, whose intermediates then fit the scratchpads; 2 operations in {{.*}}, untiled {{.*}} bytes
// SPILLS-LABEL: func.func @spilled(
// SPILLS-COUNT-2: sdsc.tiling
// SPANS-LABEL: func.func @spilled(
// SPANS-NOT: sdsc.tiling
#a = affine_map<(d0, d1) -> (d0, d1)>
func.func @spilled(%a: tensor<2048x1024xf16>, %b: tensor<2048x1024xf16>, %c: tensor<2048x1024xf16>) -> tensor<2048x1024xf16> {
  %e0 = tensor.empty() : tensor<2048x1024xf16>
  %0 = linalg.generic {indexing_maps = [#a, #a, #a], iterator_types = ["parallel", "parallel"]} ins(%a, %b : tensor<2048x1024xf16>, tensor<2048x1024xf16>) outs(%e0 : tensor<2048x1024xf16>)
      attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.addf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<2048x1024xf16>
  %1 = linalg.generic {indexing_maps = [#a, #a, #a], iterator_types = ["parallel", "parallel"]} ins(%0, %c : tensor<2048x1024xf16>, tensor<2048x1024xf16>) outs(%e0 : tensor<2048x1024xf16>)
      attrs = {sdsc.op = #sdsc.op<"mul", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.mulf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<2048x1024xf16>
  return %1 : tensor<2048x1024xf16>
}

// -----

// What fits is left alone.
// CHECK-LABEL: func.func @fits(
// CHECK-NOT: sdsc.tiling
// SPILLS-LABEL: func.func @fits(
// SPILLS-NOT: sdsc.tiling
// SPANS-LABEL: func.func @fits(
// SPANS-NOT: sdsc.tiling
#a = affine_map<(d0, d1) -> (d0, d1)>
func.func @fits(%a: tensor<512x1024xf16>, %b: tensor<512x1024xf16>, %c: tensor<512x1024xf16>) -> tensor<512x1024xf16> {
  %e0 = tensor.empty() : tensor<512x1024xf16>
  %0 = linalg.generic {indexing_maps = [#a, #a, #a], iterator_types = ["parallel", "parallel"]} ins(%a, %b : tensor<512x1024xf16>, tensor<512x1024xf16>) outs(%e0 : tensor<512x1024xf16>)
      attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.addf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<512x1024xf16>
  %1 = linalg.generic {indexing_maps = [#a, #a, #a], iterator_types = ["parallel", "parallel"]} ins(%0, %c : tensor<512x1024xf16>, tensor<512x1024xf16>) outs(%e0 : tensor<512x1024xf16>)
      attrs = {sdsc.op = #sdsc.op<"mul", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.mulf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<512x1024xf16>
  return %1 : tensor<512x1024xf16>
}

// -----

// Each intermediate of 1 MiB fits the scratchpad of 1.6 MiB: what the product reads and its result do not.
// CHECK-LABEL: func.func @operand_beside_result(
// CHECK: "exp", {}>, sdsc.tiling = [{dim = 0 : i64, loop = "[[LOOP:lx[0-9]+]]", tiles = [[TILES:[0-9]+]] : i64}]
// CHECK: "batchmatmul", {}>, sdsc.tiling = [{dim = 0 : i64, loop = "[[LOOP]]", tiles = [[TILES]] : i64}]
// CHECK: "exp", {}>, sdsc.tiling = [{dim = 0 : i64, loop = "[[LOOP]]", tiles = [[TILES]] : i64}]
// REMARK: "kind": "tiling", "reason": "3 operations in {{[0-9]+}} tiles, whose intermediates then fit the scratchpads; 3 operations in
// SPILLS-LABEL: func.func @operand_beside_result(
// SPILLS-COUNT-3: sdsc.tiling
// SPANS-LABEL: func.func @operand_beside_result(
// SPANS-NOT: sdsc.tiling
// A loop is never cut: one of three operations has no place in a bundle of two.
// TWO-LABEL: func.func @operand_beside_result(
// TWO-COUNT-2: sdsc.tiling
// TWO-NOT: sdsc.tiling
// ONE-LABEL: func.func @operand_beside_result(
// ONE-NOT: sdsc.tiling
#beside_v = affine_map<(d0, d1) -> (d0, d1)>
#beside_x = affine_map<(d0, d1, d2) -> (d0, d2)>
#beside_y = affine_map<(d0, d1, d2) -> (d2, d1)>
#beside_z = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func @operand_beside_result(%a: tensor<2048x256xf16>, %b: tensor<256x256xf16>) -> tensor<2048x256xf16> {
  %e = tensor.empty() : tensor<2048x256xf16>
  %0 = linalg.generic {indexing_maps = [#beside_v, #beside_v], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<2048x256xf16>) outs(%e : tensor<2048x256xf16>)
      attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    %r = math.exp %a0 : f16
    linalg.yield %r : f16
  } -> tensor<2048x256xf16>
  %zero = arith.constant 0.0 : f16
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<2048x256xf16>) -> tensor<2048x256xf16>
  %1 = linalg.generic {indexing_maps = [#beside_x, #beside_y, #beside_z], iterator_types = ["parallel", "parallel", "reduction"]} ins(%0, %b : tensor<2048x256xf16>, tensor<256x256xf16>) outs(%f : tensor<2048x256xf16>)
      attrs = {sdsc.op = #sdsc.op<"batchmatmul", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %m = arith.mulf %a0, %a1 : f16
    %r = arith.addf %o, %m : f16
    linalg.yield %r : f16
  } -> tensor<2048x256xf16>
  %2 = linalg.generic {indexing_maps = [#beside_v, #beside_v], iterator_types = ["parallel", "parallel"]} ins(%1 : tensor<2048x256xf16>) outs(%e : tensor<2048x256xf16>)
      attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    %r = math.exp %a0 : f16
    linalg.yield %r : f16
  } -> tensor<2048x256xf16>
  return %2 : tensor<2048x256xf16>
}
