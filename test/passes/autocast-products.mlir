// RUN: spyre-opt %s --autocast-products --split-input-file | filecheck %s
// RUN: spyre-opt %s --autocast-products="dtype=bfloat16" --split-input-file | filecheck %s --check-prefix=BF16

// Both operands are cast, the sum is f32, its result is rounded and wide again.
// CHECK-LABEL: func.func @matmul(
// CHECK: arith.truncf {{.*}} : f32 to f16
// CHECK: arith.truncf {{.*}} : f32 to f16
// CHECK: linalg.matmul ins({{.*}} : tensor<4x8xf16>, tensor<8x4xf16>) outs({{.*}} : tensor<4x4xf32>)
// CHECK: arith.truncf {{.*}} : f32 to f16
// CHECK: arith.extf {{.*}} : f16 to f32
// CHECK: return {{.*}} : tensor<4x4xf32>
// BF16-LABEL: func.func @matmul(
// BF16: linalg.matmul ins({{.*}} : tensor<4x8xbf16>, tensor<8x4xbf16>) outs({{.*}} : tensor<4x4xf32>)
func.func @matmul(%a: tensor<4x8xf32>, %b: tensor<8x4xf32>, %c: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %y = linalg.matmul ins(%a, %b : tensor<4x8xf32>, tensor<8x4xf32>) outs(%c : tensor<4x4xf32>) -> tensor<4x4xf32>
  return %y : tensor<4x4xf32>
}
// -----
// A product of the rows of a matrix, as a generic.
// CHECK-LABEL: func.func @generic(
// CHECK: linalg.generic {{.*}} ins({{.*}} : tensor<4x8xf16>, tensor<8xf16>) outs({{.*}} : tensor<4xf32>)
// CHECK: arith.extf
// CHECK: arith.extf
// CHECK: arith.mulf {{.*}} : f32
#a = affine_map<(d0, d1) -> (d0, d1)>
#b = affine_map<(d0, d1) -> (d1)>
#c = affine_map<(d0, d1) -> (d0)>
func.func @generic(%a: tensor<4x8xf32>, %b: tensor<8xf32>, %c: tensor<4xf32>) -> tensor<4xf32> {
  %y = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "reduction"]}
      ins(%a, %b : tensor<4x8xf32>, tensor<8xf32>) outs(%c : tensor<4xf32>) {
  ^bb0(%p: f32, %q: f32, %s: f32):
    %m = arith.mulf %p, %q : f32
    %t = arith.addf %s, %m : f32
    linalg.yield %t : f32
  } -> tensor<4xf32>
  return %y : tensor<4xf32>
}
// -----
// Sums of two tensors, and products that are f16 already, stay as they are.
// CHECK-LABEL: func.func @others(
// CHECK-NOT: arith.truncf
func.func @others(%a: tensor<4x4xf32>, %h: tensor<4x4xf16>) -> (tensor<4x4xf32>, tensor<4x4xf16>) {
  %s = linalg.add ins(%a, %a : tensor<4x4xf32>, tensor<4x4xf32>) outs(%a : tensor<4x4xf32>) -> tensor<4x4xf32>
  %p = linalg.matmul ins(%h, %h : tensor<4x4xf16>, tensor<4x4xf16>) outs(%h : tensor<4x4xf16>) -> tensor<4x4xf16>
  return %s, %p : tensor<4x4xf32>, tensor<4x4xf16>
}
