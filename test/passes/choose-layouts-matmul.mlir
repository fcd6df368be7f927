// RUN: spyre-opt %s --choose-layouts --split-input-file --verify-diagnostics | filecheck %s

// Input 1 has the contracted dim in the stick, input 2 and the result the columns: nothing to convert.
// CHECK-LABEL: func.func @straight(
// CHECK-SAME: %[[X:\w+]]: {{.*}}, %[[Y:\w+]]: tensor
// CHECK-NOT: restickify
// CHECK: linalg.generic {{.*}} ins(%[[X]], %[[Y]] : {{.*}}"batchmatmul"
func.func @straight(%x: tensor<128x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}, %y: tensor<256x64xf16> {sdsc.host = #sdsc.host<"y", "input", "f16">}) -> tensor<128x64xf16> {
  %e0 = tensor.empty() : tensor<128x64xf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %y : tensor<128x256xf16>, tensor<256x64xf16>) outs(%e0 : tensor<128x64xf16>) attrs = {sdsc.op = #sdsc.op<"batchmatmul", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x64xf16>
  return %0 : tensor<128x64xf16>
}
// -----
// x^T y^T is turned round to (y x)^T: both sticks fit, and the result has its rows in the stick.
// CHECK: #[[TURNED:map.*]] = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
// CHECK: #[[FIRST:map.*]] = affine_map<(d0, d1, d2) -> (d1, d2)>
// CHECK: #[[SECOND:map.*]] = affine_map<(d0, d1, d2) -> (d2, d0)>
// CHECK-LABEL: func.func @turned(
// CHECK-SAME: %[[X:\w+]]: {{.*}}, %[[Y:\w+]]: tensor
// CHECK-NOT: restickify
// CHECK: linalg.generic {indexing_maps = [#[[FIRST]], #[[SECOND]], #{{.*}}], {{.*}} ins(%[[Y]], %[[X]] : {{.*}} outs(%{{.*}} : tensor<128x64xf16, #stick.layout<#[[TURNED]]>>)
func.func @turned(%x: tensor<256x128xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}, %y: tensor<64x256xf16> {sdsc.host = #sdsc.host<"y", "input", "f16">}) -> tensor<128x64xf16> {
  %e0 = tensor.empty() : tensor<128x64xf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d2, d0)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %y : tensor<256x128xf16>, tensor<64x256xf16>) outs(%e0 : tensor<128x64xf16>) attrs = {sdsc.op = #sdsc.op<"batchmatmul", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x64xf16>
  return %0 : tensor<128x64xf16>
}
// -----
// A weight in either order is laid out ahead of time.
// CHECK: #[[TURNED:map.*]] = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
// CHECK-LABEL: func.func @weight(
// CHECK-SAME: %{{.*}}: tensor<64x256xf16, #stick.layout<#[[TURNED]]>> {sdsc.host = #sdsc.host<"w"
// CHECK-NOT: restickify
// CHECK: return
func.func @weight(%x: tensor<128x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}, %w: tensor<64x256xf16> {sdsc.host = #sdsc.host<"w", "parameter", "f16">}) -> tensor<128x64xf16> {
  %e0 = tensor.empty() : tensor<128x64xf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<128x256xf16>, tensor<64x256xf16>) outs(%e0 : tensor<128x64xf16>) attrs = {sdsc.op = #sdsc.op<"batchmatmul", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x64xf16>
  return %0 : tensor<128x64xf16>
}
// -----
// x y^T of two inputs needs one conversion.
// CHECK-LABEL: func.func @convert(
// CHECK-SAME: %[[X:\w+]]: {{.*}}, %[[Y:\w+]]: tensor
// CHECK: %[[C:.*]] = "stick.restickify"(%[[Y]])
// CHECK: linalg.generic {{.*}} ins(%[[X]], %[[C]] : {{.*}}"batchmatmul"
func.func @convert(%x: tensor<128x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}, %y: tensor<64x256xf16> {sdsc.host = #sdsc.host<"y", "input", "f16">}) -> tensor<128x64xf16> {
  %e0 = tensor.empty() : tensor<128x64xf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %y : tensor<128x256xf16>, tensor<64x256xf16>) outs(%e0 : tensor<128x64xf16>) attrs = {sdsc.op = #sdsc.op<"batchmatmul", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x64xf16>
  return %0 : tensor<128x64xf16>
}
// -----
// A batched product has its batch outermost and its rows innermost: matrices lie in one piece.
// CHECK: #[[OUT:map.*]] = affine_map<(d0, d1, d2) -> (d0, d2 floordiv 64, d1, d2 mod 64)>
// CHECK-LABEL: func.func @batched(
// CHECK-SAME: {{.*}} -> tensor<4x128x128xf16, #stick.layout<#[[OUT]]>>
// CHECK-NOT: restickify
// CHECK: return
func.func @batched(%x: tensor<4x128x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}, %y: tensor<4x256x128xf16> {sdsc.host = #sdsc.host<"y", "input", "f16">}) -> tensor<4x128x128xf16> {
  %e0 = tensor.empty() : tensor<4x128x128xf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%x, %y : tensor<4x128x256xf16>, tensor<4x256x128xf16>) outs(%e0 : tensor<4x128x128xf16>) attrs = {sdsc.op = #sdsc.op<"batchmatmul", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<4x128x128xf16>
  return %0 : tensor<4x128x128xf16>
}
// -----
// So have its weights, ahead of time.
// CHECK: #[[ROWS:map.*]] = affine_map<(d0, d1, d2) -> (d0, d2 floordiv 64, d1, d2 mod 64)>
// CHECK-LABEL: func.func @batched_weight(
// CHECK-SAME: tensor<4x256x128xf16, #stick.layout<#[[ROWS]]>> {sdsc.host = #sdsc.host<"w"
// CHECK: return
func.func @batched_weight(%x: tensor<4x128x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}, %w: tensor<4x256x128xf16> {sdsc.host = #sdsc.host<"w", "parameter", "f16">}) -> tensor<4x128x128xf16> {
  %e0 = tensor.empty() : tensor<4x128x128xf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%x, %w : tensor<4x128x256xf16>, tensor<4x256x128xf16>) outs(%e0 : tensor<4x128x128xf16>) attrs = {sdsc.op = #sdsc.op<"batchmatmul", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<4x128x128xf16>
  return %0 : tensor<4x128x128xf16>
}
// -----
// Input 2 has room for a whole stick of contracted rows.
// CHECK: #[[ROOM:map.*]] = affine_map<(d0, d1) -> (d1 floordiv 64, d0 mod 128, d1 mod 64)>
// CHECK-LABEL: func.func @padded(
// CHECK-SAME: {{.*}}tensor<100x64xf16, #stick.layout<#[[ROOM]]>> {sdsc.host = #sdsc.host<"y"
// CHECK-NOT: restickify
// CHECK: return
func.func @padded(%x: tensor<128x100xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}, %y: tensor<100x64xf16> {sdsc.host = #sdsc.host<"y", "parameter", "f16">}) -> tensor<128x64xf16> {
  %e0 = tensor.empty() : tensor<128x64xf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %y : tensor<128x100xf16>, tensor<100x64xf16>) outs(%e0 : tensor<128x64xf16>) attrs = {sdsc.op = #sdsc.op<"batchmatmul", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x64xf16>
  return %0 : tensor<128x64xf16>
}
// -----
// At most 2 row dims; the message names the tensor, both orders of the inputs, and the rule.
func.func @too_many(%x: tensor<2x3x4x64xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}, %y: tensor<64x64xf16> {sdsc.host = #sdsc.host<"y", "input", "f16">}) -> tensor<2x3x4x64xf16> {
  %e0 = tensor.empty() : tensor<2x3x4x64xf16>
  // expected-error@below {{the result of 'batchmatmul', tensor<2x3x4x64xf16>: it has 3 row dims [0, 1, 2]; expected at most 2; with its operands swapped it has 3 column dims [0, 1, 2]; expected exactly 1: a matmul has the contracted dim in the stick of input 1}}
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d4, d3)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%x, %y : tensor<2x3x4x64xf16>, tensor<64x64xf16>) outs(%e0 : tensor<2x3x4x64xf16>) attrs = {sdsc.op = #sdsc.op<"batchmatmul", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<2x3x4x64xf16>
  return %0 : tensor<2x3x4x64xf16>
}
