// RUN: spyre-opt %s --choose-layouts --work-distribution --cut-bundles="operations=2" --verify-diagnostics | filecheck %s
// RUN: spyre-opt %s --choose-layouts --work-distribution --cut-bundles="operations=2" --clone-outputs --clone-inputs --scratchpad-planning | filecheck %s --check-prefix=SAVED
// RUN: spyre-opt %s --choose-layouts --work-distribution --scratchpad-planning --place-in-hbm --cut-bundles="operations=2" --convert-sdsc-to-sdscbundle | filecheck %s --check-prefix=BUNDLE
// RUN: spyre-opt %s --choose-layouts --work-distribution --cut-bundles="tensors=4" | filecheck %s --check-prefix=TENSORS
// RUN: not spyre-opt %s --cut-bundles="operations=0" 2>&1 | filecheck %s --check-prefix=NONE

// Bundles are filled one after the other.
// CHECK-LABEL: func.func @chain(
// CHECK: sdsc.bundle = 0 : i64, {{.*}}sdsc.op<"exp", {}>
// CHECK: sdsc.bundle = 0 : i64, {{.*}}sdsc.op<"abs", {}>
// CHECK: sdsc.bundle = 1 : i64, {{.*}}sdsc.op<"neg", {}>
// CHECK: sdsc.bundle = 1 : i64, {{.*}}sdsc.op<"add", {}>
// CHECK: sdsc.bundle = 2 : i64, {{.*}}sdsc.op<"mul", {}>

// What is planned behind a cut keeps nothing in LX over it: %a is read in its own bundle and, three times, in the next
// ones. It is saved behind its writer, and restored where two operations read it.
// SAVED: %[[A:.*]] = linalg.generic {{.*}}sdsc.bundle = 0 : i64, {{.*}}sdsc.op<"exp", {}>, sdsc.placement = #sdsc.lx<
// SAVED: %[[S:.*]] = "sdsc.clone"(%[[A]]) {sdsc.bundle = 0 : i64, {{.*}}sdsc.spilled = ["is live across the end of a bundle: the contents of LX do not reach the next bundle"]
// SAVED: ins(%[[A]] : {{.*}}sdsc.op<"abs", {}>
// SAVED: %[[R:.*]] = "sdsc.clone"(%[[S]]) {sdsc.bundle = 1 : i64, {{.*}}sdsc.placement = #sdsc.lx<
// SAVED: ins(%[[R]] : {{.*}}sdsc.op<"neg", {}>
// SAVED: ins(%{{.*}}, %[[R]] : {{.*}}sdsc.op<"add", {}>
// SAVED: ins(%{{.*}}, %[[S]] : {{.*}}sdsc.op<"mul", {}>

// The executes that begin another bundle.
// BUNDLE: module attributes {sdscbundle.cuts = array<i64: 2, 4>,

// The first bundle accesses %x and the results of its three operations; the last one reads two of them.
// TENSORS: sdsc.bundle = 0 : i64, {{.*}}sdsc.op<"exp", {}>
// TENSORS: sdsc.bundle = 0 : i64, {{.*}}sdsc.op<"abs", {}>
// TENSORS: sdsc.bundle = 0 : i64, {{.*}}sdsc.op<"neg", {}>
// TENSORS: sdsc.bundle = 1 : i64, {{.*}}sdsc.op<"add", {}>

// NONE: error: A bundle has a limit of at least 1 operation or 1 tensor, not of 0 operations.
#id = affine_map<(d0, d1) -> (d0, d1)>
!m = tensor<128x256xf16>
// expected-remark@below {{bundles: 3 of at most 2 operations}}
func.func @chain(%x: !m {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> (!m {sdsc.host = #sdsc.host<"result0", "result", "f16">}) {
  %e = tensor.empty() : !m
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%i: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"abs", {}>} {
  ^bb0(%i: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %c = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"neg", {}>} {
  ^bb0(%i: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %d = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%b, %a : !m, !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%i: f16, %j: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %f = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%d, %a : !m, !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"mul", {}>} {
  ^bb0(%i: f16, %j: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %g = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%f, %c : !m, !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"sub", {}>} {
  ^bb0(%i: f16, %j: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  return %g : !m
}
