// RUN: spyre-opt %s --factor-softmax | filecheck %s

// A softmax with an attention sink: its maximum and its sum have a term that the matmul does not read. The softmax of
// the scores alone precedes the matmul; the factors follow it. Scores from outside may be -infinity, so they become
// finite.
// CHECK-LABEL: func.func @main
// CHECK: %[[S:.*]] = linalg.generic {{.*}}ins(%arg0, {{.*}}<"maximum",
// CHECK: %[[M:.*]] = linalg.generic {{.*}}ins(%[[S]] : {{.*}}<"max",
// CHECK: sdsc.op = #sdsc.op<"sub",
// CHECK: %[[E:.*]] = linalg.generic {{.*}}<"exp",
// CHECK: linalg.generic {{.*}}ins(%[[E]] : {{.*}}<"sum",
// CHECK: <"realdiv",
// CHECK: %[[O:.*]] = linalg.generic {{.*}}<"batchmatmul",
// CHECK: linalg.generic {{.*}}ins(%[[M]], %arg1 : {{.*}}<"maximum",
// CHECK: linalg.generic {{.*}}ins(%[[O]], {{.*}}<"mul",
// CHECK-NOT: sdsc.op
// CHECK: return
!scores = tensor<16x2048x2048xf16>
!rows = tensor<16x2048xf16>
!values = tensor<16x2048x64xf16>
#p2 = ["parallel", "parallel"]
#p2r = ["parallel", "parallel", "reduction"]
#p3 = ["parallel", "parallel", "parallel"]
#p3r = ["parallel", "parallel", "parallel", "reduction"]
#map = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d0, d1)>
#map2 = affine_map<(d0, d1) -> (d0, d1)>
#map3 = affine_map<(d0, d1) -> (d0)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
#map5 = affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>
#map6 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
func.func @main(
    %arg0: !scores {sdsc.host = #sdsc.host<"a_0", "input", "f16">},
    %arg1: tensor<16xf16> {sdsc.host = #sdsc.host<"a_1", "input", "f16">},
    %arg2: !values {sdsc.host = #sdsc.host<"a_2", "input", "f16">}
  ) -> (!values {sdsc.host = #sdsc.host<"result0", "result", "f16">}) {
  %cst = arith.constant 0.000000e+00 : f16
  %cst_0 = arith.constant 0xFC00 : f16
  %0 = tensor.empty() : !rows
  %1 = linalg.fill ins(%cst_0 : f16) outs(%0 : !rows) -> !rows
  %2 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = #p2r}
      ins(%arg0 : !scores) outs(%1 : !rows)
      attrs = {sdsc.op = #sdsc.op<"max", {}>} {
  ^bb0(%in: f16, %out: f16):
    %16 = arith.maximumf %out, %in : f16
    linalg.yield %16 : f16
  } -> !rows
  %3 = linalg.generic {indexing_maps = [#map2, #map3, #map2], iterator_types = #p2}
      ins(%2, %arg1 : !rows, tensor<16xf16>) outs(%0 : !rows)
      attrs = {sdsc.op = #sdsc.op<"maximum", {}>} {
  ^bb0(%in: f16, %in_1: f16, %out: f16):
    %16 = arith.maximumf %in, %in_1 : f16
    linalg.yield %16 : f16
  } -> !rows
  %4 = tensor.empty() : !scores
  %5 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = #p3}
      ins(%arg0, %3 : !scores, !rows) outs(%4 : !scores)
      attrs = {sdsc.op = #sdsc.op<"sub", {}>} {
  ^bb0(%in: f16, %in_1: f16, %out: f16):
    %16 = arith.subf %in, %in_1 : f16
    linalg.yield %16 : f16
  } -> !scores
  %6 = linalg.generic {indexing_maps = [#map, #map], iterator_types = #p3}
      ins(%5 : !scores) outs(%4 : !scores)
      attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%in: f16, %out: f16):
    %16 = math.exp %in : f16
    linalg.yield %16 : f16
  } -> !scores
  %7 = linalg.fill ins(%cst : f16) outs(%0 : !rows) -> !rows
  %8 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = #p2r}
      ins(%6 : !scores) outs(%7 : !rows)
      attrs = {sdsc.op = #sdsc.op<"sum", {}>} {
  ^bb0(%in: f16, %out: f16):
    %16 = arith.addf %out, %in : f16
    linalg.yield %16 : f16
  } -> !rows
  %9 = linalg.generic {indexing_maps = [#map3, #map2, #map2], iterator_types = #p2}
      ins(%arg1, %3 : tensor<16xf16>, !rows) outs(%0 : !rows)
      attrs = {sdsc.op = #sdsc.op<"sub", {}>} {
  ^bb0(%in: f16, %in_1: f16, %out: f16):
    %16 = arith.subf %in, %in_1 : f16
    linalg.yield %16 : f16
  } -> !rows
  %10 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = #p2}
      ins(%9 : !rows) outs(%0 : !rows)
      attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%in: f16, %out: f16):
    %16 = math.exp %in : f16
    linalg.yield %16 : f16
  } -> !rows
  %11 = linalg.generic {indexing_maps = [#map2, #map2, #map2], iterator_types = #p2}
      ins(%8, %10 : !rows, !rows) outs(%0 : !rows)
      attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%in: f16, %in_1: f16, %out: f16):
    %16 = arith.addf %in, %in_1 : f16
    linalg.yield %16 : f16
  } -> !rows
  %12 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = #p3}
      ins(%6, %11 : !scores, !rows) outs(%4 : !scores)
      attrs = {sdsc.op = #sdsc.op<"realdiv", {}>} {
  ^bb0(%in: f16, %in_1: f16, %out: f16):
    %16 = arith.divf %in, %in_1 : f16
    linalg.yield %16 : f16
  } -> !scores
  %13 = tensor.empty() : !values
  %14 = linalg.fill ins(%cst : f16) outs(%13 : !values) -> !values
  %15 = linalg.generic {indexing_maps = [#map4, #map5, #map6], iterator_types = #p3r}
      ins(%12, %arg2 : !scores, !values) outs(%14 : !values)
      attrs = {sdsc.op = #sdsc.op<"batchmatmul", {}>} {
  ^bb0(%in: f16, %in_1: f16, %out: f16):
    %16 = arith.mulf %in, %in_1 : f16
    %17 = arith.addf %out, %16 : f16
    linalg.yield %17 : f16
  } -> !values
  return %15 : !values
}
