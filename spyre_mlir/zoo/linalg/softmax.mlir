// Softmax of a (512, 1024) fp16 tensor over dim 0, as torch-mlir imports it from PyTorch.
#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d1)>
#map2 = affine_map<(d0, d1) -> (0, d1)>
module {
  func.func @main(%arg0: tensor<512x1024xf16> {spyre.kind = "input", spyre.name = "input"}) -> tensor<512x1024xf16> {
    %c0_i64 = arith.constant 0 : i64
    %cst = arith.constant 0xFC00 : f16
    %cst_0 = arith.constant 0.000000e+00 : f32
    %0 = tensor.empty() : tensor<1024xi64>
    %1 = linalg.fill ins(%c0_i64 : i64) outs(%0 : tensor<1024xi64>) -> tensor<1024xi64>
    %2 = tensor.empty() : tensor<1024xf16>
    %3 = linalg.fill ins(%cst : f16) outs(%2 : tensor<1024xf16>) -> tensor<1024xf16>
    %4:2 = linalg.generic {indexing_maps = [#map, #map1, #map1], iterator_types = ["reduction", "parallel"]} ins(%arg0 : tensor<512x1024xf16>) outs(%3, %1 : tensor<1024xf16>, tensor<1024xi64>) {
    ^bb0(%in: f16, %out: f16, %out_1: i64):
      %14 = linalg.index 0 : index
      %15 = arith.index_cast %14 : index to i64
      %16 = arith.maximumf %in, %out : f16
      %17 = arith.cmpf ogt, %in, %out : f16
      %18 = arith.select %17, %15, %out_1 : i64
      linalg.yield %16, %18 : f16, i64
    } -> (tensor<1024xf16>, tensor<1024xi64>)
    %expanded = tensor.expand_shape %4#0 [[0, 1]] output_shape [1, 1024] : tensor<1024xf16> into tensor<1x1024xf16>
    %5 = tensor.empty() : tensor<512x1024xf16>
    %6 = linalg.generic {indexing_maps = [#map, #map2, #map], iterator_types = ["parallel", "parallel"]} ins(%arg0, %expanded : tensor<512x1024xf16>, tensor<1x1024xf16>) outs(%5 : tensor<512x1024xf16>) {
    ^bb0(%in: f16, %in_1: f16, %out: f16):
      %14 = arith.subf %in, %in_1 : f16
      linalg.yield %14 : f16
    } -> tensor<512x1024xf16>
    %7 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%6 : tensor<512x1024xf16>) outs(%5 : tensor<512x1024xf16>) {
    ^bb0(%in: f16, %out: f16):
      %14 = math.exp %in : f16
      linalg.yield %14 : f16
    } -> tensor<512x1024xf16>
    %8 = tensor.empty() : tensor<1x1024xf32>
    %9 = linalg.fill ins(%cst_0 : f32) outs(%8 : tensor<1x1024xf32>) -> tensor<1x1024xf32>
    %10 = linalg.generic {indexing_maps = [#map, #map2], iterator_types = ["reduction", "parallel"]} ins(%7 : tensor<512x1024xf16>) outs(%9 : tensor<1x1024xf32>) {
    ^bb0(%in: f16, %out: f32):
      %14 = arith.extf %in : f16 to f32
      %15 = arith.addf %14, %out : f32
      linalg.yield %15 : f32
    } -> tensor<1x1024xf32>
    %11 = tensor.empty() : tensor<1x1024xf16>
    %12 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%10 : tensor<1x1024xf32>) outs(%11 : tensor<1x1024xf16>) {
    ^bb0(%in: f32, %out: f16):
      %14 = arith.truncf %in : f32 to f16
      linalg.yield %14 : f16
    } -> tensor<1x1024xf16>
    %13 = linalg.generic {indexing_maps = [#map, #map2, #map], iterator_types = ["parallel", "parallel"]} ins(%7, %12 : tensor<512x1024xf16>, tensor<1x1024xf16>) outs(%5 : tensor<512x1024xf16>) {
    ^bb0(%in: f16, %in_1: f16, %out: f16):
      %14 = arith.divf %in, %in_1 : f16
      linalg.yield %14 : f16
    } -> tensor<512x1024xf16>
    return %13 : tensor<512x1024xf16>
  }
}
