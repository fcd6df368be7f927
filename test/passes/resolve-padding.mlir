// RUN: spyre-opt %s --resolve-padding --verify-laid-out --verify-padding --remarks=%t | filecheck %s
// RUN: spyre-opt %s --resolve-padding="host-padding=zero" --verify-padding --remarks=%t.zero | filecheck %s --check-prefix=ZERO
// RUN: filecheck %s --check-prefix=REMARKS < %t
// RUN: filecheck %s --check-prefix=ZREMARKS < %t.zero
// RUN: not spyre-opt %s --resolve-padding="host-padding=one" 2>&1 | filecheck %s --check-prefix=OPTION

// OPTION: error: The option 'host-padding' of the pass 'resolve-padding' must be one of undefined, zero, not 'one'.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#tall = affine_map<(d0, d1) -> (d1 floordiv 64, d0 mod 128, d1 mod 64)>
#sparse = affine_map<(d0) -> (d0, 0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#first = affine_map<(d0, d1) -> (d0)>
#lhs = affine_map<(d0, d1, d2) -> (d0, d2)>
#rhs = affine_map<(d0, d1, d2) -> (d2, d1)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>

// A sum of an argument, whose padding is what the host says: zeros are neutral, else it is masked.
// CHECK-LABEL: func.func @argument(%{{.*}}: tensor<8x65xf16, {{.*}}> {stick.padding = {d1 = "undefined"}})
// CHECK: sdsc.masks = {d1 = 0.000000e+00 : f64}, sdsc.op = #sdsc.op<"sum", {}>}
// ZERO-LABEL: func.func @argument(%{{.*}}: tensor<8x65xf16, {{.*}}> {stick.padding = {d1 = 0.000000e+00 : f64}})
// ZERO-NOT: sdsc.masks
// ZERO: return
// REMARKS: "op_location": "{{.*}}resolve-padding.mlir:{{[0-9]+}}:
// REMARKS-SAME: "kind": "mask", "reason": "mask d1 65..127 with 0: padding of operand 1 is undefined"
func.func @argument(%x: tensor<8x65xf16, #stick.layout<#rows>>) {
  %e = tensor.empty() : tensor<8xf16, #stick.layout<#sparse>>
  %0 = linalg.generic {indexing_maps = [#id, #first], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<8x65xf16, #stick.layout<#rows>>) outs(%e : tensor<8xf16, #stick.layout<#sparse>>) attrs = {sdsc.op = #sdsc.op<"sum", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<8xf16, #stick.layout<#sparse>>
  return
}

// Zeros are not neutral to a maximum.
// ZERO-LABEL: func.func @maximum
// ZERO: sdsc.masks = {d1 = 0xFFF0000000000000 : f64}, sdsc.op = #sdsc.op<"max", {}>}
// ZREMARKS: "mask d1 65..127 with -inf: padding of operand 1 is 0"
func.func @maximum(%x: tensor<8x65xf16, #stick.layout<#rows>>) {
  %e = tensor.empty() : tensor<8xf16, #stick.layout<#sparse>>
  %0 = linalg.generic {indexing_maps = [#id, #first], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<8x65xf16, #stick.layout<#rows>>) outs(%e : tensor<8xf16, #stick.layout<#sparse>>) attrs = {sdsc.op = #sdsc.op<"max", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<8xf16, #stick.layout<#sparse>>
  return
}

// An operation leaves the padding of its result undefined: one such operand is enough for a mask of both.
// ZERO-LABEL: func.func @product
// ZERO: sdsc.op = #sdsc.op<"exp", {}>, stick.padding = {d1 = "undefined"}}
// ZERO: sdsc.masks = {d2 = 0.000000e+00 : f64}, sdsc.op = #sdsc.op<"batchmatmul", {}>}
// ZREMARKS: "mask d2 71..127 with 0: padding of operand 1 is undefined"
func.func @product(%x: tensor<67x71xf16, #stick.layout<#rows>>, %y: tensor<71x64xf16, #stick.layout<#tall>>) {
  %e0 = tensor.empty() : tensor<67x71xf16, #stick.layout<#rows>>
  %e1 = tensor.empty() : tensor<67x64xf16, #stick.layout<#rows>>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<67x71xf16, #stick.layout<#rows>>) outs(%e0 : tensor<67x71xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<67x71xf16, #stick.layout<#rows>>
  %1 = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]} ins(%0, %y : tensor<67x71xf16, #stick.layout<#rows>>, tensor<71x64xf16, #stick.layout<#tall>>) outs(%e1 : tensor<67x64xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"batchmatmul", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<67x64xf16, #stick.layout<#rows>>
  return
}

// Behind the end of a slice lie elements of its buffer, and behind its last column the padding of it.
// ZERO-LABEL: func.func @slices
// ZERO: sdsc.masks = {d1 = 0.000000e+00 : f64}, sdsc.op = #sdsc.op<"sum", {}>}
// ZERO-NOT: sdsc.masks
// ZERO: return
// ZREMARKS: "mask d1 65..127 with 0: padding of operand 1 is undefined"
func.func @slices(%x: tensor<8x130xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<8xf16, #stick.layout<#sparse>>
  %0 = tensor.extract_slice %x[0, 0] [8, 65] [1, 1] : tensor<8x130xf16, #stick.layout<#rows>> to tensor<8x65xf16, #stick.layout<#rows>>
  %1 = tensor.extract_slice %x[0, 64] [8, 66] [1, 1] : tensor<8x130xf16, #stick.layout<#rows>> to tensor<8x66xf16, #stick.layout<#rows>>
  %2 = linalg.generic {indexing_maps = [#id, #first], iterator_types = ["parallel", "reduction"]} ins(%0 : tensor<8x65xf16, #stick.layout<#rows>>) outs(%e0 : tensor<8xf16, #stick.layout<#sparse>>) attrs = {sdsc.op = #sdsc.op<"sum", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<8xf16, #stick.layout<#sparse>>
  %3 = linalg.generic {indexing_maps = [#id, #first], iterator_types = ["parallel", "reduction"]} ins(%1 : tensor<8x66xf16, #stick.layout<#rows>>) outs(%e0 : tensor<8xf16, #stick.layout<#sparse>>) attrs = {sdsc.op = #sdsc.op<"sum", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<8xf16, #stick.layout<#sparse>>
  return
}

// Constants are laid out by the host too; a buffer that insertions fill is undefined.
// CHECK-LABEL: func.func @others
// CHECK: arith.constant {stick.padding = {d0 = "undefined"}} dense<[1.000000e+00, 2.000000e+00]>
// CHECK: tensor.empty() {stick.padding = {d1 = "undefined"}}
// ZERO-LABEL: func.func @others
// ZERO: arith.constant {stick.padding = {d0 = 0.000000e+00 : f64}} dense<[1.000000e+00, 2.000000e+00]>
func.func @others(%x: tensor<8x65xf16, #stick.layout<#rows>>) {
  %c = arith.constant dense<[1.0, 2.0]> : tensor<2xf16, #stick.layout<affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>>>
  %whole = tensor.empty() : tensor<16x65xf16, #stick.layout<#rows>>
  %part = "sdsc.clone"(%x) : (tensor<8x65xf16, #stick.layout<#rows>>) -> tensor<8x65xf16, #stick.layout<#rows>>
  %0 = tensor.insert_slice %part into %whole[8, 0] [8, 65] [1, 1] : tensor<8x65xf16, #stick.layout<#rows>> into tensor<16x65xf16, #stick.layout<#rows>>
  return
}

// In a loop as outside: slices of whole rows always end where the tensor does, slices of columns only the last time.
// CHECK-LABEL: func.func @loop
// CHECK: scf.for
// CHECK: sdsc.masks = {d1 = 0.000000e+00 : f64}
// CHECK: sdsc.masks = {d1 = 0.000000e+00 : f64}
// ZERO-LABEL: func.func @loop
// ZERO: scf.for
// ZERO-NOT: sdsc.masks
// ZERO: extract_slice {{.*}} tensor<8x2xf16
// ZERO: sdsc.masks = {d1 = 0.000000e+00 : f64}
// ZREMARKS: "mask d1 2..63 with 0: padding of operand 1 is undefined"
func.func @loop(%x: tensor<64x130xf16, #stick.layout<#rows>>) {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %c24 = arith.constant 24 : index
  scf.for %i = %c0 to %c24 step %c8 {
    %e0 = tensor.empty() : tensor<8xf16, #stick.layout<#sparse>>
    %0 = tensor.extract_slice %x[%i, 0] [8, 130] [1, 1] : tensor<64x130xf16, #stick.layout<#rows>> to tensor<8x130xf16, #stick.layout<#rows>>
    %1 = linalg.generic {indexing_maps = [#id, #first], iterator_types = ["parallel", "reduction"]} ins(%0 : tensor<8x130xf16, #stick.layout<#rows>>) outs(%e0 : tensor<8xf16, #stick.layout<#sparse>>) attrs = {sdsc.op = #sdsc.op<"sum", {}>} {
    ^bb0(%a: f16, %o: f16):
      linalg.yield %o : f16
    } -> tensor<8xf16, #stick.layout<#sparse>>
    %j = arith.muli %i, %c8 : index
    %2 = tensor.extract_slice %x[0, %j] [8, 2] [1, 1] : tensor<64x130xf16, #stick.layout<#rows>> to tensor<8x2xf16, #stick.layout<#rows>>
    %3 = linalg.generic {indexing_maps = [#id, #first], iterator_types = ["parallel", "reduction"]} ins(%2 : tensor<8x2xf16, #stick.layout<#rows>>) outs(%e0 : tensor<8xf16, #stick.layout<#sparse>>) attrs = {sdsc.op = #sdsc.op<"sum", {}>} {
    ^bb0(%a: f16, %o: f16):
      linalg.yield %o : f16
    } -> tensor<8xf16, #stick.layout<#sparse>>
  }
  return
}

// Where nothing is padded nothing is said.
// CHECK-LABEL: func.func @whole
// CHECK-NOT: {{stick.padding|sdsc.masks}}
// CHECK: return
func.func @whole(%x: tensor<8x128xf16, #stick.layout<#rows>>) {
  %e = tensor.empty() : tensor<8xf16, #stick.layout<#sparse>>
  %0 = linalg.generic {indexing_maps = [#id, #first], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<8x128xf16, #stick.layout<#rows>>) outs(%e : tensor<8xf16, #stick.layout<#sparse>>) attrs = {sdsc.op = #sdsc.op<"sum", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<8xf16, #stick.layout<#sparse>>
  return
}
