// RUN: spyre-opt %s --decompose-to-device-ops --split-input-file | filecheck %s

// bf16 and booleans are f16, i64 is i32; the host's type is kept on each argument and result.
// CHECK-LABEL: func.func @boundary(
// CHECK-SAME: %{{.*}}: tensor<64xf16> {sdsc.host = #sdsc.host<"arg0", "input", "bf16">}, %{{.*}}: tensor<64xf16> {sdsc.host = #sdsc.host<"arg1", "input", "i1">},
// CHECK-SAME: tensor<64xi32> {sdsc.host = #sdsc.host<"arg2", "input", "i64">}, %{{.*}}: tensor<64xf32> {sdsc.host = #sdsc.host<"arg3", "input", "f32">}, %{{.*}}: tensor<64xi32> {sdsc.host = #sdsc.host<"arg4", "input", "i32">})
// CHECK-SAME: -> (tensor<64xf16> {sdsc.host = #sdsc.host<"result0", "result", "bf16">}, tensor<64xf16> {sdsc.host = #sdsc.host<"result1", "result", "i1">},
// CHECK-SAME: tensor<64xi32> {sdsc.host = #sdsc.host<"result2", "result", "i64">}, tensor<64xf32> {sdsc.host = #sdsc.host<"result3", "result", "f32">}, tensor<64xi32> {sdsc.host = #sdsc.host<"result4", "result", "i32">})
func.func @boundary(%a: tensor<64xbf16>, %b: tensor<64xi1>, %c: tensor<64xi64>, %d: tensor<64xf32>, %e: tensor<64xi32>)
    -> (tensor<64xbf16>, tensor<64xi1>, tensor<64xi64>, tensor<64xf32>, tensor<64xi32>) {
  return %a, %b, %c, %d, %e : tensor<64xbf16>, tensor<64xi1>, tensor<64xi64>, tensor<64xf32>, tensor<64xi32>
}
// -----
// The importer's name and kind of an argument go into sdsc.host.
// CHECK-LABEL: func.func @named(
// CHECK-SAME: %{{.*}}: tensor<64xf16> {sdsc.host = #sdsc.host<"weight", "parameter", "f16">
func.func @named(%a: tensor<64xf16> {spyre.name = "weight", spyre.kind = "parameter"}) -> tensor<64xf16> {
  return %a : tensor<64xf16>
}
// -----
// Constant tensors are in the device's types, a splat only where it is read as a number.
// CHECK-LABEL: func.func @constants(
// CHECK-SAME: %[[X:\w+]]: tensor<4xf16>
// CHECK: %[[C:.*]] = arith.constant dense<[1.000000e+00, 2.000000e+00, 3.000000e+00, 4.000000e+00]> : tensor<4xf16>
// CHECK: %[[I:.*]] = arith.constant dense<[1, -2, 3, 4]> : tensor<4xi32>
// CHECK: %[[B:.*]] = arith.constant dense<[1.000000e+00, 0.000000e+00, 0.000000e+00, 1.000000e+00]> : tensor<4xf16>
// CHECK: %[[V:.*]] = linalg.generic {{.*}} ins(%[[X]], %[[C]] : tensor<4xf16>, tensor<4xf16>) {{.*}}"add"
// CHECK: %[[J:.*]] = "sdsc.clone"(%[[I]])
// CHECK: %[[K:.*]] = "sdsc.clone"(%[[B]])
// CHECK: return %[[V]], %[[J]], %[[K]]
#id = affine_map<(d0) -> (d0)>
func.func @constants(%x: tensor<4xbf16>) -> (tensor<4xbf16>, tensor<4xi64>, tensor<4xi1>) {
  %c = arith.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xbf16>
  %i = arith.constant dense<[1, -2, 3, 4]> : tensor<4xi64>
  %b = arith.constant dense<[true, false, false, true]> : tensor<4xi1>
  %e = tensor.empty() : tensor<4xbf16>
  %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%x, %c : tensor<4xbf16>, tensor<4xbf16>) outs(%e : tensor<4xbf16>) {
  ^bb0(%a: bf16, %d: bf16, %o: bf16):
    %r = arith.addf %a, %d : bf16
    linalg.yield %r : bf16
  } -> tensor<4xbf16>
  return %0, %i, %b : tensor<4xbf16>, tensor<4xi64>, tensor<4xi1>
}
// -----
// A returned splat is written out.
// CHECK-LABEL: func.func @splat(
// CHECK-SAME: ) -> (tensor<64xi32> {sdsc.host = #sdsc.host<"result0", "result", "i64">})
// CHECK: %[[C:.*]] = arith.constant dense<7> : tensor<i32>
// CHECK: linalg.generic {{.*}} ins(%[[C]] : tensor<i32>) outs(%{{.*}} : tensor<64xi32>) {{.*}}"identity"
func.func @splat() -> tensor<64xi64> {
  %c = arith.constant dense<7> : tensor<64xi64>
  return %c : tensor<64xi64>
}
// -----
// A function that is on the device's types already is left alone, and so is a declaration.
// CHECK-LABEL: func.func private @declared(tensor<64xf64>)
// CHECK-LABEL: func.func @again(
// CHECK-SAME: %[[A:\w+]]: tensor<64xf16> {sdsc.host = #sdsc.host<"a", "input", "bf16">}) -> tensor<64xf16> {
// CHECK-NEXT: return %[[A]]
func.func private @declared(tensor<64xf64>)
func.func @again(%a: tensor<64xf16> {sdsc.host = #sdsc.host<"a", "input", "bf16">}) -> tensor<64xf16> {
  return %a : tensor<64xf16>
}
