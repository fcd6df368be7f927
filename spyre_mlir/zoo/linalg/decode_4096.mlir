// One query of 32 heads against 8 heads of 4096 keys, fp16, as torch-mlir imports it from PyTorch.
#map = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3, d4)>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map5 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
module {
  func.func @main(%arg0: tensor<1x32x1x128xf16> {spyre.kind = "input", spyre.name = "inputs_0"}, %arg1: tensor<1x8x4096x128xf16> {spyre.kind = "input", spyre.name = "inputs_1"}, %arg2: tensor<1x8x4096x128xf16> {spyre.kind = "input", spyre.name = "inputs_2"}) -> tensor<1x32x1x128xf16> {
    %c0_i64 = arith.constant 0 : i64
    %cst = arith.constant 0.000000e+00 : f32
    %cst_0 = arith.constant 0xFC00 : f16
    %cst_1 = arith.constant 8.837890e-02 : f16
    %0 = tensor.empty() : tensor<1x8x4x4096x128xf16>
    %1 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%arg1 : tensor<1x8x4096x128xf16>) outs(%0 : tensor<1x8x4x4096x128xf16>) {
    ^bb0(%in: f16, %out: f16):
      linalg.yield %in : f16
    } -> tensor<1x8x4x4096x128xf16>
    %collapsed = tensor.collapse_shape %1 [[0], [1, 2], [3], [4]] : tensor<1x8x4x4096x128xf16> into tensor<1x32x4096x128xf16>
    %2 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%arg2 : tensor<1x8x4096x128xf16>) outs(%0 : tensor<1x8x4x4096x128xf16>) {
    ^bb0(%in: f16, %out: f16):
      linalg.yield %in : f16
    } -> tensor<1x8x4x4096x128xf16>
    %3 = tensor.empty() : tensor<1x32x1x128xf16>
    %4 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%arg0 : tensor<1x32x1x128xf16>) outs(%3 : tensor<1x32x1x128xf16>) {
    ^bb0(%in: f16, %out: f16):
      %31 = arith.mulf %in, %cst_1 : f16
      linalg.yield %31 : f16
    } -> tensor<1x32x1x128xf16>
    %5 = tensor.empty() : tensor<1x32x128x4096xf16>
    %transposed = linalg.transpose ins(%collapsed : tensor<1x32x4096x128xf16>) outs(%5 : tensor<1x32x128x4096xf16>) permutation = [0, 1, 3, 2] 
    %collapsed_2 = tensor.collapse_shape %4 [[0, 1], [2], [3]] : tensor<1x32x1x128xf16> into tensor<32x1x128xf16>
    %collapsed_3 = tensor.collapse_shape %transposed [[0, 1], [2], [3]] : tensor<1x32x128x4096xf16> into tensor<32x128x4096xf16>
    %6 = tensor.empty() : tensor<32x1x4096xf32>
    %7 = linalg.fill ins(%cst : f32) outs(%6 : tensor<32x1x4096xf32>) -> tensor<32x1x4096xf32>
    %8 = linalg.batch_matmul ins(%collapsed_2, %collapsed_3 : tensor<32x1x128xf16>, tensor<32x128x4096xf16>) outs(%7 : tensor<32x1x4096xf32>) -> tensor<32x1x4096xf32>
    %9 = tensor.empty() : tensor<32x1x4096xf16>
    %10 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel", "parallel"]} ins(%8 : tensor<32x1x4096xf32>) outs(%9 : tensor<32x1x4096xf16>) {
    ^bb0(%in: f32, %out: f16):
      %31 = arith.truncf %in : f32 to f16
      linalg.yield %31 : f16
    } -> tensor<32x1x4096xf16>
    %expanded = tensor.expand_shape %10 [[0, 1], [2], [3]] output_shape [1, 32, 1, 4096] : tensor<32x1x4096xf16> into tensor<1x32x1x4096xf16>
    %11 = tensor.empty() : tensor<1x32x1xi64>
    %12 = linalg.fill ins(%c0_i64 : i64) outs(%11 : tensor<1x32x1xi64>) -> tensor<1x32x1xi64>
    %13 = tensor.empty() : tensor<1x32x1xf16>
    %14 = linalg.fill ins(%cst_0 : f16) outs(%13 : tensor<1x32x1xf16>) -> tensor<1x32x1xf16>
    %15:2 = linalg.generic {indexing_maps = [#map2, #map4, #map4], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%expanded : tensor<1x32x1x4096xf16>) outs(%14, %12 : tensor<1x32x1xf16>, tensor<1x32x1xi64>) {
    ^bb0(%in: f16, %out: f16, %out_8: i64):
      %31 = linalg.index 3 : index
      %32 = arith.index_cast %31 : index to i64
      %33 = arith.maximumf %in, %out : f16
      %34 = arith.cmpf ogt, %in, %out : f16
      %35 = arith.select %34, %32, %out_8 : i64
      linalg.yield %33, %35 : f16, i64
    } -> (tensor<1x32x1xf16>, tensor<1x32x1xi64>)
    %expanded_4 = tensor.expand_shape %15#0 [[0], [1], [2, 3]] output_shape [1, 32, 1, 1] : tensor<1x32x1xf16> into tensor<1x32x1x1xf16>
    %16 = tensor.empty() : tensor<1x32x1x4096xf16>
    %17 = linalg.generic {indexing_maps = [#map2, #map5, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded, %expanded_4 : tensor<1x32x1x4096xf16>, tensor<1x32x1x1xf16>) outs(%16 : tensor<1x32x1x4096xf16>) {
    ^bb0(%in: f16, %in_8: f16, %out: f16):
      %31 = arith.subf %in, %in_8 : f16
      linalg.yield %31 : f16
    } -> tensor<1x32x1x4096xf16>
    %18 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%17 : tensor<1x32x1x4096xf16>) outs(%16 : tensor<1x32x1x4096xf16>) {
    ^bb0(%in: f16, %out: f16):
      %31 = math.exp %in : f16
      linalg.yield %31 : f16
    } -> tensor<1x32x1x4096xf16>
    %19 = tensor.empty() : tensor<1x32x1x4096xf32>
    %20 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%18 : tensor<1x32x1x4096xf16>) outs(%19 : tensor<1x32x1x4096xf32>) {
    ^bb0(%in: f16, %out: f32):
      %31 = arith.extf %in : f16 to f32
      linalg.yield %31 : f32
    } -> tensor<1x32x1x4096xf32>
    %21 = tensor.empty() : tensor<1x32x1x1xf32>
    %22 = linalg.fill ins(%cst : f32) outs(%21 : tensor<1x32x1x1xf32>) -> tensor<1x32x1x1xf32>
    %23 = linalg.generic {indexing_maps = [#map2, #map5], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%18 : tensor<1x32x1x4096xf16>) outs(%22 : tensor<1x32x1x1xf32>) {
    ^bb0(%in: f16, %out: f32):
      %31 = arith.extf %in : f16 to f32
      %32 = arith.addf %31, %out : f32
      linalg.yield %32 : f32
    } -> tensor<1x32x1x1xf32>
    %24 = linalg.generic {indexing_maps = [#map2, #map5, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%20, %23 : tensor<1x32x1x4096xf32>, tensor<1x32x1x1xf32>) outs(%19 : tensor<1x32x1x4096xf32>) {
    ^bb0(%in: f32, %in_8: f32, %out: f32):
      %31 = arith.divf %in, %in_8 : f32
      linalg.yield %31 : f32
    } -> tensor<1x32x1x4096xf32>
    %25 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%24 : tensor<1x32x1x4096xf32>) outs(%16 : tensor<1x32x1x4096xf16>) {
    ^bb0(%in: f32, %out: f16):
      %31 = arith.truncf %in : f32 to f16
      linalg.yield %31 : f16
    } -> tensor<1x32x1x4096xf16>
    %collapsed_5 = tensor.collapse_shape %25 [[0, 1], [2], [3]] : tensor<1x32x1x4096xf16> into tensor<32x1x4096xf16>
    %collapsed_6 = tensor.collapse_shape %2 [[0, 1, 2], [3], [4]] : tensor<1x8x4x4096x128xf16> into tensor<32x4096x128xf16>
    %26 = tensor.empty() : tensor<32x1x128xf32>
    %27 = linalg.fill ins(%cst : f32) outs(%26 : tensor<32x1x128xf32>) -> tensor<32x1x128xf32>
    %28 = linalg.batch_matmul ins(%collapsed_5, %collapsed_6 : tensor<32x1x4096xf16>, tensor<32x4096x128xf16>) outs(%27 : tensor<32x1x128xf32>) -> tensor<32x1x128xf32>
    %29 = tensor.empty() : tensor<32x1x128xf16>
    %30 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel", "parallel"]} ins(%28 : tensor<32x1x128xf32>) outs(%29 : tensor<32x1x128xf16>) {
    ^bb0(%in: f32, %out: f16):
      %31 = arith.truncf %in : f32 to f16
      linalg.yield %31 : f16
    } -> tensor<32x1x128xf16>
    %expanded_7 = tensor.expand_shape %30 [[0, 1], [2], [3]] output_shape [1, 32, 1, 128] : tensor<32x1x128xf16> into tensor<1x32x1x128xf16>
    return %expanded_7 : tensor<1x32x1x128xf16>
  }
}
