// Attention of 32 heads, 512 queries and 512 keys, fp16, as torch-mlir imports it from PyTorch.
#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map1 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
module {
  func.func @main(%arg0: tensor<1x32x512x128xf16> {spyre.kind = "input", spyre.name = "inputs_0"}, %arg1: tensor<1x32x512x128xf16> {spyre.kind = "input", spyre.name = "inputs_1"}, %arg2: tensor<1x32x512x128xf16> {spyre.kind = "input", spyre.name = "inputs_2"}) -> tensor<1x32x512x128xf16> {
    %cst = arith.constant 0.000000e+00 : f32
    %c0_i64 = arith.constant 0 : i64
    %cst_0 = arith.constant 0xFC00 : f16
    %cst_1 = arith.constant 8.837890e-02 : f16
    %0 = tensor.empty() : tensor<1x32x512x128xf16>
    %1 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%arg0 : tensor<1x32x512x128xf16>) outs(%0 : tensor<1x32x512x128xf16>) {
    ^bb0(%in: f16, %out: f16):
      %28 = arith.mulf %in, %cst_1 : f16
      linalg.yield %28 : f16
    } -> tensor<1x32x512x128xf16>
    %2 = tensor.empty() : tensor<1x32x128x512xf16>
    %transposed = linalg.transpose ins(%arg1 : tensor<1x32x512x128xf16>) outs(%2 : tensor<1x32x128x512xf16>) permutation = [0, 1, 3, 2] 
    %collapsed = tensor.collapse_shape %1 [[0, 1], [2], [3]] : tensor<1x32x512x128xf16> into tensor<32x512x128xf16>
    %collapsed_2 = tensor.collapse_shape %transposed [[0, 1], [2], [3]] : tensor<1x32x128x512xf16> into tensor<32x128x512xf16>
    %3 = tensor.empty() : tensor<32x512x512xf32>
    %4 = linalg.fill ins(%cst : f32) outs(%3 : tensor<32x512x512xf32>) -> tensor<32x512x512xf32>
    %5 = linalg.batch_matmul ins(%collapsed, %collapsed_2 : tensor<32x512x128xf16>, tensor<32x128x512xf16>) outs(%4 : tensor<32x512x512xf32>) -> tensor<32x512x512xf32>
    %6 = tensor.empty() : tensor<32x512x512xf16>
    %7 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel", "parallel"]} ins(%5 : tensor<32x512x512xf32>) outs(%6 : tensor<32x512x512xf16>) {
    ^bb0(%in: f32, %out: f16):
      %28 = arith.truncf %in : f32 to f16
      linalg.yield %28 : f16
    } -> tensor<32x512x512xf16>
    %expanded = tensor.expand_shape %7 [[0, 1], [2], [3]] output_shape [1, 32, 512, 512] : tensor<32x512x512xf16> into tensor<1x32x512x512xf16>
    %8 = tensor.empty() : tensor<1x32x512xi64>
    %9 = linalg.fill ins(%c0_i64 : i64) outs(%8 : tensor<1x32x512xi64>) -> tensor<1x32x512xi64>
    %10 = tensor.empty() : tensor<1x32x512xf16>
    %11 = linalg.fill ins(%cst_0 : f16) outs(%10 : tensor<1x32x512xf16>) -> tensor<1x32x512xf16>
    %12:2 = linalg.generic {indexing_maps = [#map, #map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%expanded : tensor<1x32x512x512xf16>) outs(%11, %9 : tensor<1x32x512xf16>, tensor<1x32x512xi64>) {
    ^bb0(%in: f16, %out: f16, %out_7: i64):
      %28 = linalg.index 3 : index
      %29 = arith.index_cast %28 : index to i64
      %30 = arith.maximumf %in, %out : f16
      %31 = arith.cmpf ogt, %in, %out : f16
      %32 = arith.select %31, %29, %out_7 : i64
      linalg.yield %30, %32 : f16, i64
    } -> (tensor<1x32x512xf16>, tensor<1x32x512xi64>)
    %expanded_3 = tensor.expand_shape %12#0 [[0], [1], [2, 3]] output_shape [1, 32, 512, 1] : tensor<1x32x512xf16> into tensor<1x32x512x1xf16>
    %13 = tensor.empty() : tensor<1x32x512x512xf16>
    %14 = linalg.generic {indexing_maps = [#map, #map3, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded, %expanded_3 : tensor<1x32x512x512xf16>, tensor<1x32x512x1xf16>) outs(%13 : tensor<1x32x512x512xf16>) {
    ^bb0(%in: f16, %in_7: f16, %out: f16):
      %28 = arith.subf %in, %in_7 : f16
      linalg.yield %28 : f16
    } -> tensor<1x32x512x512xf16>
    %15 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%14 : tensor<1x32x512x512xf16>) outs(%13 : tensor<1x32x512x512xf16>) {
    ^bb0(%in: f16, %out: f16):
      %28 = math.exp %in : f16
      linalg.yield %28 : f16
    } -> tensor<1x32x512x512xf16>
    %16 = tensor.empty() : tensor<1x32x512x512xf32>
    %17 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%15 : tensor<1x32x512x512xf16>) outs(%16 : tensor<1x32x512x512xf32>) {
    ^bb0(%in: f16, %out: f32):
      %28 = arith.extf %in : f16 to f32
      linalg.yield %28 : f32
    } -> tensor<1x32x512x512xf32>
    %18 = tensor.empty() : tensor<1x32x512x1xf32>
    %19 = linalg.fill ins(%cst : f32) outs(%18 : tensor<1x32x512x1xf32>) -> tensor<1x32x512x1xf32>
    %20 = linalg.generic {indexing_maps = [#map, #map3], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%15 : tensor<1x32x512x512xf16>) outs(%19 : tensor<1x32x512x1xf32>) {
    ^bb0(%in: f16, %out: f32):
      %28 = arith.extf %in : f16 to f32
      %29 = arith.addf %28, %out : f32
      linalg.yield %29 : f32
    } -> tensor<1x32x512x1xf32>
    %21 = linalg.generic {indexing_maps = [#map, #map3, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%17, %20 : tensor<1x32x512x512xf32>, tensor<1x32x512x1xf32>) outs(%16 : tensor<1x32x512x512xf32>) {
    ^bb0(%in: f32, %in_7: f32, %out: f32):
      %28 = arith.divf %in, %in_7 : f32
      linalg.yield %28 : f32
    } -> tensor<1x32x512x512xf32>
    %22 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%21 : tensor<1x32x512x512xf32>) outs(%13 : tensor<1x32x512x512xf16>) {
    ^bb0(%in: f32, %out: f16):
      %28 = arith.truncf %in : f32 to f16
      linalg.yield %28 : f16
    } -> tensor<1x32x512x512xf16>
    %collapsed_4 = tensor.collapse_shape %22 [[0, 1], [2], [3]] : tensor<1x32x512x512xf16> into tensor<32x512x512xf16>
    %collapsed_5 = tensor.collapse_shape %arg2 [[0, 1], [2], [3]] : tensor<1x32x512x128xf16> into tensor<32x512x128xf16>
    %23 = tensor.empty() : tensor<32x512x128xf32>
    %24 = linalg.fill ins(%cst : f32) outs(%23 : tensor<32x512x128xf32>) -> tensor<32x512x128xf32>
    %25 = linalg.batch_matmul ins(%collapsed_4, %collapsed_5 : tensor<32x512x512xf16>, tensor<32x512x128xf16>) outs(%24 : tensor<32x512x128xf32>) -> tensor<32x512x128xf32>
    %26 = tensor.empty() : tensor<32x512x128xf16>
    %27 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel", "parallel"]} ins(%25 : tensor<32x512x128xf32>) outs(%26 : tensor<32x512x128xf16>) {
    ^bb0(%in: f32, %out: f16):
      %28 = arith.truncf %in : f32 to f16
      linalg.yield %28 : f16
    } -> tensor<32x512x128xf16>
    %expanded_6 = tensor.expand_shape %27 [[0, 1], [2], [3]] output_shape [1, 32, 512, 128] : tensor<32x512x128xf16> into tensor<1x32x512x128xf16>
    return %expanded_6 : tensor<1x32x512x128xf16>
  }
}
