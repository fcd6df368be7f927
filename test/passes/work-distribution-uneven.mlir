// RUN: spyre-opt %s --work-distribution="uneven=true" --verify-divided --split-input-file --verify-diagnostics | filecheck %s
// RUN: spyre-opt %s --work-distribution --verify-divided --split-input-file | filecheck %s --check-prefix=EVEN

// 65 sticks over 32 cores: 21 slices of 3 and a last one of 2, where equal slices leave 13 cores.
// CHECK: #[[MAP:map.*]] = affine_map<(d0) -> (0, d0 mod 22)>
// CHECK-LABEL: func.func @sticks(
// CHECK: sdsc.division = #sdsc.division<[1, 22], #[[MAP]]>
// EVEN-LABEL: func.func @sticks(
// EVEN: sdsc.division = #sdsc.division<[1, 13], #{{.*}}>
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @sticks(%x: tensor<1x4160xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<1x4160xf16, #stick.layout<#rows>>
  // expected-remark@below {{division: 22 of 32 cores: dim 1 of 65 in 22 slices}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<1x4160xf16, #stick.layout<#rows>>) outs(%e0 : tensor<1x4160xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<1x4160xf16, #stick.layout<#rows>>
  return
}
// -----
// Slices that can be equal are.
// CHECK-LABEL: func.func @equal(
// CHECK: sdsc.division = #sdsc.division<[32, 1], #{{.*}}>
// EVEN-LABEL: func.func @equal(
// EVEN: sdsc.division = #sdsc.division<[32, 1], #{{.*}}>
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @equal(%x: tensor<64x64xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<64x64xf16, #stick.layout<#rows>>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<64x64xf16, #stick.layout<#rows>>) outs(%e0 : tensor<64x64xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<64x64xf16, #stick.layout<#rows>>
  return
}
// -----
// A reduction over 67 rows, with cores that no dim of the result takes: 22 slices of 3 and one of 1.
// CHECK-LABEL: func.func @reduced(
// CHECK: sdsc.combine = "add", sdsc.division = #sdsc.division<[23, 1], #{{.*}}>
// EVEN-LABEL: func.func @reduced(
// EVEN: sdsc.division = #sdsc.division<[1, 1], #{{.*}}>
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#vec = affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#second = affine_map<(d0, d1) -> (d1)>
func.func @reduced(%x: tensor<67x64xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<64xf16, #stick.layout<#vec>>
  // expected-remark@below {{division: 23 of 32 cores: dim 0 of 67 in 23 slices; cores 22 have the finished values}}
  %0 = linalg.generic {indexing_maps = [#id, #second], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<67x64xf16, #stick.layout<#rows>>) outs(%e0 : tensor<64xf16, #stick.layout<#vec>>) attrs = {sdsc.op = #sdsc.op<"sumnonstick", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<64xf16, #stick.layout<#vec>>
  return
}
