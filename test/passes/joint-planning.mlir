// RUN: spyre-opt %s --choose-layouts --work-distribution --joint-planning --joint-planning --verify-divided --split-input-file --verify-diagnostics | filecheck %s
// RUN: spyre-opt %s --choose-layouts --work-distribution --joint-planning=compare=false --split-input-file | filecheck %s
// RUN: spyre-opt %s --choose-layouts --work-distribution --joint-planning=relayouts=false --split-input-file | filecheck %s --check-prefix=ALONE

// By itself the maximum takes 16 slices of its columns and splits its rows in 2, and the subtraction takes 32 slices
// of its rows. With the slices of the maximum in all three, the matrix can stay on chip; the maximum, of which every
// other core holds a part, goes to both cores of each part over the ring. The timeline and
// the sum of the operations agree on that, and a second run finds all as it should be.
// Without relayouts all take 16 slices of the columns, and there is nothing to add up.
// CHECK: #[[MAP:map.*]] = affine_map<(d0) -> (d0 mod 2, (d0 floordiv 2) mod 16)>
// CHECK: #[[COPIES:map.*]] = affine_map<(d0) -> ((d0 floordiv 2) mod 16, d0 mod 2)>
// CHECK-LABEL: func.func @agree(
// CHECK: %[[MAX:.*]] = linalg.generic {{.*}}#sdsc.division<[2, 16], #[[MAP]]>{{.*}}maxnonstick
// CHECK: %[[ALL:.*]] = "sdsc.shuffle"(%[[MAX]]) {sdsc.copies = 2 : i64, sdsc.division = #sdsc.division<[16, 2], #[[COPIES]]>, sdsc.history = {{.*}}, sdsc.optional}
// CHECK: linalg.generic {{.*}} ins(%arg0, %[[ALL]] : {{.*}}#sdsc.division<[2, 16], #[[MAP]]>{{.*}}sub
// CHECK: #sdsc.division<[2, 16], #[[MAP]]>{{.*}}exp
// CHECK-NOT: sdsc.shuffle
// ALONE: #[[MAP:map.*]] = affine_map<(d0) -> (0, d0 mod 16)>
// ALONE-LABEL: func.func @agree(
// ALONE: #sdsc.division<[1, 16], #[[MAP]]>{{.*}}maxnonstick
// ALONE: #sdsc.division<[1, 16], #[[MAP]]>{{.*}}sub
// ALONE: #sdsc.division<[1, 16], #[[MAP]]>{{.*}}exp
#id = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
!m = tensor<512x1024xf16>
!v = tensor<1024xf16>
// expected-remark@below {{divisions: the operations in sequence take}}
func.func @agree(%x: !m {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> (!m {sdsc.host = #sdsc.host<"result0", "result", "f16">}) {
  %e = tensor.empty() : !m
  %ev = tensor.empty() : !v
  // expected-remark@below {{32 of 32 cores}}
  %0 = linalg.generic {indexing_maps = [#id, #column], iterator_types = ["reduction", "parallel"]} ins(%x : !m) outs(%ev : !v) attrs = {sdsc.op = #sdsc.op<"maxnonstick", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !v
  // expected-remark@below {{division: slices [32, 1] become [2, 16] to match other operations}}
  // expected-remark@below {{relayout: 1 of 1 readers need it on other cores, 3 ns over the ring}}
  %1 = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %0 : !m, !v) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"sub", {}>} {
  ^bb0(%a: f16, %b: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  // expected-remark@below {{division: slices [32, 1] become [2, 16] to match other operations}}
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%1 : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  return %2 : !m
}
// -----
// Operations that agree stay as they are.
// CHECK-LABEL: func.func @same(
// CHECK-COUNT-2: #sdsc.division<[32, 1], #{{.*}}>
#id = affine_map<(d0, d1) -> (d0, d1)>
!m = tensor<2048x1024xf16>
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
