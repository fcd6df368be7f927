// RUN: spyre-opt %s --split-input-file --verify-diagnostics --attach-hints --linalg-generalize-named-ops --decompose-to-device-ops --canonicalize --cse --propagate-named-dims --lower-hints | filecheck %s
// RUN: spyre-opt %s --split-input-file --attach-hints --linalg-generalize-named-ops --decompose-to-device-ops --canonicalize --cse --propagate-named-dims --lower-hints --mlir-print-debuginfo 2>/dev/null | filecheck %s --check-prefix=PLAIN

// Locations are plain again, everywhere.
// PLAIN-NOT: sdsc.hints

// Nested hints: both loops around the matmul, only the outer one around the add; an op outside of hints has none.
// CHECK-LABEL: func.func @nested
// CHECK: attrs =  {sdsc.op = #sdsc.op<"batchmatmul", {}>, sdsc.tiling = [{dim = 0 : i64, loop = "3.M", tiles = 8 : i64}, {dim = 2 : i64, loop = "4.K", tiles = 4 : i64}]}
// CHECK: attrs =  {sdsc.op = #sdsc.op<"add", {}>, sdsc.tiling = [{dim = 0 : i64, loop = "3.M", tiles = 8 : i64}]}
// CHECK: attrs =  {sdsc.op = #sdsc.op<"exp", {}>}
func.func @nested(%x: tensor<64x256xf16> {sdsc.dims = ["M", "K"]}, %y: tensor<256x128xf16> {sdsc.dims = ["K", "N"]}, %z: tensor<64x128xf16> {sdsc.dims = ["M", "N"]}) -> tensor<64x128xf16>
    attributes {sdsc.dim_sizes = {K = 256 : i64, M = 64 : i64, N = 128 : i64}} {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<64x128xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  // expected-remark@below {{loop 3.M cuts dim 0 of 64 elements into 8 tiles, loop 4.K cuts dim 2 of 256 elements into 4 tiles}}
  %p = linalg.matmul {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "M", count = 8 : i64}]}, {id = 4 : i64, tiles = [{dim = "K", count = 4 : i64}]}]}
      ins(%x, %y : tensor<64x256xf16>, tensor<256x128xf16>) outs(%f : tensor<64x128xf16>) -> tensor<64x128xf16>
  %r = linalg.add {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "M", count = 8 : i64}]}]}
      ins(%p, %z : tensor<64x128xf16>, tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  %s = linalg.exp ins(%r : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %s : tensor<64x128xf16>
}

// -----

// One hint with both dims, in any order: a dim that the add does not have is left out, K is inside of M in the matmul.
// CHECK-LABEL: func.func @one_hint
// CHECK: <"batchmatmul", {}>, sdsc.tiling = [{dim = 0 : i64, loop = "3.M", tiles = 8 : i64}, {dim = 2 : i64, loop = "3.K", tiles = 4 : i64}]
// CHECK: <"add", {}>, sdsc.tiling = [{dim = 0 : i64, loop = "3.M", tiles = 8 : i64}]
func.func @one_hint(%x: tensor<64x256xf16> {sdsc.dims = ["M", "K"]}, %y: tensor<256x128xf16> {sdsc.dims = ["K", "N"]}, %z: tensor<64x128xf16> {sdsc.dims = ["M", "N"]}) -> tensor<64x128xf16>
    attributes {sdsc.dim_sizes = {K = 256 : i64, M = 64 : i64, N = 128 : i64}} {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<64x128xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  // expected-remark@below {{loop 3.M cuts dim 0 of 64 elements into 8 tiles, loop 3.K cuts dim 2 of 256 elements into 4 tiles; 3.K, over reduced dims, is moved inside}}
  %p = linalg.matmul {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "K", count = 4 : i64}, {dim = "M", count = 8 : i64}]}]}
      ins(%x, %y : tensor<64x256xf16>, tensor<256x128xf16>) outs(%f : tensor<64x128xf16>) -> tensor<64x128xf16>
  %r = linalg.add {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "K", count = 4 : i64}, {dim = "M", count = 8 : i64}]}]}
      ins(%p, %z : tensor<64x128xf16>, tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %r : tensor<64x128xf16>
}

// -----

// A count of 1 is no loop; a loop over the outermost name of a flattened dim cuts the dim.
// CHECK-LABEL: func.func @flattened
// CHECK: <"exp", {}>, sdsc.tiling = [{dim = 0 : i64, loop = "1.M", tiles = 8 : i64}]
// CHECK: attrs =  {sdsc.op = #sdsc.op<"log", {}>}
func.func @flattened(%x: tensor<8192xf16> {sdsc.dims = ["M", "N"]}) -> tensor<8192xf16> attributes {sdsc.dim_sizes = {M = 64 : i64, N = 128 : i64}} {
  %e = tensor.empty() : tensor<8192xf16>
  %p = linalg.exp {sdsc.hints = [{id = 1 : i64, tiles = [{dim = "M", count = 8 : i64}]}]} ins(%x : tensor<8192xf16>) outs(%e : tensor<8192xf16>) -> tensor<8192xf16>
  %r = linalg.log {sdsc.hints = [{id = 2 : i64, tiles = [{dim = "M", count = 1 : i64}]}]} ins(%p : tensor<8192xf16>) outs(%e : tensor<8192xf16>) -> tensor<8192xf16>
  return %r : tensor<8192xf16>
}

// -----

