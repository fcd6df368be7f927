// RUN: spyre-opt %s --spyre-pipeline="target=ktir sencores=4 uneven-splits co-optimizing-lx-planning=false" | spyre-translate - --to-ktir | filecheck %s

// 66 rows on 4 cores, the last of which has fewer; padding of the 65 columns is masked by the neutral number; sums are f32.
// CHECK: scf.if %{{.*}} -> (tensor<2x17x64xf16>) {
// CHECK: ktdp.load %{{.*}} -> tensor<2x17x64xf16>
// CHECK: } else
// CHECK-NEXT: {
// CHECK: ktdp.load %{{.*}} -> tensor<2x15x64xf16>
// CHECK: tensor.insert_slice %{{.*}} tensor<2x15x64xf16> into tensor<2x17x64xf16>
// CHECK: linalg.generic
// CHECK: %[[STICK:.*]] = linalg.index 0 : index
// CHECK-NEXT: %[[FIRST:.*]] = arith.muli %[[STICK]], %c64 : index
// CHECK-NEXT: %[[LANE:.*]] = linalg.index 2 : index
// CHECK-NEXT: %[[POSITION:.*]] = arith.addi %[[LANE]], %[[FIRST]] : index
// CHECK-NEXT: %[[VALID:.*]] = arith.cmpi slt, %[[POSITION]], %c65 : index
// CHECK-NEXT: arith.select %[[VALID]], %{{.*}}, %{{.*}} : f16
// CHECK: %[[WIDE:.*]] = arith.extf %{{.*}} : tensor<2x17x64xf16> to tensor<2x17x64xf32>
// CHECK: %[[SUM:.*]] = linalg.reduce { arith.addf } ins(%[[WIDE]] : tensor<2x17x64xf32>) outs(%{{.*}} : tensor<17xf32>) dimensions = [0, 2]
// CHECK: arith.truncf %[[SUM]] : tensor<17xf32> to tensor<17xf16>
#id = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d0)>
func.func @main(%x: tensor<66x65xf16>) -> tensor<66xf16> {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<66xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<66xf16>) -> tensor<66xf16>
  %y = linalg.generic {indexing_maps = [#id, #column], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<66x65xf16>) outs(%f : tensor<66xf16>) {
  ^bb0(%a: f16, %o: f16):
    %r = arith.addf %o, %a : f16
    linalg.yield %r : f16
  } -> tensor<66xf16>
  return %y : tensor<66xf16>
}
