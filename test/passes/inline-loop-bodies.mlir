// RUN: spyre-opt %s --inline-loop-bodies --split-input-file | filecheck %s

// The body is back in the loop, and the function is gone; one body may call another.
// CHECK-NOT: private
func.func private @inner(%x: tensor<8xf16>) -> tensor<8xf16> {
  %0 = math.exp %x : tensor<8xf16>
  return %0 : tensor<8xf16>
}
func.func private @outer(%x: tensor<8xf16>) -> tensor<8xf16> {
  %0 = func.call @inner(%x) : (tensor<8xf16>) -> tensor<8xf16>
  %1 = math.tanh %0 : tensor<8xf16>
  return %1 : tensor<8xf16>
}
// CHECK: func.func @main
func.func @main(%s: tensor<8xf16>) -> tensor<8xf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  // CHECK: scf.for {{.*}} iter_args(%[[A:.*]] = %arg0)
  // CHECK-NEXT: %[[E:.*]] = math.exp %[[A]]
  // CHECK-NEXT: %[[T:.*]] = math.tanh %[[E]]
  // CHECK-NEXT: scf.yield %[[T]]
  %r = scf.for %i = %c0 to %c4 step %c1 iter_args(%a = %s) -> tensor<8xf16> {
    %y = func.call @outer(%a) : (tensor<8xf16>) -> tensor<8xf16>
    scf.yield %y : tensor<8xf16>
  }
  return %r : tensor<8xf16>
}
