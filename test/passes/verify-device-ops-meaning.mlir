// RUN: spyre-opt %s --verify-device-ops="meaning" --split-input-file --verify-diagnostics

// The body computes the operation, in whatever order of operands.
#id = affine_map<(d0) -> (d0)>
func.func @same(%x: tensor<64xf16>, %y: tensor<64xf16>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf16>
  %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%x, %y : tensor<64xf16>, tensor<64xf16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %s = arith.addf %b, %a : f16
    linalg.yield %s : f16
  } -> tensor<64xf16>
  return %0 : tensor<64xf16>
}
// -----
// The device would add where the body multiplies.
#id = affine_map<(d0) -> (d0)>
func.func @other(%x: tensor<64xf16>, %y: tensor<64xf16>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf16>
  // expected-error@below {{the body does not compute 'add', which is its device operation}}
  %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%x, %y : tensor<64xf16>, tensor<64xf16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %s = arith.mulf %a, %b : f16
    linalg.yield %s : f16
  } -> tensor<64xf16>
  return %0 : tensor<64xf16>
}
// -----
// A sum on the device begins with 0.
#id = affine_map<(d0) -> (d0)>
#none = affine_map<(d0) -> ()>
func.func @begin(%x: tensor<64xf16>) -> tensor<f16> {
  %c = arith.constant 1.0 : f16
  %e = tensor.empty() : tensor<f16>
  %f = linalg.fill ins(%c : f16) outs(%e : tensor<f16>) -> tensor<f16>
  // expected-error@below {{'sum' begins with 0.0, but its result is filled with 1.0}}
  %0 = linalg.generic {indexing_maps = [#id, #none], iterator_types = ["reduction"]} ins(%x : tensor<64xf16>) outs(%f : tensor<f16>) attrs = {sdsc.op = #sdsc.op<"sum", {}>} {
  ^bb0(%a: f16, %o: f16):
    %s = arith.addf %a, %o : f16
    linalg.yield %s : f16
  } -> tensor<f16>
  return %0 : tensor<f16>
}
// -----
// What is read is written.
#id = affine_map<(d0) -> (d0)>
func.func @unwritten() -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf16>
  // expected-error@below {{operand 0 is an uninitialized tensor}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%e : tensor<64xf16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a: f16, %o: f16):
    %s = math.exp %a : f16
    linalg.yield %s : f16
  } -> tensor<64xf16>
  return %0 : tensor<64xf16>
}
// -----
// A map that reads one row of many does not say which.
#row = affine_map<(d0) -> (0, d0)>
#id = affine_map<(d0) -> (d0)>
func.func @row(%x: tensor<2x64xf16>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf16>
  // expected-error@below {{operand 0 of 'exp' is larger than what its map reads of it}}
  %0 = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel"]} ins(%x : tensor<2x64xf16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a: f16, %o: f16):
    %s = math.exp %a : f16
    linalg.yield %s : f16
  } -> tensor<64xf16>
  return %0 : tensor<64xf16>
}
// -----
// A loop that goes on with the old tensor loses what it has put into the new one.
#id = affine_map<(d0) -> (d0)>
func.func @yield(%x: tensor<64xf16>) -> tensor<128xf16> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %e = tensor.empty() : tensor<128xf16>
  %0 = scf.for %i = %c0 to %c128 step %c64 iter_args(%acc = %e) -> (tensor<128xf16>) {
    // expected-error@below {{no operation reads the tensor that contains this part}}
    %n = tensor.insert_slice %x into %acc[%i] [64] [1] : tensor<64xf16> into tensor<128xf16>
    scf.yield %acc : tensor<128xf16>
  }
  return %0 : tensor<128xf16>
}
// -----
// A loop runs at least once.
func.func @never(%x: tensor<64xf16>) -> tensor<64xf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  // expected-error@below {{this loop never runs}}
  %0 = scf.for %i = %c0 to %c0 step %c1 iter_args(%acc = %x) -> (tensor<64xf16>) {
    scf.yield %acc : tensor<64xf16>
  }
  return %0 : tensor<64xf16>
}
