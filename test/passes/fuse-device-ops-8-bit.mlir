// RUN: spyre-opt %s --fuse-device-ops --split-input-file | filecheck %s

// A sum of int8 products that is computed with in f32 and ends in fp16 leaves its matmul as fp16.
// CHECK-LABEL: func.func @scaled(
// CHECK: %[[M:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<33x70xf16>) {{.*}}sdsc.op = #sdsc.op<"batchmatmulint8", {}>
// CHECK: %[[F:.*]] = linalg.generic {{.*}} ins(%[[M]] : tensor<33x70xf16>) {{.*}}sdsc.op = #sdsc.op<"dl16tofp32", {}>
// CHECK: %[[S:.*]] = linalg.generic {{.*}} ins(%[[F]] : tensor<33x70xf32>) {{.*}}"abs"
// CHECK: linalg.generic {{.*}} ins(%[[S]] : tensor<33x70xf32>) {{.*}}"fp32todl16"
#x = affine_map<(d0, d1, d2) -> (d0, d2)>
#w = affine_map<(d0, d1, d2) -> (d2, d1)>
#y = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @scaled(%x: tensor<33x200xi8>, %w: tensor<200x70xi8>) -> tensor<33x70xf16> {
  %e0 = tensor.empty() : tensor<33x70xi32>
  %m = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<33x200xi8>, tensor<200x70xi8>) outs(%e0 : tensor<33x70xi32>) attrs = {sdsc.op = #sdsc.op<"batchmatmulint8", {}>} {
  ^bb0(%a0: i8, %a1: i8, %o: i32):
    linalg.yield %o : i32
  } -> tensor<33x70xi32>
  %e1 = tensor.empty() : tensor<33x70xf32>
  %f = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%m : tensor<33x70xi32>) outs(%e1 : tensor<33x70xf32>) attrs = {sdsc.op = #sdsc.op<"int32tofp32", {}>} {
  ^bb0(%a0: i32, %o: f32):
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
// Rounded at once it needs no cast.
// CHECK-LABEL: func.func @rounded(
// CHECK: %[[M:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<33x70xf16>) {{.*}}"batchmatmulint8"
// CHECK-NOT: sdsc.op<
// CHECK: return %[[M]]
#x = affine_map<(d0, d1, d2) -> (d0, d2)>
#w = affine_map<(d0, d1, d2) -> (d2, d1)>
#y = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @rounded(%x: tensor<33x200xi8>, %w: tensor<200x70xi8>) -> tensor<33x70xf16> {
  %e0 = tensor.empty() : tensor<33x70xi32>
  %m = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<33x200xi8>, tensor<200x70xi8>) outs(%e0 : tensor<33x70xi32>) attrs = {sdsc.op = #sdsc.op<"batchmatmulint8", {}>} {
  ^bb0(%a0: i8, %a1: i8, %o: i32):
    linalg.yield %o : i32
  } -> tensor<33x70xi32>
  %e1 = tensor.empty() : tensor<33x70xf32>
  %f = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%m : tensor<33x70xi32>) outs(%e1 : tensor<33x70xf32>) attrs = {sdsc.op = #sdsc.op<"int32tofp32", {}>} {
  ^bb0(%a0: i32, %o: f32):
    linalg.yield %o : f32
  } -> tensor<33x70xf32>
  %e2 = tensor.empty() : tensor<33x70xf16>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%f : tensor<33x70xf32>) outs(%e2 : tensor<33x70xf16>) attrs = {sdsc.op = #sdsc.op<"fp32todl16", {}>} {
  ^bb0(%a0: f32, %o: f16):
    linalg.yield %o : f16
  } -> tensor<33x70xf16>
  return %r : tensor<33x70xf16>
}
// -----
// An f32 result would show that the sum was rounded.
// CHECK-LABEL: func.func @shown(
// CHECK: tensor<33x70xi32>) {{.*}}"batchmatmulint8"
// CHECK: "int32tofp32"
#x = affine_map<(d0, d1, d2) -> (d0, d2)>
#w = affine_map<(d0, d1, d2) -> (d2, d1)>
#y = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @shown(%x: tensor<33x200xi8>, %w: tensor<200x70xi8>) -> tensor<33x70xf32> {
  %e0 = tensor.empty() : tensor<33x70xi32>
  %m = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<33x200xi8>, tensor<200x70xi8>) outs(%e0 : tensor<33x70xi32>) attrs = {sdsc.op = #sdsc.op<"batchmatmulint8", {}>} {
  ^bb0(%a0: i8, %a1: i8, %o: i32):
    linalg.yield %o : i32
  } -> tensor<33x70xi32>
  %e1 = tensor.empty() : tensor<33x70xf32>
  %f = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%m : tensor<33x70xi32>) outs(%e1 : tensor<33x70xf32>) attrs = {sdsc.op = #sdsc.op<"int32tofp32", {}>} {
  ^bb0(%a0: i32, %o: f32):
    linalg.yield %o : f32
  } -> tensor<33x70xf32>
  return %f : tensor<33x70xf32>
}
// -----
// So would the sum itself, read by somebody else.
// CHECK-LABEL: func.func @read_twice(
// CHECK: tensor<33x70xi32>) {{.*}}"batchmatmulint8"
// CHECK: "int32tofp32"
#x = affine_map<(d0, d1, d2) -> (d0, d2)>
#w = affine_map<(d0, d1, d2) -> (d2, d1)>
#y = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @read_twice(%x: tensor<33x200xi8>, %w: tensor<200x70xi8>) -> (tensor<33x70xf16>, tensor<33x70xi32>) {
  %e0 = tensor.empty() : tensor<33x70xi32>
  %m = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<33x200xi8>, tensor<200x70xi8>) outs(%e0 : tensor<33x70xi32>) attrs = {sdsc.op = #sdsc.op<"batchmatmulint8", {}>} {
  ^bb0(%a0: i8, %a1: i8, %o: i32):
    linalg.yield %o : i32
  } -> tensor<33x70xi32>
  %e1 = tensor.empty() : tensor<33x70xf32>
  %f = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%m : tensor<33x70xi32>) outs(%e1 : tensor<33x70xf32>) attrs = {sdsc.op = #sdsc.op<"int32tofp32", {}>} {
  ^bb0(%a0: i32, %o: f32):
    linalg.yield %o : f32
  } -> tensor<33x70xf32>
  %e2 = tensor.empty() : tensor<33x70xf16>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%f : tensor<33x70xf32>) outs(%e2 : tensor<33x70xf16>) attrs = {sdsc.op = #sdsc.op<"fp32todl16", {}>} {
  ^bb0(%a0: f32, %o: f16):
    linalg.yield %o : f16
  } -> tensor<33x70xf16>
  return %r, %m : tensor<33x70xf16>, tensor<33x70xi32>
}
// -----
// A sum of fp8 products that is scaled in f32, likewise.
// CHECK-LABEL: func.func @floats(
// CHECK: %[[M:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<33x70xf16>) {{.*}}"batchmatmulfp8"
// CHECK: linalg.generic {{.*}} ins(%[[M]] : tensor<33x70xf16>) {{.*}}"dl16tofp32"
#x = affine_map<(d0, d1, d2) -> (d0, d2)>
#w = affine_map<(d0, d1, d2) -> (d2, d1)>
#y = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @floats(%x: tensor<33x200xf8E4M3FN>, %w: tensor<200x70xf8E4M3FN>) -> tensor<33x70xf16> {
  %e0 = tensor.empty() : tensor<33x70xf32>
  %m = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<33x200xf8E4M3FN>, tensor<200x70xf8E4M3FN>) outs(%e0 : tensor<33x70xf32>) attrs = {sdsc.op = #sdsc.op<"batchmatmulfp8", {}>} {
  ^bb0(%a0: f8E4M3FN, %a1: f8E4M3FN, %o: f32):
    linalg.yield %o : f32
  } -> tensor<33x70xf32>
  %e2 = tensor.empty() : tensor<33x70xf32>
  %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%m : tensor<33x70xf32>) outs(%e2 : tensor<33x70xf32>) attrs = {sdsc.op = #sdsc.op<"abs", {}>} {
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
