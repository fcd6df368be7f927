// RUN: spyre-opt %s --spyre-pipeline="target=ktir sencores=4" | spyre-translate - --to-ktir | filecheck %s

// The contracted dim comes in steps of four sticks, 256 rows of the other operand, and the sum is carried in f32.
// CHECK: %[[SUM:.*]] = scf.for %[[STEP:.*]] = %c0 to %c16 step %c1 iter_args(%[[CARRIED:.*]] = %{{.*}}) -> (tensor<256x256xf32>) {
// CHECK-DAG: arith.muli %[[STEP]], %c4 : index
// CHECK-DAG: arith.muli %[[STEP]], %c256 : index
// CHECK: ktdp.load %{{.*}} : !ktdp.access_tile<4x256x64xindex>
// CHECK: ktdp.load %{{.*}} : !ktdp.access_tile<4x256x64xindex>
// CHECK: %[[NEXT:.*]] = linalg.matmul ins(%{{.*}}, %{{.*}} : tensor<256x256xf16>, tensor<256x256xf16>) outs(%[[CARRIED]] : tensor<256x256xf32>)
// CHECK-NEXT: scf.yield %[[NEXT]] : tensor<256x256xf32>
func.func @main(%x: tensor<512x4096xf16>, %y: tensor<4096x512xf16>) -> tensor<512x512xf16> {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<512x512xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<512x512xf16>) -> tensor<512x512xf16>
  %z = linalg.matmul ins(%x, %y : tensor<512x4096xf16>, tensor<4096x512xf16>) outs(%f : tensor<512x512xf16>) -> tensor<512x512xf16>
  return %z : tensor<512x512xf16>
}
