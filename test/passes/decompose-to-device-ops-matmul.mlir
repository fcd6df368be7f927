// RUN: spyre-opt %s --decompose-to-device-ops --split-input-file | filecheck %s

// A contraction is one batchmatmul.
// CHECK: #[[A:map.*]] = affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK: #[[B:map.*]] = affine_map<(d0, d1, d2) -> (d2, d1)>
// CHECK: #[[C:map.*]] = affine_map<(d0, d1, d2) -> (d0, d1)>
// CHECK-LABEL: func.func @plain(
// CHECK-SAME: %[[X:\w+]]: {{.*}}, %[[Y:\w+]]: tensor<256x64xf16>
// CHECK: %[[V:.*]] = linalg.generic {indexing_maps = [#[[A]], #[[B]], #[[C]]], iterator_types = ["parallel", "parallel", "reduction"]}
// CHECK-SAME: ins(%[[X]], %[[Y]] : tensor<128x256xf16>, tensor<256x64xf16>) outs(%{{.*}} : tensor<128x64xf16>) {{.*}}sdsc.op = #sdsc.op<"batchmatmul", {}>
// CHECK: return %[[V]]
func.func @plain(%x: tensor<128x256xf16>, %y: tensor<256x64xf16>) -> tensor<128x64xf16> {
  %f = arith.constant dense<0.0> : tensor<128x64xf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %y : tensor<128x256xf16>, tensor<256x64xf16>) outs(%f : tensor<128x64xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %p = arith.mulf %a, %b : f16
    %r = arith.addf %p, %o : f16
    linalg.yield %r : f16
  } -> tensor<128x64xf16>
  return %0 : tensor<128x64xf16>
}
// -----
// Both operands transposed: the maps say it, nothing is moved.
// CHECK: #[[A:map.*]] = affine_map<(d0, d1, d2) -> (d2, d0)>
// CHECK: #[[B:map.*]] = affine_map<(d0, d1, d2) -> (d1, d2)>
// CHECK-LABEL: func.func @transposed(
// CHECK-SAME: %[[X:\w+]]: {{.*}}, %[[Y:\w+]]: tensor<64x256xf16>
// CHECK: %[[V:.*]] = linalg.generic {indexing_maps = [#[[A]], #[[B]], #{{.*}}], {{.*}} ins(%[[X]], %[[Y]] : tensor<256x128xf16>, tensor<64x256xf16>) {{.*}}"batchmatmul"
// CHECK: return %[[V]]
func.func @transposed(%x: tensor<256x128xf16>, %y: tensor<64x256xf16>) -> tensor<128x64xf16> {
  %f = arith.constant dense<0.0> : tensor<128x64xf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d2, d0)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %y : tensor<256x128xf16>, tensor<64x256xf16>) outs(%f : tensor<128x64xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %p = arith.mulf %a, %b : f16
    %r = arith.addf %p, %o : f16
    linalg.yield %r : f16
  } -> tensor<128x64xf16>
  return %0 : tensor<128x64xf16>
}
// -----
// Casts that widen the operands are the matmul's own accumulation.
// CHECK-LABEL: func.func @accumulated_wide(
// CHECK-SAME: %[[X:\w+]]: {{.*}}, %[[Y:\w+]]: tensor<256x64xf16>
// CHECK: %[[V:.*]] = linalg.generic {{.*}} ins(%[[X]], %[[Y]] : tensor<128x256xf16>, tensor<256x64xf16>) outs(%{{.*}} : tensor<128x64xf32>) {{.*}}"batchmatmul"
// CHECK: arith.extf
// CHECK: arith.extf
// CHECK: return %[[V]]
func.func @accumulated_wide(%x: tensor<128x256xf16>, %y: tensor<256x64xf16>) -> tensor<128x64xf32> {
  %f = arith.constant dense<0.0> : tensor<128x64xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %y : tensor<128x256xf16>, tensor<256x64xf16>) outs(%f : tensor<128x64xf32>) {
  ^bb0(%a: f16, %b: f16, %o: f32):
    %v = arith.extf %a : f16 to f32
    %w = arith.extf %b : f16 to f32
    %p = arith.mulf %v, %w : f32
    %r = arith.addf %p, %o : f32
    linalg.yield %r : f32
  } -> tensor<128x64xf32>
  return %0 : tensor<128x64xf32>
}
// -----
// Batch dims are dims of both operands.
// CHECK: #[[A:map.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
// CHECK: #[[B:map.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>
// CHECK: #[[C:map.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
// CHECK-LABEL: func.func @batched(
// CHECK: linalg.generic {indexing_maps = [#[[A]], #[[B]], #[[C]]], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} {{.*}}"batchmatmul"
func.func @batched(%x: tensor<4x128x256xf16>, %y: tensor<4x256x64xf16>) -> tensor<4x128x64xf16> {
  %f = arith.constant dense<0.0> : tensor<4x128x64xf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %y : tensor<4x128x256xf16>, tensor<4x256x64xf16>) outs(%f : tensor<4x128x64xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %p = arith.mulf %a, %b : f16
    %r = arith.addf %p, %o : f16
    linalg.yield %r : f16
  } -> tensor<4x128x64xf16>
  return %0 : tensor<4x128x64xf16>
}
// -----
// A matrix by a vector whose rows lie outside the stick is a matmul without columns of its own.
// CHECK: #[[A:map.*]] = affine_map<(d0, d1) -> (d1, d0)>
// CHECK: #[[B:map.*]] = affine_map<(d0, d1) -> (d1)>
// CHECK-LABEL: func.func @matvec(
// CHECK: linalg.generic {indexing_maps = [#[[A]], #[[B]], #{{.*}}], iterator_types = ["parallel", "reduction"]} {{.*}}"batchmatmul"
func.func @matvec(%x: tensor<256x64xf16>, %y: tensor<256xf16>) -> tensor<64xf16> {
  %f = arith.constant dense<0.0> : tensor<64xf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]}
      ins(%x, %y : tensor<256x64xf16>, tensor<256xf16>) outs(%f : tensor<64xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %p = arith.mulf %a, %b : f16
    %r = arith.addf %p, %o : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  return %0 : tensor<64xf16>
}
// -----
// A product summed over the last dim of the wider operand is a product and a sum.
// CHECK-LABEL: func.func @row_sum(
// CHECK: %[[P:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<128x256xf16>) {{.*}}"mul"
// CHECK: linalg.generic {{.*}} ins(%[[P]] : tensor<128x256xf16>) {{.*}}"sum"
func.func @row_sum(%x: tensor<128x256xf16>, %y: tensor<256xf16>) -> tensor<128xf16> {
  %f = arith.constant dense<0.0> : tensor<128xf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]}
      ins(%x, %y : tensor<128x256xf16>, tensor<256xf16>) outs(%f : tensor<128xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %p = arith.mulf %a, %b : f16
    %r = arith.addf %p, %o : f16
    linalg.yield %r : f16
  } -> tensor<128xf16>
  return %0 : tensor<128xf16>
}
// -----
// A start value that is a tensor is added.
// CHECK-LABEL: func.func @accumulating(
// CHECK-SAME: %{{.*}}, %[[Z:\w+]]: tensor<128x64xf16> {sdsc
// CHECK: %[[M:.*]] = linalg.generic {{.*}}"batchmatmul"
// CHECK: %[[V:.*]] = linalg.generic {{.*}} ins(%[[M]], %[[Z]] : {{.*}}"add"
// CHECK: return %[[V]]
func.func @accumulating(%x: tensor<128x256xf16>, %y: tensor<256x64xf16>, %z: tensor<128x64xf16>) -> tensor<128x64xf16> {
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %y : tensor<128x256xf16>, tensor<256x64xf16>) outs(%z : tensor<128x64xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %p = arith.mulf %a, %b : f16
    %r = arith.addf %o, %p : f16
    linalg.yield %r : f16
  } -> tensor<128x64xf16>
  return %0 : tensor<128x64xf16>
}
