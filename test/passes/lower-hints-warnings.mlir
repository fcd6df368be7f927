// RUN: spyre-opt %s --split-input-file --verify-diagnostics --attach-hints --linalg-generalize-named-ops --decompose-to-device-ops --canonicalize --cse --propagate-named-dims --lower-hints | filecheck %s

// The last dim lies in sticks of 64: it stays whole, the other one is tiled.
// CHECK-LABEL: func.func @stick(
// CHECK: sdsc.tiling = [{dim = 0 : i64, loop = "3.M", tiles = 2 : i64}]
func.func @stick(%x: tensor<64x128xf16> {sdsc.dims = ["M", "N"]}) -> tensor<64x128xf16> attributes {sdsc.dim_sizes = {M = 64 : i64, N = 128 : i64}} {
  %e = tensor.empty() : tensor<64x128xf16>
  // expected-warning@below {{hint 3 cuts 'N' into 4 tiles, of 32 of the 128 elements of iteration dim 1, but tiles are whole sticks of 64 elements; this operation is not tiled at 'N'}}
  // expected-remark@below {{tiling: loop 3.M cuts dim 0 of 64 elements into 2 tiles}}
  %r = linalg.exp {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "N", count = 4 : i64}, {dim = "M", count = 2 : i64}]}]} ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %r : tensor<64x128xf16>
}

// -----

// A loop begins at the outermost name of a dim; split-named-dims, which is left out here, makes a dim of the inner one.
// CHECK-LABEL: func.func @inside(
// CHECK-NOT: sdsc.tiling
func.func @inside(%x: tensor<8192xf16> {sdsc.dims = ["M", "N"]}) -> tensor<8192xf16> attributes {sdsc.dim_sizes = {M = 64 : i64, N = 128 : i64}} {
  %e = tensor.empty() : tensor<8192xf16>
  // expected-warning@below {{hint 3 cuts 'N' into 2 tiles, but it is inside of iteration dim 0 of 8192 elements, which is 'M', 'N' and cannot be split there; this operation is not tiled at 'N'}}
  %r = linalg.exp {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "N", count = 2 : i64}]}]} ins(%x : tensor<8192xf16>) outs(%e : tensor<8192xf16>) -> tensor<8192xf16>
  return %r : tensor<8192xf16>
}
