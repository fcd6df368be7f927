// RUN: spyre-opt %s --apply-precision --split-input-file | filecheck %s

// What an int8 matmul gives is scaled in f32, though all around it is fp16: a scale may be smaller than fp16 has numbers.
// CHECK-LABEL: func.func @scaled(
// CHECK: "batchmatmulint8"
// CHECK: "dl16tofp32"
// CHECK: linalg.generic {{.*}} outs(%{{.*}} : tensor<33x70xf32>) {{.*}}"abs"
// CHECK: "fp32todl16"
#x = affine_map<(d0, d1, d2) -> (d0, d2)>
#w = affine_map<(d0, d1, d2) -> (d2, d1)>
#y = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @scaled(%x: tensor<33x200xi8>, %w: tensor<200x70xi8>) -> tensor<33x70xf16> {
  %e0 = tensor.empty() : tensor<33x70xf16>
  %m = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<33x200xi8>, tensor<200x70xi8>) outs(%e0 : tensor<33x70xf16>) attrs = {sdsc.op = #sdsc.op<"batchmatmulint8", {}>} {
  ^bb0(%a0: i8, %a1: i8, %o: f16):
    linalg.yield %o : f16
  } -> tensor<33x70xf16>
  %e1 = tensor.empty() : tensor<33x70xf32>
  %f = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%m : tensor<33x70xf16>) outs(%e1 : tensor<33x70xf32>) attrs = {sdsc.op = #sdsc.op<"dl16tofp32", {}>} {
  ^bb0(%a0: f16, %o: f32):
    linalg.yield %o : f32
  } -> tensor<33x70xf32>
  %e2 = tensor.empty() : tensor<33x70xf32>
  %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%f : tensor<33x70xf32>) outs(%e2 : tensor<33x70xf32>) attrs = {sdsc.op = #sdsc.op<"abs", {}>} {
  ^bb0(%a0: f32, %o: f32):
    linalg.yield %o : f32
  } -> tensor<33x70xf32>
  %e3 = tensor.empty() : tensor<33x70xf16>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<33x70xf32>) outs(%e3 : tensor<33x70xf16>) attrs = {sdsc.op = #sdsc.op<"fp32todl16", {}>} {
  ^bb0(%a0: f32, %o: f16):
    linalg.yield %o : f16
  } -> tensor<33x70xf16>
  return %r : tensor<33x70xf16>
}
// -----
// An fp8 matmul in f32 that is rounded to fp16 is one operation, on fp8 as before.
// CHECK-LABEL: func.func @rounded(
// CHECK: linalg.generic {{.*}} : tensor<33x200xf8E4M3FN>, tensor<200x70xf8E4M3FN>) outs(%{{.*}} : tensor<33x70xf16>) {{.*}}"batchmatmulfp8"
// CHECK-NOT: sdsc.op<
#x = affine_map<(d0, d1, d2) -> (d0, d2)>
#w = affine_map<(d0, d1, d2) -> (d2, d1)>
#y = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @rounded(%x: tensor<33x200xf8E4M3FN>, %w: tensor<200x70xf8E4M3FN>) -> tensor<33x70xf16> {
  %e0 = tensor.empty() : tensor<33x70xf32>
  %m = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<33x200xf8E4M3FN>, tensor<200x70xf8E4M3FN>) outs(%e0 : tensor<33x70xf32>) attrs = {sdsc.op = #sdsc.op<"batchmatmulfp8", {}>} {
  ^bb0(%a0: f8E4M3FN, %a1: f8E4M3FN, %o: f32):
    linalg.yield %o : f32
  } -> tensor<33x70xf32>
  %e3 = tensor.empty() : tensor<33x70xf16>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%m : tensor<33x70xf32>) outs(%e3 : tensor<33x70xf16>) attrs = {sdsc.op = #sdsc.op<"fp32todl16", {}>} {
  ^bb0(%a0: f32, %o: f16):
    linalg.yield %o : f16
  } -> tensor<33x70xf16>
  return %r : tensor<33x70xf16>
}
