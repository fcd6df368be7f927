// RUN: spyre-opt %s --verify-device-ops --split-input-file --verify-diagnostics

// What only moves or names data belongs to the level, and so does every device operation in a format that it has.
#id = affine_map<(d0) -> (d0)>
func.func @valid(%x: tensor<64xf16>) -> tensor<64xf32> {
  %e = tensor.empty() : tensor<64xf32>
  %c = "sdsc.clone"(%x) : (tensor<64xf16>) -> tensor<64xf16>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%c : tensor<64xf16>) outs(%e : tensor<64xf32>) attrs = {sdsc.op = #sdsc.op<"dl16tofp32", {}>} {
  ^bb0(%a: f16, %o: f32):
    %r = arith.extf %a : f16 to f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  return %0 : tensor<64xf32>
}
// -----
// Any other op does not.
func.func @foreign(%x: tensor<64xf16>) -> tensor<64xf16> {
  // expected-error@below {{'arith.negf' does not belong to the level of device operations}}
  %0 = arith.negf %x : tensor<64xf16>
  return %0 : tensor<64xf16>
}
// -----
// An element type of the host.
func.func @element() -> tensor<64xi64> {
  // expected-error@below {{element type i64 is not supported by the device}}
  %0 = tensor.empty() : tensor<64xi64>
  return %0 : tensor<64xi64>
}
// -----
// An op that names no operation.
#id = affine_map<(d0) -> (d0)>
#all = affine_map<(d0) -> ()>
func.func @unnamed(%x: tensor<64xf16>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf16>
  // expected-error@below {{this linalg.generic has no device operation (sdsc.op)}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<64xf16>) outs(%e : tensor<64xf16>) {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<64xf16>
  return %0 : tensor<64xf16>
}
// -----
// A name that is not in the table.
#id = affine_map<(d0) -> (d0)>
#all = affine_map<(d0) -> ()>
func.func @unknown(%x: tensor<64xf16>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf16>
  // expected-error@below {{'frobnicate' is not a device operation; it is unknown}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<64xf16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"frobnicate", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<64xf16>
  return %0 : tensor<64xf16>
}
// -----
// A function that exists only inside fused operations.
#id = affine_map<(d0) -> (d0)>
#all = affine_map<(d0) -> ()>
func.func @unfused(%x: tensor<64xf16>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf16>
  // expected-error@below {{'erf' is not a device operation; the fused operations that use it were not recognised here}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<64xf16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"erf", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<64xf16>
  return %0 : tensor<64xf16>
}
// -----
// Too few operands.
#id = affine_map<(d0) -> (d0)>
#all = affine_map<(d0) -> ()>
func.func @arity(%x: tensor<64xf16>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf16>
  // expected-error@below {{'add' takes 2 operands, not 1}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<64xf16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<64xf16>
  return %0 : tensor<64xf16>
}
// -----
// A pointwise operation that reduces.
#id = affine_map<(d0) -> (d0)>
#all = affine_map<(d0) -> ()>
func.func @reduces(%x: tensor<64xf16>) -> tensor<f16> {
  %e = tensor.empty() : tensor<f16>
  // expected-error@below {{'neg' is a pointwise, but reduces the dims [0]}}
  %0 = linalg.generic {indexing_maps = [#id, #all], iterator_types = ["reduction"]} ins(%x : tensor<64xf16>) outs(%e : tensor<f16>) attrs = {sdsc.op = #sdsc.op<"neg", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<f16>
  return %0 : tensor<f16>
}
// -----
// A reduction that does not.
#id = affine_map<(d0) -> (d0)>
#all = affine_map<(d0) -> ()>
func.func @reduces_not(%x: tensor<64xf16>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf16>
  // expected-error@below {{'sum' is a reduction over the stick dim, but reduces the dims []}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<64xf16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"sum", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<64xf16>
  return %0 : tensor<64xf16>
}
// -----
// A constant left out.
#id = affine_map<(d0) -> (d0)>
#all = affine_map<(d0) -> ()>
func.func @constants(%x: tensor<64xf16>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf16>
  // expected-error@below {{'clip' needs the constants ['clipMax']}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<64xf16>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"clip", {clipMin = 0.0 : f64}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<64xf16>
  return %0 : tensor<64xf16>
}
// -----
// A format that the operation has not.
#id = affine_map<(d0) -> (d0)>
#all = affine_map<(d0) -> ()>
func.func @format(%x: tensor<64xf32>) -> tensor<64xf32> {
  %e = tensor.empty() : tensor<64xf32>
  // expected-error@below {{'tanh' runs on f16 (SEN169_FP16), not on f32}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<64xf32>) outs(%e : tensor<64xf32>) attrs = {sdsc.op = #sdsc.op<"tanh", {}>} {
  ^bb0(%a0: f32, %o: f32):
    linalg.yield %o : f32
  } -> tensor<64xf32>
  return %0 : tensor<64xf32>
}
// -----
// A result in another format.
#id = affine_map<(d0) -> (d0)>
#all = affine_map<(d0) -> ()>
func.func @result(%x: tensor<64xf16>) -> tensor<64xf32> {
  %e = tensor.empty() : tensor<64xf32>
  // expected-error@below {{'exp' gives f16 (SEN169_FP16), not f32}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<64xf16>) outs(%e : tensor<64xf32>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f32):
    linalg.yield %o : f32
  } -> tensor<64xf32>
  return %0 : tensor<64xf32>
}
// -----
// Operands in two formats.
#id = affine_map<(d0) -> (d0)>
func.func @mixed(%x: tensor<64xf16>, %y: tensor<64xf32>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf16>
  // expected-error@below {{'add' takes operands of one format, not ['f16', 'f32']}}
  %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%x, %y : tensor<64xf16>, tensor<64xf32>) outs(%e : tensor<64xf16>) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%a: f16, %b: f32, %o: f16):
    linalg.yield %a : f16
  } -> tensor<64xf16>
  return %0 : tensor<64xf16>
}
// -----
// What the program says of layouts belongs to the level.
#dense = affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>
func.func @requests(%x: tensor<64xf16>) -> tensor<64xf16> {
  %0 = "stick.pin"(%x) {stick.to = #stick.layout<#dense>} : (tensor<64xf16>) -> tensor<64xf16>
  %1 = "stick.restickify"(%0) {stick.to = #stick.layout<#dense>} : (tensor<64xf16>) -> tensor<64xf16>
  return %1 : tensor<64xf16>
}
// -----
// Loops belong to the level, with indices that follow from their variables; what is in them is checked, too.
func.func @loop(%x: tensor<128xf16>) -> tensor<128xf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c64 = arith.constant 64 : index
  %r = scf.for %i = %c0 to %c2 step %c1 iter_args(%acc = %x) -> (tensor<128xf16>) {
    %at = arith.muli %i, %c64 : index
    %same = affine.apply affine_map<(d0) -> (d0 * 64)>(%i)
    %s = tensor.extract_slice %x[%at] [64] [1] : tensor<128xf16> to tensor<64xf16>
    // expected-error@below {{'arith.negf' does not belong to the level of device operations}}
    %n = arith.negf %s : tensor<64xf16>
    %t = tensor.insert_slice %n into %acc[%same] [64] [1] : tensor<64xf16> into tensor<128xf16>
    scf.yield %t : tensor<128xf16>
  }
  return %r : tensor<128xf16>
}
