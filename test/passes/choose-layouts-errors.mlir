// RUN: spyre-opt %s --choose-layouts --split-input-file --verify-diagnostics

// A product has its columns or its rows in the stick, never a batch dim.
func.func @batch_stick(%x: tensor<128x64x64xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}, %y: tensor<128x64x64xf16> {sdsc.host = #sdsc.host<"y", "input", "f16">}) -> tensor<128x64x64xf16> {
  %e0 = tensor.empty() : tensor<128x64x64xf16>
  // expected-error@below {{the result of 'batchmatmul', tensor<128x64x64xf16>: the pinned layout breaks a rule: the result has dim 0 in the stick; expected dim 2 as in input 2: a matmul has the contracted dim in the stick of input 1, its columns in the sticks of input 2 and the result}}
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%x, %y : tensor<128x64x64xf16>, tensor<128x64x64xf16>) outs(%e0 : tensor<128x64x64xf16>) attrs = {sdsc.op = #sdsc.op<"batchmatmul", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x64x64xf16>
  %1 = "stick.pin"(%0) {stick.to = #stick.layout<affine_map<(d0, d1, d2) -> (d1, d0 floordiv 64, d2, d0 mod 64)>>} : (tensor<128x64x64xf16>) -> tensor<128x64x64xf16>
  return %1 : tensor<128x64x64xf16>
}
// -----
// Two pins of one tensor agree.
func.func @conflict(%x: tensor<128x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<128x256xf16> {
  %e0 = tensor.empty() : tensor<128x256xf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16>) outs(%e0 : tensor<128x256xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16>
  %1 = "stick.pin"(%0) {stick.to = #stick.layout<affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>>} : (tensor<128x256xf16>) -> tensor<128x256xf16>
  // expected-error@below {{the result of 'exp', tensor<128x256xf16> is pinned to another layout already: (d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)}}
  %2 = "stick.pin"(%1) {stick.to = #stick.layout<affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>>} : (tensor<128x256xf16>) -> tensor<128x256xf16>
  return %2 : tensor<128x256xf16>
}
// -----
// A pin agrees with the layout that the caller gives an argument.
func.func @caller(%x: tensor<128x256xf16, #stick.layout<affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>>> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<128x256xf16> {
  // expected-error@below {{argument 'x' is pinned to another layout already: (d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)}}
  %1 = "stick.pin"(%x) {stick.to = #stick.layout<affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>>} : (tensor<128x256xf16, #stick.layout<affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>>>) -> tensor<128x256xf16>
  %e0 = tensor.empty() : tensor<128x256xf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%1 : tensor<128x256xf16>) outs(%e0 : tensor<128x256xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16>
  return %0 : tensor<128x256xf16>
}
// -----
// A buffer cannot have a stick that one of its parts cuts.
func.func @cut(%x: tensor<128x32xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}, %y: tensor<128x32xf16> {sdsc.host = #sdsc.host<"y", "input", "f16">}) -> tensor<128x64xf16> {
  %a = "sdsc.clone"(%x) : (tensor<128x32xf16>) -> tensor<128x32xf16>
  %b = "sdsc.clone"(%y) : (tensor<128x32xf16>) -> tensor<128x32xf16>
  %e = tensor.empty() : tensor<128x64xf16>
  %0 = tensor.insert_slice %a into %e[0, 0] [128, 32] [1, 1] : tensor<128x32xf16> into tensor<128x64xf16>
  // expected-error@below {{the result of 'tensor.insert_slice', tensor<128x64xf16>: the pinned layout breaks a rule: its part at [0, 32] does not fit it: a slice from 32 by 1 cuts the sticks of dim 1}}
  %1 = tensor.insert_slice %b into %0[0, 32] [128, 32] [1, 1] : tensor<128x32xf16> into tensor<128x64xf16>
  %2 = "stick.pin"(%1) {stick.to = #stick.layout<affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>>} : (tensor<128x64xf16>) -> tensor<128x64xf16>
  return %2 : tensor<128x64xf16>
}
// -----
// A product has at most 2 batch dims.
func.func @batches(%x: tensor<2x2x2x64x64xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}, %y: tensor<2x2x2x64x64xf16> {sdsc.host = #sdsc.host<"y", "input", "f16">}) -> tensor<2x2x2x64x64xf16> {
  %e0 = tensor.empty() : tensor<2x2x2x64x64xf16>
  // expected-error@below {{the result of 'batchmatmul', tensor<2x2x2x64x64xf16>: it has 3 batch dims [0, 1, 2]; expected at most 2: a matmul has the contracted dim in the stick of input 1, its columns in the sticks of input 2 and the result}}
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3, d5)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d5, d4)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3, d4)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%x, %y : tensor<2x2x2x64x64xf16>, tensor<2x2x2x64x64xf16>) outs(%e0 : tensor<2x2x2x64x64xf16>) attrs = {sdsc.op = #sdsc.op<"batchmatmul", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<2x2x2x64x64xf16>
  return %0 : tensor<2x2x2x64x64xf16>
}
// -----
// What the host gives must be told.
// expected-error@below {{argument 0 has no sdsc.host; run decompose-to-device-ops first}}
func.func @hostless(%x: tensor<128x256xf16>) -> tensor<128x256xf16> {
  return %x : tensor<128x256xf16>
}
