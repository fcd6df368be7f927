// RUN: spyre-opt %s --attach-hints --mlir-print-debuginfo | filecheck %s

// The attribute goes, the location keeps its file, line and column; an op without hints stays as it is.
// CHECK: linalg.exp ins({{.*}} loc(#[[HINTED:.*]])
// CHECK: linalg.log ins({{.*}} loc(#[[PLAIN:.*]])
// CHECK: tensor.collapse_shape %{{.*}} {{\[\[}}0, 1{{\]\]}} : {{.*}} loc(#[[VIEW:.*]])
// CHECK: #[[EXP:.*]] = loc("{{.*}}attach-hints.mlir":15:8)
// CHECK: #[[PLAIN]] = loc("{{.*}}attach-hints.mlir":16:8)
// CHECK: #[[COLLAPSE:.*]] = loc("{{.*}}attach-hints.mlir":17:8)
// CHECK: #[[HINTED]] = loc(fused<{sdsc.hints = [{id = 3 : i64, tiles = [{count = 8 : i64, dim = "M"}]}]}>[#[[EXP]]])
// CHECK: #[[VIEW]] = loc(fused<{sdsc.hints = [{id = 3 : i64, tiles = []}, {id = 7 : i64, tiles = [{count = 2 : i64, dim = "K"}]}]}>[#[[COLLAPSE]]])
func.func @main(%x: tensor<64x128xf16>) -> tensor<8192xf16> {
  %e = tensor.empty() : tensor<64x128xf16>
  %d = tensor.empty() : tensor<64x128xf16>
  %y = linalg.exp {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "M", count = 8 : i64}]}]} ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  %z = linalg.log ins(%y : tensor<64x128xf16>) outs(%d : tensor<64x128xf16>) -> tensor<64x128xf16>
  %v = tensor.collapse_shape %z [[0, 1]] {sdsc.hints = [{id = 3 : i64, tiles = []}, {id = 7 : i64, tiles = [{dim = "K", count = 2 : i64}]}]} : tensor<64x128xf16> into tensor<8192xf16>
  return %v : tensor<8192xf16>
}
