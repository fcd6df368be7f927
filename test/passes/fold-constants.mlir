// RUN: spyre-opt %s --fold-constants --split-input-file --verify-diagnostics | filecheck %s
// RUN: spyre-opt %s --fold-constants="largest=3" --split-input-file | filecheck %s --check-prefix=SMALL

// A chain of ops on constants becomes the value that its first reader with an argument needs.
// CHECK-LABEL: func.func @chain
// CHECK: %[[C:.*]] = arith.constant dense<[-1.000000e+00, -4.000000e+00, -9.000000e+00, -1.600000e+01]> : tensor<4xf32>
// CHECK: ins(%{{.*}}, %[[C]] : tensor<4xf32>, tensor<4xf32>)
#id = affine_map<(d0) -> (d0)>
func.func @chain(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = arith.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %e = tensor.empty() : tensor<4xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%c : tensor<4xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.mulf %a, %a : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  // expected-remark@below {{fold: a value of type tensor<4xf32> depends on no argument}}
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%0 : tensor<4xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.negf %a : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%x, %1 : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  return %2 : tensor<4xf32>
}
// -----
// A mask of positions (linalg.index, booleans) is computed too, and one that is returned.
// CHECK-LABEL: func.func @mask
// CHECK: %[[C:.*]] = arith.constant dense<{{\[}}[true, false, false], [true, true, false]]> : tensor<2x3xi1>
// CHECK: return %[[C]]
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @mask() -> tensor<2x3xi1> {
  %e = tensor.empty() : tensor<2x3xi1>
  %0 = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<2x3xi1>) {
  ^bb0(%o: i1):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %r = arith.cmpi sge, %i, %j : index
    linalg.yield %r : i1
  } -> tensor<2x3xi1>
  return %0 : tensor<2x3xi1>
}
// -----
// A fill is one number already.
// CHECK-LABEL: func.func @fill
// CHECK-NOT: dense<
// CHECK: %[[V:.*]] = linalg.generic
// CHECK: return %[[V]]
func.func @fill(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = arith.constant 3.0 : f32
  %e = tensor.empty() : tensor<4xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0) -> ()>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%c : f32) outs(%e : tensor<4xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
// -----
// Reshapes, slices and pads fold, of any element type of the host.
// CHECK-LABEL: func.func @views
// CHECK: %[[C:.*]] = arith.constant dense<[0, 6, 7, 0]> : tensor<4xi64>
// CHECK: return %[[C]]
// A value of more than the largest number of elements is left alone.
// SMALL-LABEL: func.func @views
// SMALL: %[[P:.*]] = tensor.pad
// SMALL: return %[[P]]
func.func @views(%x: tensor<4xi64>) -> tensor<4xi64> {
  %c = arith.constant dense<[[1, 2, 3, 4], [5, 6, 7, 8]]> : tensor<2x4xi64>
  %0 = tensor.extract_slice %c[1, 1] [1, 2] [1, 1] : tensor<2x4xi64> to tensor<2xi64>
  %z = arith.constant 0 : i64
  %1 = tensor.pad %0 low[1] high[1] {
  ^bb0(%i: index):
    tensor.yield %z : i64
  } : tensor<2xi64> to tensor<4xi64>
  return %1 : tensor<4xi64>
}
// -----
// An op that reads an argument, in its body even, is no constant.
// CHECK-LABEL: func.func @captured
// CHECK-NOT: dense<
// CHECK: tensor.extract
func.func @captured(%x: tensor<i32>) -> tensor<4xi32> {
  %e = tensor.empty() : tensor<4xi32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%e : tensor<4xi32>) {
  ^bb0(%o: i32):
    %r = tensor.extract %x[] : tensor<i32>
    linalg.yield %r : i32
  } -> tensor<4xi32>
  return %0 : tensor<4xi32>
}
// -----
// A rank-0 value keeps its rank.
// CHECK-LABEL: func.func @scalar
// CHECK: %[[C:.*]] = arith.constant dense<4.000000e+00> : tensor<bf16>
// CHECK: return %[[C]]
func.func @scalar() -> tensor<bf16> {
  %c = arith.constant dense<2.0> : tensor<bf16>
  %e = tensor.empty() : tensor<bf16>
  %0 = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []} ins(%c : tensor<bf16>) outs(%e : tensor<bf16>) {
  ^bb0(%a: bf16, %o: bf16):
    %r = arith.mulf %a, %a : bf16
    linalg.yield %r : bf16
  } -> tensor<bf16>
  return %0 : tensor<bf16>
}
// -----
// A pin or a restickify of a constant stays where it is, so that the layout holds; what comes before it is folded.
// CHECK-LABEL: func.func @requests
// CHECK: %[[C:.*]] = arith.constant dense<[1.000000e+00, 4.000000e+00]> : tensor<2xf16>
// CHECK: %[[P:.*]] = "stick.pin"(%[[C]]) {stick.to = #stick.layout<#{{.*}}>}
// CHECK: %[[R:.*]] = "stick.restickify"(%[[P]]) {stick.to = #stick.layout<#{{.*}}>}
// CHECK: return %[[R]]
#id = affine_map<(d0) -> (d0)>
#dense = affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>
#sparse = affine_map<(d0) -> (d0, 0)>
func.func @requests() -> tensor<2xf16> {
  %c = arith.constant dense<[1.0, 2.0]> : tensor<2xf16>
  %e = tensor.empty() : tensor<2xf16>
  // expected-remark@below {{fold: a value of type tensor<2xf16> depends on no argument}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%c : tensor<2xf16>) outs(%e : tensor<2xf16>) {
  ^bb0(%a: f16, %o: f16):
    %r = arith.mulf %a, %a : f16
    linalg.yield %r : f16
  } -> tensor<2xf16>
  %1 = "stick.pin"(%0) {stick.to = #stick.layout<#dense>} : (tensor<2xf16>) -> tensor<2xf16>
  %2 = "stick.restickify"(%1) {stick.to = #stick.layout<#sparse>} : (tensor<2xf16>) -> tensor<2xf16>
  return %2 : tensor<2xf16>
}
