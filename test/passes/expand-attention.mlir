// RUN: spyre-opt %s --split-input-file --attach-target="lx-frac-avail=1" --expand-attention --verify-device-ops --remarks=%t | filecheck %s
// RUN: filecheck %s --check-prefix=REMARK --input-file=%t

// Batch, groups, heads of a group, rows, columns, keys. Keys and values have no heads of a group: they are not repeated.
// CHECK: #[[QUERIES:.*]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3, d5)>
// CHECK: #[[KEYS:.*]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d4, d5)>
// CHECK: #[[VALUES:.*]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d5, d4)>
// CHECK-LABEL: func.func @main(
// CHECK: %[[Q:.*]] = tensor.expand_shape %arg0 {{.*}} into tensor<2x2x2x64x64xf16>
// CHECK: %[[S:.*]] = linalg.generic {indexing_maps = [#[[QUERIES]], #[[KEYS]], {{.*}} ins(%[[Q]], %arg1 : {{.*}}"batchmatmul"
// CHECK: %[[M:.*]] = linalg.generic {{.*}} ins(%[[S]] : tensor<2x2x2x64x128xf16>) {{.*}}"max"
// CHECK: linalg.generic {{.*}} ins(%[[S]], %[[M]] : {{.*}}"sub"
// CHECK: %[[P:.*]] = linalg.generic {{.*}}"realdiv"
// CHECK: %[[O:.*]] = linalg.generic {indexing_maps = [#[[QUERIES]], #[[VALUES]], {{.*}} ins(%[[P]], %arg2 : {{.*}}"batchmatmul"
// CHECK: %[[R:.*]] = tensor.collapse_shape %[[O]] {{.*}} into tensor<2x4x64x64xf16>
// CHECK: return %[[R]]
// REMARK: "kind": "rewrite", "reason": "all its operations over 2 x 2 x 2 x 64 x 128, without views between them"
#map = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3, d4)>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map5 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
func.func @main(%arg0: tensor<2x4x64x64xf16>, %arg1: tensor<2x2x128x64xf16>, %arg2: tensor<2x2x128x64xf16>) -> (tensor<2x4x64x64xf16>) {
  %cst = arith.constant 0.000000e+00 : f16
  %cst_0 = arith.constant 0xFC00 : f16
  %0 = tensor.empty() : tensor<2x2x2x128x64xf16>
  %1 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%arg1 : tensor<2x2x128x64xf16>) outs(%0 : tensor<2x2x2x128x64xf16>) attrs =  {sdsc.op = #sdsc.op<"identity", {}>} {
  ^bb0(%in: f16, %out: f16):
    linalg.yield %in : f16
  } -> tensor<2x2x2x128x64xf16>
  %collapsed = tensor.collapse_shape %1 [[0], [1, 2], [3], [4]] : tensor<2x2x2x128x64xf16> into tensor<2x4x128x64xf16>
  %collapsed_1 = tensor.collapse_shape %arg0 [[0, 1], [2], [3]] : tensor<2x4x64x64xf16> into tensor<8x64x64xf16>
  %2 = tensor.empty() : tensor<2x4x64x128xf16>
  %transposed = linalg.transpose ins(%collapsed : tensor<2x4x128x64xf16>) outs(%2 : tensor<2x4x64x128xf16>) permutation = [0, 1, 3, 2] 
  %collapsed_2 = tensor.collapse_shape %transposed [[0, 1], [2], [3]] : tensor<2x4x64x128xf16> into tensor<8x64x128xf16>
  %3 = tensor.empty() : tensor<8x64x128xf16>
  %4 = linalg.fill ins(%cst : f16) outs(%3 : tensor<8x64x128xf16>) -> tensor<8x64x128xf16>
  %5 = linalg.generic {indexing_maps = [#map2, #map3, #map4], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%collapsed_1, %collapsed_2 : tensor<8x64x64xf16>, tensor<8x64x128xf16>) outs(%4 : tensor<8x64x128xf16>) attrs =  {sdsc.demoted, sdsc.op = #sdsc.op<"batchmatmul", {}>} {
  ^bb0(%in: f16, %in_6: f16, %out: f16):
    %18 = arith.mulf %in, %in_6 : f16
    %19 = arith.addf %out, %18 : f16
    linalg.yield %19 : f16
  } -> tensor<8x64x128xf16>
  %expanded = tensor.expand_shape %5 [[0, 1], [2], [3]] output_shape [2, 4, 64, 128] : tensor<8x64x128xf16> into tensor<2x4x64x128xf16>
  %6 = tensor.empty() : tensor<2x4x64xf16>
  %7 = linalg.fill ins(%cst_0 : f16) outs(%6 : tensor<2x4x64xf16>) -> tensor<2x4x64xf16>
  %8 = linalg.generic {indexing_maps = [#map5, #map4], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%expanded : tensor<2x4x64x128xf16>) outs(%7 : tensor<2x4x64xf16>) attrs =  {sdsc.op = #sdsc.op<"max", {}>} {
  ^bb0(%in: f16, %out: f16):
    %18 = arith.maximumf %out, %in : f16
    linalg.yield %18 : f16
  } -> tensor<2x4x64xf16>
  %9 = linalg.generic {indexing_maps = [#map5, #map4, #map5], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded, %8 : tensor<2x4x64x128xf16>, tensor<2x4x64xf16>) outs(%2 : tensor<2x4x64x128xf16>) attrs =  {sdsc.op = #sdsc.op<"sub", {}>} {
  ^bb0(%in: f16, %in_6: f16, %out: f16):
    %18 = arith.subf %in, %in_6 : f16
    linalg.yield %18 : f16
  } -> tensor<2x4x64x128xf16>
  %10 = linalg.generic {indexing_maps = [#map5, #map5], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%9 : tensor<2x4x64x128xf16>) outs(%2 : tensor<2x4x64x128xf16>) attrs =  {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%in: f16, %out: f16):
    %18 = math.exp %in : f16
    linalg.yield %18 : f16
  } -> tensor<2x4x64x128xf16>
  %11 = linalg.fill ins(%cst : f16) outs(%6 : tensor<2x4x64xf16>) -> tensor<2x4x64xf16>
  %12 = linalg.generic {indexing_maps = [#map5, #map4], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%10 : tensor<2x4x64x128xf16>) outs(%11 : tensor<2x4x64xf16>) attrs =  {sdsc.demoted, sdsc.op = #sdsc.op<"sum", {}>} {
  ^bb0(%in: f16, %out: f16):
    %18 = arith.addf %out, %in : f16
    linalg.yield %18 : f16
  } -> tensor<2x4x64xf16>
  %13 = linalg.generic {indexing_maps = [#map5, #map4, #map5], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%10, %12 : tensor<2x4x64x128xf16>, tensor<2x4x64xf16>) outs(%2 : tensor<2x4x64x128xf16>) attrs =  {sdsc.op = #sdsc.op<"realdiv", {}>} {
  ^bb0(%in: f16, %in_6: f16, %out: f16):
    %18 = arith.divf %in, %in_6 : f16
    linalg.yield %18 : f16
  } -> tensor<2x4x64x128xf16>
  %collapsed_3 = tensor.collapse_shape %13 [[0, 1], [2], [3]] : tensor<2x4x64x128xf16> into tensor<8x64x128xf16>
  %14 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%arg2 : tensor<2x2x128x64xf16>) outs(%0 : tensor<2x2x2x128x64xf16>) attrs =  {sdsc.op = #sdsc.op<"identity", {}>} {
  ^bb0(%in: f16, %out: f16):
    linalg.yield %in : f16
  } -> tensor<2x2x2x128x64xf16>
  %collapsed_4 = tensor.collapse_shape %14 [[0, 1, 2], [3], [4]] : tensor<2x2x2x128x64xf16> into tensor<8x128x64xf16>
  %15 = tensor.empty() : tensor<8x64x64xf16>
  %16 = linalg.fill ins(%cst : f16) outs(%15 : tensor<8x64x64xf16>) -> tensor<8x64x64xf16>
  %17 = linalg.generic {indexing_maps = [#map2, #map3, #map4], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%collapsed_3, %collapsed_4 : tensor<8x64x128xf16>, tensor<8x128x64xf16>) outs(%16 : tensor<8x64x64xf16>) attrs =  {sdsc.demoted, sdsc.op = #sdsc.op<"batchmatmul", {}>} {
  ^bb0(%in: f16, %in_6: f16, %out: f16):
    %18 = arith.mulf %in, %in_6 : f16
    %19 = arith.addf %out, %18 : f16
    linalg.yield %19 : f16
  } -> tensor<8x64x64xf16>
  %expanded_5 = tensor.expand_shape %17 [[0, 1], [2], [3]] output_shape [2, 4, 64, 64] : tensor<8x64x64xf16> into tensor<2x4x64x64xf16>
  return %expanded_5 : tensor<2x4x64x64xf16>
}
