// SwiGLU MLP of 512 rows, 4096 wide, 12800 inside, fp16, as torch-mlir imports it from PyTorch.
#map = affine_map<(d0, d1) -> (d0, d1)>
module {
  func.func @main(%arg0: tensor<12800x4096xf16> {spyre.kind = "parameter", spyre.name = "gate.weight"}, %arg1: tensor<12800x4096xf16> {spyre.kind = "parameter", spyre.name = "up.weight"}, %arg2: tensor<4096x12800xf16> {spyre.kind = "parameter", spyre.name = "down.weight"}, %arg3: tensor<512x4096xf16> {spyre.kind = "input", spyre.name = "x"}) -> tensor<512x4096xf16> {
    %cst = arith.constant 0.000000e+00 : f32
    %cst_0 = arith.constant 1.000000e+00 : f16
    %0 = tensor.empty() : tensor<4096x12800xf16>
    %transposed = linalg.transpose ins(%arg0 : tensor<12800x4096xf16>) outs(%0 : tensor<4096x12800xf16>) permutation = [1, 0] 
    %1 = tensor.empty() : tensor<512x12800xf32>
    %2 = linalg.fill ins(%cst : f32) outs(%1 : tensor<512x12800xf32>) -> tensor<512x12800xf32>
    %3 = linalg.matmul ins(%arg3, %transposed : tensor<512x4096xf16>, tensor<4096x12800xf16>) outs(%2 : tensor<512x12800xf32>) -> tensor<512x12800xf32>
    %4 = tensor.empty() : tensor<512x12800xf16>
    %5 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%3 : tensor<512x12800xf32>) outs(%4 : tensor<512x12800xf16>) {
    ^bb0(%in: f32, %out: f16):
      %17 = arith.truncf %in : f32 to f16
      linalg.yield %17 : f16
    } -> tensor<512x12800xf16>
    %6 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%5 : tensor<512x12800xf16>) outs(%4 : tensor<512x12800xf16>) {
    ^bb0(%in: f16, %out: f16):
      %17 = arith.negf %in : f16
      %18 = math.exp %17 : f16
      %19 = arith.addf %18, %cst_0 : f16
      %20 = arith.divf %cst_0, %19 : f16
      linalg.yield %20 : f16
    } -> tensor<512x12800xf16>
    %7 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%5, %6 : tensor<512x12800xf16>, tensor<512x12800xf16>) outs(%4 : tensor<512x12800xf16>) {
    ^bb0(%in: f16, %in_3: f16, %out: f16):
      %17 = arith.mulf %in, %in_3 : f16
      linalg.yield %17 : f16
    } -> tensor<512x12800xf16>
    %transposed_1 = linalg.transpose ins(%arg1 : tensor<12800x4096xf16>) outs(%0 : tensor<4096x12800xf16>) permutation = [1, 0] 
    %8 = linalg.matmul ins(%arg3, %transposed_1 : tensor<512x4096xf16>, tensor<4096x12800xf16>) outs(%2 : tensor<512x12800xf32>) -> tensor<512x12800xf32>
    %9 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%8 : tensor<512x12800xf32>) outs(%4 : tensor<512x12800xf16>) {
    ^bb0(%in: f32, %out: f16):
      %17 = arith.truncf %in : f32 to f16
      linalg.yield %17 : f16
    } -> tensor<512x12800xf16>
    %10 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%7, %9 : tensor<512x12800xf16>, tensor<512x12800xf16>) outs(%4 : tensor<512x12800xf16>) {
    ^bb0(%in: f16, %in_3: f16, %out: f16):
      %17 = arith.mulf %in, %in_3 : f16
      linalg.yield %17 : f16
    } -> tensor<512x12800xf16>
    %11 = tensor.empty() : tensor<12800x4096xf16>
    %transposed_2 = linalg.transpose ins(%arg2 : tensor<4096x12800xf16>) outs(%11 : tensor<12800x4096xf16>) permutation = [1, 0] 
    %12 = tensor.empty() : tensor<512x4096xf32>
    %13 = linalg.fill ins(%cst : f32) outs(%12 : tensor<512x4096xf32>) -> tensor<512x4096xf32>
    %14 = linalg.matmul ins(%10, %transposed_2 : tensor<512x12800xf16>, tensor<12800x4096xf16>) outs(%13 : tensor<512x4096xf32>) -> tensor<512x4096xf32>
    %15 = tensor.empty() : tensor<512x4096xf16>
    %16 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%14 : tensor<512x4096xf32>) outs(%15 : tensor<512x4096xf16>) {
    ^bb0(%in: f32, %out: f16):
      %17 = arith.truncf %in : f32 to f16
      linalg.yield %17 : f16
    } -> tensor<512x4096xf16>
    return %16 : tensor<512x4096xf16>
  }
}
