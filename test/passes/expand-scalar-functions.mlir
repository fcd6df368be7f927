// RUN: spyre-opt %s --expand-scalar-functions --canonicalize | FileCheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>

// u = x + 1 is computed once; where it is 1 the result is x, where it is large the logarithm of u.
// CHECK-LABEL: func.func @log1p
// CHECK: sdsc.op<"add"
// CHECK: sdsc.op<"equal"
// CHECK: sdsc.op<"greaterthan"
// CHECK: sdsc.op<"log"
// CHECK: sdsc.op<"sub"
// CHECK: sdsc.op<"realdiv"
// CHECK: sdsc.op<"mul"
// CHECK: sdsc.op<"where3"
// CHECK: [[RESULT:%.+]] = linalg.generic {{.*}}sdsc.history = {{.*}}expand-scalar-functions{{.*}}sdsc.op<"where3"
// CHECK: return [[RESULT]]
func.func @log1p(%x: tensor<64x128xf16>) -> tensor<64x128xf16> {
  %e = tensor.empty() : tensor<64x128xf16>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) attrs = {sdsc.op = #sdsc.op<"log1p", {}>} {
  ^bb0(%a: f16, %b: f16):
    %l = math.log1p %a : f16
    linalg.yield %l : f16
  } -> tensor<64x128xf16>
  return %0 : tensor<64x128xf16>
}

// On f32 the device has no logarithm, so the function stays.
// CHECK-LABEL: func.func @f32
// CHECK: sdsc.op<"log1p"
// CHECK-NOT: sdsc.op<"log"
func.func @f32(%x: tensor<64x128xf32>) -> tensor<64x128xf32> {
  %e = tensor.empty() : tensor<64x128xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<64x128xf32>) outs(%e : tensor<64x128xf32>) attrs = {sdsc.op = #sdsc.op<"log1p", {}>} {
  ^bb0(%a: f32, %b: f32):
    %l = math.log1p %a : f32
    linalg.yield %l : f32
  } -> tensor<64x128xf32>
  return %0 : tensor<64x128xf32>
}
