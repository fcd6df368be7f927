// RUN: spyre-opt %s --work-distribution --split-input-file --verify-diagnostics | filecheck %s
// RUN: spyre-opt %s --work-distribution="sencores=3" --split-input-file | filecheck %s --check-prefix=THREE
// RUN: not spyre-opt %s --work-distribution="sencores=0" --split-input-file 2>&1 | filecheck %s --check-prefix=NONE

// NONE: error: sencores is 0; the device has 1 to 32 cores.

// The largest dim of the result is split first, then what is left of the cores goes to the next.
// CHECK-LABEL: func.func @rows(
// CHECK: sdsc.division = #sdsc.division<[32, 1], #{{.*}}>, sdsc.op = #sdsc.op<"exp", {}>
// Three cores divide neither 128 rows nor 4 sticks evenly: two work.
// THREE-LABEL: func.func @rows(
// THREE: sdsc.division = #sdsc.division<[2, 1], #{{.*}}>
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @rows(%x: tensor<128x256xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  return
}
// -----
// A reduced dim is not split.
// CHECK: #[[MAP:map.*]] = affine_map<(d0) -> (0, d0 mod 4)>
// CHECK-LABEL: func.func @reduced(
// CHECK: sdsc.division = #sdsc.division<[1, 4], #[[MAP]]>
// THREE-LABEL: func.func @reduced(
// THREE: sdsc.division = #sdsc.division<[1, 2], #{{.*}}>
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#vec = affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#second = affine_map<(d0, d1) -> (d1)>
func.func @reduced(%x: tensor<128x256xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<256xf16, #stick.layout<#vec>>
  %0 = linalg.generic {indexing_maps = [#id, #second], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<256xf16, #stick.layout<#vec>>) attrs = {sdsc.op = #sdsc.op<"sumnonstick", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<256xf16, #stick.layout<#vec>>
  return
}
// -----
// A dim of 100 rows takes the largest divisor that fits; the remark says how many cores are idle.
// CHECK: #[[MAP:map.*]] = affine_map<(d0) -> (d0 mod 25, 0)>
// CHECK-LABEL: func.func @uneven(
// CHECK: sdsc.division = #sdsc.division<[25, 1], #[[MAP]]>
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @uneven(%x: tensor<100x64xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<100x64xf16, #stick.layout<#rows>>
  // expected-remark@below {{division: 25 of 32 cores: splits [25, 1] of [100, 1]}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<100x64xf16, #stick.layout<#rows>>) outs(%e0 : tensor<100x64xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<100x64xf16, #stick.layout<#rows>>
  return
}
// -----
// A clone is divided like an operation.
// CHECK-LABEL: func.func @copy(
// CHECK: "sdsc.clone"(%{{[^)]*}}) {sdsc.division = #sdsc.division<[32, 1], #{{.*}}>}
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
func.func @copy(%x: tensor<128x256xf16, #stick.layout<#rows>>) {
  %0 = "sdsc.clone"(%x) : (tensor<128x256xf16, #stick.layout<#rows>>) -> tensor<128x256xf16, #stick.layout<#rows>>
  return
}
