// RUN: spyre-opt %s --spyre-pipeline="target=ktir sencores=4" | spyre-translate - --to-ktir | filecheck %s

// The operand is copied to LX. Each of the 9 positions of the window is a view of that from another element on.
// CHECK: ktdp.construct_memory_view %[[LX:.*]], sizes: [10, 10, 64], strides: [640, 64, 1]
// CHECK: ktdp.store %{{.*}}, %{{.*}} : tensor<10x10x64xf16>, !ktdp.access_tile<10x10x64xindex>
// CHECK: %[[SUM:.*]] = scf.for %[[P:.*]] = %c0 to %c9 step %c1 iter_args(%[[C:.*]] = %{{.*}}) -> (tensor<64x64xf32>) {
// CHECK-NEXT: %[[I:.*]] = arith.divui %[[P]], %c3 : index
// CHECK-NEXT: %[[J:.*]] = arith.remui %[[P]], %c3 : index
// CHECK-NEXT: %[[ROWS:.*]] = arith.muli %[[I]], %c640 : index
// CHECK-NEXT: %[[ROW:.*]] = arith.addi %[[LX]], %[[ROWS]] : index
// CHECK-NEXT: %[[COLUMNS:.*]] = arith.muli %[[J]], %c64 : index
// CHECK-NEXT: %[[FIRST:.*]] = arith.addi %[[ROW]], %[[COLUMNS]] : index
// CHECK-NEXT: ktdp.construct_memory_view %[[FIRST]], sizes: [8, 8, 64], strides: [640, 64, 1]
// CHECK: %[[N:.*]] = linalg.matmul ins(%{{.*}}, %{{.*}} : tensor<64x64xf16>, tensor<64x64xf16>) outs(%[[C]] : tensor<64x64xf32>) -> tensor<64x64xf32>
// CHECK-NEXT: scf.yield %[[N]] : tensor<64x64xf32>
func.func @main(%x: tensor<1x64x10x10xf16>, %w: tensor<64x64x3x3xf16>) -> tensor<1x64x8x8xf16> {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<1x64x8x8xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<1x64x8x8xf16>) -> tensor<1x64x8x8xf16>
  %z = linalg.conv_2d_nchw_fchw {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>} ins(%x, %w : tensor<1x64x10x10xf16>, tensor<64x64x3x3xf16>) outs(%f : tensor<1x64x8x8xf16>) -> tensor<1x64x8x8xf16>
  return %z : tensor<1x64x8x8xf16>
}
