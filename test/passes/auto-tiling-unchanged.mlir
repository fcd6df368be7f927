// RUN: spyre-opt %s --split-input-file --attach-target="sencores=1 lx-frac-avail=0.999" --auto-tiling --remarks=%t | filecheck %s
// RUN: filecheck %s --check-prefix=REMARK --input-file=%t

// Tiles would fit 2 KiB, but each waits for its first bytes longer than the traffic of 8 KiB takes.
// CHECK-LABEL: func.func @small(
// CHECK-NOT: sdsc.tiling
// REMARK: "kind": "no tiling", "reason": "2 operations in {{[0-9]+}} tiles: {{.*}} us, 16,384 bytes, untiled {{.*}} us, 24,576 bytes
#a = affine_map<(d0, d1) -> (d0, d1)>
func.func @small(%a: tensor<32x64xf16>, %b: tensor<32x64xf16>, %c: tensor<32x64xf16>) -> tensor<32x64xf16> {
  %e0 = tensor.empty() : tensor<32x64xf16>
  %0 = linalg.generic {indexing_maps = [#a, #a, #a], iterator_types = ["parallel", "parallel"]} ins(%a, %b : tensor<32x64xf16>, tensor<32x64xf16>) outs(%e0 : tensor<32x64xf16>)
      attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.addf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<32x64xf16>
  %1 = linalg.generic {indexing_maps = [#a, #a, #a], iterator_types = ["parallel", "parallel"]} ins(%0, %c : tensor<32x64xf16>, tensor<32x64xf16>) outs(%e0 : tensor<32x64xf16>)
      attrs = {sdsc.op = #sdsc.op<"mul", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.mulf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<32x64xf16>
  return %1 : tensor<32x64xf16>
}

// -----

// What a hint tiles is left as it is.
// CHECK-LABEL: func.func @hinted(
// CHECK: "add", {}>, sdsc.tiling = [{dim = 0 : i64, loop = "1.M", tiles = 2 : i64}]
// CHECK: "mul", {}>}
#a = affine_map<(d0, d1) -> (d0, d1)>
func.func @hinted(%a: tensor<32x64xf16>, %b: tensor<32x64xf16>, %c: tensor<32x64xf16>) -> tensor<32x64xf16> {
  %e0 = tensor.empty() : tensor<32x64xf16>
  %0 = linalg.generic {indexing_maps = [#a, #a, #a], iterator_types = ["parallel", "parallel"]} ins(%a, %b : tensor<32x64xf16>, tensor<32x64xf16>) outs(%e0 : tensor<32x64xf16>)
      attrs = {sdsc.op = #sdsc.op<"add", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 2 : i64}]} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.addf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<32x64xf16>
  %1 = linalg.generic {indexing_maps = [#a, #a, #a], iterator_types = ["parallel", "parallel"]} ins(%0, %c : tensor<32x64xf16>, tensor<32x64xf16>) outs(%e0 : tensor<32x64xf16>)
      attrs = {sdsc.op = #sdsc.op<"mul", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.mulf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<32x64xf16>
  return %1 : tensor<32x64xf16>
}
