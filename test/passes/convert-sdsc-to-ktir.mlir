// RUN: spyre-opt %s --spyre-pipeline="target=ktir sencores=4" | spyre-translate - --to-ktir | filecheck %s

// Rows are split over 4 cores; the row of scales is repeated; what several steps round is f32 in one body.
// CHECK: func.func @main(%arg0: index, %arg1: index, %arg2: index) attributes {grid = [4]} {
// CHECK: %[[CORE:.*]] = ktdp.get_compute_tile_id : index
// CHECK-NEXT: %[[ROW:.*]] = arith.muli %[[CORE]], %c128 : index
// CHECK: ktdp.construct_memory_view %arg0, sizes: [2, 512, 64], strides: [32768, 64, 1] {coordinate_set = affine_set<{{.*}}>, memory_space = #ktdp.memory_space<global>} : memref<2x512x64xf16>
// CHECK-NEXT: %[[T:.*]] = ktdp.construct_access_tile %{{.*}}[%c0, %[[ROW]], %c0] {access_tile_order = affine_map<(d0, d1, d2) -> (d0, d1, d2)>, access_tile_set = affine_set<{{.*}}>} : memref<2x512x64xf16> -> !ktdp.access_tile<2x128x64xindex>
// CHECK-NEXT: %[[X:.*]] = ktdp.load %[[T]] : !ktdp.access_tile<2x128x64xindex> -> tensor<2x128x64xf16>
// CHECK: %[[S:.*]] = linalg.broadcast ins(%{{.*}} : tensor<2x64xf16>) outs(%{{.*}} : tensor<2x128x64xf16>) dimensions = [1]
// CHECK: %[[P:.*]] = arith.mulf %[[X]], %[[S]] : tensor<2x128x64xf16>
// CHECK: linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, {{.*}}affine_map<(d0, d1, d2) -> ()>{{.*}} ins(%[[P]], {{.*}} : tensor<2x128x64xf16>, tensor<f32>
// CHECK: arith.extf
// CHECK: math.exp
// CHECK: arith.truncf
// CHECK: ktdp.store %{{.*}}, %{{.*}} : tensor<2x128x64xf16>, !ktdp.access_tile<2x128x64xindex>
// CHECK-NEXT: return
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d1)>
func.func @main(%x: tensor<512x128xf16>, %scale: tensor<128xf16>) -> tensor<512x128xf16> {
  %one = arith.constant 1.0 : f16
  %e = tensor.empty() : tensor<512x128xf16>
  %y = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %scale : tensor<512x128xf16>, tensor<128xf16>) outs(%e : tensor<512x128xf16>) {
  ^bb0(%a: f16, %s: f16, %o: f16):
    %p = arith.mulf %a, %s : f16
    %n = arith.negf %p : f16
    %exp = math.exp %n : f16
    %sum = arith.addf %exp, %one : f16
    %r = arith.divf %p, %sum : f16
    linalg.yield %r : f16
  } -> tensor<512x128xf16>
  return %y : tensor<512x128xf16>
}
