// RUN: spyre-opt %s --narrow-matmuls --canonicalize --split-input-file --verify-diagnostics | filecheck %s

// Casts of both operands go into the matmul; one is seen through a transpose.
// CHECK-LABEL: func.func @cast_and_transposed
// CHECK-SAME: %[[X:.*]]: tensor<8x64xf16>, %[[W:.*]]: tensor<32x64xf16>
// CHECK: %[[T:.*]] = linalg.transpose ins(%[[W]] : tensor<32x64xf16>)
// CHECK: %[[Y:.*]] = linalg.generic {{.*}} ins(%[[X]], %[[T]] : tensor<8x64xf16>, tensor<64x32xf16>)
// CHECK: %[[A:.*]] = arith.extf
// CHECK-NEXT: %[[B:.*]] = arith.extf
// CHECK-NEXT: arith.mulf %[[A]], %[[B]] : f32
// CHECK: return %[[Y]] : tensor<8x32xf32>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @cast_and_transposed(%x: tensor<8x64xf16>, %w: tensor<32x64xf16>) -> tensor<8x32xf32> {
  %zero = arith.constant 0.0 : f32
  %ex = tensor.empty() : tensor<8x64xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x64xf16>) outs(%ex : tensor<8x64xf32>) {
  ^bb0(%i: f16, %o: f32):
    %c = arith.extf %i : f16 to f32
    linalg.yield %c : f32
  } -> tensor<8x64xf32>
  %ew = tensor.empty() : tensor<32x64xf32>
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%w : tensor<32x64xf16>) outs(%ew : tensor<32x64xf32>) {
  ^bb0(%i: f16, %o: f32):
    %c = arith.extf %i : f16 to f32
    linalg.yield %c : f32
  } -> tensor<32x64xf32>
  %et = tensor.empty() : tensor<64x32xf32>
  %t = linalg.transpose ins(%b : tensor<32x64xf32>) outs(%et : tensor<64x32xf32>) permutation = [1, 0]
  %e = tensor.empty() : tensor<8x32xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x32xf32>) -> tensor<8x32xf32>
  // expected-remark@below {{rewrite: its operands are cast from 16 bits: the casts are folded}}
  %y = linalg.matmul ins(%a, %t : tensor<8x64xf32>, tensor<64x32xf32>) outs(%f : tensor<8x32xf32>) -> tensor<8x32xf32>
  return %y : tensor<8x32xf32>
}
// -----
// An operand that is f32 from the start keeps the matmul as it is.
// CHECK-LABEL: func.func @one_is_wide
// CHECK: linalg.matmul ins(%{{.*}}, %{{.*}} : tensor<8x64xf32>, tensor<64x32xf32>)
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @one_is_wide(%x: tensor<8x64xf16>, %w: tensor<64x32xf32>) -> tensor<8x32xf32> {
  %ex = tensor.empty() : tensor<8x64xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x64xf16>) outs(%ex : tensor<8x64xf32>) {
  ^bb0(%i: f16, %o: f32):
    %c = arith.extf %i : f16 to f32
    linalg.yield %c : f32
  } -> tensor<8x64xf32>
  %e = tensor.empty() : tensor<8x32xf32>
  %y = linalg.matmul ins(%a, %w : tensor<8x64xf32>, tensor<64x32xf32>) outs(%e : tensor<8x32xf32>) -> tensor<8x32xf32>
  return %y : tensor<8x32xf32>
}
// -----
// Operands of fp8 are taken as they are too, but not one of fp8 beside one of fp16: no matmul has both.
// CHECK-LABEL: func.func @eight_bits
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : tensor<8x64xf8E4M3FN>, tensor<64x32xf8E4M3FN>)
// CHECK: linalg.matmul ins(%{{.*}}, %{{.*}} : tensor<8x64xf32>, tensor<64x32xf32>)
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @eight_bits(%x: tensor<8x64xf8E4M3FN>, %w: tensor<64x32xf8E4M3FN>, %v: tensor<64x32xf16>) -> (tensor<8x32xf32>, tensor<8x32xf32>) {
  %ex = tensor.empty() : tensor<8x64xf32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x64xf8E4M3FN>) outs(%ex : tensor<8x64xf32>) {
  ^bb0(%i: f8E4M3FN, %o: f32):
    %c = arith.extf %i : f8E4M3FN to f32
    linalg.yield %c : f32
  } -> tensor<8x64xf32>
  %ew = tensor.empty() : tensor<64x32xf32>
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%w : tensor<64x32xf8E4M3FN>) outs(%ew : tensor<64x32xf32>) {
  ^bb0(%i: f8E4M3FN, %o: f32):
    %c = arith.extf %i : f8E4M3FN to f32
    linalg.yield %c : f32
  } -> tensor<64x32xf32>
  %d = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%v : tensor<64x32xf16>) outs(%ew : tensor<64x32xf32>) {
  ^bb0(%i: f16, %o: f32):
    %c = arith.extf %i : f16 to f32
    linalg.yield %c : f32
  } -> tensor<64x32xf32>
  %e = tensor.empty() : tensor<8x32xf32>
  // expected-remark@below {{rewrite: its operands are cast from 8 bits: the casts are folded}}
  %y = linalg.matmul ins(%a, %b : tensor<8x64xf32>, tensor<64x32xf32>) outs(%e : tensor<8x32xf32>) -> tensor<8x32xf32>
  %z = linalg.matmul ins(%a, %d : tensor<8x64xf32>, tensor<64x32xf32>) outs(%e : tensor<8x32xf32>) -> tensor<8x32xf32>
  return %y, %z : tensor<8x32xf32>, tensor<8x32xf32>
}
