// RUN: spyre-opt %s --unroll-host-loops --canonicalize | filecheck %s

// Two iterations, each with the slice of its own; what the last one yields is the result.
// CHECK-LABEL: func.func @main
func.func @main(%x: tensor<2x8xf16>, %s: tensor<8xf16>) -> tensor<8xf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  // CHECK-NOT: scf.for
  // CHECK: %[[X0:.*]] = tensor.extract_slice %arg0[0, 0]
  // CHECK-NEXT: %[[S0:.*]] = linalg.add ins(%arg1, %[[X0]]
  // CHECK-NEXT: %[[Y0:.*]] = math.sin %[[S0]]
  // CHECK-NEXT: %[[X1:.*]] = tensor.extract_slice %arg0[1, 0]
  // CHECK-NEXT: %[[S1:.*]] = linalg.add ins(%[[Y0]], %[[X1]]
  // CHECK-NEXT: %[[Y1:.*]] = math.sin %[[S1]]
  // CHECK-NEXT: return %[[Y1]]
  %r = scf.for %i = %c0 to %c2 step %c1 iter_args(%a = %s) -> tensor<8xf16> {
    %xi = tensor.extract_slice %x[%i, 0] [1, 8] [1, 1] : tensor<2x8xf16> to tensor<8xf16>
    %y = linalg.add ins(%a, %xi : tensor<8xf16>, tensor<8xf16>) outs(%s : tensor<8xf16>) -> tensor<8xf16>
    %t = math.sin %y : tensor<8xf16>
    scf.yield %t : tensor<8xf16>
  }
  return %r : tensor<8xf16>
}
