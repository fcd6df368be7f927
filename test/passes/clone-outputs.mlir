// RUN: spyre-opt %s --choose-layouts --work-distribution --clone-outputs --verify-divided --split-input-file --verify-diagnostics | filecheck %s
// RUN: spyre-opt %s --choose-layouts --work-distribution --clone-outputs --scratchpad-planning --split-input-file | filecheck %s --check-prefix=PLANNED
// RUN: spyre-opt %s --attach-target="lx-frac-avail=1.0" --choose-layouts --work-distribution --clone-outputs --scratchpad-planning --split-input-file | filecheck %s --check-prefix=FULL

// The host wants the exponential, and so does the sum, which finds it in LX.
// CHECK-LABEL: func.func @result(
// CHECK: %[[E:.*]] = linalg.generic {{.*}}sdsc.op<"exp", {}>
// CHECK: %[[C:.*]] = "sdsc.clone"(%[[E]]) {{.*}}sdsc.optional
// CHECK: %[[S:.*]] = linalg.generic {{.*}} ins(%[[E]], %{{.*}} :
// CHECK: return %[[C]], %[[S]]
// PLANNED-LABEL: func.func @result(
// PLANNED: sdsc.op<"exp", {}>, sdsc.placement = #sdsc.lx<0 : i64>
// PLANNED: "sdsc.clone"({{.*}}sdsc.spilled = ["graph input or output: the host reads it"
// FULL-LABEL: func.func @result(
// FULL-NOT: sdsc.clone
#id = affine_map<(d0, d1) -> (d0, d1)>
!m = tensor<128x256xf16>
func.func @result(%x: !m {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> (!m, !m) {
  %e = tensor.empty() : !m
  // expected-remark@below {{clone: 0 of 1 readers and the host read a clone in device memory}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %1 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%0, %x : !m, !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%a: f16, %b: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  return %0, %1 : !m, !m
}
// -----
// One reader takes a slice; it reads the clone, the other one LX.
// CHECK-LABEL: func.func @slice(
// CHECK: %[[E:.*]] = linalg.generic {{.*}}sdsc.op<"exp", {}>
// CHECK: %[[C:.*]] = "sdsc.clone"(%[[E]])
// CHECK: %[[V:.*]] = tensor.extract_slice %[[C]]
// CHECK: linalg.generic {{.*}} ins(%[[V]] : {{.*}}sdsc.op<"abs", {}>
// CHECK: linalg.generic {{.*}} ins(%[[E]] : {{.*}}sdsc.op<"neg", {}>
#id = affine_map<(d0, d1) -> (d0, d1)>
!m = tensor<128x256xf16>
!h = tensor<64x256xf16>
func.func @slice(%x: !m {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> (!m, !h) {
  %e = tensor.empty() : !m
  %eh = tensor.empty() : !h
  // expected-remark@below {{clone: 1 of 2 readers read a clone in device memory}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %s = tensor.extract_slice %0[64, 0] [64, 256] [1, 1] : !m to !h
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : !h) outs(%eh : !h) attrs = {sdsc.op = #sdsc.op<"abs", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !h
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"neg", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  return %2, %1 : !m, !h
}
// -----
// Where no reader could take it from LX, a clone would help nobody.
// CHECK-LABEL: func.func @nobody(
// CHECK-NOT: sdsc.clone
#id = affine_map<(d0, d1) -> (d0, d1)>
!m = tensor<128x256xf16>
func.func @nobody(%x: !m {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> !m {
  %e = tensor.empty() : !m
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  return %0 : !m
}
// -----
// What a loop carries stays in LX until it has ended; the host gets a clone.
// CHECK-LABEL: func.func @carried(
// CHECK: %[[L:.*]] = scf.for
// CHECK: %[[C:.*]] = "sdsc.clone"(%[[L]]) {{.*}}sdsc.optional
// CHECK: return %[[C]]
// PLANNED-LABEL: func.func @carried(
// PLANNED: sdsc.op<"exp", {}>, sdsc.placement = #sdsc.lx<0 : i64>
// PLANNED: "sdsc.clone"({{.*}}sdsc.spilled = ["graph input or output: the host reads it"
// FULL-LABEL: func.func @carried(
// FULL-NOT: sdsc.clone
#id = affine_map<(d0, d1) -> (d0, d1)>
!m = tensor<128x256xf16>
func.func @carried(%x: !m {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> !m {
  %e = tensor.empty() : !m
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  // expected-remark@below {{clone: 0 of 1 readers and the host read a clone in device memory}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %r = scf.for %i = %c0 to %c3 step %c1 iter_args(%s = %0) -> !m {
    %1 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%s, %x : !m, !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
    ^bb0(%a: f16, %b: f16, %o: f16):
      linalg.yield %o : f16
    } -> !m
    scf.yield %1 : !m
  }
  return %r : !m
}
