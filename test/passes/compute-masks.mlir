// RUN: spyre-opt %s --split-input-file --compute-masks | filecheck %s

// In each row the mask is 1 from one key on: one comparison of the positions of the keys with a number per row, with
// all dims of the reader.
#map = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d1, d2)>
#map2 = affine_map<(d0, d1, d2) -> ()>
// CHECK: #[[KEY:.*]] = affine_map<(d0, d1, d2) -> (d2)>
// CHECK: #[[ROW:.*]] = affine_map<(d0, d1, d2) -> (d1)>
// CHECK: #[[EVERY:.*]] = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
// CHECK-LABEL: func.func @from_a_key_on(
// CHECK: %[[KEYS:.*]] = arith.constant {{.*}} : tensor<2048xf16>
// CHECK: %[[ROWS:.*]] = arith.constant {{.*}} : tensor<256xf16>
// CHECK: %[[MASK:.*]] = linalg.generic {indexing_maps = [#[[KEY]], #[[ROW]], #[[EVERY]]], {{.*}} ins(%[[KEYS]], %[[ROWS]] : {{.*}} {{.*}}<"greaterequal", {}>
// CHECK: linalg.generic {indexing_maps = [#[[EVERY]], {{.*}} ins(%[[MASK]], {{.*}}<"where3", {}>
// CHECK-NOT: linalg.generic
func.func @from_a_key_on(%mask: tensor<256x2048xf16> {sdsc.host = #sdsc.host<"mask", "constant", "i1">, sdsc.runs = {ends = dense<[2048, 3071, 4096, 5120, 8192, 10239, 524288]> : tensor<7xi32>, values = dense<[1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]> : tensor<7xf32>}}, %x: tensor<4x256x2048xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<4x256x2048xf16> {
  %zero = arith.constant dense<0.0> : tensor<f16>
  %empty = tensor.empty() : tensor<4x256x2048xf16>
  %0 = linalg.generic {indexing_maps = [#map1, #map2, #map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%mask, %zero, %x : tensor<256x2048xf16>, tensor<f16>, tensor<4x256x2048xf16>) outs(%empty : tensor<4x256x2048xf16>) attrs = {sdsc.op = #sdsc.op<"where3", {}>} {
  ^bb0(%a: f16, %b: f16, %c: f16, %o: f16):
    linalg.yield %c : f16
  } -> tensor<4x256x2048xf16>
  return %0 : tensor<4x256x2048xf16>
}

// -----
// A small mask, and a mask with two intervals in a row, stay constants.
#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> ()>
// CHECK-LABEL: func.func @others(
// CHECK-NOT: <"lesserthan"
// CHECK-NOT: <"greaterequal"
func.func @others(%small: tensor<2x512xf16> {sdsc.host = #sdsc.host<"small", "constant", "i1">, sdsc.runs = {ends = dense<[100, 1024]> : tensor<2xi32>, values = dense<[1.0, 0.0]> : tensor<2xf32>}}, %two: tensor<2x400000xf16> {sdsc.host = #sdsc.host<"two", "constant", "i1">, sdsc.runs = {ends = dense<[1, 2, 3, 4, 800000]> : tensor<5xi32>, values = dense<[1.0, 0.0, 1.0, 0.0, 0.0]> : tensor<5xf32>}}, %x: tensor<2x512xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}, %y: tensor<2x400000xf16> {sdsc.host = #sdsc.host<"y", "input", "f16">}) -> (tensor<2x512xf16>, tensor<2x400000xf16>) {
  %zero = arith.constant dense<0.0> : tensor<f16>
  %e0 = tensor.empty() : tensor<2x512xf16>
  %e1 = tensor.empty() : tensor<2x400000xf16>
  %0 = linalg.generic {indexing_maps = [#map, #map1, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%small, %zero, %x : tensor<2x512xf16>, tensor<f16>, tensor<2x512xf16>) outs(%e0 : tensor<2x512xf16>) attrs = {sdsc.op = #sdsc.op<"where3", {}>} {
  ^bb0(%a: f16, %b: f16, %c: f16, %o: f16):
    linalg.yield %c : f16
  } -> tensor<2x512xf16>
  %1 = linalg.generic {indexing_maps = [#map, #map1, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%two, %zero, %y : tensor<2x400000xf16>, tensor<f16>, tensor<2x400000xf16>) outs(%e1 : tensor<2x400000xf16>) attrs = {sdsc.op = #sdsc.op<"where3", {}>} {
  ^bb0(%a: f16, %b: f16, %c: f16, %o: f16):
    linalg.yield %c : f16
  } -> tensor<2x400000xf16>
  return %0, %1 : tensor<2x512xf16>, tensor<2x400000xf16>
}
