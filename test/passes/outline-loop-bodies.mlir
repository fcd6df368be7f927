// RUN: spyre-opt %s --outline-loop-bodies --split-input-file | filecheck %s

// What a loop computes is a function; slices by its variable stay, and what is inserted comes behind the call.
// CHECK: func.func private @loop_body_0(%arg0: tensor<8xf16>, %arg1: tensor<8xf16>, %arg2: tensor<8xf16>) -> tensor<8xf16>
// CHECK-NEXT: linalg.add
// CHECK: func.func @scan
func.func @scan(%x: tensor<4x8xf16>, %s: tensor<8xf16>) -> (tensor<8xf16>, tensor<4x8xf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %o = tensor.empty() : tensor<4x8xf16>
  // CHECK: scf.for %[[I:.*]] = {{.*}} iter_args(%[[A:.*]] = %arg1, %[[YS:.*]] = %{{.*}})
  // CHECK-NEXT: %[[X:.*]] = tensor.extract_slice %arg0[%[[I]], 0]
  // CHECK-NEXT: %[[Y:.*]] = func.call @loop_body_0(%[[X]], %[[A]], %arg1)
  // CHECK-NEXT: %[[W:.*]] = tensor.insert_slice %[[Y]] into %[[YS]][%[[I]], 0]
  // CHECK-NEXT: scf.yield %[[Y]], %[[W]]
  %r:2 = scf.for %i = %c0 to %c4 step %c1 iter_args(%a = %s, %ys = %o) -> (tensor<8xf16>, tensor<4x8xf16>) {
    %xi = tensor.extract_slice %x[%i, 0] [1, 8] [1, 1] : tensor<4x8xf16> to tensor<8xf16>
    %y = linalg.add ins(%xi, %a : tensor<8xf16>, tensor<8xf16>) outs(%s : tensor<8xf16>) -> tensor<8xf16>
    %w = tensor.insert_slice %y into %ys[%i, 0] [1, 8] [1, 1] : tensor<8xf16> into tensor<4x8xf16>
    scf.yield %y, %w : tensor<8xf16>, tensor<4x8xf16>
  }
  return %r#0, %r#1 : tensor<8xf16>, tensor<4x8xf16>
}

// -----

// A slice of what the iteration computes ends one function, and its readers begin another.
// CHECK: func.func private @loop_body_0
// CHECK: math.exp
// CHECK: func.func private @loop_body_1
// CHECK: linalg.add
func.func @slice_of_computed(%x: tensor<4x8xf16>, %s: tensor<8xf16>) -> tensor<8xf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  // CHECK: %[[E:.*]] = func.call @loop_body_0(%arg0)
  // CHECK-NEXT: %[[R:.*]] = tensor.extract_slice %[[E]][
  // CHECK-NEXT: func.call @loop_body_1(%[[R]]
  %r = scf.for %i = %c0 to %c4 step %c1 iter_args(%a = %s) -> tensor<8xf16> {
    %e = math.exp %x : tensor<4x8xf16>
    %xi = tensor.extract_slice %e[%i, 0] [1, 8] [1, 1] : tensor<4x8xf16> to tensor<8xf16>
    %y = linalg.add ins(%xi, %a : tensor<8xf16>, tensor<8xf16>) outs(%s : tensor<8xf16>) -> tensor<8xf16>
    scf.yield %y : tensor<8xf16>
  }
  return %r : tensor<8xf16>
}
