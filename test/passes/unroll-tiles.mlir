// RUN: spyre-opt %s --split-input-file --unroll-tiles --remarks=%t | filecheck %s
// RUN: filecheck %s --check-prefix=REMARK --input-file=%t

// The exponential is made in slices of columns, and the sum reads all of them in the same iteration over rows.
// CHECK-LABEL: func.func @slices(
// CHECK: "exp", {}>, sdsc.tiling = [{dim = 0 : i64, loop = "1.M", tiles = 2 : i64}, {dim = 1 : i64, loop = "2.N", tiles = 4 : i64, unrolled = true}]
// CHECK: "sum", {}>, sdsc.tiling = [{dim = 0 : i64, loop = "1.M", tiles = 2 : i64}]
// REMARK: "kind": "unrolled", "reason": "loop 2.N accesses slices of the result of 'exp': unrolled {{.*}} bytes; in a loop {{.*}} bytes"
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @slices(%x: tensor<128x512xf16>) -> tensor<128xf16> {
  %e = tensor.empty() : tensor<128x512xf16>
  %f = tensor.empty() : tensor<128xf16>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x512xf16>) outs(%e : tensor<128x512xf16>)
      attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 2 : i64}, {loop = "2.N", dim = 1 : i64, tiles = 4 : i64}]} {
  ^bb0(%a: f16, %o: f16):
    %y = math.exp %a : f16
    linalg.yield %y : f16
  } -> tensor<128x512xf16>
  %1 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%0 : tensor<128x512xf16>) outs(%f : tensor<128xf16>)
      attrs = {sdsc.op = #sdsc.op<"sum", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 2 : i64}]} {
  ^bb0(%a: f16, %o: f16):
    %y = arith.addf %a, %o : f16
    linalg.yield %y : f16
  } -> tensor<128xf16>
  return %1 : tensor<128xf16>
}

// -----

// What the inner loop alone reads is a tile: nothing to do. Nor where it is decided.
// CHECK-LABEL: func.func @alone(
// CHECK-NOT: unrolled = true
// REMARK-NOT: unrolled
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @alone(%x: tensor<128x512xf16>) -> (tensor<128x512xf16>, tensor<128xf16>) {
  %e = tensor.empty() : tensor<128x512xf16>
  %f = tensor.empty() : tensor<128xf16>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x512xf16>) outs(%e : tensor<128x512xf16>)
      attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 2 : i64}, {loop = "2.N", dim = 1 : i64, tiles = 4 : i64}]} {
  ^bb0(%a: f16, %o: f16):
    %y = math.exp %a : f16
    linalg.yield %y : f16
  } -> tensor<128x512xf16>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : tensor<128x512xf16>) outs(%e : tensor<128x512xf16>)
      attrs = {sdsc.op = #sdsc.op<"neg", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 2 : i64}, {loop = "2.N", dim = 1 : i64, tiles = 4 : i64}]} {
  ^bb0(%a: f16, %o: f16):
    %y = arith.negf %a : f16
    linalg.yield %y : f16
  } -> tensor<128x512xf16>
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x512xf16>) outs(%e : tensor<128x512xf16>)
      attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.tiling = [{loop = "3.M", dim = 0 : i64, tiles = 2 : i64}, {loop = "4.N", dim = 1 : i64, tiles = 4 : i64, unrolled = false}]} {
  ^bb0(%a: f16, %o: f16):
    %y = math.exp %a : f16
    linalg.yield %y : f16
  } -> tensor<128x512xf16>
  %3 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%2 : tensor<128x512xf16>) outs(%f : tensor<128xf16>)
      attrs = {sdsc.op = #sdsc.op<"sum", {}>, sdsc.tiling = [{loop = "3.M", dim = 0 : i64, tiles = 2 : i64}]} {
  ^bb0(%a: f16, %o: f16):
    %y = arith.addf %a, %o : f16
    linalg.yield %y : f16
  } -> tensor<128xf16>
  return %1, %3 : tensor<128x512xf16>, tensor<128xf16>
}
