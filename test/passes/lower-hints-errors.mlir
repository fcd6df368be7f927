// RUN: spyre-opt %s --split-input-file --verify-diagnostics --attach-hints --linalg-generalize-named-ops --decompose-to-device-ops --canonicalize --cse --propagate-named-dims --lower-hints

// A dim that is not declared.
func.func @unknown(%x: tensor<64x128xf16> {sdsc.dims = ["M", "N"]}) -> tensor<64x128xf16> attributes {sdsc.dim_sizes = {M = 64 : i64, N = 128 : i64}} {
  %e = tensor.empty() : tensor<64x128xf16>
  // expected-error@below {{hint 3 cuts 'Q' into 8 tiles, but declared are 'M', 'N'}}
  %r = linalg.exp {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "Q", count = 8 : i64}]}]} ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %r : tensor<64x128xf16>
}

// -----

// No dim is declared at all.
func.func @undeclared(%x: tensor<64x128xf16>) -> tensor<64x128xf16> {
  %e = tensor.empty() : tensor<64x128xf16>
  // expected-warning@below {{a hint cannot tile a dim without a name: dim 0 of argument 'arg0' and 1 more}}
  // expected-error@below {{hint 3 cuts 'Q' into 8 tiles, but no dim is declared}}
  %r = linalg.exp {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "Q", count = 8 : i64}]}]} ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %r : tensor<64x128xf16>
}

// -----

// More tiles than elements.
func.func @elements(%x: tensor<4x128xf16> {sdsc.dims = ["M", "N"]}) -> tensor<4x128xf16> attributes {sdsc.dim_sizes = {M = 4 : i64, N = 128 : i64}} {
  %e = tensor.empty() : tensor<4x128xf16>
  // expected-error@below {{hint 3 cuts 'M' of 4 elements into 7 tiles, more than it has elements}}
  %r = linalg.exp {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "M", count = 7 : i64}]}]} ins(%x : tensor<4x128xf16>) outs(%e : tensor<4x128xf16>) -> tensor<4x128xf16>
  return %r : tensor<4x128xf16>
}

// -----

// An inner hint cuts a dim again.
func.func @again(%x: tensor<64x128xf16> {sdsc.dims = ["M", "N"]}) -> tensor<64x128xf16> attributes {sdsc.dim_sizes = {M = 64 : i64, N = 128 : i64}} {
  %e = tensor.empty() : tensor<64x128xf16>
  // expected-error@below {{hint 5 cuts 'M' of 64 elements into 2 tiles, inside of hint 3, which cuts it into 8 already}}
  %r = linalg.exp {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "M", count = 8 : i64}]}, {id = 5 : i64, tiles = [{dim = "M", count = 2 : i64}]}]} ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %r : tensor<64x128xf16>
}

// -----

// More tiles than a loop has iterations.
func.func @many(%x: tensor<131072x64xf16> {sdsc.dims = ["M", "N"]}) -> tensor<131072x64xf16> attributes {sdsc.dim_sizes = {M = 131072 : i64, N = 64 : i64}} {
  %e = tensor.empty() : tensor<131072x64xf16>
  // expected-error@below {{hint 3 cuts 'M' of 131072 elements into 131072 tiles; a loop nest has at most 65535 iterations}}
  %r = linalg.exp {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "M", count = 131072 : i64}]}]} ins(%x : tensor<131072x64xf16>) outs(%e : tensor<131072x64xf16>) -> tensor<131072x64xf16>
  return %r : tensor<131072x64xf16>
}

// -----

// A nest of more iterations than are possible.
func.func @nest(%x: tensor<256x256x64xf16> {sdsc.dims = ["L", "M", "N"]}) -> tensor<256x256x64xf16> attributes {sdsc.dim_sizes = {L = 256 : i64, M = 256 : i64, N = 64 : i64}} {
  %e = tensor.empty() : tensor<256x256x64xf16>
  // expected-error@below {{the loops 256 (3.L) x 256 (4.M) have 65536 iterations; a loop nest has at most 65535 iterations}}
  %r = linalg.exp {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "L", count = 256 : i64}]}, {id = 4 : i64, tiles = [{dim = "M", count = 256 : i64}]}]} ins(%x : tensor<256x256x64xf16>) outs(%e : tensor<256x256x64xf16>) -> tensor<256x256x64xf16>
  return %r : tensor<256x256x64xf16>
}

