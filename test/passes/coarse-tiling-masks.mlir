// RUN: spyre-opt %s --coarse-tiling --verify-device-ops --cse | filecheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>

// A causal mask, rows in two tiles that are written out, keys in two. The first rows see no key of the second tile, so
// that one is not computed; the last ones see all of the first tile, which is not masked. Both have the same constant,
// in which what is hidden is finite, and the mask is no argument any more.
// CHECK:      func.func @main(%{{[^:]*}}: tensor<4x4xf16>) -> tensor<4xf16>
// CHECK:        %[[MASK:.*]] = arith.constant dense<{{.*}}0.000000e+00, -3.275200e+04{{.*}}> : tensor<2x2xf16>
// CHECK-NOT:    arith.constant dense<{{.*}}tensor<2x2xf16>
// CHECK:        %[[FIRST:.*]] = tensor.extract_slice %{{.*}}[0, 0] [2, 2]
// CHECK:        ins(%[[FIRST]], %[[MASK]] : tensor<2x2xf16>, tensor<2x2xf16>){{.*}}"add"
// CHECK-NOT:    scf.for
// CHECK:        %[[SECOND:.*]] = tensor.extract_slice %{{.*}}[2, 2] [2, 2]
// CHECK:        ins(%[[SECOND]], %[[MASK]] : tensor<2x2xf16>, tensor<2x2xf16>){{.*}}"add"
// CHECK:        scf.for %[[TILE:.*]] = %c0 to %c1 step %c1
// CHECK-NOT:      tensor<2x2xf16>, tensor<2x2xf16>){{.*}}"add"
// CHECK:          %[[LOOPED:.*]] = tensor.extract_slice %{{.*}}[2, %{{.*}}] [2, 2]
// CHECK:          ins(%[[LOOPED]] : tensor<2x2xf16>){{.*}}"max"
func.func @main(%s: tensor<4x4xf16>,
                %m: tensor<4x4xf16> {sdsc.runs = {ends = dense<[1, 4, 6, 8, 11, 12, 16]> : tensor<7xi32>,
                    values = dense<[0.0, 0xFF800000, 0.0, 0xFF800000, 0.0, 0xFF800000, 0.0]> : tensor<7xf32>}})
    -> tensor<4xf16> {
  %low = arith.constant 0xFC00 : f16
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<4x4xf16>
  %r = tensor.empty() : tensor<4xf16>
  %a = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s, %m : tensor<4x4xf16>, tensor<4x4xf16>) outs(%e : tensor<4x4xf16>)
      attrs = {sdsc.op = #sdsc.op<"add", {}>, sdsc.hides, sdsc.tiling = [
          {loop = "rows", dim = 0 : i64, tiles = 2 : i64, unrolled = true}, {loop = "keys", dim = 1 : i64, tiles = 2 : i64}]} {
  ^bb0(%x: f16, %y: f16, %o: f16):
    %z = arith.addf %x, %y : f16
    linalg.yield %z : f16
  } -> tensor<4x4xf16>
  %f = linalg.fill ins(%low : f16) outs(%r : tensor<4xf16>) -> tensor<4xf16>
  %b = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%a : tensor<4x4xf16>) outs(%f : tensor<4xf16>)
      attrs = {sdsc.op = #sdsc.op<"max", {}>, sdsc.running = "0", sdsc.tiling = [
          {loop = "rows", dim = 0 : i64, tiles = 2 : i64, unrolled = true}, {loop = "keys", dim = 1 : i64, tiles = 2 : i64}]} {
  ^bb0(%x: f16, %o: f16):
    %z = arith.maximumf %o, %x : f16
    linalg.yield %z : f16
  } -> tensor<4xf16>
  %c = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a, %b : tensor<4x4xf16>, tensor<4xf16>) outs(%e : tensor<4x4xf16>)
      attrs = {sdsc.op = #sdsc.op<"sub", {}>, sdsc.tiling = [
          {loop = "rows", dim = 0 : i64, tiles = 2 : i64, unrolled = true}, {loop = "keys", dim = 1 : i64, tiles = 2 : i64}]} {
  ^bb0(%x: f16, %y: f16, %o: f16):
    %z = arith.subf %x, %y : f16
    linalg.yield %z : f16
  } -> tensor<4x4xf16>
  %d = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<4x4xf16>) outs(%e : tensor<4x4xf16>)
      attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.tiling = [
          {loop = "rows", dim = 0 : i64, tiles = 2 : i64, unrolled = true}, {loop = "keys", dim = 1 : i64, tiles = 2 : i64}]} {
  ^bb0(%x: f16, %o: f16):
    %z = math.exp %x : f16
    linalg.yield %z : f16
  } -> tensor<4x4xf16>
  %g = linalg.fill ins(%zero : f16) outs(%r : tensor<4xf16>) -> tensor<4xf16>
  %h = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%d : tensor<4x4xf16>) outs(%g : tensor<4xf16>)
      attrs = {sdsc.op = #sdsc.op<"sum", {}>, sdsc.rescaled = "0", sdsc.tiling = [
          {loop = "rows", dim = 0 : i64, tiles = 2 : i64, unrolled = true}, {loop = "keys", dim = 1 : i64, tiles = 2 : i64}]} {
  ^bb0(%x: f16, %o: f16):
    %z = arith.addf %o, %x : f16
    linalg.yield %z : f16
  } -> tensor<4xf16>
  return %h : tensor<4xf16>
}
