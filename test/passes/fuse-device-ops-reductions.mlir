// RUN: spyre-opt %s --fuse-device-ops --split-input-file | filecheck %s

// A sum divided by a number is a mean with its scaling factor.
// CHECK-LABEL: func.func @mean(
// CHECK-SAME: %[[X:\w+]]: tensor<8x64xf16>
// CHECK: %[[V:.*]] = linalg.generic {{.*}} ins(%[[X]] : tensor<8x64xf16>) {{.*}}sdsc.op = #sdsc.op<"mean", {scaling_factor = 1.562500e-02 : f64}>
// CHECK: return %[[V]]
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#vec = affine_map<(d0) -> (d0)>
#all = affine_map<(d0) -> ()>
func.func @mean(%x: tensor<8x64xf16>) -> tensor<8xf16> {
  %n = arith.constant dense<64.0> : tensor<f16>
  %z = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<8xf16>
  %f = linalg.fill ins(%z : f16) outs(%e : tensor<8xf16>) -> tensor<8xf16>
  %0 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<8x64xf16>) outs(%f : tensor<8xf16>) attrs = {sdsc.op = #sdsc.op<"sum", {}>} {
  ^bb0(%a: f16, %o: f16):
    %r = arith.addf %o, %a : f16
    linalg.yield %r : f16
  } -> tensor<8xf16>
  %1 = linalg.generic {indexing_maps = [#vec, #all, #vec], iterator_types = ["parallel"]} ins(%0, %n : tensor<8xf16>, tensor<f16>) outs(%e : tensor<8xf16>) attrs = {sdsc.op = #sdsc.op<"realdiv", {}>} {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %r = arith.divf %a, %b : f16
    linalg.yield %r : f16
  } -> tensor<8xf16>
  return %1 : tensor<8xf16>
}
// -----
// The mean of squares is one operation over the stick; over another dim only the mean is fused.
// CHECK-LABEL: func.func @mean_square(
// CHECK-SAME: %[[X:\w+]]: tensor<8x64xf16>
// CHECK: %[[V:.*]] = linalg.generic {{.*}} ins(%[[X]] : tensor<8x64xf16>) {{.*}}"exx2_zeromean", {exx2scale = 1.250000e-01 : f64}>
// CHECK: %[[W:.*]] = linalg.generic {{.*}} ins(%[[X]] : tensor<8x64xf16>) {{.*}}"meannonstick", {scaling_factor = 1.250000e-01 : f64}>
// CHECK: return %[[V]], %[[W]]
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#col = affine_map<(d0, d1) -> (d1)>
#vec = affine_map<(d0) -> (d0)>
#all = affine_map<(d0) -> ()>
func.func @mean_square(%x: tensor<8x64xf16>) -> (tensor<8xf16>, tensor<64xf16>) {
  %n = arith.constant dense<0.125> : tensor<f16>
  %z = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<8xf16>
  %g = tensor.empty() : tensor<64xf16>
  %s = tensor.empty() : tensor<8x64xf16>
  %f = linalg.fill ins(%z : f16) outs(%e : tensor<8xf16>) -> tensor<8xf16>
  %h = linalg.fill ins(%z : f16) outs(%g : tensor<64xf16>) -> tensor<64xf16>
  %q = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %x : tensor<8x64xf16>, tensor<8x64xf16>) outs(%s : tensor<8x64xf16>) attrs = {sdsc.op = #sdsc.op<"mul", {}>} {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %r = arith.mulf %a, %b : f16
    linalg.yield %r : f16
  } -> tensor<8x64xf16>
  %0 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%q : tensor<8x64xf16>) outs(%f : tensor<8xf16>) attrs = {sdsc.op = #sdsc.op<"sum", {}>} {
  ^bb0(%a: f16, %o: f16):
    %r = arith.addf %o, %a : f16
    linalg.yield %r : f16
  } -> tensor<8xf16>
  %1 = linalg.generic {indexing_maps = [#vec, #all, #vec], iterator_types = ["parallel"]} ins(%0, %n : tensor<8xf16>, tensor<f16>) outs(%e : tensor<8xf16>) attrs = {sdsc.op = #sdsc.op<"mul", {}>} {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %r = arith.mulf %a, %b : f16
    linalg.yield %r : f16
  } -> tensor<8xf16>
  %2 = linalg.generic {indexing_maps = [#id, #col], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<8x64xf16>) outs(%h : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"sumnonstick", {}>} {
  ^bb0(%a: f16, %o: f16):
    %r = arith.addf %o, %a : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %3 = linalg.generic {indexing_maps = [#vec, #all, #vec], iterator_types = ["parallel"]} ins(%2, %n : tensor<64xf16>, tensor<f16>) outs(%g : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"mul", {}>} {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %r = arith.mulf %a, %b : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  return %1, %3 : tensor<8xf16>, tensor<64xf16>
}
