// RUN: spyre-opt %s --choose-layouts --work-distribution --clone-inputs --verify-divided --split-input-file --verify-diagnostics | filecheck %s

// What two operations read alike gets a clone, divided as they are, before the first of them.
// CHECK-LABEL: func.func @twice(
// CHECK-SAME: %[[X:.*]]: tensor
// CHECK: %[[C:.*]] = "sdsc.clone"(%[[X]]) {sdsc.division = #sdsc.division<[32, 1], #[[MAP:.*]]>, sdsc.history = {{.*}}, sdsc.optional}
// CHECK: linalg.generic {{.*}} ins(%[[C]] : {{.*}}#sdsc.division<[32, 1], #[[MAP]]>
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %[[C]] :
#id = affine_map<(d0, d1) -> (d0, d1)>
!m = tensor<128x256xf16>
func.func @twice(%x: !m {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> !m {
  %e = tensor.empty() : !m
  // expected-remark@below {{clone: 2 of 2 readers of one input read a clone of 2048 bytes per core}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %1 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%0, %x : !m, !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%a: f16, %b: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  return %1 : !m
}
// -----
// A reader takes its own view of the clone.
// CHECK-LABEL: func.func @views(
// CHECK: %[[C:.*]] = "sdsc.clone"
// CHECK: %[[V:.*]] = linalg.transpose ins(%[[C]] :
// CHECK: linalg.generic {{.*}} ins(%[[V]] :
// CHECK: linalg.generic {{.*}} ins(%[[C]] :
#id = affine_map<(d0, d1) -> (d0, d1)>
!m = tensor<128x64xf16>
!t = tensor<64x128xf16>
func.func @views(%x: !m {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> (!t, !m) {
  %e = tensor.empty() : !m
  %et = tensor.empty() : !t
  %t = linalg.transpose ins(%x : !m) outs(%et : !t) permutation = [1, 0]
  // expected-remark@below {{clone: 2 of 2 readers}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%t : !t) outs(%et : !t) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !t
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"abs", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  return %0, %1 : !t, !m
}
// -----
// Every core reads the whole vector: each of the 32 gets a copy, which is the last dim of the clone.
// CHECK: #[[COPIES:.*]] = affine_map<(d0) -> (0, d0 mod 32)>
// CHECK-LABEL: func.func @shared(
// CHECK-SAME: %[[V:[a-z0-9]*]]: tensor<64xf16
// CHECK: %[[C:.*]] = "sdsc.clone"(%[[V]]) {sdsc.copies = 32 : i64, sdsc.division = #sdsc.division<[1, 32], #[[COPIES]]>, sdsc.history = {{.*}}, sdsc.optional}
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %[[C]] :
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %[[C]] :
#id = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
!m = tensor<128x64xf16>
!v = tensor<64xf16>
func.func @shared(%x: !m {sdsc.host = #sdsc.host<"x", "input", "f16">}, %v: !v {sdsc.host = #sdsc.host<"v", "input", "f16">}) -> !m {
  %e = tensor.empty() : !m
  // expected-remark@below {{clone: 2 of 2 readers of one input read a clone of 128 bytes per core}}
  %0 = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %v : !m, !v) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%a: f16, %b: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %1 = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]} ins(%0, %v : !m, !v) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"mul", {}>} {
  ^bb0(%a: f16, %b: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  return %1 : !m
}
// -----
// What one core reads of it does not fit.
// CHECK-LABEL: func.func @large(
// CHECK-NOT: sdsc.clone
#id = affine_map<(d0, d1) -> (d0, d1)>
!m = tensor<32768x1024xf16>
func.func @large(%x: !m {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> !m {
  %e = tensor.empty() : !m
  // expected-remark@below {{no clone: 2 of 2 readers of one input: 2097152 bytes per core, LX has 1625344}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %1 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%0, %x : !m, !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%a: f16, %b: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  return %1 : !m
}
