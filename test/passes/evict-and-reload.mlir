// RUN: spyre-opt %s --attach-target="lx-frac-avail=0.998" --choose-layouts --work-distribution --clone-inputs --evict-and-reload --verify-divided --split-input-file --verify-diagnostics | filecheck %s
// RUN: spyre-opt %s --choose-layouts --work-distribution --clone-inputs --evict-and-reload --split-input-file | filecheck %s --check-prefix=ROOM

// 4096 bytes per core, two buffers. Three are needed at once while %a waits for its last readers: it goes to device
// memory behind its writer, and back into LX in front of them. Its first reader finds it in LX.
// CHECK-LABEL: func.func @back(
// CHECK: %[[A:.*]] = linalg.generic {{.*}}sdsc.op<"exp", {}>
// CHECK: %[[H:.*]] = "sdsc.clone"(%[[A]]) {sdsc.division = #sdsc.division<[32, 1], #{{.*}}>, sdsc.evicted, sdsc.history = {{.*}}, sdsc.optional}
// CHECK: ins(%[[A]] : {{.*}}sdsc.op<"abs", {}>
// CHECK: sdsc.op<"sub", {}>
// CHECK: %[[R:.*]] = "sdsc.clone"(%[[H]]) {sdsc.division = #sdsc.division<[32, 1], #{{.*}}>, sdsc.history = {{.*}}, sdsc.optional}
// CHECK: ins(%{{.*}}, %[[R]] : {{.*}}sdsc.op<"add", {}>
// CHECK: ins(%{{.*}}, %[[R]] : {{.*}}sdsc.op<"mul", {}>
// With room for all of them nothing moves.
// ROOM-LABEL: func.func @back(
// ROOM-NOT: sdsc.clone
// ROOM: return
#id = affine_map<(d0, d1) -> (d0, d1)>
!m = tensor<128x256xf16>
// expected-remark@below {{moves: buffers that are spilled or reloaded: 1; 10.7 us, 393,216 bytes without that, 6.6 us, 262,144 bytes with it}}
func.func @back(%x: !m {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> !m {
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
  %g = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%f, %d : !m, !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"sub", {}>} {
  ^bb0(%i: f16, %j: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %h = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%g, %a : !m, !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%i: f16, %j: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %k = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%h, %a : !m, !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"mul", {}>} {
  ^bb0(%i: f16, %j: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  return %k : !m
}
// -----
// Of an input device memory has a copy already. To its first reader a clone is no use, so it is made late.
// CHECK-LABEL: func.func @input(
// CHECK-SAME: %[[X:.*]]: tensor
// CHECK-NOT: sdsc.clone
// CHECK: ins(%[[X]] : {{.*}}sdsc.op<"abs", {}>
// CHECK: %[[R:.*]] = "sdsc.clone"(%[[X]])
// CHECK: ins(%{{.*}}, %[[R]] : {{.*}}sdsc.op<"add", {}>
// CHECK: ins(%{{.*}}, %[[R]] : {{.*}}sdsc.op<"mul", {}>
#id = affine_map<(d0, d1) -> (d0, d1)>
!m = tensor<128x256xf16>
// expected-remark@below {{moves: buffers that are spilled or reloaded: 1}}
func.func @input(%a: !m {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> !m {
  %e = tensor.empty() : !m
  // expected-remark@below {{clone: 3 of 3 readers of one input}}
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
  %g = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%f, %d : !m, !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"sub", {}>} {
  ^bb0(%i: f16, %j: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %h = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%g, %a : !m, !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%i: f16, %j: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %k = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%h, %a : !m, !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"mul", {}>} {
  ^bb0(%i: f16, %j: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  return %k : !m
}
// -----
// A reader in a loop would read it again in each iteration: it does not move.
// CHECK-LABEL: func.func @loop(
// CHECK-NOT: sdsc.clone
#id = affine_map<(d0, d1) -> (d0, d1)>
!m = tensor<128x256xf16>
func.func @loop(%x: !m {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> !m {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
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
  %g = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%f, %d : !m, !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"sub", {}>} {
  ^bb0(%i: f16, %j: f16, %o: f16):
    linalg.yield %o : f16
  } -> !m
  %k = scf.for %n = %c0 to %c4 step %c1 iter_args(%t = %g) -> (!m) {
    %h = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%t, %a : !m, !m) outs(%e : !m) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
    ^bb0(%i: f16, %j: f16, %o: f16):
      linalg.yield %o : f16
    } -> !m
    scf.yield %h : !m
  }
  return %k : !m
}
