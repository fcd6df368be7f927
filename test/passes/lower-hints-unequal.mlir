// RUN: spyre-opt %s --split-input-file --verify-diagnostics --attach-hints --linalg-generalize-named-ops --decompose-to-device-ops --canonicalize --cse --propagate-named-dims --lower-hints | filecheck %s

// A count that does not divide the size: the last tile is smaller.
// CHECK-LABEL: func.func @rows(
// CHECK: sdsc.tiling = [{dim = 0 : i64, loop = "3.M", tile = 10 : i64, tiles = 7 : i64}]
func.func @rows(%x: tensor<64x128xf16> {sdsc.dims = ["M", "N"]}) -> tensor<64x128xf16> attributes {sdsc.dim_sizes = {M = 64 : i64, N = 128 : i64}} {
  %e = tensor.empty() : tensor<64x128xf16>
  // expected-remark@below {{tiling: loop 3.M cuts dim 0 of 64 elements into 7 tiles of 10, the last of 4}}
  %r = linalg.exp {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "M", count = 7 : i64}]}]} ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %r : tensor<64x128xf16>
}

// -----

// Five tiles of two are too many for six.
// CHECK-LABEL: func.func @fewer(
// CHECK: sdsc.tiling = [{dim = 0 : i64, loop = "3.M", tiles = 3 : i64}]
func.func @fewer(%x: tensor<6x128xf16> {sdsc.dims = ["M", "N"]}) -> tensor<6x128xf16> attributes {sdsc.dim_sizes = {M = 6 : i64, N = 128 : i64}} {
  %e = tensor.empty() : tensor<6x128xf16>
  // expected-remark@below {{tiling: loop 3.M cuts dim 0 of 6 elements into 3 tiles; the hint asks for 5 by 3.M, but all tiles except the last are equal and whole sticks}}
  %r = linalg.exp {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "M", count = 5 : i64}]}]} ins(%x : tensor<6x128xf16>) outs(%e : tensor<6x128xf16>) -> tensor<6x128xf16>
  return %r : tensor<6x128xf16>
}

// -----

// Tiles are whole sticks of 64 in all operations under the hint: N lies in sticks in the matmul, but not in the other
// operation.
// CHECK-LABEL: func.func @sticks(
// CHECK: <"batchmatmul", {}>, sdsc.tiling = [{dim = 1 : i64, loop = "3.N", tile = 128 : i64, tiles = 3 : i64}]
// CHECK: <"exp", {}>, sdsc.tiling = [{dim = 0 : i64, loop = "3.N", tile = 128 : i64, tiles = 3 : i64}]
func.func @sticks(%x: tensor<64x256xf16> {sdsc.dims = ["M", "K"]}, %y: tensor<256x320xf16> {sdsc.dims = ["K", "N"]}, %z: tensor<320x64xf16> {sdsc.dims = ["N", "M"]}) -> (tensor<64x320xf16>, tensor<320x64xf16>)
    attributes {sdsc.dim_sizes = {K = 256 : i64, M = 64 : i64, N = 320 : i64}} {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<64x320xf16>
  %et = tensor.empty() : tensor<320x64xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<64x320xf16>) -> tensor<64x320xf16>
  // expected-remark@below {{loop 3.N cuts dim 1 of 320 elements into 3 tiles of 128, the last of 64; the hint asks for 4 by 3.N, but}}
  %p = linalg.matmul {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "N", count = 4 : i64}]}]}
      ins(%x, %y : tensor<64x256xf16>, tensor<256x320xf16>) outs(%f : tensor<64x320xf16>) -> tensor<64x320xf16>
  // expected-remark@below {{loop 3.N cuts dim 0 of 320 elements into 3 tiles of 128, the last of 64; the hint asks for 4 by 3.N, but}}
  %r = linalg.exp {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "N", count = 4 : i64}]}]} ins(%z : tensor<320x64xf16>) outs(%et : tensor<320x64xf16>) -> tensor<320x64xf16>
  return %p, %r : tensor<64x320xf16>, tensor<320x64xf16>
}
