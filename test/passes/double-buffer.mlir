// RUN: spyre-opt %s --attach-target="sencores=2" --choose-layouts --work-distribution --double-buffer="compare=false" --verify-divided --split-input-file | filecheck %s
// RUN: spyre-opt %s --attach-target="sencores=2" --choose-layouts --work-distribution --double-buffer="compare=false" --scratchpad-planning --place-in-hbm --verify-placed --verify-scratchpad --verify-ownership --split-input-file | filecheck %s --check-prefix=PLACED
// RUN: spyre-opt %s --attach-target="sencores=2" --choose-layouts --work-distribution --double-buffer --split-input-file --remarks %t.jsonl -o %t.mlir && filecheck %s --input-file %t.jsonl --check-prefix=REMARKS

// The tile of the next iteration is loaded behind the product of this one, into two buffers in turn: a loop over two
// iterations each, two times, and the fifth behind it. The sum stays in the buffer that the loop carries.
// CHECK-LABEL: func.func @five_tiles(
// CHECK: %[[FIRST:.*]] = linalg.generic {{.*}}"tanh"{{.*}}sdsc.ping_pong = [0, 0]
// CHECK: %[[R:.*]]:2 = scf.for %[[I:.*]] = %c0{{.*}} to %c512{{.*}} step %c256{{.*}} iter_args(%[[S:.*]] = %{{.*}}, %[[A:.*]] = %[[FIRST]])
// CHECK-DAG: %[[NEXT:.*]] = affine.apply {{.*}}(%[[I]])
// CHECK: %[[P:.*]] = linalg.generic {{.*}} ins(%[[A]], {{.*}}"batchmatmul"
// CHECK: %[[B:.*]] = linalg.generic {{.*}}"tanh"{{.*}}sdsc.ping_pong = [0, 1]
// CHECK: %[[T:.*]] = linalg.generic {{.*}} ins(%[[S]], %[[P]] : {{.*}}"add", {}>, sdsc.overwrites = 0
// CHECK: %[[Q:.*]] = linalg.generic {{.*}} ins(%[[B]], {{.*}}"batchmatmul"
// CHECK: %[[C:.*]] = linalg.generic {{.*}}"tanh"{{.*}}sdsc.ping_pong = [0, 0]
// CHECK: %[[U:.*]] = linalg.generic {{.*}} ins(%[[T]], %[[Q]] : {{.*}}"add"
// CHECK: scf.yield %[[U]], %[[C]]
// CHECK: linalg.generic {{.*}} ins(%[[R]]#1, {{.*}}"batchmatmul"
// CHECK-NOT: "tanh"
// CHECK: linalg.generic {{.*}} ins(%[[R]]#0, {{.*}}"add", {}>, sdsc.overwrites = 0
//
// PLACED-LABEL: func.func @five_tiles(
// PLACED: "tanh"{{.*}}sdsc.ping_pong = [0, 0], sdsc.placement = #sdsc.lx<0 : i64>
// PLACED: "tanh"{{.*}}sdsc.ping_pong = [0, 1], sdsc.placement = #sdsc.lx<65536 : i64>
#id = affine_map<(d0, d1) -> (d0, d1)>
#rows = affine_map<(d0, d1, d2) -> (d0, d2)>
#columns = affine_map<(d0, d1, d2) -> (d2, d1)>
#result = affine_map<(d0, d1, d2) -> (d0, d1)>
!s = tensor<512x256xf16>
!x = tensor<512x640xf16>
!t = tensor<512x128xf16>
!w = tensor<640x256xf16>
!v = tensor<128x256xf16>
func.func @five_tiles(%z: !s {sdsc.host = #sdsc.host<"z", "input", "f16">}, %x: !x {sdsc.host = #sdsc.host<"x", "input", "f16">}, %w: !w {sdsc.host = #sdsc.host<"w", "input", "f16">}) -> (!s {sdsc.host = #sdsc.host<"y", "result", "f16">}) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c640 = arith.constant 640 : index
  %e = tensor.empty() : !s
  %et = tensor.empty() : !t
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%z : !s) outs(%e : !s) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> !s
  %1 = scf.for %i = %c0 to %c640 step %c128 iter_args(%sum = %0) -> (!s) {
    %xi = tensor.extract_slice %x[0, %i] [512, 128] [1, 1] : !x to !t
    %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%xi : !t) outs(%et : !t) attrs = {sdsc.op = #sdsc.op<"tanh", {}>} {
    ^bb0(%a: f16, %o: f16):
      linalg.yield %o : f16
    } -> !t
    %wi = tensor.extract_slice %w[%i, 0] [128, 256] [1, 1] : !w to !v
    %3 = linalg.generic {indexing_maps = [#rows, #columns, #result], iterator_types = ["parallel", "parallel", "reduction"]} ins(%2, %wi : !t, !v) outs(%e : !s) attrs = {sdsc.op = #sdsc.op<"batchmatmul", {}>} {
    ^bb0(%a: f16, %b: f16, %o: f16):
      linalg.yield %o : f16
    } -> !s
    %4 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%sum, %3 : !s, !s) outs(%e : !s) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
    ^bb0(%a: f16, %b: f16, %o: f16):
      linalg.yield %o : f16
    } -> !s
    scf.yield %4 : !s
  }
  return %1 : !s
}
// -----
// What is made of a tile alone computes no longer than the load of the next one: nothing goes ahead.
// CHECK-LABEL: func.func @nothing_computes(
// CHECK: scf.for {{.*}} step %c128 iter_args(%{{[a-z0-9]*}} = %{{.*}}) -> (tensor<512x640xf16
// CHECK-NOT: sdsc.ping_pong
// PLACED-LABEL: func.func @nothing_computes(
// PLACED-NOT: sdsc.ping_pong
//
// REMARKS: "pass_name": "double-buffer", {{.*}} us, {{.*}} bytes without moved loads, {{.*}} with 1 elsewhere, 1 of them into ping-pong buffers
// REMARKS: "kind": "no double buffers", "reason": "no operation of its loop can run during a load"
#id = affine_map<(d0, d1) -> (d0, d1)>
!x = tensor<512x640xf16>
!t = tensor<512x128xf16>
func.func @nothing_computes(%x: !x {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> (!x {sdsc.host = #sdsc.host<"y", "result", "f16">}) {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c640 = arith.constant 640 : index
  %e = tensor.empty() : !x
  %et = tensor.empty() : !t
  %1 = scf.for %i = %c0 to %c640 step %c128 iter_args(%all = %e) -> (!x) {
    %xi = tensor.extract_slice %x[0, %i] [512, 128] [1, 1] : !x to !t
    %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%xi : !t) outs(%et : !t) attrs = {sdsc.op = #sdsc.op<"tanh", {}>} {
    ^bb0(%a: f16, %o: f16):
      linalg.yield %o : f16
    } -> !t
    %3 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%2 : !t) outs(%et : !t) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
    ^bb0(%a: f16, %o: f16):
      linalg.yield %o : f16
    } -> !t
    %4 = tensor.insert_slice %3 into %all[0, %i] [512, 128] [1, 1] : !t into !x
    scf.yield %4 : !x
  }
  return %1 : !x
}
