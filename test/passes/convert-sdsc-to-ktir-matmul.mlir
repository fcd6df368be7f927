// RUN: spyre-opt %s --spyre-pipeline="target=ktir sencores=4" | spyre-translate - --to-ktir | filecheck %s

// The contracted dim is split over 4 cores: each has a product, all combine them in f32, and the last one stores.
// CHECK: %[[P:.*]] = linalg.matmul ins(%{{.*}}, %{{.*}} : tensor<64x1024xf16>, tensor<1024x64xf16>) outs(%{{.*}} : tensor<64x64xf32>) -> tensor<64x64xf32>
// CHECK: %[[F:.*]] = ktdp.inter_tile_produce producer_tiles_per_group = affine_set<(i)[g] : (i - ((i floordiv 1) mod 4) * 1 - g == 0, i >= 0, -i + 3 >= 0)> -> !ktdp.tile_future<(tensor<64x64xf32>), groups = affine_set<(g) : ((g floordiv 1) mod 4 == 0, g >= 0, -g + 3 >= 0)>>
// CHECK-NEXT: {
// CHECK: ktdp.yield_partial %[[P]] : tensor<64x64xf32>
// CHECK: ktdp.inter_tile_reduce(%[[F]]) consumer_tiles_per_group = affine_set<{{.*}}>, identity(%{{.*}} : tensor<64x64xf32>) : !ktdp.tile_future<{{.*}}> -> tensor<64x64xf32>
// CHECK: %[[S:.*]] = arith.addf %{{.*}}, %{{.*}} : tensor<64x64xf32>
// CHECK-NEXT: ktdp.yield_reduced %[[S]] : tensor<64x64xf32>
// CHECK: arith.truncf %{{.*}} : tensor<64x64xf32> to tensor<64x64xf16>
// CHECK: scf.if
// CHECK: ktdp.store
func.func @main(%x: tensor<64x4096xf16>, %y: tensor<4096x64xf16>) -> tensor<64x64xf16> {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<64x64xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<64x64xf16>) -> tensor<64x64xf16>
  %z = linalg.matmul ins(%x, %y : tensor<64x4096xf16>, tensor<4096x64xf16>) outs(%f : tensor<64x64xf16>) -> tensor<64x64xf16>
  return %z : tensor<64x64xf16>
}
