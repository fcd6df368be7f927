// Granite-like layer on 64 rows, fp16, as torch-mlir imports it from PyTorch.
#map = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d0, d1, 0)>
#map2 = affine_map<(d0, d1, d2) -> (d2)>
#map3 = affine_map<(d0, d1) -> (d0, d1)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map5 = affine_map<(d0, d1, d2, d3) -> (d2, d3)>
#map6 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3, d4)>
#map7 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>
#map8 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map9 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
module {
  func.func @main(%arg0: tensor<4096xf16> {spyre.kind = "parameter", spyre.name = "attention_norm.weight"}, %arg1: tensor<4096xf16> {spyre.kind = "parameter", spyre.name = "mlp_norm.weight"}, %arg2: tensor<4096x4096xf16> {spyre.kind = "parameter", spyre.name = "q.weight"}, %arg3: tensor<1024x4096xf16> {spyre.kind = "parameter", spyre.name = "k.weight"}, %arg4: tensor<1024x4096xf16> {spyre.kind = "parameter", spyre.name = "v.weight"}, %arg5: tensor<4096x4096xf16> {spyre.kind = "parameter", spyre.name = "o.weight"}, %arg6: tensor<12800x4096xf16> {spyre.kind = "parameter", spyre.name = "mlp.gate.weight"}, %arg7: tensor<12800x4096xf16> {spyre.kind = "parameter", spyre.name = "mlp.up.weight"}, %arg8: tensor<4096x12800xf16> {spyre.kind = "parameter", spyre.name = "mlp.down.weight"}, %arg9: tensor<64x128xf16> {spyre.kind = "constant", spyre.name = "cos"}, %arg10: tensor<64x128xf16> {spyre.kind = "constant", spyre.name = "sin"}, %arg11: tensor<1x64x4096xf16> {spyre.kind = "input", spyre.name = "x"}, %arg12: tensor<64x64xf16> {sdsc.runs = {ends = dense<"0x0100000040000000420000008000000083000000C0000000C4000000000100000501000040010000460100008001000087010000C0010000C80100000002000009020000400200004A020000800200008B020000C0020000CC020000000300000D030000400300004E030000800300008F030000C0030000D0030000000400001104000040040000520400008004000093040000C0040000D4040000000500001505000040050000560500008005000097050000C0050000D80500000006000019060000400600005A060000800600009B060000C0060000DC060000000700001D070000400700005E070000800700009F070000C0070000E00700000008000021080000400800006208000080080000A3080000C0080000E40800000009000025090000400900006609000080090000A7090000C0090000E8090000000A0000290A0000400A00006A0A0000800A0000AB0A0000C00A0000EC0A0000000B00002D0B0000400B00006E0B0000800B0000AF0B0000C00B0000F00B0000000C0000310C0000400C0000720C0000800C0000B30C0000C00C0000F40C0000000D0000350D0000400D0000760D0000800D0000B70D0000C00D0000F80D0000000E0000390E0000400E00007A0E0000800E0000BB0E0000C00E0000FC0E0000000F00003D0F0000400F00007E0F0000800F0000BF0F0000C00F000000100000"> : tensor<127xi32>, values = dense<"0x0000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC60000000000E0FFC600000000"> : tensor<127xf32>}, spyre.kind = "constant", spyre.name = "constant_convert_element_type_2", spyre.source_bytes = 0 : i64}) -> tensor<1x64x4096xf16> {
    %c0_i64 = arith.constant 0 : i64
    %cst = arith.constant 0.000000e+00 : f32
    %cst_0 = arith.constant 0xFC00 : f16
    %cst_1 = arith.constant 1.000000e+00 : f16
    %cst_2 = arith.constant 8.837890e-02 : f16
    %cst_3 = arith.constant 9.99999974E-6 : f32
    %cst_4 = arith.constant 4.096000e+03 : f32
    %0 = tensor.empty() : tensor<1x64x4096xf32>
    %1 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%arg11 : tensor<1x64x4096xf16>) outs(%0 : tensor<1x64x4096xf32>) {
    ^bb0(%in: f16, %out: f32):
      %98 = arith.extf %in : f16 to f32
      linalg.yield %98 : f32
    } -> tensor<1x64x4096xf32>
    %2 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%1, %1 : tensor<1x64x4096xf32>, tensor<1x64x4096xf32>) outs(%0 : tensor<1x64x4096xf32>) {
    ^bb0(%in: f32, %in_37: f32, %out: f32):
      %98 = arith.mulf %in, %in_37 : f32
      linalg.yield %98 : f32
    } -> tensor<1x64x4096xf32>
    %3 = tensor.empty() : tensor<1x64x1xf32>
    %4 = linalg.fill ins(%cst : f32) outs(%3 : tensor<1x64x1xf32>) -> tensor<1x64x1xf32>
    %5 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel", "reduction"]} ins(%2 : tensor<1x64x4096xf32>) outs(%4 : tensor<1x64x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %98 = arith.addf %in, %out : f32
      linalg.yield %98 : f32
    } -> tensor<1x64x1xf32>
    %6 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%5 : tensor<1x64x1xf32>) outs(%3 : tensor<1x64x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %98 = arith.divf %in, %cst_4 : f32
      linalg.yield %98 : f32
    } -> tensor<1x64x1xf32>
    %7 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%6 : tensor<1x64x1xf32>) outs(%3 : tensor<1x64x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %98 = arith.addf %in, %cst_3 : f32
      linalg.yield %98 : f32
    } -> tensor<1x64x1xf32>
    %8 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%7 : tensor<1x64x1xf32>) outs(%3 : tensor<1x64x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %98 = math.rsqrt %in : f32
      linalg.yield %98 : f32
    } -> tensor<1x64x1xf32>
    %9 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%1, %8 : tensor<1x64x4096xf32>, tensor<1x64x1xf32>) outs(%0 : tensor<1x64x4096xf32>) {
    ^bb0(%in: f32, %in_37: f32, %out: f32):
      %98 = arith.mulf %in, %in_37 : f32
      linalg.yield %98 : f32
    } -> tensor<1x64x4096xf32>
    %10 = tensor.empty() : tensor<1x64x4096xf16>
    %11 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%9 : tensor<1x64x4096xf32>) outs(%10 : tensor<1x64x4096xf16>) {
    ^bb0(%in: f32, %out: f16):
      %98 = arith.truncf %in : f32 to f16
      linalg.yield %98 : f16
    } -> tensor<1x64x4096xf16>
    %12 = linalg.generic {indexing_maps = [#map, #map2, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%11, %arg0 : tensor<1x64x4096xf16>, tensor<4096xf16>) outs(%10 : tensor<1x64x4096xf16>) {
    ^bb0(%in: f16, %in_37: f16, %out: f16):
      %98 = arith.mulf %in, %in_37 : f16
      linalg.yield %98 : f16
    } -> tensor<1x64x4096xf16>
    %13 = tensor.empty() : tensor<4096x4096xf16>
    %transposed = linalg.transpose ins(%arg2 : tensor<4096x4096xf16>) outs(%13 : tensor<4096x4096xf16>) permutation = [1, 0] 
    %collapsed = tensor.collapse_shape %12 [[0, 1], [2]] : tensor<1x64x4096xf16> into tensor<64x4096xf16>
    %14 = tensor.empty() : tensor<64x4096xf32>
    %15 = linalg.fill ins(%cst : f32) outs(%14 : tensor<64x4096xf32>) -> tensor<64x4096xf32>
    %16 = linalg.matmul ins(%collapsed, %transposed : tensor<64x4096xf16>, tensor<4096x4096xf16>) outs(%15 : tensor<64x4096xf32>) -> tensor<64x4096xf32>
    %17 = tensor.empty() : tensor<64x4096xf16>
    %18 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%16 : tensor<64x4096xf32>) outs(%17 : tensor<64x4096xf16>) {
    ^bb0(%in: f32, %out: f16):
      %98 = arith.truncf %in : f32 to f16
      linalg.yield %98 : f16
    } -> tensor<64x4096xf16>
    %expanded = tensor.expand_shape %18 [[0, 1], [2, 3]] output_shape [1, 64, 32, 128] : tensor<64x4096xf16> into tensor<1x64x32x128xf16>
    %19 = tensor.empty() : tensor<1x32x64x128xf16>
    %transposed_5 = linalg.transpose ins(%expanded : tensor<1x64x32x128xf16>) outs(%19 : tensor<1x32x64x128xf16>) permutation = [0, 2, 1, 3] 
    %extracted_slice = tensor.extract_slice %transposed_5[0, 0, 0, 0] [1, 32, 64, 64] [1, 1, 1, 1] : tensor<1x32x64x128xf16> to tensor<1x32x64x64xf16>
    %extracted_slice_6 = tensor.extract_slice %transposed_5[0, 0, 0, 64] [1, 32, 64, 64] [1, 1, 1, 1] : tensor<1x32x64x128xf16> to tensor<1x32x64x64xf16>
    %20 = linalg.generic {indexing_maps = [#map4, #map5, #map4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%transposed_5, %arg9 : tensor<1x32x64x128xf16>, tensor<64x128xf16>) outs(%19 : tensor<1x32x64x128xf16>) {
    ^bb0(%in: f16, %in_37: f16, %out: f16):
      %98 = arith.mulf %in, %in_37 : f16
      linalg.yield %98 : f16
    } -> tensor<1x32x64x128xf16>
    %21 = tensor.empty() : tensor<1x32x64x64xf16>
    %22 = linalg.generic {indexing_maps = [#map4, #map4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%extracted_slice_6 : tensor<1x32x64x64xf16>) outs(%21 : tensor<1x32x64x64xf16>) {
    ^bb0(%in: f16, %out: f16):
      %98 = arith.negf %in : f16
      linalg.yield %98 : f16
    } -> tensor<1x32x64x64xf16>
    %concat = tensor.concat dim(3) %22, %extracted_slice : (tensor<1x32x64x64xf16>, tensor<1x32x64x64xf16>) -> tensor<1x32x64x128xf16>
    %23 = linalg.generic {indexing_maps = [#map4, #map5, #map4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%concat, %arg10 : tensor<1x32x64x128xf16>, tensor<64x128xf16>) outs(%19 : tensor<1x32x64x128xf16>) {
    ^bb0(%in: f16, %in_37: f16, %out: f16):
      %98 = arith.mulf %in, %in_37 : f16
      linalg.yield %98 : f16
    } -> tensor<1x32x64x128xf16>
    %24 = linalg.generic {indexing_maps = [#map4, #map4, #map4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%20, %23 : tensor<1x32x64x128xf16>, tensor<1x32x64x128xf16>) outs(%19 : tensor<1x32x64x128xf16>) {
    ^bb0(%in: f16, %in_37: f16, %out: f16):
      %98 = arith.addf %in, %in_37 : f16
      linalg.yield %98 : f16
    } -> tensor<1x32x64x128xf16>
    %25 = tensor.empty() : tensor<4096x1024xf16>
    %transposed_7 = linalg.transpose ins(%arg3 : tensor<1024x4096xf16>) outs(%25 : tensor<4096x1024xf16>) permutation = [1, 0] 
    %26 = tensor.empty() : tensor<64x1024xf32>
    %27 = linalg.fill ins(%cst : f32) outs(%26 : tensor<64x1024xf32>) -> tensor<64x1024xf32>
    %28 = linalg.matmul ins(%collapsed, %transposed_7 : tensor<64x4096xf16>, tensor<4096x1024xf16>) outs(%27 : tensor<64x1024xf32>) -> tensor<64x1024xf32>
    %29 = tensor.empty() : tensor<64x1024xf16>
    %30 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%28 : tensor<64x1024xf32>) outs(%29 : tensor<64x1024xf16>) {
    ^bb0(%in: f32, %out: f16):
      %98 = arith.truncf %in : f32 to f16
      linalg.yield %98 : f16
    } -> tensor<64x1024xf16>
    %expanded_8 = tensor.expand_shape %30 [[0, 1], [2, 3]] output_shape [1, 64, 8, 128] : tensor<64x1024xf16> into tensor<1x64x8x128xf16>
    %31 = tensor.empty() : tensor<1x8x64x128xf16>
    %transposed_9 = linalg.transpose ins(%expanded_8 : tensor<1x64x8x128xf16>) outs(%31 : tensor<1x8x64x128xf16>) permutation = [0, 2, 1, 3] 
    %extracted_slice_10 = tensor.extract_slice %transposed_9[0, 0, 0, 0] [1, 8, 64, 64] [1, 1, 1, 1] : tensor<1x8x64x128xf16> to tensor<1x8x64x64xf16>
    %extracted_slice_11 = tensor.extract_slice %transposed_9[0, 0, 0, 64] [1, 8, 64, 64] [1, 1, 1, 1] : tensor<1x8x64x128xf16> to tensor<1x8x64x64xf16>
    %32 = linalg.generic {indexing_maps = [#map4, #map5, #map4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%transposed_9, %arg9 : tensor<1x8x64x128xf16>, tensor<64x128xf16>) outs(%31 : tensor<1x8x64x128xf16>) {
    ^bb0(%in: f16, %in_37: f16, %out: f16):
      %98 = arith.mulf %in, %in_37 : f16
      linalg.yield %98 : f16
    } -> tensor<1x8x64x128xf16>
    %33 = tensor.empty() : tensor<1x8x64x64xf16>
    %34 = linalg.generic {indexing_maps = [#map4, #map4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%extracted_slice_11 : tensor<1x8x64x64xf16>) outs(%33 : tensor<1x8x64x64xf16>) {
    ^bb0(%in: f16, %out: f16):
      %98 = arith.negf %in : f16
      linalg.yield %98 : f16
    } -> tensor<1x8x64x64xf16>
    %concat_12 = tensor.concat dim(3) %34, %extracted_slice_10 : (tensor<1x8x64x64xf16>, tensor<1x8x64x64xf16>) -> tensor<1x8x64x128xf16>
    %35 = linalg.generic {indexing_maps = [#map4, #map5, #map4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%concat_12, %arg10 : tensor<1x8x64x128xf16>, tensor<64x128xf16>) outs(%31 : tensor<1x8x64x128xf16>) {
    ^bb0(%in: f16, %in_37: f16, %out: f16):
      %98 = arith.mulf %in, %in_37 : f16
      linalg.yield %98 : f16
    } -> tensor<1x8x64x128xf16>
    %36 = linalg.generic {indexing_maps = [#map4, #map4, #map4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%32, %35 : tensor<1x8x64x128xf16>, tensor<1x8x64x128xf16>) outs(%31 : tensor<1x8x64x128xf16>) {
    ^bb0(%in: f16, %in_37: f16, %out: f16):
      %98 = arith.addf %in, %in_37 : f16
      linalg.yield %98 : f16
    } -> tensor<1x8x64x128xf16>
    %transposed_13 = linalg.transpose ins(%arg4 : tensor<1024x4096xf16>) outs(%25 : tensor<4096x1024xf16>) permutation = [1, 0] 
    %37 = linalg.matmul ins(%collapsed, %transposed_13 : tensor<64x4096xf16>, tensor<4096x1024xf16>) outs(%27 : tensor<64x1024xf32>) -> tensor<64x1024xf32>
    %38 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%37 : tensor<64x1024xf32>) outs(%29 : tensor<64x1024xf16>) {
    ^bb0(%in: f32, %out: f16):
      %98 = arith.truncf %in : f32 to f16
      linalg.yield %98 : f16
    } -> tensor<64x1024xf16>
    %expanded_14 = tensor.expand_shape %38 [[0, 1], [2, 3]] output_shape [1, 64, 8, 128] : tensor<64x1024xf16> into tensor<1x64x8x128xf16>
    %transposed_15 = linalg.transpose ins(%expanded_14 : tensor<1x64x8x128xf16>) outs(%31 : tensor<1x8x64x128xf16>) permutation = [0, 2, 1, 3] 
    %39 = tensor.empty() : tensor<1x8x4x64x128xf16>
    %40 = linalg.generic {indexing_maps = [#map6, #map7], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%36 : tensor<1x8x64x128xf16>) outs(%39 : tensor<1x8x4x64x128xf16>) {
    ^bb0(%in: f16, %out: f16):
      linalg.yield %in : f16
    } -> tensor<1x8x4x64x128xf16>
    %collapsed_16 = tensor.collapse_shape %40 [[0], [1, 2], [3], [4]] : tensor<1x8x4x64x128xf16> into tensor<1x32x64x128xf16>
    %41 = linalg.generic {indexing_maps = [#map6, #map7], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%transposed_15 : tensor<1x8x64x128xf16>) outs(%39 : tensor<1x8x4x64x128xf16>) {
    ^bb0(%in: f16, %out: f16):
      linalg.yield %in : f16
    } -> tensor<1x8x4x64x128xf16>
    %42 = linalg.generic {indexing_maps = [#map4, #map4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%24 : tensor<1x32x64x128xf16>) outs(%19 : tensor<1x32x64x128xf16>) {
    ^bb0(%in: f16, %out: f16):
      %98 = arith.mulf %in, %cst_2 : f16
      linalg.yield %98 : f16
    } -> tensor<1x32x64x128xf16>
    %43 = tensor.empty() : tensor<1x32x128x64xf16>
    %transposed_17 = linalg.transpose ins(%collapsed_16 : tensor<1x32x64x128xf16>) outs(%43 : tensor<1x32x128x64xf16>) permutation = [0, 1, 3, 2] 
    %collapsed_18 = tensor.collapse_shape %42 [[0, 1], [2], [3]] : tensor<1x32x64x128xf16> into tensor<32x64x128xf16>
    %collapsed_19 = tensor.collapse_shape %transposed_17 [[0, 1], [2], [3]] : tensor<1x32x128x64xf16> into tensor<32x128x64xf16>
    %44 = tensor.empty() : tensor<32x64x64xf32>
    %45 = linalg.fill ins(%cst : f32) outs(%44 : tensor<32x64x64xf32>) -> tensor<32x64x64xf32>
    %46 = linalg.batch_matmul ins(%collapsed_18, %collapsed_19 : tensor<32x64x128xf16>, tensor<32x128x64xf16>) outs(%45 : tensor<32x64x64xf32>) -> tensor<32x64x64xf32>
    %47 = tensor.empty() : tensor<32x64x64xf16>
    %48 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%46 : tensor<32x64x64xf32>) outs(%47 : tensor<32x64x64xf16>) {
    ^bb0(%in: f32, %out: f16):
      %98 = arith.truncf %in : f32 to f16
      linalg.yield %98 : f16
    } -> tensor<32x64x64xf16>
    %expanded_20 = tensor.expand_shape %48 [[0, 1], [2], [3]] output_shape [1, 32, 64, 64] : tensor<32x64x64xf16> into tensor<1x32x64x64xf16>
    %49 = linalg.generic {indexing_maps = [#map4, #map5, #map4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded_20, %arg12 : tensor<1x32x64x64xf16>, tensor<64x64xf16>) outs(%21 : tensor<1x32x64x64xf16>) {
    ^bb0(%in: f16, %in_37: f16, %out: f16):
      %98 = arith.addf %in, %in_37 : f16
      linalg.yield %98 : f16
    } -> tensor<1x32x64x64xf16>
    %50 = tensor.empty() : tensor<1x32x64xi64>
    %51 = linalg.fill ins(%c0_i64 : i64) outs(%50 : tensor<1x32x64xi64>) -> tensor<1x32x64xi64>
    %52 = tensor.empty() : tensor<1x32x64xf16>
    %53 = linalg.fill ins(%cst_0 : f16) outs(%52 : tensor<1x32x64xf16>) -> tensor<1x32x64xf16>
    %54:2 = linalg.generic {indexing_maps = [#map4, #map8, #map8], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%49 : tensor<1x32x64x64xf16>) outs(%53, %51 : tensor<1x32x64xf16>, tensor<1x32x64xi64>) {
    ^bb0(%in: f16, %out: f16, %out_37: i64):
      %98 = linalg.index 3 : index
      %99 = arith.index_cast %98 : index to i64
      %100 = arith.maximumf %in, %out : f16
      %101 = arith.cmpf ogt, %in, %out : f16
      %102 = arith.select %101, %99, %out_37 : i64
      linalg.yield %100, %102 : f16, i64
    } -> (tensor<1x32x64xf16>, tensor<1x32x64xi64>)
    %expanded_21 = tensor.expand_shape %54#0 [[0], [1], [2, 3]] output_shape [1, 32, 64, 1] : tensor<1x32x64xf16> into tensor<1x32x64x1xf16>
    %55 = linalg.generic {indexing_maps = [#map4, #map9, #map4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%49, %expanded_21 : tensor<1x32x64x64xf16>, tensor<1x32x64x1xf16>) outs(%21 : tensor<1x32x64x64xf16>) {
    ^bb0(%in: f16, %in_37: f16, %out: f16):
      %98 = arith.subf %in, %in_37 : f16
      linalg.yield %98 : f16
    } -> tensor<1x32x64x64xf16>
    %56 = linalg.generic {indexing_maps = [#map4, #map4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%55 : tensor<1x32x64x64xf16>) outs(%21 : tensor<1x32x64x64xf16>) {
    ^bb0(%in: f16, %out: f16):
      %98 = math.exp %in : f16
      linalg.yield %98 : f16
    } -> tensor<1x32x64x64xf16>
    %57 = tensor.empty() : tensor<1x32x64x64xf32>
    %58 = linalg.generic {indexing_maps = [#map4, #map4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%56 : tensor<1x32x64x64xf16>) outs(%57 : tensor<1x32x64x64xf32>) {
    ^bb0(%in: f16, %out: f32):
      %98 = arith.extf %in : f16 to f32
      linalg.yield %98 : f32
    } -> tensor<1x32x64x64xf32>
    %59 = tensor.empty() : tensor<1x32x64x1xf32>
    %60 = linalg.fill ins(%cst : f32) outs(%59 : tensor<1x32x64x1xf32>) -> tensor<1x32x64x1xf32>
    %61 = linalg.generic {indexing_maps = [#map4, #map9], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%56 : tensor<1x32x64x64xf16>) outs(%60 : tensor<1x32x64x1xf32>) {
    ^bb0(%in: f16, %out: f32):
      %98 = arith.extf %in : f16 to f32
      %99 = arith.addf %98, %out : f32
      linalg.yield %99 : f32
    } -> tensor<1x32x64x1xf32>
    %62 = linalg.generic {indexing_maps = [#map4, #map9, #map4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%58, %61 : tensor<1x32x64x64xf32>, tensor<1x32x64x1xf32>) outs(%57 : tensor<1x32x64x64xf32>) {
    ^bb0(%in: f32, %in_37: f32, %out: f32):
      %98 = arith.divf %in, %in_37 : f32
      linalg.yield %98 : f32
    } -> tensor<1x32x64x64xf32>
    %63 = linalg.generic {indexing_maps = [#map4, #map4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%62 : tensor<1x32x64x64xf32>) outs(%21 : tensor<1x32x64x64xf16>) {
    ^bb0(%in: f32, %out: f16):
      %98 = arith.truncf %in : f32 to f16
      linalg.yield %98 : f16
    } -> tensor<1x32x64x64xf16>
    %collapsed_22 = tensor.collapse_shape %63 [[0, 1], [2], [3]] : tensor<1x32x64x64xf16> into tensor<32x64x64xf16>
    %collapsed_23 = tensor.collapse_shape %41 [[0, 1, 2], [3], [4]] : tensor<1x8x4x64x128xf16> into tensor<32x64x128xf16>
    %64 = tensor.empty() : tensor<32x64x128xf32>
    %65 = linalg.fill ins(%cst : f32) outs(%64 : tensor<32x64x128xf32>) -> tensor<32x64x128xf32>
    %66 = linalg.batch_matmul ins(%collapsed_22, %collapsed_23 : tensor<32x64x64xf16>, tensor<32x64x128xf16>) outs(%65 : tensor<32x64x128xf32>) -> tensor<32x64x128xf32>
    %67 = tensor.empty() : tensor<32x64x128xf16>
    %68 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%66 : tensor<32x64x128xf32>) outs(%67 : tensor<32x64x128xf16>) {
    ^bb0(%in: f32, %out: f16):
      %98 = arith.truncf %in : f32 to f16
      linalg.yield %98 : f16
    } -> tensor<32x64x128xf16>
    %expanded_24 = tensor.expand_shape %68 [[0, 1], [2], [3]] output_shape [1, 32, 64, 128] : tensor<32x64x128xf16> into tensor<1x32x64x128xf16>
    %69 = tensor.empty() : tensor<1x64x32x128xf16>
    %transposed_25 = linalg.transpose ins(%expanded_24 : tensor<1x32x64x128xf16>) outs(%69 : tensor<1x64x32x128xf16>) permutation = [0, 2, 1, 3] 
    %transposed_26 = linalg.transpose ins(%arg5 : tensor<4096x4096xf16>) outs(%13 : tensor<4096x4096xf16>) permutation = [1, 0] 
    %collapsed_27 = tensor.collapse_shape %transposed_25 [[0, 1], [2, 3]] : tensor<1x64x32x128xf16> into tensor<64x4096xf16>
    %70 = linalg.matmul ins(%collapsed_27, %transposed_26 : tensor<64x4096xf16>, tensor<4096x4096xf16>) outs(%15 : tensor<64x4096xf32>) -> tensor<64x4096xf32>
    %71 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%70 : tensor<64x4096xf32>) outs(%17 : tensor<64x4096xf16>) {
    ^bb0(%in: f32, %out: f16):
      %98 = arith.truncf %in : f32 to f16
      linalg.yield %98 : f16
    } -> tensor<64x4096xf16>
    %expanded_28 = tensor.expand_shape %71 [[0, 1], [2]] output_shape [1, 64, 4096] : tensor<64x4096xf16> into tensor<1x64x4096xf16>
    %72 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%arg11, %expanded_28 : tensor<1x64x4096xf16>, tensor<1x64x4096xf16>) outs(%10 : tensor<1x64x4096xf16>) {
    ^bb0(%in: f16, %in_37: f16, %out: f16):
      %98 = arith.addf %in, %in_37 : f16
      linalg.yield %98 : f16
    } -> tensor<1x64x4096xf16>
    %73 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%72 : tensor<1x64x4096xf16>) outs(%0 : tensor<1x64x4096xf32>) {
    ^bb0(%in: f16, %out: f32):
      %98 = arith.extf %in : f16 to f32
      linalg.yield %98 : f32
    } -> tensor<1x64x4096xf32>
    %74 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%73, %73 : tensor<1x64x4096xf32>, tensor<1x64x4096xf32>) outs(%0 : tensor<1x64x4096xf32>) {
    ^bb0(%in: f32, %in_37: f32, %out: f32):
      %98 = arith.mulf %in, %in_37 : f32
      linalg.yield %98 : f32
    } -> tensor<1x64x4096xf32>
    %75 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel", "reduction"]} ins(%74 : tensor<1x64x4096xf32>) outs(%4 : tensor<1x64x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %98 = arith.addf %in, %out : f32
      linalg.yield %98 : f32
    } -> tensor<1x64x1xf32>
    %76 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%75 : tensor<1x64x1xf32>) outs(%3 : tensor<1x64x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %98 = arith.divf %in, %cst_4 : f32
      linalg.yield %98 : f32
    } -> tensor<1x64x1xf32>
    %77 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%76 : tensor<1x64x1xf32>) outs(%3 : tensor<1x64x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %98 = arith.addf %in, %cst_3 : f32
      linalg.yield %98 : f32
    } -> tensor<1x64x1xf32>
    %78 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%77 : tensor<1x64x1xf32>) outs(%3 : tensor<1x64x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %98 = math.rsqrt %in : f32
      linalg.yield %98 : f32
    } -> tensor<1x64x1xf32>
    %79 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%73, %78 : tensor<1x64x4096xf32>, tensor<1x64x1xf32>) outs(%0 : tensor<1x64x4096xf32>) {
    ^bb0(%in: f32, %in_37: f32, %out: f32):
      %98 = arith.mulf %in, %in_37 : f32
      linalg.yield %98 : f32
    } -> tensor<1x64x4096xf32>
    %80 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%79 : tensor<1x64x4096xf32>) outs(%10 : tensor<1x64x4096xf16>) {
    ^bb0(%in: f32, %out: f16):
      %98 = arith.truncf %in : f32 to f16
      linalg.yield %98 : f16
    } -> tensor<1x64x4096xf16>
    %81 = linalg.generic {indexing_maps = [#map, #map2, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%80, %arg1 : tensor<1x64x4096xf16>, tensor<4096xf16>) outs(%10 : tensor<1x64x4096xf16>) {
    ^bb0(%in: f16, %in_37: f16, %out: f16):
      %98 = arith.mulf %in, %in_37 : f16
      linalg.yield %98 : f16
    } -> tensor<1x64x4096xf16>
    %82 = tensor.empty() : tensor<4096x12800xf16>
    %transposed_29 = linalg.transpose ins(%arg6 : tensor<12800x4096xf16>) outs(%82 : tensor<4096x12800xf16>) permutation = [1, 0] 
    %collapsed_30 = tensor.collapse_shape %81 [[0, 1], [2]] : tensor<1x64x4096xf16> into tensor<64x4096xf16>
    %83 = tensor.empty() : tensor<64x12800xf32>
    %84 = linalg.fill ins(%cst : f32) outs(%83 : tensor<64x12800xf32>) -> tensor<64x12800xf32>
    %85 = linalg.matmul ins(%collapsed_30, %transposed_29 : tensor<64x4096xf16>, tensor<4096x12800xf16>) outs(%84 : tensor<64x12800xf32>) -> tensor<64x12800xf32>
    %86 = tensor.empty() : tensor<64x12800xf16>
    %87 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%85 : tensor<64x12800xf32>) outs(%86 : tensor<64x12800xf16>) {
    ^bb0(%in: f32, %out: f16):
      %98 = arith.truncf %in : f32 to f16
      linalg.yield %98 : f16
    } -> tensor<64x12800xf16>
    %expanded_31 = tensor.expand_shape %87 [[0, 1], [2]] output_shape [1, 64, 12800] : tensor<64x12800xf16> into tensor<1x64x12800xf16>
    %88 = tensor.empty() : tensor<1x64x12800xf16>
    %89 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%expanded_31 : tensor<1x64x12800xf16>) outs(%88 : tensor<1x64x12800xf16>) {
    ^bb0(%in: f16, %out: f16):
      %98 = arith.negf %in : f16
      %99 = math.exp %98 : f16
      %100 = arith.addf %99, %cst_1 : f16
      %101 = arith.divf %cst_1, %100 : f16
      linalg.yield %101 : f16
    } -> tensor<1x64x12800xf16>
    %90 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%expanded_31, %89 : tensor<1x64x12800xf16>, tensor<1x64x12800xf16>) outs(%88 : tensor<1x64x12800xf16>) {
    ^bb0(%in: f16, %in_37: f16, %out: f16):
      %98 = arith.mulf %in, %in_37 : f16
      linalg.yield %98 : f16
    } -> tensor<1x64x12800xf16>
    %transposed_32 = linalg.transpose ins(%arg7 : tensor<12800x4096xf16>) outs(%82 : tensor<4096x12800xf16>) permutation = [1, 0] 
    %91 = linalg.matmul ins(%collapsed_30, %transposed_32 : tensor<64x4096xf16>, tensor<4096x12800xf16>) outs(%84 : tensor<64x12800xf32>) -> tensor<64x12800xf32>
    %92 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%91 : tensor<64x12800xf32>) outs(%86 : tensor<64x12800xf16>) {
    ^bb0(%in: f32, %out: f16):
      %98 = arith.truncf %in : f32 to f16
      linalg.yield %98 : f16
    } -> tensor<64x12800xf16>
    %expanded_33 = tensor.expand_shape %92 [[0, 1], [2]] output_shape [1, 64, 12800] : tensor<64x12800xf16> into tensor<1x64x12800xf16>
    %93 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%90, %expanded_33 : tensor<1x64x12800xf16>, tensor<1x64x12800xf16>) outs(%88 : tensor<1x64x12800xf16>) {
    ^bb0(%in: f16, %in_37: f16, %out: f16):
      %98 = arith.mulf %in, %in_37 : f16
      linalg.yield %98 : f16
    } -> tensor<1x64x12800xf16>
    %94 = tensor.empty() : tensor<12800x4096xf16>
    %transposed_34 = linalg.transpose ins(%arg8 : tensor<4096x12800xf16>) outs(%94 : tensor<12800x4096xf16>) permutation = [1, 0] 
    %collapsed_35 = tensor.collapse_shape %93 [[0, 1], [2]] : tensor<1x64x12800xf16> into tensor<64x12800xf16>
    %95 = linalg.matmul ins(%collapsed_35, %transposed_34 : tensor<64x12800xf16>, tensor<12800x4096xf16>) outs(%15 : tensor<64x4096xf32>) -> tensor<64x4096xf32>
    %96 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%95 : tensor<64x4096xf32>) outs(%17 : tensor<64x4096xf16>) {
    ^bb0(%in: f32, %out: f16):
      %98 = arith.truncf %in : f32 to f16
      linalg.yield %98 : f16
    } -> tensor<64x4096xf16>
    %expanded_36 = tensor.expand_shape %96 [[0, 1], [2]] output_shape [1, 64, 4096] : tensor<64x4096xf16> into tensor<1x64x4096xf16>
    %97 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%72, %expanded_36 : tensor<1x64x4096xf16>, tensor<1x64x4096xf16>) outs(%10 : tensor<1x64x4096xf16>) {
    ^bb0(%in: f16, %in_37: f16, %out: f16):
      %98 = arith.addf %in, %in_37 : f16
      linalg.yield %98 : f16
    } -> tensor<1x64x4096xf16>
    return %97 : tensor<1x64x4096xf16>
  }
}
