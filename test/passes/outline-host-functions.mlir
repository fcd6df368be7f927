// RUN: spyre-opt %s --outline-host-functions --split-input-file --verify-diagnostics | filecheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>

// What only the host can do is one function of it; the device's parts are two. %0 is read by both.
// CHECK-LABEL: func.func @device_0(%arg0: tensor<8x64xf16> {spyre.kind = "input", spyre.name = "x"}) -> tensor<8x64xf16>
// CHECK: linalg.exp
// CHECK-NEXT: return
// CHECK-LABEL: func.func @host_0(%arg0: tensor<8x64xf16> {spyre.kind = "input", spyre.name = "device_0.0"})
// CHECK: math.sin
// CHECK-LABEL: func.func @device_1(
// CHECK-SAME: {spyre.kind = "input", spyre.name = "host_0.0"}
// CHECK-SAME: {spyre.kind = "input", spyre.name = "device_0.0"}
// CHECK: linalg.add
// CHECK-LABEL: func.func @main(%arg0: tensor<8x64xf16> {spyre.kind = "input", spyre.name = "x"}) -> tensor<8x64xf16>
// CHECK-NEXT: %[[A:.*]] = call @device_0(%arg0)
// CHECK-NEXT: %[[B:.*]] = call @host_0(%[[A]])
// CHECK-NEXT: %[[C:.*]] = call @device_1(%[[B]], %[[A]])
// CHECK-NEXT: return %[[C]]
func.func @main(%x: tensor<8x64xf16> {spyre.name = "x", spyre.kind = "input"}) -> tensor<8x64xf16> {
  %e = tensor.empty() : tensor<8x64xf16>
  %0 = linalg.exp ins(%x : tensor<8x64xf16>) outs(%e : tensor<8x64xf16>) -> tensor<8x64xf16>
  // expected-remark@below {{host: 'math.sin' has no device operation}}
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%0 : tensor<8x64xf16>) outs(%e : tensor<8x64xf16>) {
  ^bb0(%a: f16, %b: f16):
    %s = math.sin %a : f16
    linalg.yield %s : f16
  } -> tensor<8x64xf16>
  %2 = linalg.add ins(%1, %0 : tensor<8x64xf16>, tensor<8x64xf16>) outs(%e : tensor<8x64xf16>) -> tensor<8x64xf16>
  return %2 : tensor<8x64xf16>
}
// -----
// What the device can run whole is left alone.
// CHECK-LABEL: func.func @main
// CHECK-NOT: call
// CHECK: linalg.exp
func.func @main(%x: tensor<8x64xf16>) -> tensor<8x64xf16> {
  %e = tensor.empty() : tensor<8x64xf16>
  %0 = linalg.exp ins(%x : tensor<8x64xf16>) outs(%e : tensor<8x64xf16>) -> tensor<8x64xf16>
  return %0 : tensor<8x64xf16>
}
// -----
// A matmul has no result in f32 on the device, but beside the rounding of it the two are one operation; integers,
// although the device could add them, are for the host as soon as it has to help.
#id = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-LABEL: func.func @host_0
// CHECK: linalg.add
// CHECK: math.sin
// CHECK-LABEL: func.func @device_0
// CHECK: linalg.matmul
// CHECK: arith.truncf
// CHECK-LABEL: func.func @main
// CHECK: return %{{.*}}, %{{.*}}, %arg1
func.func @main(%x: tensor<64x64xf16>, %i: tensor<64x64xi64>)
    -> (tensor<64x64xf16>, tensor<64x64xi64>, tensor<64x64xi64>) {
  %e = tensor.empty() : tensor<64x64xf16>
  %n = tensor.empty() : tensor<64x64xi64>
  %w = tensor.empty() : tensor<64x64xf32>
  %zero = arith.constant 0.0 : f32
  // expected-remark@below {{host: integer arithmetic runs on the host}}
  %0 = linalg.add ins(%i, %i : tensor<64x64xi64>, tensor<64x64xi64>) outs(%n : tensor<64x64xi64>) -> tensor<64x64xi64>
  // expected-remark@below {{host: 'math.sin' has no device operation}}
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<64x64xf16>) outs(%e : tensor<64x64xf16>) {
  ^bb0(%a: f16, %b: f16):
    %s = math.sin %a : f16
    linalg.yield %s : f16
  } -> tensor<64x64xf16>
  %f = linalg.fill ins(%zero : f32) outs(%w : tensor<64x64xf32>) -> tensor<64x64xf32>
  %2 = linalg.matmul ins(%1, %x : tensor<64x64xf16>, tensor<64x64xf16>) outs(%f : tensor<64x64xf32>) -> tensor<64x64xf32>
  %3 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%2 : tensor<64x64xf32>) outs(%e : tensor<64x64xf16>) {
  ^bb0(%a: f32, %b: f16):
    %s = arith.truncf %a : f32 to f16
    linalg.yield %s : f16
  } -> tensor<64x64xf16>
  return %3, %0, %i : tensor<64x64xf16>, tensor<64x64xi64>, tensor<64x64xi64>
}
// -----
// expected-error@below {{a program is one function with a body, but this module has 2}}
module {
  func.func @one(%x: tensor<8xf16>) -> tensor<8xf16> { return %x : tensor<8xf16> }
  func.func @two(%x: tensor<8xf16>) -> tensor<8xf16> { return %x : tensor<8xf16> }
}
// -----
// A sum of int8 products whose i32 is a result is the host's; one that is scaled to fp16 is the device's.
// CHECK-LABEL: func.func @host_0(
// CHECK: linalg.matmul
func.func @main(%x: tensor<33x200xi8>, %w: tensor<200x70xi8>) -> tensor<33x70xi32> {
  %z = arith.constant dense<0> : tensor<33x70xi32>
  // expected-remark@below {{host: 'batchmatmulint8' gives f16 (SEN169_FP16), not i32}}
  %m = linalg.matmul ins(%x, %w : tensor<33x200xi8>, tensor<200x70xi8>) outs(%z : tensor<33x70xi32>) -> tensor<33x70xi32>
  return %m : tensor<33x70xi32>
}
// -----
// CHECK-LABEL: func.func @main(%arg0: tensor<33x200xi8>, %arg1: tensor<200x70xi8>) -> tensor<33x70xf16>
// CHECK-NOT: call
// CHECK: linalg.matmul
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: tensor<33x200xi8>, %w: tensor<200x70xi8>) -> tensor<33x70xf16> {
  %z = arith.constant dense<0> : tensor<33x70xi32>
  %m = linalg.matmul ins(%x, %w : tensor<33x200xi8>, tensor<200x70xi8>) outs(%z : tensor<33x70xi32>) -> tensor<33x70xi32>
  %e = tensor.empty() : tensor<33x70xf16>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%m : tensor<33x70xi32>) outs(%e : tensor<33x70xf16>) {
  ^bb0(%a: i32, %o: f16):
    %f = arith.sitofp %a : i32 to f32
    %t = arith.truncf %f : f32 to f16
    linalg.yield %t : f16
  } -> tensor<33x70xf16>
  return %r : tensor<33x70xf16>
}
// -----
// Nothing tiles what the host computes: a warning for each hint, once.
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: tensor<8x64xf16>) -> tensor<8x64xf16> {
  %e = tensor.empty() : tensor<8x64xf16>
  %0 = linalg.exp ins(%x : tensor<8x64xf16>) outs(%e : tensor<8x64xf16>) -> tensor<8x64xf16>
  // expected-warning@below {{hint 1 cuts 'M' into 4 tiles, 'N' into 2 tiles, but this runs on the host, which has no tiles}}
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%0 : tensor<8x64xf16>) outs(%e : tensor<8x64xf16>)
      attrs = {sdsc.hints = [{id = 1 : i64, tiles = [{dim = "M", count = 4 : i64}, {dim = "N", count = 2 : i64}]}]} {
  ^bb0(%a: f16, %b: f16):
    %s = math.sin %a : f16
    linalg.yield %s : f16
  } -> tensor<8x64xf16>
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%1 : tensor<8x64xf16>) outs(%e : tensor<8x64xf16>)
      attrs = {sdsc.hints = [{id = 1 : i64, tiles = [{dim = "M", count = 4 : i64}, {dim = "N", count = 2 : i64}]}]} {
  ^bb0(%a: f16, %b: f16):
    %s = math.sin %a : f16
    linalg.yield %s : f16
  } -> tensor<8x64xf16>
  return %2 : tensor<8x64xf16>
}
// -----
// The host checks an assertion, and computes what nothing else reads.
// CHECK-LABEL: func.func @device_0
// CHECK: linalg.exp
// CHECK-LABEL: func.func @host_0(%arg0: tensor<8x64xf16> {{.*}}) {
// CHECK: linalg.abs
// CHECK: cf.assert %{{.*}}, "the first element is not small"
// CHECK-LABEL: func.func @main
// CHECK: %[[r:.*]] = call @device_0
// CHECK: call @host_0(%arg0) : (tensor<8x64xf16>) -> ()
// CHECK: return %[[r]]
func.func @main(%x: tensor<8x64xf16>) -> tensor<8x64xf16> {
  %c0 = arith.constant 0 : index
  %one = arith.constant 1.0 : f16
  %e = tensor.empty() : tensor<8x64xf16>
  %0 = linalg.exp ins(%x : tensor<8x64xf16>) outs(%e : tensor<8x64xf16>) -> tensor<8x64xf16>
  %1 = linalg.abs ins(%x : tensor<8x64xf16>) outs(%e : tensor<8x64xf16>) -> tensor<8x64xf16>
  %a = tensor.extract %1[%c0, %c0] : tensor<8x64xf16>
  %p = arith.cmpf ogt, %a, %one : f16
  cf.assert %p, "the first element is not small"
  return %0 : tensor<8x64xf16>
}
// -----
func.func @main(%x: tensor<8x64xf16>) -> tensor<8x64xf16> {
  %false = arith.constant false
  // expected-error@below {{The program asserts what is never true: the sizes are equal}}
  cf.assert %false, "the sizes are equal"
  return %x : tensor<8x64xf16>
}
// -----
// A collective is a function of its own, in the order of the program, also next to work of the host.
// CHECK-LABEL: func.func @device_0
// CHECK: linalg.exp
// CHECK-LABEL: func.func @collective_0
// CHECK-NEXT: tosa.custom {{.*}}operator_name = "all_reduce.default"
// CHECK-NEXT: return
// CHECK-LABEL: func.func @host_0
// CHECK: math.sin
// CHECK-LABEL: func.func @collective_1
// CHECK-NEXT: tosa.custom {{.*}}operator_name = "all_reduce.default"
// CHECK-NEXT: return
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: tensor<8x64xf16>) -> tensor<8x64xf16> {
  %e = tensor.empty() : tensor<8x64xf16>
  %0 = linalg.exp ins(%x : tensor<8x64xf16>) outs(%e : tensor<8x64xf16>) -> tensor<8x64xf16>
  %1 = tosa.custom %0 {domain_name = "_c10d_functional", operator_name = "all_reduce.default", implementation_attrs = "",
    sdsc.call = {arguments = {self = {operand = 0}, reduce_op = "sum", group_name = "ranks 0,1"}, kept = array<i64: 0>,
      operands = ["float16"], results = ["float16"]}} : (tensor<8x64xf16>) -> tensor<8x64xf16>
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%1 : tensor<8x64xf16>) outs(%e : tensor<8x64xf16>) {
  ^bb0(%a: f16, %b: f16):
    %s = math.sin %a : f16
    linalg.yield %s : f16
  } -> tensor<8x64xf16>
  %3 = tosa.custom %2 {domain_name = "_c10d_functional", operator_name = "all_reduce.default", implementation_attrs = "",
    sdsc.call = {arguments = {self = {operand = 0}, reduce_op = "max", group_name = "ranks 0,1"}, kept = array<i64: 0>,
      operands = ["float16"], results = ["float16"]}} : (tensor<8x64xf16>) -> tensor<8x64xf16>
  return %3 : tensor<8x64xf16>
}
// -----
// An argument in another layout is an argument of each function that reads it: neither its cast nor a transpose of it
// crosses from one function to another.
// CHECK-LABEL: func.func @device_0(%arg0: tensor<8x64xf16, #{{.*}}> {{.*}}) -> tensor<8x64xf16>
// CHECK: tensor.cast
// CHECK-LABEL: func.func @host_0(%arg0: tensor<8x64xf16> {spyre.kind = "input", spyre.name = "device_0.0"})
// CHECK-LABEL: func.func @device_1(
// CHECK-SAME: tensor<64x8xf16, #{{.*}}> {spyre.name = "arg1"}
// CHECK-SAME: tensor<8x64xf16, #{{.*}}> {spyre.name = "arg0"}
// CHECK: linalg.transpose
// CHECK-LABEL: func.func @main
// CHECK: %[[a:.*]] = call @device_0(%arg0)
// CHECK: %[[b:.*]] = call @host_0(%[[a]])
// CHECK: call @device_1(
#id = affine_map<(d0, d1) -> (d0, d1)>
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#columns = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
func.func @main(%x: tensor<8x64xf16, #stick.layout<#rows>>, %w: tensor<64x8xf16, #stick.layout<#columns>>)
    -> tensor<8x64xf16> {
  %e = tensor.empty() : tensor<8x64xf16>
  %px = tensor.cast %x : tensor<8x64xf16, #stick.layout<#rows>> to tensor<8x64xf16>
  %pw = tensor.cast %w : tensor<64x8xf16, #stick.layout<#columns>> to tensor<64x8xf16>
  %t = linalg.transpose ins(%pw : tensor<64x8xf16>) outs(%e : tensor<8x64xf16>) permutation = [1, 0]
  %0 = linalg.exp ins(%px : tensor<8x64xf16>) outs(%e : tensor<8x64xf16>) -> tensor<8x64xf16>
  // expected-remark@below {{host: 'math.sin' has no device operation}}
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%0 : tensor<8x64xf16>) outs(%e : tensor<8x64xf16>) {
  ^bb0(%a: f16, %b: f16):
    %s = math.sin %a : f16
    linalg.yield %s : f16
  } -> tensor<8x64xf16>
  %2 = linalg.add ins(%1, %px : tensor<8x64xf16>, tensor<8x64xf16>) outs(%e : tensor<8x64xf16>) -> tensor<8x64xf16>
  %3 = linalg.add ins(%2, %t : tensor<8x64xf16>, tensor<8x64xf16>) outs(%e : tensor<8x64xf16>) -> tensor<8x64xf16>
  return %3 : tensor<8x64xf16>
}
