// Residual block of two convolutions, 64 channels of 56 x 56, fp16, as torch-mlir imports it from PyTorch.
#map = affine_map<(d0) -> (d0)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
module {
  func.func @main(%arg0: tensor<1x64x56x56xf16> {spyre.kind = "input", spyre.name = "x"}, %arg1: tensor<64x64x3x3xf16> {spyre.kind = "parameter", spyre.name = "first.weight.folded"}, %arg2: tensor<64xf16> {spyre.kind = "parameter", spyre.name = "first.weight.folded_bias"}, %arg3: tensor<64x64x3x3xf16> {spyre.kind = "parameter", spyre.name = "second.weight.folded"}, %arg4: tensor<64xf16> {spyre.kind = "parameter", spyre.name = "second.weight.folded_bias"}) -> tensor<1x64x56x56xf16> {
    %cst = arith.constant 0.000000e+00 : f16
    %padded = tensor.pad %arg0 low[0, 0, 1, 1] high[0, 0, 1, 1] {
    ^bb0(%arg5: index, %arg6: index, %arg7: index, %arg8: index):
      tensor.yield %cst : f16
    } : tensor<1x64x56x56xf16> to tensor<1x64x58x58xf16>
    %0 = tensor.empty() : tensor<1x64x56x56xf32>
    %1 = tensor.empty() : tensor<64xf32>
    %2 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]} ins(%arg2 : tensor<64xf16>) outs(%1 : tensor<64xf32>) {
    ^bb0(%in: f16, %out: f32):
      %12 = arith.extf %in : f16 to f32
      linalg.yield %12 : f32
    } -> tensor<64xf32>
    %broadcasted = linalg.broadcast ins(%2 : tensor<64xf32>) outs(%0 : tensor<1x64x56x56xf32>) dimensions = [0, 2, 3] 
    %3 = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>} ins(%padded, %arg1 : tensor<1x64x58x58xf16>, tensor<64x64x3x3xf16>) outs(%broadcasted : tensor<1x64x56x56xf32>) -> tensor<1x64x56x56xf32>
    %4 = tensor.empty() : tensor<1x64x56x56xf16>
    %5 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%3 : tensor<1x64x56x56xf32>) outs(%4 : tensor<1x64x56x56xf16>) {
    ^bb0(%in: f32, %out: f16):
      %12 = arith.truncf %in : f32 to f16
      linalg.yield %12 : f16
    } -> tensor<1x64x56x56xf16>
    %6 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%5 : tensor<1x64x56x56xf16>) outs(%4 : tensor<1x64x56x56xf16>) {
    ^bb0(%in: f16, %out: f16):
      %12 = arith.cmpf ugt, %in, %cst : f16
      %13 = arith.select %12, %in, %cst : f16
      linalg.yield %13 : f16
    } -> tensor<1x64x56x56xf16>
    %padded_0 = tensor.pad %6 low[0, 0, 1, 1] high[0, 0, 1, 1] {
    ^bb0(%arg5: index, %arg6: index, %arg7: index, %arg8: index):
      tensor.yield %cst : f16
    } : tensor<1x64x56x56xf16> to tensor<1x64x58x58xf16>
    %7 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]} ins(%arg4 : tensor<64xf16>) outs(%1 : tensor<64xf32>) {
    ^bb0(%in: f16, %out: f32):
      %12 = arith.extf %in : f16 to f32
      linalg.yield %12 : f32
    } -> tensor<64xf32>
    %broadcasted_1 = linalg.broadcast ins(%7 : tensor<64xf32>) outs(%0 : tensor<1x64x56x56xf32>) dimensions = [0, 2, 3] 
    %8 = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>} ins(%padded_0, %arg3 : tensor<1x64x58x58xf16>, tensor<64x64x3x3xf16>) outs(%broadcasted_1 : tensor<1x64x56x56xf32>) -> tensor<1x64x56x56xf32>
    %9 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%8 : tensor<1x64x56x56xf32>) outs(%4 : tensor<1x64x56x56xf16>) {
    ^bb0(%in: f32, %out: f16):
      %12 = arith.truncf %in : f32 to f16
      linalg.yield %12 : f16
    } -> tensor<1x64x56x56xf16>
    %10 = linalg.generic {indexing_maps = [#map1, #map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%9, %arg0 : tensor<1x64x56x56xf16>, tensor<1x64x56x56xf16>) outs(%4 : tensor<1x64x56x56xf16>) {
    ^bb0(%in: f16, %in_2: f16, %out: f16):
      %12 = arith.addf %in, %in_2 : f16
      linalg.yield %12 : f16
    } -> tensor<1x64x56x56xf16>
    %11 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%10 : tensor<1x64x56x56xf16>) outs(%4 : tensor<1x64x56x56xf16>) {
    ^bb0(%in: f16, %out: f16):
      %12 = arith.cmpf ugt, %in, %cst : f16
      %13 = arith.select %12, %in, %cst : f16
      linalg.yield %13 : f16
    } -> tensor<1x64x56x56xf16>
    return %11 : tensor<1x64x56x56xf16>
  }
}