// The maximum of each row has a stick of its own: rows can be cut anywhere, and so can what is computed from maxima alone.
// CHECK-LABEL: func.func @rows
// CHECK: <"max", {}>, sdsc.tiling = [{dim = 0 : i64, loop = "1.M", tiles = 8 : i64}]
// CHECK: <"neg", {}>, sdsc.tiling = [{dim = 0 : i64, loop = "1.M", tiles = 8 : i64}]
// CHECK: <"add", {}>, sdsc.tiling = [{dim = 0 : i64, loop = "1.M", tiles = 8 : i64}]
#all = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @rows(%x: tensor<64x128xf16> {sdsc.dims = ["M", "N"]}) -> tensor<64x128xf16> attributes {sdsc.dim_sizes = {M = 64 : i64, N = 128 : i64}} {
  %low = arith.constant 0xFC00 : f16
  %e = tensor.empty() : tensor<64x128xf16>
  %v = tensor.empty() : tensor<64xf16>
  %f = linalg.fill ins(%low : f16) outs(%v : tensor<64xf16>) -> tensor<64xf16>
  %max = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<64x128xf16>) outs(%f : tensor<64xf16>) attrs = {sdsc.hints = [{id = 1 : i64, tiles = [{dim = "M", count = 8 : i64}]}]} {
  ^bb0(%a: f16, %o: f16):
    %m = arith.maximumf %a, %o : f16
    linalg.yield %m : f16
  } -> tensor<64xf16>
  %neg = linalg.negf {sdsc.hints = [{id = 1 : i64, tiles = [{dim = "M", count = 8 : i64}]}]} ins(%max : tensor<64xf16>) outs(%v : tensor<64xf16>) -> tensor<64xf16>
  %r = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x, %neg : tensor<64x128xf16>, tensor<64xf16>) outs(%e : tensor<64x128xf16>) attrs = {sdsc.hints = [{id = 1 : i64, tiles = [{dim = "M", count = 8 : i64}]}]} {
  ^bb0(%a: f16, %m: f16, %o: f16):
    %s = arith.addf %a, %m : f16
    linalg.yield %s : f16
  } -> tensor<64x128xf16>
  return %r : tensor<64x128xf16>
}

// -----

// One name for two iteration dims: the first that is not reduced is cut.
// CHECK-LABEL: func.func @square
// CHECK: <"batchmatmul", {}>, sdsc.tiling = [{dim = 0 : i64, loop = "1.S", tiles = 2 : i64}]
func.func @square(%x: tensor<128x64xf16> {sdsc.dims = ["S", "D"]}, %y: tensor<64x128xf16> {sdsc.dims = ["D", "S"]}) -> tensor<128x128xf16>
    attributes {sdsc.dim_sizes = {D = 64 : i64, S = 128 : i64}} {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<128x128xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<128x128xf16>) -> tensor<128x128xf16>
  // expected-warning@below {{iteration dims [0, 1] are named 'S'; hint 1 cuts dim 0}}
  %p = linalg.matmul {sdsc.hints = [{id = 1 : i64, tiles = [{dim = "S", count = 2 : i64}]}]}
      ins(%x, %y : tensor<128x64xf16>, tensor<64x128xf16>) outs(%f : tensor<128x128xf16>) -> tensor<128x128xf16>
  return %p : tensor<128x128xf16>
}

// -----

// A hint that no operation follows.
// CHECK-LABEL: func.func @nobody
// CHECK: attrs =  {sdsc.op = #sdsc.op<"exp", {}>}
func.func @nobody(%x: tensor<64x128xf16> {sdsc.dims = ["M", "N"]}) -> tensor<64x128xf16> attributes {sdsc.dim_sizes = {K = 8 : i64, M = 64 : i64, N = 128 : i64}} {
  %e = tensor.empty() : tensor<64x128xf16>
  // expected-warning@below {{hint 1 cuts 'K', but no operation under it iterates over 'K'}}
  %r = linalg.exp {sdsc.hints = [{id = 1 : i64, tiles = [{dim = "K", count = 8 : i64}]}]} ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %r : tensor<64x128xf16>
}

// -----

// A hint divides operations over cores: each operation by the dims that it has, the other dims in one slice. An inner
// hint replaces the count of an outer one.
// CHECK-LABEL: func.func @divided
// CHECK: <"batchmatmul", {}>, sdsc.pins = {slices = array<i64: 2, 1, 4>}
// CHECK: <"add", {}>, sdsc.pins = {slices = array<i64: 8, 1>}
func.func @divided(%x: tensor<64x256xf16> {sdsc.dims = ["M", "K"]}, %y: tensor<256x128xf16> {sdsc.dims = ["K", "N"]}, %z: tensor<64x128xf16> {sdsc.dims = ["M", "N"]}) -> tensor<64x128xf16>
    attributes {sdsc.dim_sizes = {K = 256 : i64, M = 64 : i64, N = 128 : i64}} {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<64x128xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  // expected-remark@below {{a hint divides the operation into 2 x 1 x 4 slices of its dims}}
  %p = linalg.matmul {sdsc.hints = [{id = 3 : i64, slices = [{dim = "M", count = 8 : i64}], tiles = []}, {id = 4 : i64, slices = [{dim = "K", count = 4 : i64}, {dim = "M", count = 2 : i64}], tiles = []}]}
      ins(%x, %y : tensor<64x256xf16>, tensor<256x128xf16>) outs(%f : tensor<64x128xf16>) -> tensor<64x128xf16>
  // expected-remark@below {{a hint divides the operation into 8 x 1 slices of its dims}}
  %r = linalg.add {sdsc.hints = [{id = 3 : i64, slices = [{dim = "M", count = 8 : i64}], tiles = []}]}
      ins(%p, %z : tensor<64x128xf16>, tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %r : tensor<64x128xf16>
}
