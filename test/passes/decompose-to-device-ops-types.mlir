// RUN: spyre-opt %s --decompose-to-device-ops --split-input-file | filecheck %s

// bf16 and booleans are f16, i64 is i32; the host's type is kept on each argument and result.
func.func @boundary(%a: tensor<64xbf16>, %b: tensor<64xi1>, %c: tensor<64xi64>, %d: tensor<64xf32>, %e: tensor<64xi32>)
    -> (tensor<64xbf16>, tensor<64xi1>, tensor<64xi64>, tensor<64xf32>, tensor<64xi32>) {
  return %a, %b, %c, %d, %e : tensor<64xbf16>, tensor<64xi1>, tensor<64xi64>, tensor<64xf32>, tensor<64xi32>
}
// -----
// The importer's name and kind of an argument go into sdsc.host.
func.func @named(%a: tensor<64xf16> {spyre.name = "weight", spyre.kind = "parameter"}) -> tensor<64xf16> {
  return %a : tensor<64xf16>
}
// -----
// Constant tensors are in the device's types, a splat only where it is read as a number.
#id = affine_map<(d0) -> (d0)>
func.func @constants(%x: tensor<4xbf16>) -> (tensor<4xbf16>, tensor<4xi64>, tensor<4xi1>) {
  %c = arith.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xbf16>
  %i = arith.constant dense<[1, -2, 3, 4]> : tensor<4xi64>
  %b = arith.constant dense<[true, false, false, true]> : tensor<4xi1>
  %e = tensor.empty() : tensor<4xbf16>
  %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%x, %c : tensor<4xbf16>, tensor<4xbf16>) outs(%e : tensor<4xbf16>) {
  ^bb0(%a: bf16, %d: bf16, %o: bf16):
    %r = arith.addf %a, %d : bf16
    linalg.yield %r : bf16
  } -> tensor<4xbf16>
  return %0, %i, %b : tensor<4xbf16>, tensor<4xi64>, tensor<4xi1>
}
// -----
// A returned splat is written out.
func.func @splat() -> tensor<64xi64> {
  %c = arith.constant dense<7> : tensor<64xi64>
  return %c : tensor<64xi64>
}
// -----
// A function that is on the device's types already is left alone, and so is a declaration.
func.func private @declared(tensor<64xf64>)
func.func @again(%a: tensor<64xf16> {sdsc.host = #sdsc.host<"a", "input", "bf16">}) -> tensor<64xf16> {
  return %a : tensor<64xf16>
}
