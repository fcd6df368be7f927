// RUN: spyre-opt %s --decompose-softmax --split-input-file --verify-diagnostics | filecheck %s

// A softmax over the first of two dims: the maximum and the sum are over that dim, the sum in f32.
// CHECK-DAG: #[[COLUMNS:.*]] = affine_map<(d0, d1) -> (d1, d0)>
// CHECK-DAG: #[[ROWS:.*]] = affine_map<(d0, d1) -> (d0)>
// CHECK-LABEL: func.func @narrow(
// CHECK-SAME: %[[X:\w+]]: tensor<8x64xf16>
// CHECK: %[[M:.*]] = linalg.generic {indexing_maps = [#[[COLUMNS]], #[[ROWS]]], iterator_types = ["parallel", "reduction"]} ins(%[[X]]
// CHECK: arith.maximumf {{.*}} : f16
// CHECK: %[[E:.*]] = linalg.generic {{.*}} ins(%[[X]], %[[M]]
// CHECK: arith.subf
// CHECK-NEXT: math.exp
// CHECK: %[[S:.*]] = linalg.generic {{.*}}"reduction"]} ins(%[[E]] {{.*}} outs(%{{.*}} : tensor<64xf32>)
// CHECK: arith.extf {{.*}} : f16 to f32
// CHECK-NEXT: arith.addf {{.*}} : f32
// CHECK: %[[T:.*]] = linalg.generic {{.*}} ins(%[[S]]
// CHECK: arith.truncf
// CHECK: %[[Y:.*]] = linalg.generic {{.*}} ins(%[[E]], %[[T]]
// CHECK: arith.divf
// CHECK: return %[[Y]]
func.func @narrow(%x: tensor<8x64xf16>) -> tensor<8x64xf16> {
  %e = tensor.empty() : tensor<8x64xf16>
  %y = linalg.softmax dimension(0) ins(%x : tensor<8x64xf16>) outs(%e : tensor<8x64xf16>) -> tensor<8x64xf16>
  return %y : tensor<8x64xf16>
}
// -----
// In f32 nothing is cast.
// CHECK-LABEL: func.func @wide(
// CHECK-NOT: arith.extf
// CHECK-NOT: arith.truncf
// CHECK: arith.divf {{.*}} : f32
func.func @wide(%x: tensor<8x64xf32>) -> tensor<8x64xf32> {
  %e = tensor.empty() : tensor<8x64xf32>
  %y = linalg.softmax dimension(1) ins(%x : tensor<8x64xf32>) outs(%e : tensor<8x64xf32>) -> tensor<8x64xf32>
  return %y : tensor<8x64xf32>
}
// -----
// A size that is not known is refused at its line.
func.func @dynamic(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  // expected-error@below {{type tensor<?x64xf32> has no static shape; the device needs all sizes at compile time}}
  %y = linalg.softmax dimension(1) ins(%x : tensor<?x64xf32>) outs(%x : tensor<?x64xf32>) -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}
// -----
// So are memrefs.
func.func @memref(%x: memref<8x64xf32>, %y: memref<8x64xf32>) {
  // expected-error@below {{this softmax is on memrefs; a program uses tensors}}
  linalg.softmax dimension(1) ins(%x : memref<8x64xf32>) outs(%y : memref<8x64xf32>)
  return
}
