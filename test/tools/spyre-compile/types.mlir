// RUN: spyre-compile %s -o %t --check | filecheck %s

// Every type of the interface has random arguments and a comparison: equal where the numbers are not rounded.
// CHECK-COUNT-3: PASS  result
!half = tensor<3x65xf16>
func.func @main(%a: !half, %b: !half, %c: tensor<3x65xi1>) -> (!half, !half, tensor<3x65xi1>) {
  %e = tensor.empty() : !half
  %add = linalg.add ins(%a, %b : !half, !half) outs(%e : !half) -> !half
  %s = linalg.select ins(%c, %a, %b : tensor<3x65xi1>, !half, !half) outs(%e : !half) -> !half
  return %add, %s, %c : !half, !half, tensor<3x65xi1>
}
