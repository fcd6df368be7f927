// RUN: spyre-opt %s --decompose-to-device-ops --split-input-file | filecheck %s

// A contraction of int8 in i32 is one batchmatmulint8, which stands for a sum in i32 yet; arguments stay 8 bits.
// CHECK-LABEL: func.func @integers(
// CHECK-SAME: %[[X:\w+]]: tensor<33x200xi8> {sdsc.host = #sdsc.host<"arg0", "input", "i8">}, %[[W:\w+]]: tensor<200x70xi8>
// CHECK: %[[V:.*]] = linalg.generic {{.*}} ins(%[[X]], %[[W]] : tensor<33x200xi8>, tensor<200x70xi8>) outs(%{{.*}} : tensor<33x70xi32>) {{.*}}sdsc.op = #sdsc.op<"batchmatmulint8", {}>
// CHECK: arith.muli
// CHECK: arith.addi
// CHECK: return %[[V]]
func.func @integers(%x: tensor<33x200xi8>, %w: tensor<200x70xi8>) -> tensor<33x70xi32> {
  %f = arith.constant dense<0> : tensor<33x70xi32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<33x200xi8>, tensor<200x70xi8>) outs(%f : tensor<33x70xi32>) {
  ^bb0(%a: i8, %b: i8, %o: i32):
    %l = arith.extsi %a : i8 to i32
    %r = arith.extsi %b : i8 to i32
    %p = arith.muli %l, %r : i32
    %s = arith.addi %o, %p : i32
    linalg.yield %s : i32
  } -> tensor<33x70xi32>
  return %0 : tensor<33x70xi32>
}
// -----
// A contraction of fp8 in f32 is one batchmatmulfp8.
// CHECK-LABEL: func.func @floats(
// CHECK: linalg.generic {{.*}} : tensor<33x200xf8E4M3FN>, tensor<200x70xf8E4M3FN>) outs(%{{.*}} : tensor<33x70xf32>) {{.*}}sdsc.op = #sdsc.op<"batchmatmulfp8", {}>
func.func @floats(%x: tensor<33x200xf8E4M3FN>, %w: tensor<200x70xf8E4M3FN>) -> tensor<33x70xf32> {
  %f = arith.constant dense<0.0> : tensor<33x70xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<33x200xf8E4M3FN>, tensor<200x70xf8E4M3FN>) outs(%f : tensor<33x70xf32>) {
  ^bb0(%a: f8E4M3FN, %b: f8E4M3FN, %o: f32):
    %l = arith.extf %a : f8E4M3FN to f32
    %r = arith.extf %b : f8E4M3FN to f32
    %p = arith.mulf %l, %r : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<33x70xf32>
  return %0 : tensor<33x70xf32>
}
// -----
// One row less: a matrix times a vector is a matmul too, whichever dim is contracted.
// CHECK-LABEL: func.func @vector(
// CHECK: linalg.generic {{.*}} : tensor<33x200xi8>, tensor<200xi8>) outs(%{{.*}} : tensor<33xi32>) {{.*}}"batchmatmulint8"
func.func @vector(%x: tensor<33x200xi8>, %w: tensor<200xi8>) -> tensor<33xi32> {
  %f = arith.constant dense<0> : tensor<33xi32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]}
      ins(%x, %w : tensor<33x200xi8>, tensor<200xi8>) outs(%f : tensor<33xi32>) {
  ^bb0(%a: i8, %b: i8, %o: i32):
    %l = arith.extsi %a : i8 to i32
    %r = arith.extsi %b : i8 to i32
    %p = arith.muli %l, %r : i32
    %s = arith.addi %p, %o : i32
    linalg.yield %s : i32
  } -> tensor<33xi32>
  return %0 : tensor<33xi32>
}
