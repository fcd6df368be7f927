// RUN: spyre-opt %s --fuse-device-ops --split-input-file --verify-diagnostics | filecheck %s

// x * sigmoid(x), from its exponential on, is one operation; the remark names what it replaces.
// CHECK-LABEL: func.func @silu(
// CHECK-SAME: %[[X:\w+]]: tensor<64xf16>
// CHECK: %[[V:.*]] = linalg.generic {{.*}} ins(%[[X]] : tensor<64xf16>) {{.*}}sdsc.op = #sdsc.op<"silu", {}>
// CHECK-NOT: sdsc.op<
// CHECK: return %[[V]]
#id = affine_map<(d0) -> (d0)>
#all = affine_map<(d0) -> ()>
func.func @silu(%x: tensor<64xf16>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf16>
  %c0 = arith.constant dense<1.0> : tensor<f16>
  %v0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<64xf16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"neg", {}>} {
  ^bb0(%a0: f16, %o: f16):
    %r = arith.negf %a0 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %v1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%v0 : tensor<64xf16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    %r = math.exp %a0 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %v2 = linalg.generic {indexing_maps = [#id, #all, #id], iterator_types = ["parallel"]} ins(%v1, %c0 : tensor<64xf16>, tensor<f16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.addf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %v3 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%v2 : tensor<64xf16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"reciprocal", {}>} {
  ^bb0(%a0: f16, %o: f16):
    %k = arith.constant 1.0 : f16
    %r = arith.divf %k, %a0 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %v4 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%v3, %x : tensor<64xf16>, tensor<64xf16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"mul", {}>} { // expected-remark {{fusion: 'silu' replaces 'mul' over ['sigmoid']}}
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.mulf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  return %v4 : tensor<64xf16>
}
// -----
// An inner value with another reader is not taken.
// CHECK-LABEL: func.func @shared(
// CHECK: "neg"
// CHECK: "exp"
// CHECK: "add"
// CHECK: "reciprocal"
#id = affine_map<(d0) -> (d0)>
#all = affine_map<(d0) -> ()>
func.func @shared(%x: tensor<64xf16>) -> (tensor<64xf16>, tensor<64xf16>) {
  %e = tensor.empty() : tensor<64xf16>
  %c0 = arith.constant dense<1.0> : tensor<f16>
  %v0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<64xf16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"neg", {}>} {
  ^bb0(%a0: f16, %o: f16):
    %r = arith.negf %a0 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %v1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%v0 : tensor<64xf16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    %r = math.exp %a0 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %v2 = linalg.generic {indexing_maps = [#id, #all, #id], iterator_types = ["parallel"]} ins(%v1, %c0 : tensor<64xf16>, tensor<f16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.addf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %v3 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%v2 : tensor<64xf16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"reciprocal", {}>} {
  ^bb0(%a0: f16, %o: f16):
    %k = arith.constant 1.0 : f16
    %r = arith.divf %k, %a0 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  return %v3, %v1 : tensor<64xf16>, tensor<64xf16>
}
// -----
// The exact gelu, by any order of its factors.
// CHECK-LABEL: func.func @gelu(
// CHECK-SAME: %[[X:\w+]]: tensor<64xf16>
// CHECK: linalg.generic {{.*}} ins(%[[X]] : tensor<64xf16>) {{.*}}"gelufwd"
// CHECK-NOT: sdsc.op<
// CHECK: return
#id = affine_map<(d0) -> (d0)>
#all = affine_map<(d0) -> ()>
func.func @gelu(%x: tensor<64xf16>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf16>
  %c0 = arith.constant dense<0.5> : tensor<f16>
  %c1 = arith.constant dense<7.070310e-01> : tensor<f16>
  %c2 = arith.constant dense<1.0> : tensor<f16>
  %v0 = linalg.generic {indexing_maps = [#id, #all, #id], iterator_types = ["parallel"]} ins(%x, %c1 : tensor<64xf16>, tensor<f16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"mul", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.mulf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %v1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%v0 : tensor<64xf16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"erf", {}>} {
  ^bb0(%a0: f16, %o: f16):
    %r = math.erf %a0 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %v2 = linalg.generic {indexing_maps = [#id, #all, #id], iterator_types = ["parallel"]} ins(%v1, %c2 : tensor<64xf16>, tensor<f16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.addf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %v3 = linalg.generic {indexing_maps = [#id, #all, #id], iterator_types = ["parallel"]} ins(%x, %c0 : tensor<64xf16>, tensor<f16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"mul", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.mulf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %v4 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%v3, %v2 : tensor<64xf16>, tensor<64xf16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"mul", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.mulf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  return %v4 : tensor<64xf16>
}
// -----
// maximum(x, 0) is relu, with an upper bound of 6 relu6, with another a clip.
// CHECK-LABEL: func.func @relu(
// CHECK: sdsc.op = #sdsc.op<"relufwd", {}>
// CHECK: sdsc.op = #sdsc.op<"relu6fwd", {}>
// CHECK: sdsc.op = #sdsc.op<"clip", {clipMax = 2.000000e+00 : f64, clipMin = 0.000000e+00 : f64}>
#id = affine_map<(d0) -> (d0)>
#all = affine_map<(d0) -> ()>
func.func @relu(%x: tensor<64xf16>) -> (tensor<64xf16>, tensor<64xf16>, tensor<64xf16>) {
  %e = tensor.empty() : tensor<64xf16>
  %c0 = arith.constant dense<0.0> : tensor<f16>
  %c1 = arith.constant dense<6.0> : tensor<f16>
  %c2 = arith.constant dense<2.0> : tensor<f16>
  %v0 = linalg.generic {indexing_maps = [#id, #all, #id], iterator_types = ["parallel"]} ins(%x, %c0 : tensor<64xf16>, tensor<f16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"maximum", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.maximumf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %v1 = linalg.generic {indexing_maps = [#id, #all, #id], iterator_types = ["parallel"]} ins(%x, %c0 : tensor<64xf16>, tensor<f16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"maximum", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.maximumf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %v2 = linalg.generic {indexing_maps = [#id, #all, #id], iterator_types = ["parallel"]} ins(%v1, %c1 : tensor<64xf16>, tensor<f16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"minimum", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.minimumf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %v3 = linalg.generic {indexing_maps = [#id, #all, #id], iterator_types = ["parallel"]} ins(%x, %c0 : tensor<64xf16>, tensor<f16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"maximum", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.maximumf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %v4 = linalg.generic {indexing_maps = [#id, #all, #id], iterator_types = ["parallel"]} ins(%v3, %c2 : tensor<64xf16>, tensor<f16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"minimum", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.minimumf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  return %v0, %v2, %v4 : tensor<64xf16>, tensor<64xf16>, tensor<64xf16>
}
// -----
// A maximum and a minimum are a clip with its bounds as constants.
// CHECK-LABEL: func.func @clip(
// CHECK: sdsc.op = #sdsc.op<"clip", {clipMax = 3.000000e+00 : f64, clipMin = -1.000000e+00 : f64}>
// CHECK-NOT: sdsc.op<
// CHECK: return
#id = affine_map<(d0) -> (d0)>
#all = affine_map<(d0) -> ()>
func.func @clip(%x: tensor<64xf16>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf16>
  %c0 = arith.constant dense<-1.0> : tensor<f16>
  %c1 = arith.constant dense<3.0> : tensor<f16>
  %v0 = linalg.generic {indexing_maps = [#id, #all, #id], iterator_types = ["parallel"]} ins(%x, %c0 : tensor<64xf16>, tensor<f16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"maximum", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.maximumf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %v1 = linalg.generic {indexing_maps = [#id, #all, #id], iterator_types = ["parallel"]} ins(%v0, %c1 : tensor<64xf16>, tensor<f16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"minimum", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.minimumf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  return %v1 : tensor<64xf16>
}
// -----
// A product with a number where the value is negative is a leaky relu.
// CHECK-LABEL: func.func @leaky(
// CHECK: sdsc.op = #sdsc.op<"leakyrelufwd", {alpha = 2.500000e-01 : f64}>
// CHECK-NOT: sdsc.op<
// CHECK: return
#id = affine_map<(d0) -> (d0)>
#all = affine_map<(d0) -> ()>
func.func @leaky(%x: tensor<64xf16>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf16>
  %c0 = arith.constant dense<0.0> : tensor<f16>
  %c1 = arith.constant dense<0.25> : tensor<f16>
  %v0 = linalg.generic {indexing_maps = [#id, #all, #id], iterator_types = ["parallel"]} ins(%x, %c0 : tensor<64xf16>, tensor<f16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"greaterthan", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %k = arith.cmpf ogt, %a0, %a1 : f16
    %r = arith.uitofp %k : i1 to f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %v1 = linalg.generic {indexing_maps = [#id, #all, #id], iterator_types = ["parallel"]} ins(%x, %c1 : tensor<64xf16>, tensor<f16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"mul", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.mulf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %v2 = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel"]} ins(%v0, %x, %v1 : tensor<64xf16>, tensor<64xf16>, tensor<64xf16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"where3", {}>} {
  ^bb0(%a0: f16, %a1: f16, %a2: f16, %o: f16):
    %z = arith.constant 0.0 : f16
    %k = arith.cmpf une, %a0, %z : f16
    %r = arith.select %k, %a1, %a2 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  return %v2 : tensor<64xf16>
}
// -----
// The smaller of two values chosen by a comparison is not a minimum, because the choice between NaN and a number may be the number.
// CHECK-LABEL: func.func @choice(
// CHECK: sdsc.op = #sdsc.op<"greaterthan", {}>
// CHECK: sdsc.op = #sdsc.op<"where3", {}>
// CHECK: return
#id = affine_map<(d0) -> (d0)>
#all = affine_map<(d0) -> ()>
func.func @choice(%x: tensor<64xf16>, %y: tensor<64xf16>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf16>
  %v0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%x, %y : tensor<64xf16>, tensor<64xf16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"greaterthan", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %k = arith.cmpf ogt, %a0, %a1 : f16
    %r = arith.uitofp %k : i1 to f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %v1 = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel"]} ins(%v0, %y, %x : tensor<64xf16>, tensor<64xf16>, tensor<64xf16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"where3", {}>} {
  ^bb0(%a0: f16, %a1: f16, %a2: f16, %o: f16):
    %z = arith.constant 0.0 : f16
    %k = arith.cmpf une, %a0, %z : f16
    %r = arith.select %k, %a1, %a2 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  return %v1 : tensor<64xf16>
}
// -----
// softplus within tanh within a product: fused from inside out.
// CHECK-LABEL: func.func @mish(
// CHECK: sdsc.op = #sdsc.op<"mish", {}>
// CHECK-NOT: sdsc.op<
// CHECK: return
#id = affine_map<(d0) -> (d0)>
#all = affine_map<(d0) -> ()>
func.func @mish(%x: tensor<64xf16>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf16>
  %c0 = arith.constant dense<20.0> : tensor<f16>
  %v0 = linalg.generic {indexing_maps = [#id, #all, #id], iterator_types = ["parallel"]} ins(%x, %c0 : tensor<64xf16>, tensor<f16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"greaterthan", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %k = arith.cmpf ogt, %a0, %a1 : f16
    %r = arith.uitofp %k : i1 to f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %v1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<64xf16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    %r = math.exp %a0 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %v2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%v1 : tensor<64xf16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"log1p", {}>} {
  ^bb0(%a0: f16, %o: f16):
    %r = math.log1p %a0 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %v3 = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel"]} ins(%v0, %x, %v2 : tensor<64xf16>, tensor<64xf16>, tensor<64xf16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"where3", {}>} {
  ^bb0(%a0: f16, %a1: f16, %a2: f16, %o: f16):
    %z = arith.constant 0.0 : f16
    %k = arith.cmpf une, %a0, %z : f16
    %r = arith.select %k, %a1, %a2 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %v4 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%v3 : tensor<64xf16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"tanh", {}>} {
  ^bb0(%a0: f16, %o: f16):
    %r = math.tanh %a0 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %v5 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%x, %v4 : tensor<64xf16>, tensor<64xf16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"mul", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.mulf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  return %v5 : tensor<64xf16>
}
// -----
// rsqrt(x + eps) is the scale of a norm.
// CHECK-LABEL: func.func @norm_scale(
// CHECK: sdsc.op = #sdsc.op<"layernormscale", {eps = 0.0010{{[0-9]+}} : f64}>
// CHECK-NOT: sdsc.op<
// CHECK: return
#id = affine_map<(d0) -> (d0)>
#all = affine_map<(d0) -> ()>
func.func @norm_scale(%x: tensor<64xf16>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf16>
  %c0 = arith.constant dense<1.0e-3> : tensor<f16>
  %v0 = linalg.generic {indexing_maps = [#id, #all, #id], iterator_types = ["parallel"]} ins(%x, %c0 : tensor<64xf16>, tensor<f16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.addf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %v1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%v0 : tensor<64xf16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"rsqrt", {}>} {
  ^bb0(%a0: f16, %o: f16):
    %r = math.rsqrt %a0 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  return %v1 : tensor<64xf16>
}
// -----
// There is no relu6 in fp32: a clip takes its place.
// CHECK-LABEL: func.func @format(
// CHECK: sdsc.op = #sdsc.op<"clip", {clipMax = 6.000000e+00 : f64, clipMin = 0.000000e+00 : f64}>
#id = affine_map<(d0) -> (d0)>
#all = affine_map<(d0) -> ()>
func.func @format(%x: tensor<64xf32>) -> tensor<64xf32> {
  %e = tensor.empty() : tensor<64xf32>
  %c0 = arith.constant dense<0.0> : tensor<f32>
  %c1 = arith.constant dense<6.0> : tensor<f32>
  %v0 = linalg.generic {indexing_maps = [#id, #all, #id], iterator_types = ["parallel"]} ins(%x, %c0 : tensor<64xf32>, tensor<f32>) outs(%e : tensor<64xf32>) attrs = {sdsc.op = #sdsc.op<"maximum", {}>} {
  ^bb0(%a0: f32, %a1: f32, %o: f32):
    %r = arith.maximumf %a0, %a1 : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %v1 = linalg.generic {indexing_maps = [#id, #all, #id], iterator_types = ["parallel"]} ins(%v0, %c1 : tensor<64xf32>, tensor<f32>) outs(%e : tensor<64xf32>) attrs = {sdsc.op = #sdsc.op<"minimum", {}>} {
  ^bb0(%a0: f32, %a1: f32, %o: f32):
    %r = arith.minimumf %a0, %a1 : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  return %v1 : tensor<64xf32>
}
// -----
// What the program pins or restickifies is made as it says: a group is not fused across it.
// CHECK-LABEL: func.func @barrier(
// CHECK: %[[V:.*]] = linalg.generic {{.*}}sdsc.op = #sdsc.op<"maximum", {}>
// CHECK: %[[P:.*]] = "stick.pin"(%[[V]]) {stick.to = #stick.layout<#{{.*}}>}
// CHECK: %[[R:.*]] = "stick.restickify"(%[[P]]) {stick.to = #stick.layout<#{{.*}}>}
// CHECK: linalg.generic {{.*}} ins(%[[R]], {{.*}}sdsc.op = #sdsc.op<"minimum", {}>
#id = affine_map<(d0) -> (d0)>
#all = affine_map<(d0) -> ()>
#dense = affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>
func.func @barrier(%x: tensor<64xf16>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf16>
  %c0 = arith.constant dense<1.0> : tensor<f16>
  %c1 = arith.constant dense<6.0> : tensor<f16>
  %v0 = linalg.generic {indexing_maps = [#id, #all, #id], iterator_types = ["parallel"]} ins(%x, %c0 : tensor<64xf16>, tensor<f16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"maximum", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.maximumf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %p = "stick.pin"(%v0) {stick.to = #stick.layout<#dense>} : (tensor<64xf16>) -> tensor<64xf16>
  %r = "stick.restickify"(%p) {stick.to = #stick.layout<#dense>} : (tensor<64xf16>) -> tensor<64xf16>
  %v1 = linalg.generic {indexing_maps = [#id, #all, #id], iterator_types = ["parallel"]} ins(%r, %c1 : tensor<64xf16>, tensor<f16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"minimum", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %s = arith.minimumf %a0, %a1 : f16
    linalg.yield %s : f16
  } -> tensor<64xf16>
  return %v1 : tensor<64xf16>
}
// -----
// The largest absolute value is one reduction.
// CHECK-LABEL: func.func @absmax(
// CHECK-SAME: %[[X:.*]]: tensor<8x64xf16>
// CHECK: linalg.generic {{.*}} ins(%[[X]] : tensor<8x64xf16>) {{.*}}sdsc.op = #sdsc.op<"absmax", {}>
// CHECK-NOT: sdsc.op<
// CHECK: return
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @absmax(%x: tensor<8x64xf16>) -> tensor<8xf16> {
  %lowest = arith.constant 0xFC00 : f16
  %e = tensor.empty() : tensor<8x64xf16>
  %v0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<8x64xf16>) outs(%e : tensor<8x64xf16>) attrs = {sdsc.op = #sdsc.op<"abs", {}>} {
  ^bb0(%a0: f16, %o: f16):
    %r = math.absf %a0 : f16
    linalg.yield %r : f16
  } -> tensor<8x64xf16>
  %f = tensor.empty() : tensor<8xf16>
  %i = linalg.fill ins(%lowest : f16) outs(%f : tensor<8xf16>) -> tensor<8xf16>
  %v1 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%v0 : tensor<8x64xf16>) outs(%i : tensor<8xf16>) attrs = {sdsc.op = #sdsc.op<"max", {}>} {
  ^bb0(%a0: f16, %o: f16):
    %r = arith.maximumf %a0, %o : f16
    linalg.yield %r : f16
  } -> tensor<8xf16>
  return %v1 : tensor<8xf16>
}
// -----
// The product with beta has two readers within softplus and none besides: it goes too.
// CHECK-LABEL: func.func @softplus_with_beta(
// CHECK-SAME: %[[X:.*]]: tensor<64xf16>
// CHECK: linalg.generic {{.*}} ins(%[[X]] : tensor<64xf16>) {{.*}}sdsc.op = #sdsc.op<"softplus", {softplusBeta = 2.000000e+00{{.*}}, softplusThresh = 1.000000e+01
// CHECK-NOT: sdsc.op<
// CHECK: return
#id = affine_map<(d0) -> (d0)>
#all = affine_map<(d0) -> ()>
func.func @softplus_with_beta(%x: tensor<64xf16>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf16>
  %beta = arith.constant dense<2.0> : tensor<f16>
  %most = arith.constant dense<10.0> : tensor<f16>
  %v0 = linalg.generic {indexing_maps = [#id, #all, #id], iterator_types = ["parallel"]} ins(%x, %beta : tensor<64xf16>, tensor<f16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"mul", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.mulf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %v1 = linalg.generic {indexing_maps = [#id, #all, #id], iterator_types = ["parallel"]} ins(%v0, %most : tensor<64xf16>, tensor<f16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"greaterthan", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %k = arith.cmpf ogt, %a0, %a1 : f16
    %r = arith.uitofp %k : i1 to f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %v2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%v0 : tensor<64xf16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    %r = math.exp %a0 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %v3 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%v2 : tensor<64xf16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"log1p", {}>} {
  ^bb0(%a0: f16, %o: f16):
    %r = math.log1p %a0 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %v4 = linalg.generic {indexing_maps = [#id, #all, #id], iterator_types = ["parallel"]} ins(%v3, %beta : tensor<64xf16>, tensor<f16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"realdiv", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.divf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %v5 = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel"]} ins(%v1, %x, %v4 : tensor<64xf16>, tensor<64xf16>, tensor<64xf16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"where3", {}>} {
  ^bb0(%a0: f16, %a1: f16, %a2: f16, %o: f16):
    %z = arith.constant 0.0 : f16
    %k = arith.cmpf une, %a0, %z : f16
    %r = arith.select %k, %a1, %a2 : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  return %v5 : tensor<64xf16>
}
