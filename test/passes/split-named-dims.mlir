// RUN: spyre-opt %s --split-input-file --verify-diagnostics --attach-hints --linalg-generalize-named-ops --decompose-to-device-ops --canonicalize --cse --propagate-named-dims --split-named-dims --canonicalize | filecheck %s

// B is inside of the one dim of x: the operation gets a dim for it, argument and result are views.
// CHECK-LABEL: func.func @flat(
// CHECK: %[[X:.*]] = tensor.expand_shape %{{.*}} {{.*}}tensor<4096xf16> into tensor<16x256xf16>
// CHECK: %[[R:.*]] = linalg.generic {{.*}} ins(%[[X]] : {{.*}}sdsc.dims = {{\[}}["A"], ["B"]]
// CHECK: tensor.collapse_shape %[[R]]
func.func @flat(%x: tensor<4096xf16> {sdsc.dims = ["A", "B"]}) -> tensor<4096xf16> attributes {sdsc.dim_sizes = {A = 16 : i64, B = 256 : i64}} {
  %e = tensor.empty() : tensor<4096xf16>
  // expected-remark@below {{tiling: iteration dim 0 of 4096 elements is split into 16 (A) x 256 (B)}}
  %r = linalg.exp {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "B", count = 2 : i64}]}]} ins(%x : tensor<4096xf16>) outs(%e : tensor<4096xf16>) -> tensor<4096xf16>
  return %r : tensor<4096xf16>
}

// -----

// A product over merged batch dims, and an operation over what a view splits again: both read and make four dims, and
// nothing is merged between them.
// CHECK-LABEL: func.func @heads(
// CHECK-SAME: %[[Q:[^:]*]]: tensor<2x8x64x64xf16>{{.*}} %[[K:[^:]*]]: tensor<2x8x64x64xf16>
// CHECK-NOT: collapse_shape
// CHECK: %[[P:.*]] = linalg.generic {{.*}} ins(%[[Q]], %[[K]] : {{.*}}sdsc.dims = {{\[}}["B"], ["H"], ["S"], ["T"], ["D"]]
// CHECK-NOT: shape
// CHECK: linalg.generic {{.*}} ins(%[[P]] : {{.*}}sdsc.op<"exp"
func.func @heads(%q: tensor<2x8x64x64xf16> {sdsc.dims = ["B", "H", "S", "D"]}, %k: tensor<2x8x64x64xf16> {sdsc.dims = ["B", "H", "D", "T"]}) -> tensor<2x8x64x64xf16>
    attributes {sdsc.dim_sizes = {B = 2 : i64, H = 8 : i64, S = 64 : i64, T = 64 : i64, D = 64 : i64}} {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<16x64x64xf16>
  %e4 = tensor.empty() : tensor<2x8x64x64xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<16x64x64xf16>) -> tensor<16x64x64xf16>
  %q3 = tensor.collapse_shape %q [[0, 1], [2], [3]] : tensor<2x8x64x64xf16> into tensor<16x64x64xf16>
  %k3 = tensor.collapse_shape %k [[0, 1], [2], [3]] : tensor<2x8x64x64xf16> into tensor<16x64x64xf16>
  // expected-remark@below {{tiling: iteration dim 0 of 16 elements is split into 2 (B) x 8 (H)}}
  %p = linalg.batch_matmul {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "H", count = 2 : i64}]}]} ins(%q3, %k3 : tensor<16x64x64xf16>, tensor<16x64x64xf16>) outs(%f : tensor<16x64x64xf16>) -> tensor<16x64x64xf16>
  %p4 = tensor.expand_shape %p [[0, 1], [2], [3]] output_shape [2, 8, 64, 64] : tensor<16x64x64xf16> into tensor<2x8x64x64xf16>
  %r = linalg.exp {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "H", count = 2 : i64}]}]} ins(%p4 : tensor<2x8x64x64xf16>) outs(%e4 : tensor<2x8x64x64xf16>) -> tensor<2x8x64x64xf16>
  return %r : tensor<2x8x64x64xf16>
}

// -----

// A matmul has one reduced dim: the index of the tile comes first in both operands, sticks stay whole.
// CHECK-LABEL: func.func @reduced(
// CHECK-DAG: linalg.transpose ins(%{{.*}} : tensor<64x2x2x64xf16>) outs(%{{.*}} : tensor<64x2x2x64xf16>) permutation = [0, 2, 1, 3]
// CHECK-DAG: linalg.transpose ins(%{{.*}} : tensor<2x2x64x64xf16>) outs(%{{.*}} : tensor<2x2x64x64xf16>) permutation = [1, 0, 2, 3]
// CHECK: sdsc.dims = {{\[}}["M"], ["N"], ["D", "C"]]
func.func @reduced(%x: tensor<64x256xf16> {sdsc.dims = ["M", "C", "D"]}, %y: tensor<256x64xf16> {sdsc.dims = ["C", "D", "N"]}) -> tensor<64x64xf16>
    attributes {sdsc.dim_sizes = {M = 64 : i64, C = 2 : i64, D = 128 : i64, N = 64 : i64}} {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<64x64xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<64x64xf16>) -> tensor<64x64xf16>
  // expected-remark@below {{tiling: iteration dim 2 of 256 elements has the 2 tiles of 'D' outermost: a copy}}
  %r = linalg.matmul {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "D", count = 2 : i64}]}]} ins(%x, %y : tensor<64x256xf16>, tensor<256x64xf16>) outs(%f : tensor<64x64xf16>) -> tensor<64x64xf16>
  return %r : tensor<64x64xf16>
}

// -----

// Tiles of 32 elements of N would cut sticks: nothing is split.
// CHECK-LABEL: func.func @stick(
// CHECK-NOT: expand_shape
func.func @stick(%x: tensor<1024xf16> {sdsc.dims = ["M", "N"]}) -> tensor<1024xf16> attributes {sdsc.dim_sizes = {M = 16 : i64, N = 64 : i64}} {
  %e = tensor.empty() : tensor<1024xf16>
  %r = linalg.exp {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "N", count = 2 : i64}]}]} ins(%x : tensor<1024xf16>) outs(%e : tensor<1024xf16>) -> tensor<1024xf16>
  return %r : tensor<1024xf16>
}
