// RUN: spyre-reduce %s --check "grep -q math.exp {}" -o %t.mlir 2>&1 | filecheck %s --check-prefix=NOTE
// RUN: filecheck %s < %t.mlir
// RUN: not spyre-reduce %s --check "false" 2>&1 | filecheck %s --check-prefix=NONE
// RUN: not spyre-reduce %s 2>&1 | filecheck %s --check-prefix=CHECK-FLAG

// The exponential is left, of an argument, on tensors of one element.
// NOTE: note: 3 -> 1 operation, {{[0-9]+}} checks in
// CHECK: func.func @main(%arg0: tensor<1xf16>) -> tensor<1xf16>
// CHECK: math.exp
// CHECK-NOT: arith.addf
// NONE: error: The check does not exit with status 0 for the whole program, so nothing is reduced.
// CHECK-FLAG: error: The following arguments are required: --check
#id = affine_map<(d0) -> (d0)>
func.func @main(%x: tensor<128xf16>) -> tensor<128xf16> {
  %e = tensor.empty() : tensor<128xf16>
  %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%x, %x : tensor<128xf16>, tensor<128xf16>) outs(%e : tensor<128xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %v = arith.addf %a, %b : f16
    linalg.yield %v : f16
  } -> tensor<128xf16>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%0 : tensor<128xf16>) outs(%e : tensor<128xf16>) {
  ^bb0(%a: f16, %o: f16):
    %v = math.exp %a : f16
    linalg.yield %v : f16
  } -> tensor<128xf16>
  %2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%0, %1 : tensor<128xf16>, tensor<128xf16>) outs(%e : tensor<128xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %v = arith.addf %a, %b : f16
    linalg.yield %v : f16
  } -> tensor<128xf16>
  return %2 : tensor<128xf16>
}
