// RUN: spyre-opt %s --verify-each=false --work-distribution --split-input-file --verify-diagnostics | filecheck %s
// RUN: spyre-opt %s --verify-each=false --attach-target="sencores=3" --work-distribution --split-input-file | filecheck %s --check-prefix=THREE
// RUN: not spyre-opt %s --verify-each=false --attach-target="sencores=0" --work-distribution --split-input-file 2>&1 | filecheck %s --check-prefix=NONE

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
// A reduced dim comes last, and first in the core ids; the core of its last slice has the sums.
// CHECK: #[[MAP:map.*]] = affine_map<(d0) -> (d0 mod 8, (d0 floordiv 8) mod 4)>
// CHECK-LABEL: func.func @reduced(
// CHECK: sdsc.combine = "add", sdsc.division = #sdsc.division<[8, 4], #[[MAP]]>
// THREE-LABEL: func.func @reduced(
// THREE-NOT: sdsc.combine
// THREE: sdsc.division = #sdsc.division<[1, 2], #{{.*}}>
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#vec = affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#second = affine_map<(d0, d1) -> (d1)>
func.func @reduced(%x: tensor<128x256xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<256xf16, #stick.layout<#vec>>
  // expected-remark@below {{division: 32 of 32 cores: dim 0 of 128 in 8 slices, dim 1 of 4 in 4 slices; cores 7, 15, 23, 31 have the finished values}}
  %0 = linalg.generic {indexing_maps = [#id, #second], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<256xf16, #stick.layout<#vec>>) attrs = {sdsc.op = #sdsc.op<"sumnonstick", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<256xf16, #stick.layout<#vec>>
  return
}
// -----
// Largest values are combined by the larger one.
// CHECK-LABEL: func.func @largest(
// CHECK: sdsc.combine = "maximum", sdsc.division = #sdsc.division<[32, 1], #{{.*}}>
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#vec = affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#second = affine_map<(d0, d1) -> (d1)>
func.func @largest(%x: tensor<128x64xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<64xf16, #stick.layout<#vec>>
  // expected-remark@below {{division: 32 of 32 cores: dim 0 of 128 in 32 slices; cores 31 have the finished values}}
  %0 = linalg.generic {indexing_maps = [#id, #second], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<128x64xf16, #stick.layout<#rows>>) outs(%e0 : tensor<64xf16, #stick.layout<#vec>>) attrs = {sdsc.op = #sdsc.op<"maxnonstick", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<64xf16, #stick.layout<#vec>>
  return
}
// -----
// A mask has coordinates of the whole dim, so that a masked dim is split like any other.
// CHECK-LABEL: func.func @masked(
// CHECK: sdsc.division = #sdsc.division<[8, 3], #{{.*}}>
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#sparse = affine_map<(d0) -> (d0, 0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#first = affine_map<(d0, d1) -> (d0)>
func.func @masked(%x: tensor<8x130xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<8xf16, #stick.layout<#sparse>>
  // expected-remark@below {{division: 24 of 32 cores: dim 0 of 8 in 8 slices, dim 1 of 3 in 3 slices; cores 2, 5, 8, 11, 14, 17, 20, 23 have the finished values}}
  %0 = linalg.generic {indexing_maps = [#id, #first], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<8x130xf16, #stick.layout<#rows>>) outs(%e0 : tensor<8xf16, #stick.layout<#sparse>>) attrs = {sdsc.op = #sdsc.op<"sum", {}>, sdsc.masks = {d1 = 0.0 : f64}} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<8xf16, #stick.layout<#sparse>>
  return
}
// -----
// A dim of 100 rows takes the largest divisor that fits; the remark says how many cores are idle.
// CHECK: #[[MAP:map.*]] = affine_map<(d0) -> (d0 mod 25, 0)>
// CHECK-LABEL: func.func @divisor(
// CHECK: sdsc.division = #sdsc.division<[25, 1], #[[MAP]]>
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @divisor(%x: tensor<100x64xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<100x64xf16, #stick.layout<#rows>>
  // expected-remark@below {{division: 25 of 32 cores: dim 0 of 100 in 25 slices}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<100x64xf16, #stick.layout<#rows>>) outs(%e0 : tensor<100x64xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<100x64xf16, #stick.layout<#rows>>
  return
}
// -----
// A prime number of rows beyond the cores has no divisor; one within them is split to the last.
// CHECK-LABEL: func.func @prime(
// CHECK: sdsc.division = #sdsc.division<[1, 31], #{{.*}}>
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @prime(%x: tensor<37x1984xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<37x1984xf16, #stick.layout<#rows>>
  // expected-remark@below {{division: 31 of 32 cores: dim 1 of 31 in 31 slices}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<37x1984xf16, #stick.layout<#rows>>) outs(%e0 : tensor<37x1984xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<37x1984xf16, #stick.layout<#rows>>
  return
}
// -----
// Fewer sticks than cores: each stick has a core, and the others have none.
// CHECK-LABEL: func.func @few(
// CHECK: sdsc.division = #sdsc.division<[1, 3], #{{.*}}>
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @few(%x: tensor<1x192xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<1x192xf16, #stick.layout<#rows>>
  // expected-remark@below {{division: 3 of 32 cores: dim 1 of 3 in 3 slices}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<1x192xf16, #stick.layout<#rows>>) outs(%e0 : tensor<1x192xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<1x192xf16, #stick.layout<#rows>>
  return
}
// -----
// 320 columns are 5 sticks of fp16 and 10 of fp32: a slice is whole sticks of both.
// CHECK-LABEL: func.func @cast(
// CHECK: sdsc.division = #sdsc.division<[1, 5], #{{.*}}>
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#wide = affine_map<(d0, d1) -> (d1 floordiv 32, d0, d1 mod 32)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @cast(%x: tensor<1x320xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<1x320xf32, #stick.layout<#wide>>
  // expected-remark@below {{division: 5 of 32 cores: dim 1 of 5 in 5 slices}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<1x320xf16, #stick.layout<#rows>>) outs(%e0 : tensor<1x320xf32, #stick.layout<#wide>>) attrs = {sdsc.op = #sdsc.op<"dl16tofp32", {}>} {
  ^bb0(%a0: f16, %o: f32):
    linalg.yield %o : f32
  } -> tensor<1x320xf32, #stick.layout<#wide>>
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
