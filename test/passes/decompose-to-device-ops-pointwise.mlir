// RUN: spyre-opt %s --decompose-to-device-ops --split-input-file | filecheck %s

// Each scalar op of a body becomes an op over only the dims that its operands have.
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
// A transpose and a broadcast are no ops of their own: their readers' maps say it.
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
