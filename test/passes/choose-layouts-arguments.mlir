// RUN: spyre-opt %s --choose-layouts --split-input-file | filecheck %s
// RUN: spyre-opt %s --choose-layouts="argument-layouts=default" --split-input-file | filecheck %s --check-prefix=DEFAULT

// A large input comes as its reader wants it; by default the device converts it. The small one is as ever.
// CHECK: #[[ROWS:map.*]] = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
// CHECK: #[[COLUMNS:map.*]] = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
// CHECK-LABEL: func.func @scores(
// CHECK-SAME: tensor<64x128xf16, #stick.layout<#[[ROWS]]>>
// CHECK-SAME: tensor<4096x128xf16, #stick.layout<#[[COLUMNS]]>>
// CHECK-NOT: stick.restickify
// CHECK: return
// DEFAULT-LABEL: func.func @scores(
// DEFAULT: "stick.restickify"
#q = affine_map<(d0, d1, d2) -> (d0, d2)>
#k = affine_map<(d0, d1, d2) -> (d1, d2)>
#s = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func @scores(%q: tensor<64x128xf16> {sdsc.host = #sdsc.host<"q", "input", "f16">}, %k: tensor<4096x128xf16> {sdsc.host = #sdsc.host<"k", "input", "f16">}) -> tensor<64x4096xf16> {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<64x4096xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<64x4096xf16>) -> tensor<64x4096xf16>
  %r = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"]} ins(%q, %k : tensor<64x128xf16>, tensor<4096x128xf16>) outs(%f : tensor<64x4096xf16>) attrs = {sdsc.op = #sdsc.op<"batchmatmul", {}>} {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %m = arith.mulf %a, %b : f16
    %t = arith.addf %o, %m : f16
    linalg.yield %t : f16
  } -> tensor<64x4096xf16>
  return %r : tensor<64x4096xf16>
}
// -----
// An intermediate of the program, of which a trial has a part, comes in the layout of the operation that makes it.
// CHECK-LABEL: func.func @group(
// CHECK: "stick.restickify"
// DEFAULT-LABEL: func.func @group(
// DEFAULT: "stick.restickify"
#q = affine_map<(d0, d1, d2) -> (d0, d2)>
#k = affine_map<(d0, d1, d2) -> (d1, d2)>
#s = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func @group(%q: tensor<64x128xf16> {sdsc.host = #sdsc.host<"q", "input", "f16">}, %k: tensor<4096x128xf16> {sdsc.host = #sdsc.host<"k", "intermediate", "f16">}) -> tensor<64x4096xf16> {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<64x4096xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<64x4096xf16>) -> tensor<64x4096xf16>
  %r = linalg.generic {indexing_maps = [#q, #k, #s], iterator_types = ["parallel", "parallel", "reduction"]} ins(%q, %k : tensor<64x128xf16>, tensor<4096x128xf16>) outs(%f : tensor<64x4096xf16>) attrs = {sdsc.op = #sdsc.op<"batchmatmul", {}>} {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %m = arith.mulf %a, %b : f16
    %t = arith.addf %o, %m : f16
    linalg.yield %t : f16
  } -> tensor<64x4096xf16>
  return %r : tensor<64x4096xf16>
}
