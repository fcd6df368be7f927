// RUN: spyre-opt %s --split-input-file --verify-diagnostics --attach-hints --linalg-generalize-named-ops --decompose-to-device-ops --canonicalize --cse --propagate-named-dims | filecheck %s

// A matmul iterates over the dims of both operands, its result has those that are left; hints are attributes again.
// CHECK-LABEL: func.func @main
// CHECK: sdsc.dims = {{\[}}["M"], ["N"], ["K"]], sdsc.hints = [{id = 3 : i64, tiles = [{count = 8 : i64, dim = "M"}]}, {id = 4 : i64, tiles = [{count = 4 : i64, dim = "K"}]}], sdsc.op = #sdsc.op<"batchmatmul", {}>
// CHECK: sdsc.dims = {{\[}}["M"], ["N"]], sdsc.hints = [{id = 3 : i64, tiles = [{count = 8 : i64, dim = "M"}]}], sdsc.op = #sdsc.op<"add", {}>
// CHECK: sdsc.dims = {{\[}}["M"], ["N"]], sdsc.op = #sdsc.op<"exp", {}>
func.func @main(%x: tensor<64x256xf16> {sdsc.dims = ["M", "K"]}, %y: tensor<256x128xf16> {sdsc.dims = ["K", "N"]},
                %z: tensor<64x128xf16> {sdsc.dims = ["M", "N"]}) -> tensor<64x128xf16>
    attributes {sdsc.dim_sizes = {K = 256 : i64, M = 64 : i64, N = 128 : i64}} {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<64x128xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  %p = linalg.matmul {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "M", count = 8 : i64}]}, {id = 4 : i64, tiles = [{dim = "K", count = 4 : i64}]}]}
      ins(%x, %y : tensor<64x256xf16>, tensor<256x128xf16>) outs(%f : tensor<64x128xf16>) -> tensor<64x128xf16>
  %r = linalg.add {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "M", count = 8 : i64}]}]}
      ins(%p, %z : tensor<64x128xf16>, tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  %s = linalg.exp ins(%r : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %s : tensor<64x128xf16>
}

// -----

// A batched matmul, the softmax of its result by operations of its body, and what reads the sparse maximum.
// CHECK-LABEL: func.func @batched
// CHECK: sdsc.dims = {{\[}}["B"], ["Q"], ["K"], ["D"]], {{.*}}<"batchmatmul", {}>
// CHECK: sdsc.dims = {{\[}}["B"], ["Q"], ["K"]], {{.*}}<"max", {}>
// CHECK: sdsc.dims = {{\[}}["B"], ["Q"], ["K"]], {{.*}}<"sub", {}>
// CHECK: sdsc.dims = {{\[}}["B"], ["Q"], ["K"]], {{.*}}<"exp", {}>
#all = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#rows = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func @batched(%q: tensor<2x64x128xf16> {sdsc.dims = ["B", "Q", "D"]}, %k: tensor<2x128x64xf16> {sdsc.dims = ["B", "D", "K"]}) -> tensor<2x64x64xf16>
    attributes {sdsc.dim_sizes = {B = 2 : i64, D = 128 : i64, K = 64 : i64, Q = 64 : i64}} {
  %zero = arith.constant 0.0 : f16
  %low = arith.constant 0xFC00 : f16
  %e = tensor.empty() : tensor<2x64x64xf16>
  %v = tensor.empty() : tensor<2x64xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<2x64x64xf16>) -> tensor<2x64x64xf16>
  %g = linalg.fill ins(%low : f16) outs(%v : tensor<2x64xf16>) -> tensor<2x64xf16>
  %p = linalg.batch_matmul {sdsc.hints = [{id = 1 : i64, tiles = [{dim = "Q", count = 2 : i64}]}]}
      ins(%q, %k : tensor<2x64x128xf16>, tensor<2x128x64xf16>) outs(%f : tensor<2x64x64xf16>) -> tensor<2x64x64xf16>
  %max = linalg.generic {indexing_maps = [#all, #rows], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%p : tensor<2x64x64xf16>) outs(%g : tensor<2x64xf16>) {
  ^bb0(%a: f16, %o: f16):
    %m = arith.maximumf %a, %o : f16
    linalg.yield %m : f16
  } -> tensor<2x64xf16>
  %exp = linalg.generic {indexing_maps = [#all, #rows, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%p, %max : tensor<2x64x64xf16>, tensor<2x64xf16>) outs(%e : tensor<2x64x64xf16>) {
  ^bb0(%a: f16, %m: f16, %o: f16):
    %d = arith.subf %a, %m : f16
    %r = math.exp %d : f16
    linalg.yield %r : f16
  } -> tensor<2x64x64xf16>
  return %exp : tensor<2x64x64xf16>
}

// -----

// Transposes vanish into maps, a cast and a select keep names, a dim that is repeated has none.
// CHECK-LABEL: func.func @maps
// CHECK: sdsc.dims = {{\[}}["M"], ["N"]], {{.*}}<"greaterthan", {}>
// CHECK: sdsc.dims = {{\[}}["M"], ["N"]], {{.*}}<"where3", {}>
// CHECK: sdsc.dims = {{\[}}["M"], ["N"]], {{.*}}<"dl16tofp32", {}>
// CHECK: sdsc.dims = {{\[}}["M"], ["N"]], {{.*}}<"exp", {}>
// CHECK: sdsc.dims = {{\[}}[], ["M"], ["N"]], {{.*}}<"identity", {}>
#id = affine_map<(d0, d1) -> (d0, d1)>
#turned = affine_map<(d0, d1) -> (d1, d0)>
#inner = affine_map<(d0, d1, d2) -> (d1, d2)>
#whole = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
func.func @maps(%x: tensor<64x128xf16> {sdsc.dims = ["M", "N"]}, %y: tensor<128x64xf16> {sdsc.dims = ["N", "M"]}) -> tensor<4x64x128xf32>
    attributes {sdsc.dim_sizes = {M = 64 : i64, N = 128 : i64}} {
  %e = tensor.empty() : tensor<64x128xf32>
  %d = tensor.empty() : tensor<4x64x128xf32>
  %w = linalg.generic {indexing_maps = [#id, #turned, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %y : tensor<64x128xf16>, tensor<128x64xf16>) outs(%e : tensor<64x128xf32>) attrs = {sdsc.hints = [{id = 1 : i64, tiles = [{dim = "M", count = 2 : i64}]}]} {
  ^bb0(%a: f16, %b: f16, %o: f32):
    %c = arith.cmpf ogt, %a, %b : f16
    %s = arith.select %c, %a, %b : f16
    %r = arith.extf %s : f16 to f32
    linalg.yield %r : f32
  } -> tensor<64x128xf32>
  %z = linalg.generic {indexing_maps = [#inner, #whole], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%w : tensor<64x128xf32>) outs(%d : tensor<4x64x128xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<4x64x128xf32>
  %g = linalg.exp ins(%z : tensor<4x64x128xf32>) outs(%d : tensor<4x64x128xf32>) -> tensor<4x64x128xf32>
  return %g : tensor<4x64x128xf32>
}

// -----

// A function without hints stays as it is.
// CHECK-LABEL: func.func @plain
// CHECK: attrs =  {sdsc.op = #sdsc.op<"exp", {}>}
func.func @plain(%x: tensor<64x128xf16> {sdsc.dims = ["M", "N"]}) -> tensor<64x128xf16> attributes {sdsc.dim_sizes = {M = 64 : i64, N = 128 : i64}} {
  %e = tensor.empty() : tensor<64x128xf16>
  %g = linalg.exp ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %g : tensor<64x128xf16>
}
