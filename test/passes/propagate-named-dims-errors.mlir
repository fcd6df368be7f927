// RUN: spyre-opt %s --split-input-file --verify-diagnostics --attach-hints --linalg-generalize-named-ops --decompose-to-device-ops --propagate-named-dims

// Names of an argument that are no list of names.
// expected-error@below {{'sdsc.dims' must be a list of names like ["M", "K"]}}
func.func @argument(%x: tensor<64x128xf16> {sdsc.dims = {M = 64 : i64}}) -> tensor<64x128xf16> {
  %e = tensor.empty() : tensor<64x128xf16>
  %r = linalg.exp {sdsc.hints = [{id = 1 : i64, tiles = []}]} ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %r : tensor<64x128xf16>
}

// -----

// A size that is none.
// expected-error@below {{'sdsc.dim_sizes' must be a dictionary of positive sizes like {M = 64 : i64}}}
func.func @sizes(%x: tensor<64x128xf16>) -> tensor<64x128xf16> attributes {sdsc.dim_sizes = {M = 0 : i64}} {
  %e = tensor.empty() : tensor<64x128xf16>
  %r = linalg.exp {sdsc.hints = [{id = 1 : i64, tiles = []}]} ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %r : tensor<64x128xf16>
}

// -----

// Hints that a location carries already are checked, too.
func.func @location(%x: tensor<64x128xf16>) -> tensor<64x128xf16> {
  %e = tensor.empty() : tensor<64x128xf16>
  // expected-error@+1 {{'sdsc.hints' must be a list like}}
  %r = linalg.exp ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16> loc(fused<{sdsc.hints = [3]}>["propagate-named-dims-errors.mlir":27:8])
  return %r : tensor<64x128xf16>
}
