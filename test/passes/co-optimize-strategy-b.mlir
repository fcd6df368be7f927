// RUN: spyre-opt %s --attach-target="sencores=16" --choose-layouts --work-distribution --co-optimize-strategy-b --verify-divided --split-input-file --verify-diagnostics | filecheck %s

// The maximum has 16 slices of its columns. The subtraction and the exponential, each divided for itself, have 16 of
// their rows; of the 4 combinations that with columns everywhere leaves the fewest bytes in device memory.
// CHECK: #[[MAP:map.*]] = affine_map<(d0) -> (0, d0 mod 16)>
// CHECK-LABEL: func.func @follow(
// CHECK: #sdsc.division<[1, 16], #[[MAP]]>{{.*}}maxnonstick
// CHECK: #sdsc.division<[1, 16], #[[MAP]]>{{.*}}sub
// CHECK: #sdsc.division<[1, 16], #[[MAP]]>{{.*}}exp
#id = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
!m = tensor<512x1024xf16>
!v = tensor<1024xf16>
// expected-remark@below {{divisions: bytes of traffic, the fewest of all 4 combinations of divisions}}
func.func @follow(%x: !m {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> !m {
  %e = tensor.empty() : !m
  %ev = tensor.empty() : !v
  %0 = linalg.generic {indexing_maps = [#id, #column], iterator_types = ["reduction", "parallel"]} ins(%x : !m) outs(%ev : !v) attrs = {sdsc.op = #sdsc.op<"maxnonstick", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !v
  // expected-remark@below {{division: slices [16, 1] become [1, 16]}}
  %1 = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %0 : !m, !v) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"sub", {}>} {
  ^bb0(%a: f16, %b: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  // expected-remark@below {{division: slices [16, 1] become [1, 16]}}
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%1 : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  return %2 : !m
}
// -----
// Where nothing is better the divisions stay as they came.
// CHECK-LABEL: func.func @same(
// CHECK-COUNT-2: #sdsc.division<[16, 1], #{{.*}}>
#id = affine_map<(d0, d1) -> (d0, d1)>
!m = tensor<512x1024xf16>
// expected-remark@below {{divisions: bytes of traffic, the fewest of all 4 combinations of divisions}}
func.func @same(%x: !m {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> !m {
  %e = tensor.empty() : !m
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"abs", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  return %1 : !m
}
