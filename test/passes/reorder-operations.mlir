// RUN: spyre-opt %s --attach-target="lx-frac-avail=0.998" --choose-layouts --work-distribution --reorder-operations --verify-divided --split-input-file --verify-diagnostics | filecheck %s
// RUN: spyre-opt %s --choose-layouts --work-distribution --reorder-operations --split-input-file | filecheck %s --check-prefix=ROOM

// 4096 bytes per core, two buffers. The two halves of the program want two each: one comes behind the other.
// CHECK-LABEL: func.func @halves(
// CHECK: sdsc.op<"tanh", {}>
// CHECK: sdsc.op<"neg", {}>
// CHECK: sdsc.op<"sub", {}>
// CHECK: sdsc.op<"exp", {}>
// CHECK: sdsc.op<"abs", {}>
// CHECK: sdsc.op<"mul", {}>
// With room for all of them the order stays.
// ROOM-LABEL: func.func @halves(
// ROOM: sdsc.op<"exp", {}>
// ROOM: sdsc.op<"tanh", {}>
// ROOM: sdsc.op<"abs", {}>
// ROOM: sdsc.op<"neg", {}>
#id = affine_map<(d0, d1) -> (d0, d1)>
!m = tensor<128x256xf16>
// expected-remark@below {{order: 14.0 us, 524,288 bytes in program order, 6.6 us, 262,144 bytes in another order}}
func.func @halves(%x: !m {sdsc.host = #sdsc.host<"x", "input", "f16">}, %y: !m {sdsc.host = #sdsc.host<"y", "input", "f16">}) -> (!m, !m) {
  %e = tensor.empty() : !m
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%i: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%y : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"tanh", {}>} {
  ^bb0(%i: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %c = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"abs", {}>} {
  ^bb0(%i: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %d = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%b : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"neg", {}>} {
  ^bb0(%i: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %f = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%a, %c : !m, !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"mul", {}>} {
  ^bb0(%i: f16, %j: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %g = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%b, %d : !m, !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"sub", {}>} {
  ^bb0(%i: f16, %j: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  return %f, %g : !m, !m
}
// -----
// Nothing is independent here, so nothing changes although not all fits.
// CHECK-LABEL: func.func @chain(
// CHECK: sdsc.op<"exp", {}>
// CHECK: sdsc.op<"abs", {}>
// CHECK: sdsc.op<"neg", {}>
// CHECK: sdsc.op<"add", {}>
// CHECK: sdsc.op<"mul", {}>
// CHECK: sdsc.op<"sub", {}>
#id = affine_map<(d0, d1) -> (d0, d1)>
!m = tensor<128x256xf16>
func.func @chain(%x: !m {sdsc.host = #sdsc.host<"x", "input", "f16">}, %y: !m {sdsc.host = #sdsc.host<"y", "input", "f16">}) -> !m {
  %e = tensor.empty() : !m
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%i: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"abs", {}>} {
  ^bb0(%i: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %c = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%b : !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"neg", {}>} {
  ^bb0(%i: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %d = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%b, %c : !m, !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%i: f16, %j: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %f = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%c, %d : !m, !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"mul", {}>} {
  ^bb0(%i: f16, %j: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %g = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%f, %a : !m, !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"sub", {}>} {
  ^bb0(%i: f16, %j: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  return %g : !m
}
