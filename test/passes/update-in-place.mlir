// RUN: spyre-opt %s --update-in-place --split-input-file | filecheck %s

// A position of a cache is written in the memory of the argument, with the stick around it.
// CHECK-LABEL: func.func @position(
// CHECK-SAME: %[[C:\w+]]: tensor<8x128x64xf16> {{.*}}spyre.updated = 0
// CHECK-SAME: %[[N:\w+]]: tensor<8x64xf16>
// CHECK-NOT: sdsc.clone
// CHECK-DAG: %[[B:.*]] = tensor.extract_slice %[[C]][0, 64, 0] [8, 64, 64] [1, 1, 1]
// CHECK-DAG: %[[M:.*]] = arith.constant dense<[0.0{{.*}} 1.0{{.*}}]> : tensor<64xf16>
// CHECK: %[[W:.*]] = linalg.generic {{.*}} ins(%[[M]], %[[N]], %[[B]] : {{.*}}sdsc.op = #sdsc.op<"where3", {}>
// CHECK: %[[R:.*]] = tensor.insert_slice %[[W]] into %[[C]][0, 64, 0] [8, 64, 64] [1, 1, 1]
// CHECK: return %[[R]]
func.func @position(%c: tensor<8x128x64xf16> {sdsc.host = #sdsc.host<"c", "input", "f16">, spyre.updated = 0 : i64}, %n: tensor<8x64xf16> {sdsc.host = #sdsc.host<"n", "input", "f16">}) -> tensor<8x128x64xf16> {
  %0 = "sdsc.clone"(%c) : (tensor<8x128x64xf16>) -> tensor<8x128x64xf16>
  %1 = "sdsc.clone"(%n) : (tensor<8x64xf16>) -> tensor<8x64xf16>
  %2 = tensor.insert_slice %1 into %0[0, 70, 0] [8, 1, 64] [1, 1, 1] : tensor<8x64xf16> into tensor<8x128x64xf16>
  return %2 : tensor<8x128x64xf16>
}
// -----
// Several rows are written as they are.
// CHECK-LABEL: func.func @rows(
// CHECK-SAME: %[[C:\w+]]: tensor<128x64xf16> {{.*}}spyre.updated = 0
// CHECK: %[[N:.*]] = "sdsc.clone"
// CHECK: tensor.insert_slice %[[N]] into %[[C]][3, 0] [2, 64] [1, 1]
func.func @rows(%c: tensor<128x64xf16> {sdsc.host = #sdsc.host<"c", "input", "f16">, spyre.updated = 0 : i64}, %n: tensor<2x64xf16> {sdsc.host = #sdsc.host<"n", "input", "f16">}) -> tensor<128x64xf16> {
  %0 = "sdsc.clone"(%c) : (tensor<128x64xf16>) -> tensor<128x64xf16>
  %1 = "sdsc.clone"(%n) : (tensor<2x64xf16>) -> tensor<2x64xf16>
  %2 = tensor.insert_slice %1 into %0[3, 0] [2, 64] [1, 1] : tensor<2x64xf16> into tensor<128x64xf16>
  return %2 : tensor<128x64xf16>
}
// -----
// Where the program reads the old value elsewhere, too, the copy stays and the attribute goes.
// CHECK-LABEL: func.func @read(
// CHECK-NOT: spyre.updated
// CHECK: "sdsc.clone"
// CHECK: return
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @read(%c: tensor<128x64xf16> {sdsc.host = #sdsc.host<"c", "input", "f16">, spyre.updated = 0 : i64}, %n: tensor<2x64xf16> {sdsc.host = #sdsc.host<"n", "input", "f16">}) -> (tensor<128x64xf16>, tensor<128x64xf16>) {
  %0 = "sdsc.clone"(%c) : (tensor<128x64xf16>) -> tensor<128x64xf16>
  %1 = "sdsc.clone"(%n) : (tensor<2x64xf16>) -> tensor<2x64xf16>
  %2 = tensor.insert_slice %1 into %0[3, 0] [2, 64] [1, 1] : tensor<2x64xf16> into tensor<128x64xf16>
  %e = tensor.empty() : tensor<128x64xf16>
  %3 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%c : tensor<128x64xf16>) outs(%e : tensor<128x64xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a: f16, %o: f16):
    %y = math.exp %a : f16
    linalg.yield %y : f16
  } -> tensor<128x64xf16>
  return %2, %3 : tensor<128x64xf16>, tensor<128x64xf16>
}
// -----
// A result that is a view of the buffer of an earlier one is copied: each result is an argument of the kernel.
// CHECK-LABEL: func.func @equal(
// CHECK: %[[A:.*]] = "sdsc.clone"
// CHECK: %[[T:.*]] = tensor.extract_slice %[[A]]
// CHECK: %[[B:.*]] = "sdsc.clone"(%[[A]])
// CHECK: %[[C:.*]] = "sdsc.clone"(%[[T]])
// CHECK: return %[[A]], %[[B]], %[[C]]
func.func @equal(%c: tensor<8x64xf16> {sdsc.host = #sdsc.host<"c", "input", "f16">}) -> (tensor<8x64xf16>, tensor<8x64xf16>, tensor<2x64xf16>) {
  %0 = "sdsc.clone"(%c) : (tensor<8x64xf16>) -> tensor<8x64xf16>
  %1 = tensor.extract_slice %0[0, 0] [2, 64] [1, 1] : tensor<8x64xf16> to tensor<2x64xf16>
  return %0, %0, %1 : tensor<8x64xf16>, tensor<8x64xf16>, tensor<2x64xf16>
}
// -----
// A result that is a constant is copied: canonicalization removes the operation that wrote the number.
// CHECK-LABEL: func.func @number(
// CHECK: %[[C:.*]] = arith.constant
// CHECK: %[[R:.*]] = "sdsc.clone"(%[[C]])
// CHECK: return %[[R]]
func.func @number(%x: tensor<64xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<f16> {
  %c = arith.constant dense<64.0> : tensor<f16>
  return %c : tensor<f16>
}
