// RUN: spyre-opt %s --spyre-pipeline="target=ktir sencores=2" | spyre-translate - --to-ktir | filecheck %s

// The stick dim changes: digits of the tile are transposed, and stored by the strides of the other layout.
// CHECK: ktdp.construct_memory_view %arg0, sizes: [2, 128, 64], strides: [8192, 64, 1]
// CHECK: ktdp.load
// CHECK: linalg.transpose ins(%{{.*}}) outs(%{{.*}}) permutation = {{.*}}
// CHECK: arith.subf
// CHECK: ktdp.store
#id = affine_map<(d0, d1) -> (d0, d1)>
#turned = affine_map<(d0, d1) -> (d1, d0)>
func.func @main(%x: tensor<128x128xf16>) -> tensor<128x128xf16> {
  %e = tensor.empty() : tensor<128x128xf16>
  %y = linalg.generic {indexing_maps = [#turned, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %x : tensor<128x128xf16>, tensor<128x128xf16>) outs(%e : tensor<128x128xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %r = arith.subf %a, %b : f16
    linalg.yield %r : f16
  } -> tensor<128x128xf16>
  return %y : tensor<128x128xf16>
}
