// RUN: spyre-opt %s --spyre-pipeline="target=ktir sencores=2 ktir-addresses=true" | spyre-translate - --to-ktir | filecheck %s

// LX is filled with what is no number; a buffer is stored and loaded at its address, moved by a constant.
// CHECK: arith.constant dense<0x7E00> : tensor<{{.*}}xf16>
// CHECK: ktdp.construct_memory_view %[[LX:.*]], sizes: [{{.*}}], strides: [1] {{{.*}}memory_space = #ktdp.memory_space<ct_local>}
// CHECK: %[[E:.*]] = math.exp
// CHECK: %[[V:.*]] = ktdp.construct_memory_view %[[LX]], sizes: [2, 64, 64], strides: [4096, 64, 1] {{{.*}}memory_space = #ktdp.memory_space<ct_local>}
// CHECK: ktdp.store %[[E]]
// CHECK: ktdp.construct_access_tile %[[V]]
// CHECK-NEXT: ktdp.load
// CHECK: linalg.reduce { arith.maximumf }
#id = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d0)>
func.func @main(%x: tensor<128x128xf16>) -> tensor<128xf16> {
  %low = arith.constant 0xFC00 : f16
  %e = tensor.empty() : tensor<128x128xf16>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<128x128xf16>) outs(%e : tensor<128x128xf16>) {
  ^bb0(%a: f16, %o: f16):
    %r = math.exp %a : f16
    linalg.yield %r : f16
  } -> tensor<128x128xf16>
  %m = tensor.empty() : tensor<128xf16>
  %f = linalg.fill ins(%low : f16) outs(%m : tensor<128xf16>) -> tensor<128xf16>
  %z = linalg.generic {indexing_maps = [#id, #column], iterator_types = ["parallel", "reduction"]}
      ins(%y : tensor<128x128xf16>) outs(%f : tensor<128xf16>) {
  ^bb0(%a: f16, %o: f16):
    %r = arith.maximumf %o, %a : f16
    linalg.yield %r : f16
  } -> tensor<128xf16>
  return %z : tensor<128xf16>
}
