// RUN: spyre-opt %s --spyre-pipeline="target=ktir sencores=4" | spyre-translate - --to-ktir | filecheck %s

// Tiles of 2 MiB on each core, which the device streams, are taken in steps of 32 rows.
// CHECK: %[[CORE:.*]] = ktdp.get_compute_tile_id : index
// CHECK: scf.for %[[STEP:.*]] = %c0 to %c16 step %c1 {
// CHECK-NEXT: %[[ROWS:.*]] = arith.muli %[[STEP]], %c32 : index
// CHECK: %[[FIRST:.*]] = arith.muli %[[CORE]], %c512 : index
// CHECK: %[[ROW:.*]] = arith.addi %[[FIRST]], %[[ROWS]] : index
// CHECK: ktdp.construct_access_tile %{{.*}}[%c0, %[[ROW]], %c0]
// CHECK: arith.addf %{{.*}}, %{{.*}} : tensor<32x32x64xf16>
// CHECK: ktdp.store
func.func @main(%x: tensor<2048x2048xf16>, %y: tensor<2048x2048xf16>) -> tensor<2048x2048xf16> {
  %e = tensor.empty() : tensor<2048x2048xf16>
  %z = linalg.add ins(%x, %y : tensor<2048x2048xf16>, tensor<2048x2048xf16>) outs(%e : tensor<2048x2048xf16>) -> tensor<2048x2048xf16>
  return %z : tensor<2048x2048xf16>
}