// -----

// One id, two hints.
func.func @one_id(%x: tensor<64x128xf16> {sdsc.dims = ["M", "N"]}) -> tensor<64x128xf16> attributes {sdsc.dim_sizes = {M = 64 : i64, N = 128 : i64}} {
  %e = tensor.empty() : tensor<64x128xf16>
  %p = linalg.exp {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "M", count = 8 : i64}]}]} ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  // expected-error@below {{hint 3 has the tiles {'M': 4} here and {'M': 8} elsewhere}}
  %r = linalg.log {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "M", count = 4 : i64}]}]} ins(%p : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %r : tensor<64x128xf16>
}

// -----

// One hint, two places in the nest.
func.func @two_places(%x: tensor<64x128xf16> {sdsc.dims = ["M", "N"]}) -> tensor<64x128xf16> attributes {sdsc.dim_sizes = {M = 64 : i64, N = 128 : i64}} {
  %e = tensor.empty() : tensor<64x128xf16>
  %p = linalg.exp {sdsc.hints = [{id = 2 : i64, tiles = []}, {id = 3 : i64, tiles = [{dim = "M", count = 8 : i64}]}]} ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  // expected-error@below {{hint 3 is inside of no hint here and of hints 2 elsewhere}}
  %r = linalg.log {sdsc.hints = [{id = 3 : i64, tiles = [{dim = "M", count = 8 : i64}]}]} ins(%p : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %r : tensor<64x128xf16>
}

// -----

// Slices of unequal sizes.
func.func @unequal_slices(%x: tensor<130x128xf16> {sdsc.dims = ["M", "N"]}) -> tensor<130x128xf16> attributes {sdsc.dim_sizes = {M = 130 : i64, N = 128 : i64}} {
  %e = tensor.empty() : tensor<130x128xf16>
  // expected-error@below {{the hints divide this operation into 4 slices, but iteration dim 0 of 130 elements is not evenly divisible by 4}}
  %r = linalg.exp {sdsc.hints = [{id = 3 : i64, slices = [{dim = "M", count = 4 : i64}], tiles = []}]} ins(%x : tensor<130x128xf16>) outs(%e : tensor<130x128xf16>) -> tensor<130x128xf16>
  return %r : tensor<130x128xf16>
}

// -----

// A stick is not divided.
func.func @stick_slices(%x: tensor<64x128xf16> {sdsc.dims = ["M", "N"]}) -> tensor<64x128xf16> attributes {sdsc.dim_sizes = {M = 64 : i64, N = 128 : i64}} {
  %e = tensor.empty() : tensor<64x128xf16>
  // expected-error@below {{the hints divide this operation into 4 slices, but iteration dim 1 of 2 sticks is not evenly divisible by 4}}
  %r = linalg.exp {sdsc.hints = [{id = 3 : i64, slices = [{dim = "N", count = 4 : i64}], tiles = []}]} ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %r : tensor<64x128xf16>
}

// -----

// More slices than cores.
func.func @too_many_slices(%x: tensor<64x128xf16> {sdsc.dims = ["M", "N"]}) -> tensor<64x128xf16> attributes {sdsc.dim_sizes = {M = 64 : i64, N = 128 : i64}} {
  %e = tensor.empty() : tensor<64x128xf16>
  // expected-error@below {{the hints divide this operation into 32 x 2 slices, which exceeds SENCORES, the 32 cores of the target}}
  %r = linalg.exp {sdsc.hints = [{id = 3 : i64, slices = [{dim = "M", count = 32 : i64}, {dim = "N", count = 2 : i64}], tiles = []}]} ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  return %r : tensor<64x128xf16>
}
