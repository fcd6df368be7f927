// RUN: spyre-opt %s --decompose-to-device-ops --split-input-file | filecheck %s

// Each scalar op of a body becomes an op over only the dims that its operands have.
// CHECK: #[[VEC:map.*]] = affine_map<(d0) -> (d0)>
// CHECK: #[[ID:map.*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK: #[[ROW:map.*]] = affine_map<(d0, d1) -> (d0)>
// CHECK-LABEL: func.func @body(
// CHECK-SAME: %[[X:\w+]]: tensor<8x64xf16> {sdsc.host = #sdsc.host<"arg0", "input", "f16">}, %[[Y:\w+]]: tensor<8xf16>
// CHECK-SAME: -> (tensor<8x64xf16> {sdsc.host = #sdsc.host<"result0", "result", "f16">}) {
// CHECK: %[[EXP:.*]] = linalg.generic {indexing_maps = [#[[VEC]], #[[VEC]]], iterator_types = ["parallel"]} ins(%[[Y]] : tensor<8xf16>)
// CHECK-SAME: sdsc.op = #sdsc.op<"exp", {}>
// CHECK-NEXT: ^bb0(%[[A:.*]]: f16, %{{.*}}: f16):
// CHECK-NEXT: %[[R:.*]] = math.exp %[[A]] : f16
// CHECK-NEXT: linalg.yield %[[R]] : f16
// CHECK: %[[SUB:.*]] = linalg.generic {indexing_maps = [#[[ID]], #[[ROW]], #[[ID]]], {{.*}} ins(%[[X]], %[[EXP]] : tensor<8x64xf16>, tensor<8xf16>)
// CHECK-SAME: sdsc.op = #sdsc.op<"sub", {}>
// CHECK: return %[[SUB]]
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @body(%x: tensor<8x64xf16>, %y: tensor<8xf16>) -> tensor<8x64xf16> {
  %e = tensor.empty() : tensor<8x64xf16>
  %0 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %y : tensor<8x64xf16>, tensor<8xf16>) outs(%e : tensor<8x64xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %0 = math.exp %b : f16
    %1 = arith.subf %a, %0 : f16
    linalg.yield %1 : f16
  } -> tensor<8x64xf16>
  return %0 : tensor<8x64xf16>
}
// -----
// A transpose and a broadcast are no ops of their own: readers' maps say it, and a view turns the result back.
// CHECK: #[[ID:map.*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK: #[[ROW:map.*]] = affine_map<(d0, d1) -> (d0)>
// CHECK-LABEL: func.func @views(
// CHECK-SAME: %[[X:\w+]]: tensor<64x8xf16> {{.*}}, %[[Y:\w+]]: tensor<64xf16>
// CHECK: %[[MUL:.*]] = linalg.generic {indexing_maps = [#[[ID]], #[[ROW]], #[[ID]]]
// CHECK-SAME: ins(%[[X]], %[[Y]] : tensor<64x8xf16>, tensor<64xf16>)
// CHECK-SAME: sdsc.op = #sdsc.op<"mul", {}>
// CHECK-NOT: sdsc.op<
// CHECK: %[[T:.*]] = linalg.transpose ins(%[[MUL]] : tensor<64x8xf16>)
// CHECK-NOT: sdsc.op<
// CHECK: return %[[T]]
#id = affine_map<(d0, d1) -> (d0, d1)>
#turned = affine_map<(d0, d1) -> (d1, d0)>
#col = affine_map<(d0, d1) -> (d1)>
func.func @views(%x: tensor<64x8xf16>, %y: tensor<64xf16>) -> tensor<8x64xf16> {
  %e = tensor.empty() : tensor<8x64xf16>
  %t = linalg.generic {indexing_maps = [#turned, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<64x8xf16>) outs(%e : tensor<8x64xf16>) {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %a : f16
  } -> tensor<8x64xf16>
  %w = linalg.generic {indexing_maps = [#col, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y : tensor<64xf16>) outs(%e : tensor<8x64xf16>) {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %a : f16
  } -> tensor<8x64xf16>
  %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%t, %w : tensor<8x64xf16>, tensor<8x64xf16>) outs(%e : tensor<8x64xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %1 = arith.mulf %a, %b : f16
    linalg.yield %1 : f16
  } -> tensor<8x64xf16>
  return %0 : tensor<8x64xf16>
}
// -----
// A broadcast from a dim of size 1 reads its constant index 0.
// CHECK: #[[ID:map.*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK: #[[ONE:map.*]] = affine_map<(d0, d1) -> (d0, 0)>
// CHECK-LABEL: func.func @ones
// CHECK: linalg.generic {indexing_maps = [#[[ID]], #[[ONE]], #[[ID]]]
// CHECK-SAME: ins({{.*}} : tensor<8x64xf16>, tensor<8x1xf16>) {{.*}}sdsc.op = #sdsc.op<"add", {}>
#id = affine_map<(d0, d1) -> (d0, d1)>
#one = affine_map<(d0, d1) -> (d0, 0)>
func.func @ones(%x: tensor<8x64xf16>, %y: tensor<8x1xf16>) -> tensor<8x64xf16> {
  %e = tensor.empty() : tensor<8x64xf16>
  %0 = linalg.generic {indexing_maps = [#id, #one, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %y : tensor<8x64xf16>, tensor<8x1xf16>) outs(%e : tensor<8x64xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %1 = arith.addf %a, %b : f16
    linalg.yield %1 : f16
  } -> tensor<8x64xf16>
  return %0 : tensor<8x64xf16>
}
// -----
// Numbers, fills and captured rank-0 tensors are rank-0 operands; arithmetic on numbers alone is folded.
// CHECK: #[[ID:map.*]] = affine_map<(d0) -> (d0)>
// CHECK: #[[ALL:map.*]] = affine_map<(d0) -> ()>
// CHECK-LABEL: func.func @constants(
// CHECK-SAME: %[[X:\w+]]: tensor<64xf16> {{.*}}, %[[S:\w+]]: tensor<f16>
// CHECK: %[[SIX:.*]] = arith.constant dense<6.000000e+00> : tensor<f16>
// CHECK: %[[ADD:.*]] = linalg.generic {indexing_maps = [#[[ID]], #[[ALL]], #[[ID]]], {{.*}} ins(%[[X]], %[[SIX]] : tensor<64xf16>, tensor<f16>) {{.*}}"add"
// CHECK: %[[SUB:.*]] = linalg.generic {indexing_maps = [#[[ID]], #[[ALL]], #[[ID]]], {{.*}} ins(%[[ADD]], %[[S]] : tensor<64xf16>, tensor<f16>) {{.*}}"sub"
// CHECK: return %[[SUB]]
#id = affine_map<(d0) -> (d0)>
#all = affine_map<(d0) -> ()>
func.func @constants(%x: tensor<64xf16>, %s: tensor<f16>) -> tensor<64xf16> {
  %c = arith.constant 3.0 : f16
  %two = arith.constant 2.0 : f16
  %e = tensor.empty() : tensor<64xf16>
  %fill = linalg.generic {indexing_maps = [#all, #id], iterator_types = ["parallel"]} ins(%c : f16) outs(%e : tensor<64xf16>) {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %a : f16
  } -> tensor<64xf16>
  %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%x, %fill : tensor<64xf16>, tensor<64xf16>) outs(%e : tensor<64xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %1 = arith.mulf %b, %two : f16
    %2 = arith.addf %a, %1 : f16
    %3 = tensor.extract %s[] : tensor<f16>
    %4 = arith.subf %2, %3 : f16
    linalg.yield %4 : f16
  } -> tensor<64xf16>
  return %0 : tensor<64xf16>
}
// -----
// A body that reads its output reads the destination as an operand.
// CHECK-LABEL: func.func @destination(
// CHECK-SAME: %[[X:\w+]]: tensor<64xf16> {{.*}}, %[[Y:\w+]]: tensor<64xf16>
// CHECK: %[[E:.*]] = tensor.empty()
// CHECK: linalg.generic {{.*}} ins(%[[X]], %[[Y]] : tensor<64xf16>, tensor<64xf16>) outs(%[[E]] : tensor<64xf16>) {{.*}}"add"
#id = affine_map<(d0) -> (d0)>
func.func @destination(%x: tensor<64xf16>, %y: tensor<64xf16>) -> tensor<64xf16> {
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<64xf16>) outs(%y : tensor<64xf16>) {
  ^bb0(%a: f16, %o: f16):
    %1 = arith.addf %a, %o : f16
    linalg.yield %1 : f16
  } -> tensor<64xf16>
  return %0 : tensor<64xf16>
}
// -----
// A result that is a transposed or broadcast value is written out.
// CHECK: #[[COL:map.*]] = affine_map<(d0, d1) -> (d1)>
// CHECK-LABEL: func.func @broadcast_result(
// CHECK-SAME: %[[Y:\w+]]: tensor<64xf16>
// CHECK: %[[V:.*]] = linalg.generic {indexing_maps = [#[[COL]], {{.*}} ins(%[[Y]] : tensor<64xf16>) {{.*}}sdsc.op = #sdsc.op<"identity", {}>
// CHECK: return %[[V]] : tensor<8x64xf16>
#id = affine_map<(d0, d1) -> (d0, d1)>
#col = affine_map<(d0, d1) -> (d1)>
func.func @broadcast_result(%y: tensor<64xf16>) -> tensor<8x64xf16> {
  %e = tensor.empty() : tensor<8x64xf16>
  %w = linalg.generic {indexing_maps = [#col, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y : tensor<64xf16>) outs(%e : tensor<8x64xf16>) {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %a : f16
  } -> tensor<8x64xf16>
  return %w : tensor<8x64xf16>
}
// -----
// An operand that the body does not read has a shape alone, and needs no values.
// CHECK-LABEL: func.func @shape_of_nothing(
// CHECK-SAME: %[[X:\w+]]: tensor<64xf16>
// CHECK: %[[V:.*]] = linalg.generic {{.*}} ins(%[[X]] : tensor<64xf16>) {{.*}}sdsc.op = #sdsc.op<"abs", {}>
// CHECK: return %[[V]] : tensor<64xf16>
#id = affine_map<(d0) -> (d0)>
func.func @shape_of_nothing(%x: tensor<64xf16>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf16>
  %w = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%x, %e : tensor<64xf16>, tensor<64xf16>) outs(%e : tensor<64xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %r = math.absf %a : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  return %w : tensor<64xf16>
}
