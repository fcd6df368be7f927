// RUN: spyre-opt %s --choose-layouts="stick-outermost=true" --split-input-file --verify-diagnostics | filecheck %s

// With the order of RFC 0047, the number of the stick is outermost, then dims 1 to n-1, then dim 0.
// CHECK: #[[OUT:map.*]] = affine_map<(d0, d1, d2) -> (d2 floordiv 64, d1, d0, d2 mod 64)>
// CHECK-LABEL: func.func @input(
// CHECK-SAME: tensor<5x100x150xf16, #stick.layout<#[[OUT]]>>
// CHECK: linalg.generic {{.*}} outs(%{{.*}} : tensor<5x100x150xf16, #stick.layout<#[[OUT]]>>)
func.func @input(%x: tensor<5x100x150xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<5x100x150xf16> {
  %e0 = tensor.empty() : tensor<5x100x150xf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%x : tensor<5x100x150xf16>) outs(%e0 : tensor<5x100x150xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<5x100x150xf16>
  return %0 : tensor<5x100x150xf16>
}
// -----
// With two dims both defaults are the same.
// CHECK: #[[ROWS:map.*]] = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
// CHECK-LABEL: func.func @two(
// CHECK-SAME: tensor<128x256xf16, #stick.layout<#[[ROWS]]>>
// CHECK: return
func.func @two(%x: tensor<128x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<128x256xf16> {
  %e0 = tensor.empty() : tensor<128x256xf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16>) outs(%e0 : tensor<128x256xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16>
  return %0 : tensor<128x256xf16>
}
// -----
// A conversion takes the same order.
// CHECK: #[[OUT:map.*]] = affine_map<(d0, d1, d2) -> (d1 floordiv 64, d2, d0, d1 mod 64)>
// CHECK-LABEL: func.func @converted(
// CHECK: "stick.restickify"(%{{.*}}) {{.*}} -> tensor<3x128x64xf16, #stick.layout<#[[OUT]]>>
// CHECK: tensor.extract_slice
func.func @converted(%x: tensor<3x128x64xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<3x128x32xf16> {
  %v = tensor.extract_slice %x[0, 0, 16] [3, 128, 32] [1, 1, 1] : tensor<3x128x64xf16> to tensor<3x128x32xf16>
  %e0 = tensor.empty() : tensor<3x128x32xf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%v : tensor<3x128x32xf16>) outs(%e0 : tensor<3x128x32xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<3x128x32xf16>
  return %0 : tensor<3x128x32xf16>
}
