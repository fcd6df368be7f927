// RUN: spyre-opt %s --attach-hints --split-input-file --verify-diagnostics

func.func @no_list(%x: tensor<64x128xf16>) -> tensor<8192xf16> {
  // expected-error@below {{'sdsc.hints' must be a list like [{id = 3 : i64, tiles = [{dim = "M", count = 8 : i64}]}], outermost hint first}}
  %v = tensor.collapse_shape %x [[0, 1]] {sdsc.hints = {M = 8 : i64}} : tensor<64x128xf16> into tensor<8192xf16>
  return %v : tensor<8192xf16>
}

// -----

func.func @no_id(%x: tensor<64x128xf16>) -> tensor<8192xf16> {
  // expected-error@below {{'sdsc.hints' must be a list like}}
  %v = tensor.collapse_shape %x [[0, 1]] {sdsc.hints = [{id = 0 : i64, tiles = []}]} : tensor<64x128xf16> into tensor<8192xf16>
  return %v : tensor<8192xf16>
}

// -----

func.func @no_count(%x: tensor<64x128xf16>) -> tensor<8192xf16> {
  // expected-error@below {{'sdsc.hints' must be a list like}}
  %v = tensor.collapse_shape %x [[0, 1]] {sdsc.hints = [{id = 1 : i64, tiles = [{dim = "M"}]}]} : tensor<64x128xf16> into tensor<8192xf16>
  return %v : tensor<8192xf16>
}

// -----

func.func @odd_attribute(%x: tensor<64x128xf16>) -> tensor<8192xf16> {
  // expected-error@below {{'sdsc.hints' must be a list like}}
  %v = tensor.collapse_shape %x [[0, 1]] {sdsc.hints = affine_map<(d0) -> (d0)>} : tensor<64x128xf16> into tensor<8192xf16>
  return %v : tensor<8192xf16>
}

// -----

func.func @no_tiles(%x: tensor<64x128xf16>) -> tensor<8192xf16> {
  // expected-error@below {{hint 1 cuts 'M' into 0 tiles; expected 1 or more}}
  %v = tensor.collapse_shape %x [[0, 1]] {sdsc.hints = [{id = 1 : i64, tiles = [{dim = "M", count = 0 : i64}]}]} : tensor<64x128xf16> into tensor<8192xf16>
  return %v : tensor<8192xf16>
}

// -----

func.func @twice(%x: tensor<64x128xf16>) -> tensor<8192xf16> {
  // expected-error@below {{hint 1 cuts 'M' twice, into 2 and into 4 tiles}}
  %v = tensor.collapse_shape %x [[0, 1]] {sdsc.hints = [{id = 1 : i64, tiles = [{dim = "M", count = 2 : i64}, {dim = "M", count = 4 : i64}]}]} : tensor<64x128xf16> into tensor<8192xf16>
  return %v : tensor<8192xf16>
}

// -----

func.func @order(%x: tensor<64x128xf16>) -> tensor<8192xf16> {
  // expected-error@below {{hint 3 is inside of hint 4; an inner hint has the larger id}}
  %v = tensor.collapse_shape %x [[0, 1]] {sdsc.hints = [{id = 4 : i64, tiles = []}, {id = 3 : i64, tiles = []}]} : tensor<64x128xf16> into tensor<8192xf16>
  return %v : tensor<8192xf16>
}
