// RUN: spyre-opt %s --decompose-to-device-ops --split-input-file --verify-diagnostics

// What has no device operation is an error at its source line, not at the line of the op around it.
#id = affine_map<(d0) -> (d0)>
func.func @sine(%x: tensor<64xf16>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf16>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<64xf16>) outs(%e : tensor<64xf16>) {
  ^bb0(%a: f16, %o: f16):
    // expected-error@below {{'math.sin' has no device operation; see the device-operation table}}
    %r = math.sin %a : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  return %0 : tensor<64xf16>
}
// -----
// A power by anything but a few exponents.
#id = affine_map<(d0) -> (d0)>
func.func @power(%x: tensor<64xf16>) -> tensor<64xf16> {
  %c = arith.constant 1.5 : f16
  %e = tensor.empty() : tensor<64xf16>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<64xf16>) outs(%e : tensor<64xf16>) {
  ^bb0(%a: f16, %o: f16):
    // expected-error@below {{a power with this exponent has no device operation; 1, 2, 3, 4, 0.5, -0.5 and -1 have}}
    %r = math.powf %a, %c : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  return %0 : tensor<64xf16>
}
// -----
// f64 is not supported by the device.
// expected-error@below {{element type f64 is not supported by the device}}
func.func @double(%x: tensor<64xf64>) -> tensor<64xf64> {
  return %x : tensor<64xf64>
}
// -----
// All sizes must be known.
// expected-error@below {{type tensor<?xf16> has no static shape; the device needs all sizes at compile time}}
func.func @dynamic(%x: tensor<?xf16>) -> tensor<?xf16> {
  return %x : tensor<?xf16>
}
// -----
// Arguments are tensors.
// expected-error@below {{f16 is not a ranked tensor; arguments and results of a program are tensors}}
func.func @scalar(%x: f16) -> f16 {
  return %x : f16
}
// -----
// A named op must be generalised first.
func.func @named_op(%x: tensor<64x64xf16>) -> tensor<64x64xf16> {
  // expected-error@below {{'linalg.matmul' has no device operation; expected linalg on static tensors}}
  %0 = linalg.matmul ins(%x, %x : tensor<64x64xf16>, tensor<64x64xf16>) outs(%x : tensor<64x64xf16>) -> tensor<64x64xf16>
  return %0 : tensor<64x64xf16>
}
// -----
// An op with several live results.
#id = affine_map<(d0) -> (d0)>
func.func @two_results(%x: tensor<64xf16>) -> (tensor<64xf16>, tensor<64xf16>) {
  %e = tensor.empty() : tensor<64xf16>
  // expected-error@below {{a linalg.generic with several results has no device operation}}
  %0:2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%x : tensor<64xf16>) outs(%e, %e : tensor<64xf16>, tensor<64xf16>) {
  ^bb0(%a: f16, %o: f16, %p: f16):
    linalg.yield %a, %a : f16, f16
  } -> (tensor<64xf16>, tensor<64xf16>)
  return %0#0, %0#1 : tensor<64xf16>, tensor<64xf16>
}
// -----
// A convolution's windows.
func.func @window(%x: tensor<66xf16>) -> tensor<64xf16> {
  %f = arith.constant dense<0.0> : tensor<64xf16>
  %w = tensor.empty() : tensor<3xf16>
  // expected-error@below {{a linalg.generic with an indexing map that computes indices has no device operation}}
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0 + d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]}
      ins(%x, %w : tensor<66xf16>, tensor<3xf16>) outs(%f : tensor<64xf16>) {
  ^bb0(%a: f16, %k: f16, %o: f16):
    %r = arith.maximumf %a, %o : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  return %0 : tensor<64xf16>
}
// -----
// A reduction by subtraction.
#id = affine_map<(d0) -> (d0)>
func.func @reduction(%x: tensor<64xf16>, %s: tensor<f16>) -> tensor<f16> {
  // expected-error@below {{this reduction has no device operation; sums, products, minima and maxima have}}
  %0 = linalg.generic {indexing_maps = [#id, affine_map<(d0) -> ()>], iterator_types = ["reduction"]} ins(%x : tensor<64xf16>) outs(%s : tensor<f16>) {
  ^bb0(%a: f16, %o: f16):
    %r = arith.subf %o, %a : f16
    linalg.yield %r : f16
  } -> tensor<f16>
  return %0 : tensor<f16>
}
// -----
// A recurrence is no reduction.
#id = affine_map<(d0) -> (d0)>
func.func @accumulator(%x: tensor<64xf16>, %s: tensor<f16>) -> tensor<f16> {
  // expected-error@below {{a reduction that uses its accumulator twice has no device operation}}
  %0 = linalg.generic {indexing_maps = [#id, affine_map<(d0) -> ()>], iterator_types = ["reduction"]} ins(%x : tensor<64xf16>) outs(%s : tensor<f16>) {
  ^bb0(%a: f16, %o: f16):
    %m = arith.mulf %a, %o : f16
    %r = arith.addf %o, %m : f16
    linalg.yield %r : f16
  } -> tensor<f16>
  return %0 : tensor<f16>
}
// -----
// A reduction of a number (upstream or fold-constants computes it).
func.func @constant_reduction(%s: tensor<f16>) -> tensor<f16> {
  %c = arith.constant dense<2.0> : tensor<64xf16>
  // expected-error@below {{a reduction of a constant has no device operation}}
  %0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>], iterator_types = ["reduction"]} ins(%c : tensor<64xf16>) outs(%s : tensor<f16>) {
  ^bb0(%a: f16, %o: f16):
    %r = arith.addf %a, %o : f16
    linalg.yield %r : f16
  } -> tensor<f16>
  return %0 : tensor<f16>
}
// -----
// A matmul of two types.
func.func @mixed_matmul(%x: tensor<64x64xf32>, %y: tensor<64x64xf16>, %z: tensor<64x64xf32>) -> tensor<64x64xf32> {
  // expected-error@below {{a matmul supports fp16, fp8 or int8, not f32 x f16; cast the operands}}
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %y : tensor<64x64xf32>, tensor<64x64xf16>) outs(%z : tensor<64x64xf32>) {
  ^bb0(%a: f32, %b: f16, %o: f32):
    %w = arith.extf %b : f16 to f32
    %p = arith.mulf %a, %w : f32
    %r = arith.addf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<64x64xf32>
  return %0 : tensor<64x64xf32>
}
// -----
// A pad that cuts.
func.func @negative_pad(%x: tensor<64xf16>) -> tensor<62xf16> {
  %c = arith.constant 0.0 : f16
  // expected-error@below {{a pad by a negative or dynamic amount has no device operation}}
  %0 = tensor.pad %x low[-1] high[-1] {
  ^bb0(%i: index):
    tensor.yield %c : f16
  } : tensor<64xf16> to tensor<62xf16>
  return %0 : tensor<62xf16>
}
// -----
// A pad by a run-time value.
func.func @pad_value(%x: tensor<64xf16>, %s: tensor<f16>) -> tensor<66xf16> {
  // expected-error@below {{a pad needs a constant value}}
  %0 = tensor.pad %x low[1] high[1] {
  ^bb0(%i: index):
    %c = tensor.extract %s[] : tensor<f16>
    tensor.yield %c : f16
  } : tensor<64xf16> to tensor<66xf16>
  return %0 : tensor<66xf16>
}
// -----
// An insertion with steps.
func.func @strided_insert(%x: tensor<64xf16>, %y: tensor<2xf16>) -> tensor<64xf16> {
  // expected-error@below {{an insert_slice needs constants or run-time indices as offsets, and unit strides}}
  %0 = tensor.insert_slice %y into %x[0] [2] [2] : tensor<2xf16> into tensor<64xf16>
  return %0 : tensor<64xf16>
}
// -----
// A constant whose values are not in the text.
func.func @resource() -> tensor<2xf16> {
  // expected-error@below {{a constant tensor must be given by its values; pass large ones as arguments}}
  %c = arith.constant dense_resource<blob> : tensor<2xf16>
  return %c : tensor<2xf16>
}
{-# dialect_resources: { builtin: { blob: "0x04000000003C0040" } } #-}
// -----
// int8 is widened by a matmul, which a vector is none for.
#id = affine_map<(d0) -> (d0)>
func.func @cast(%x: tensor<64xi8>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf16>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<64xi8>) outs(%e : tensor<64xf16>) {
  ^bb0(%a: i8, %o: f16):
    // expected-error@below {{a cast from i8 to f16 has no device operation for the shape [64]}}
    %r = arith.sitofp %a : i8 to f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  return %0 : tensor<64xf16>
}
// -----
// Neither do 8-bit integers add up.
#id = affine_map<(d0) -> (d0)>
func.func @add_bytes(%x: tensor<64xi8>) -> tensor<64xi8> {
  %e = tensor.empty() : tensor<64xi8>
  // expected-error@below {{'addi32toi32' does not support i8: only matmuls, casts and copies support it}}
  %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%x, %x : tensor<64xi8>, tensor<64xi8>) outs(%e : tensor<64xi8>) {
  ^bb0(%a: i8, %b: i8, %o: i8):
    %r = arith.addi %a, %b : i8
    linalg.yield %r : i8
  } -> tensor<64xi8>
  return %0 : tensor<64xi8>
}
// -----
// Sums of other integers than int8 are the host's.
func.func @sum_of_integers(%x: tensor<64x64xi32>, %z: tensor<64xi32>) -> tensor<64xi32> {
  // expected-error@below {{a sum of integers has no device operation, except in a matmul of int8}}
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<64x64xi32>) outs(%z : tensor<64xi32>) {
  ^bb0(%a: i32, %o: i32):
    %r = arith.addi %a, %o : i32
    linalg.yield %r : i32
  } -> tensor<64xi32>
  return %0 : tensor<64xi32>
}
// -----
// A cast of the device to 8 bits has no numbers out of range, where that of MLIR leaves bits out.
#id = affine_map<(d0) -> (d0)>
func.func @lowest_bits(%x: tensor<64xi32>) -> tensor<64xi8> {
  %e = tensor.empty() : tensor<64xi8>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<64xi32>) outs(%e : tensor<64xi8>) {
  ^bb0(%a: i32, %o: i8):
    // expected-error@below {{the lowest 8 bits of an integer have no device operation}}
    %r = arith.trunci %a : i32 to i8
    linalg.yield %r : i8
  } -> tensor<64xi8>
  return %0 : tensor<64xi8>
}
// -----
// What nobody has written has no value to return,
func.func @unwritten() -> tensor<64xf16> {
  // expected-error@below {{this tensor is read before it is written; initialize it with linalg.fill}}
  %e = tensor.empty() : tensor<64xf16>
  return %e : tensor<64xf16>
}
// -----
// to add to,
#row = affine_map<(d0, d1) -> (d0)>
#all = affine_map<(d0, d1) -> (d0, d1)>
func.func @added_to_nothing(%x: tensor<64x64xf16>) -> tensor<64xf16> {
  // expected-error@below {{this tensor is read before it is written; initialize it with linalg.fill}}
  %e = tensor.empty() : tensor<64xf16>
  %0 = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<64x64xf16>) outs(%e : tensor<64xf16>) {
  ^bb0(%a: f16, %o: f16):
    %r = arith.addf %o, %a : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  return %0 : tensor<64xf16>
}
// -----
// or to compare with.
#id = affine_map<(d0) -> (d0)>
func.func @larger_than_nothing(%x: tensor<64xf16>) -> tensor<64xf16> {
  // expected-error@below {{this tensor is read before it is written; initialize it with linalg.fill}}
  %e = tensor.empty() : tensor<64xf16>
  %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%x, %e : tensor<64xf16>, tensor<64xf16>) outs(%e : tensor<64xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %r = arith.maximumf %a, %b : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  return %0 : tensor<64xf16>
}
// -----
// The device's integers have 32 bits: a sum of 64-bit ones could be wrong unnoticed.
func.func @wide(%x: tensor<64xi64>) -> tensor<64xi64> {
  %e = tensor.empty() : tensor<64xi64>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%x : tensor<64xi64>) outs(%e : tensor<64xi64>) {
  ^bb0(%a: i64, %b: i64):
    // expected-error@below {{'arith.muli' on 64-bit integers has no device operation; the device has 32-bit integers}}
    %r = arith.muli %a, %a : i64
    linalg.yield %r : i64
  } -> tensor<64xi64>
  return %0 : tensor<64xi64>
}
