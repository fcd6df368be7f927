// RUN: spyre-opt %s --split-input-file --verify-diagnostics --lower-hints

#id = affine_map<(d0, d1) -> (d0, d1)>
// No pass has named the dims.
func.func @no_dims(%x: tensor<64x128xf16>) -> tensor<64x128xf16> attributes {sdsc.dim_sizes = {M = 64 : i64, N = 128 : i64}} {
  %e = tensor.empty() : tensor<64x128xf16>
  // expected-error@below {{this operation has sdsc.hints but no sdsc.dims; run propagate-named-dims first}}
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.hints = [{id = 3 : i64, tiles = [{dim = "M", count = 8 : i64}]}]} {
  ^bb0(%a: f16, %o: f16):
    %y = math.exp %a : f16
    linalg.yield %y : f16
  } -> tensor<64x128xf16>
  return %r : tensor<64x128xf16>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
// Names for other dims than there are.
func.func @other_dims(%x: tensor<64x128xf16>) -> tensor<64x128xf16> attributes {sdsc.dim_sizes = {M = 64 : i64, N = 128 : i64}} {
  %e = tensor.empty() : tensor<64x128xf16>
  // expected-error@below {{sdsc.dims names 1 iteration dims, but there are 2}}
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.hints = [{id = 3 : i64, tiles = [{dim = "M", count = 8 : i64}]}], sdsc.dims = [["M"]]} {
  ^bb0(%a: f16, %o: f16):
    %y = math.exp %a : f16
    linalg.yield %y : f16
  } -> tensor<64x128xf16>
  return %r : tensor<64x128xf16>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
// No names at all.
func.func @malformed(%x: tensor<64x128xf16>) -> tensor<64x128xf16> attributes {sdsc.dim_sizes = {M = 64 : i64, N = 128 : i64}} {
  %e = tensor.empty() : tensor<64x128xf16>
  // expected-error@below {{'sdsc.dims' must be a list of lists of names like}}
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.hints = [{id = 3 : i64, tiles = [{dim = "M", count = 8 : i64}]}], sdsc.dims = ["M", "N"]} {
  ^bb0(%a: f16, %o: f16):
    %y = math.exp %a : f16
    linalg.yield %y : f16
  } -> tensor<64x128xf16>
  return %r : tensor<64x128xf16>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
// A name that is not declared.
func.func @undeclared(%x: tensor<64x128xf16>) -> tensor<64x128xf16> attributes {sdsc.dim_sizes = {M = 64 : i64, N = 128 : i64}} {
  %e = tensor.empty() : tensor<64x128xf16>
  // expected-error@below {{iteration dim 1 is named 'Q', which is not declared}}
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.hints = [{id = 3 : i64, tiles = [{dim = "M", count = 8 : i64}]}], sdsc.dims = [["M"], ["Q"]]} {
  ^bb0(%a: f16, %o: f16):
    %y = math.exp %a : f16
    linalg.yield %y : f16
  } -> tensor<64x128xf16>
  return %r : tensor<64x128xf16>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
// Names that do not fit.
func.func @misfit(%x: tensor<64x128xf16>) -> tensor<64x128xf16> attributes {sdsc.dim_sizes = {M = 64 : i64, N = 128 : i64}} {
  %e = tensor.empty() : tensor<64x128xf16>
  // expected-error@below {{iteration dim 0 has 64 elements, but its names ['N'] have 128}}
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.hints = [{id = 3 : i64, tiles = [{dim = "M", count = 8 : i64}]}], sdsc.dims = [["N"], ["M"]]} {
  ^bb0(%a: f16, %o: f16):
    %y = math.exp %a : f16
    linalg.yield %y : f16
  } -> tensor<64x128xf16>
  return %r : tensor<64x128xf16>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
// Sizes that are none.
// expected-error@below {{'sdsc.dim_sizes' must be a dictionary of positive sizes like {M = 64 : i64}}}
func.func @sizes(%x: tensor<64x128xf16>) -> tensor<64x128xf16> attributes {sdsc.dim_sizes = [64, 128]} {
  %e = tensor.empty() : tensor<64x128xf16>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.hints = [{id = 3 : i64, tiles = [{dim = "M", count = 8 : i64}]}], sdsc.dims = [["M"], ["N"]]} {
  ^bb0(%a: f16, %o: f16):
    %y = math.exp %a : f16
    linalg.yield %y : f16
  } -> tensor<64x128xf16>
  return %r : tensor<64x128xf16>
}
