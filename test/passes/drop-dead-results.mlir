// RUN: spyre-opt %s --drop-dead-results --split-input-file --verify-diagnostics | filecheck %s

// A result that nobody reads goes, with its destination and the scalar ops that only it needs.
// CHECK-LABEL: func.func @max_without_index
// CHECK: %[[V:.*]] = linalg.generic {indexing_maps = [#map, #map, #map]
// CHECK-SAME: ins(%{{.*}}, %{{.*}} : tensor<64xf16>, tensor<64xi64>) outs(%{{.*}} : tensor<64xf16>) {
// CHECK-NEXT: ^bb0(%[[A:.*]]: f16, %{{.*}}: i64, %{{.*}}: f16):
// CHECK-NEXT: %[[R:.*]] = arith.negf %[[A]] : f16
// CHECK-NEXT: linalg.yield %[[R]] : f16
// CHECK-NEXT: } -> tensor<64xf16>
// CHECK-NEXT: return %[[V]]
#id = affine_map<(d0) -> (d0)>
func.func @max_without_index(%x: tensor<64xf16>, %y: tensor<64xi64>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf16>
  %i = tensor.empty() : tensor<64xi64>
  // expected-remark@below {{rewrite: dropped results without a reader: 1}}
  %0:2 = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel"]}
      ins(%x, %y : tensor<64xf16>, tensor<64xi64>) outs(%e, %i : tensor<64xf16>, tensor<64xi64>) {
  ^bb0(%a: f16, %b: i64, %o: f16, %p: i64):
    %r = arith.negf %a : f16
    %s = arith.addi %b, %b : i64
    linalg.yield %r, %s : f16, i64
  } -> (tensor<64xf16>, tensor<64xi64>)
  return %0#0 : tensor<64xf16>
}
// -----
// What a live result needs stays, in order, also where the first result is the dead one.
// CHECK-LABEL: func.func @second
// CHECK: ^bb0(%[[A:.*]]: f16, %[[P:.*]]: f16):
// CHECK-NEXT: %[[C:.*]] = arith.constant 2.000000e+00 : f16
// CHECK-NEXT: %[[Q:.*]] = arith.divf %[[A]], %[[C]] : f16
// CHECK-NEXT: %[[R:.*]] = arith.addf %[[Q]], %[[P]] : f16
// CHECK-NEXT: linalg.yield %[[R]] : f16
#id = affine_map<(d0) -> (d0)>
#all = affine_map<(d0) -> ()>
func.func @second(%x: tensor<64xf16>) -> tensor<f16> {
  %e = tensor.empty() : tensor<f16>
  %0:2 = linalg.generic {indexing_maps = [#id, #all, #all], iterator_types = ["reduction"]}
      ins(%x : tensor<64xf16>) outs(%e, %e : tensor<f16>, tensor<f16>) {
  ^bb0(%a: f16, %o: f16, %p: f16):
    %c = arith.constant 2.0 : f16
    %dead = arith.mulf %a, %o : f16
    %q = arith.divf %a, %c : f16
    %r = arith.addf %q, %p : f16
    linalg.yield %dead, %r : f16, f16
  } -> (tensor<f16>, tensor<f16>)
  return %0#1 : tensor<f16>
}
// -----
// An op whose results are all read stays as it is.
// CHECK-LABEL: func.func @both
// CHECK: %[[V:.*]]:2 = linalg.generic
// CHECK: linalg.yield %{{.*}}, %{{.*}} : f16, f16
// CHECK: return %[[V]]#0, %[[V]]#1
#id = affine_map<(d0) -> (d0)>
func.func @both(%x: tensor<64xf16>) -> (tensor<64xf16>, tensor<64xf16>) {
  %e = tensor.empty() : tensor<64xf16>
  %0:2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<64xf16>) outs(%e, %e : tensor<64xf16>, tensor<64xf16>) {
  ^bb0(%a: f16, %o: f16, %p: f16):
    %r = arith.negf %a : f16
    linalg.yield %r, %a : f16, f16
  } -> (tensor<64xf16>, tensor<64xf16>)
  return %0#0, %0#1 : tensor<64xf16>, tensor<64xf16>
}
// -----
// The maximum beside an index is live although nobody reads it: the index is found by its accumulator.
// CHECK-LABEL: func.func @argmax
// CHECK: %[[V:.*]]:2 = linalg.generic
// CHECK: %[[MORE:.*]] = arith.cmpf ogt, %{{.*}}, %{{.*}} : f16
// CHECK: arith.select %[[MORE]]
// CHECK: linalg.yield %{{.*}}, %{{.*}} : f16, i64
// CHECK: return %[[V]]#1
#id = affine_map<(d0) -> (d0)>
#all = affine_map<(d0) -> ()>
func.func @argmax(%x: tensor<64xf16>) -> tensor<i64> {
  %e = tensor.empty() : tensor<f16>
  %i = tensor.empty() : tensor<i64>
  %0:2 = linalg.generic {indexing_maps = [#id, #all, #all], iterator_types = ["reduction"]}
      ins(%x : tensor<64xf16>) outs(%e, %i : tensor<f16>, tensor<i64>) {
  ^bb0(%a: f16, %o: f16, %p: i64):
    %at = linalg.index 0 : index
    %here = arith.index_cast %at : index to i64
    %more = arith.cmpf ogt, %a, %o : f16
    %r = arith.maximumf %a, %o : f16
    %s = arith.select %more, %here, %p : i64
    linalg.yield %r, %s : f16, i64
  } -> (tensor<f16>, tensor<i64>)
  return %0#1 : tensor<i64>
}
// -----
// Pins and restickifies of the program stay as they are; a result that a pin takes is read.
// CHECK-LABEL: func.func @requests
// CHECK: %[[V:.*]]:2 = linalg.generic
// CHECK: %[[P:.*]] = "stick.pin"(%[[V]]#1) {stick.to = #stick.layout<#{{.*}}>} : (tensor<64xf16>) -> tensor<64xf16>
// CHECK-NEXT: %[[R:.*]] = "stick.restickify"(%[[P]]) {stick.to = #stick.layout<#{{.*}}>} : (tensor<64xf16>) -> tensor<64xf16>
// CHECK-NEXT: return %[[V]]#0, %[[R]]
#id = affine_map<(d0) -> (d0)>
#dense = affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>
func.func @requests(%x: tensor<64xf16>) -> (tensor<64xf16>, tensor<64xf16>) {
  %e = tensor.empty() : tensor<64xf16>
  %0:2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<64xf16>) outs(%e, %e : tensor<64xf16>, tensor<64xf16>) {
  ^bb0(%a: f16, %o: f16, %p: f16):
    %r = arith.negf %a : f16
    linalg.yield %r, %a : f16, f16
  } -> (tensor<64xf16>, tensor<64xf16>)
  %1 = "stick.pin"(%0#1) {stick.to = #stick.layout<#dense>} : (tensor<64xf16>) -> tensor<64xf16>
  %2 = "stick.restickify"(%1) {stick.to = #stick.layout<#dense>} : (tensor<64xf16>) -> tensor<64xf16>
  return %0#0, %2 : tensor<64xf16>, tensor<64xf16>
}

// -----
// A loop yields what it carries for a result without a reader; what only another value needs stays.
// CHECK-LABEL: func.func @loop
// CHECK: %[[L:.*]]:3 = scf.for {{.*}} iter_args(%[[A:.*]] = %{{.*}}, %[[B:.*]] = %{{.*}}, %[[C:.*]] = %{{.*}})
// CHECK-NOT: math.tanh
// CHECK: scf.yield %[[A2:.*]], %[[B]], %[[C2:.*]] : tensor<64xf32>, tensor<64xf32>, tensor<64xf32>
// CHECK: return %[[L]]#0
func.func @loop(%x: tensor<64xf32>) -> tensor<64xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %four = arith.constant 4 : index
  %0:3 = scf.for %i = %zero to %four step %one iter_args(%a = %x, %b = %x, %c = %x)
      -> (tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) {
    %s = arith.addf %a, %c : tensor<64xf32>
    %t = math.tanh %b : tensor<64xf32>
    %u = arith.negf %c : tensor<64xf32>
    scf.yield %s, %t, %u : tensor<64xf32>, tensor<64xf32>, tensor<64xf32>
  }
  return %0#0 : tensor<64xf32>
}

// -----
// A maximum with its index inside of a loop is erased with the value that the loop no longer carries.
// CHECK-LABEL: func.func @maximum_in_a_loop
// CHECK: %[[L:.*]]:2 = scf.for {{.*}} iter_args(%[[A:.*]] = %{{.*}}, %[[B:.*]] = %{{.*}})
// CHECK-NOT: linalg.generic
// CHECK: scf.yield %{{.*}}, %[[B]] : tensor<64xf32>, tensor<f32>
#row = affine_map<(d0) -> (d0)>
#one = affine_map<(d0) -> ()>
func.func @maximum_in_a_loop(%x: tensor<64xf32>, %least: tensor<f32>, %none: tensor<i64>) -> tensor<64xf32> {
  %zero = arith.constant 0 : index
  %step = arith.constant 1 : index
  %four = arith.constant 4 : index
  %0:2 = scf.for %i = %zero to %four step %step iter_args(%a = %x, %b = %least) -> (tensor<64xf32>, tensor<f32>) {
    %m:2 = linalg.generic {indexing_maps = [#row, #one, #one], iterator_types = ["reduction"]}
        ins(%a : tensor<64xf32>) outs(%b, %none : tensor<f32>, tensor<i64>) {
    ^bb0(%v: f32, %o: f32, %p: i64):
      %at = linalg.index 0 : index
      %here = arith.index_cast %at : index to i64
      %more = arith.cmpf ogt, %v, %o : f32
      %r = arith.maximumf %v, %o : f32
      %s = arith.select %more, %here, %p : i64
      linalg.yield %r, %s : f32, i64
    } -> (tensor<f32>, tensor<i64>)
    %n = arith.negf %a : tensor<64xf32>
    scf.yield %n, %m#0 : tensor<64xf32>, tensor<f32>
  }
  return %0#0 : tensor<64xf32>
}
