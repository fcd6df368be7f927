// RUN: spyre-opt %s --split-input-file --verify-diagnostics --coarse-tiling

#id = affine_map<(d0, d1) -> (d0, d1)>
// A dim that the operation does not have.
func.func @no_dim(%x: tensor<64x128xf16>) -> tensor<64x128xf16> {
  %e = tensor.empty() : tensor<64x128xf16>
  // expected-error@below {{loop 1.M cuts dim 2, but the iteration dims of this operation are 0 of 64, 1 of 128}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>)
      attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.tiling = [{loop = "1.M", dim = 2 : i64, tiles = 8 : i64}]} {
  ^bb0(%a: f16, %o: f16):
    %y = math.exp %a : f16
    linalg.yield %y : f16
  } -> tensor<64x128xf16>
  return %0 : tensor<64x128xf16>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
// Tiles that are not equal.
func.func @remainder(%x: tensor<64x128xf16>) -> tensor<64x128xf16> {
  %e = tensor.empty() : tensor<64x128xf16>
  // expected-error@below {{loop 1.M cuts dim 0 of 64 elements into 7 tiles, but 7 does not divide it}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>)
      attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 7 : i64}]} {
  ^bb0(%a: f16, %o: f16):
    %y = math.exp %a : f16
    linalg.yield %y : f16
  } -> tensor<64x128xf16>
  return %0 : tensor<64x128xf16>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
// Tiles of tiles.
func.func @twice(%x: tensor<64x128xf16>) -> tensor<64x128xf16> {
  %e = tensor.empty() : tensor<64x128xf16>
  // expected-error@below {{loop 2.M cuts dim 0, which loop 1.M around it cuts already}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>)
      attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 8 : i64}, {loop = "2.M", dim = 0 : i64, tiles = 2 : i64}]} {
  ^bb0(%a: f16, %o: f16):
    %y = math.exp %a : f16
    linalg.yield %y : f16
  } -> tensor<64x128xf16>
  return %0 : tensor<64x128xf16>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
// Each unrolled iteration is an operation.
func.func @unrolled(%x: tensor<1024x128xf16>) -> tensor<1024x128xf16> {
  %e = tensor.empty() : tensor<1024x128xf16>
  // expected-error@below {{the unrolled loops 1024 (1.M) copy each operation 1024 times; at most 64 are allowed}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<1024x128xf16>) outs(%e : tensor<1024x128xf16>)
      attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 1024 : i64, unrolled = true}]} {
  ^bb0(%a: f16, %o: f16):
    %y = math.exp %a : f16
    linalg.yield %y : f16
  } -> tensor<1024x128xf16>
  return %0 : tensor<1024x128xf16>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
// More iterations than a nest may have.
func.func @many(%x: tensor<1024x128xf16>) -> tensor<1024x128xf16> {
  %e = tensor.empty() : tensor<1024x128xf16>
  // expected-error@below {{the loops 1024 (1.M) x 128 (1.N) have 131072 iterations; a loop nest has at most 65535}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<1024x128xf16>) outs(%e : tensor<1024x128xf16>)
      attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 1024 : i64}, {loop = "1.N", dim = 1 : i64, tiles = 128 : i64}]} {
  ^bb0(%a: f16, %o: f16):
    %y = math.exp %a : f16
    linalg.yield %y : f16
  } -> tensor<1024x128xf16>
  return %0 : tensor<1024x128xf16>
}

// -----

#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>
// A part of all results would have to be kept per tile of K.
func.func @reduced_outside(%x: tensor<64x256xf16>, %y: tensor<256x128xf16>) -> tensor<64x128xf16> {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<64x128xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<64x128xf16>) -> tensor<64x128xf16>
  // expected-error@below {{loop 1.M cuts dim 0 inside of loop 1.K, which cuts the reduced dim 2; loops over reduced dims are inside of the others}}
  %0 = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %y : tensor<64x256xf16>, tensor<256x128xf16>) outs(%f : tensor<64x128xf16>)
      attrs = {sdsc.op = #sdsc.op<"batchmatmul", {}>, sdsc.tiling = [{loop = "1.K", dim = 2 : i64, tiles = 4 : i64}, {loop = "1.M", dim = 0 : i64, tiles = 8 : i64}]} {
  ^bb0(%p: f16, %q: f16, %o: f16):
    %m = arith.mulf %p, %q : f16
    %s = arith.addf %o, %m : f16
    linalg.yield %s : f16
  } -> tensor<64x128xf16>
  return %0 : tensor<64x128xf16>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
// Not a list of loops.
func.func @malformed(%x: tensor<64x128xf16>) -> tensor<64x128xf16> {
  %e = tensor.empty() : tensor<64x128xf16>
  // expected-error@below {{'sdsc.tiling' must be a list like}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>)
      attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 0 : i64}]} {
  ^bb0(%a: f16, %o: f16):
    %y = math.exp %a : f16
    linalg.yield %y : f16
  } -> tensor<64x128xf16>
  return %0 : tensor<64x128xf16>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
// Another number of tiles than fill the dim.
func.func @tiles_of(%x: tensor<64x128xf16>) -> tensor<64x128xf16> {
  %e = tensor.empty() : tensor<64x128xf16>
  // expected-error@below {{loop 1.M cuts dim 0 of 64 elements into 8 tiles of 10, but these are 7 tiles}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>)
      attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 8 : i64, tile = 10 : i64}]} {
  ^bb0(%a: f16, %o: f16):
    %y = math.exp %a : f16
    linalg.yield %y : f16
  } -> tensor<64x128xf16>
  return %0 : tensor<64x128xf16>
}
