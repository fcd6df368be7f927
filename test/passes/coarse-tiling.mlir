// RUN: spyre-opt %s --split-input-file --coarse-tiling --verify-device-ops --cse | filecheck %s

// A run of two operations is one loop: what only the loop reads is a tile, what leaves it is put in its place.
// CHECK: #[[OFFSET:map.*]] = affine_map<(d0) -> (d0 * 8)>
// CHECK-LABEL: func.func @run(
// CHECK-SAME: %[[X:\w+]]: tensor<64x128xf16>
// CHECK-DAG: %[[C0:.*]] = arith.constant 0 : index
// CHECK-DAG: %[[C8:.*]] = arith.constant 8 : index
// CHECK-DAG: %[[C1:.*]] = arith.constant 1 : index
// CHECK: %[[E:.*]] = tensor.empty() : tensor<64x128xf16>
// CHECK: %[[R:.*]] = scf.for %[[I:.*]] = %[[C0]] to %[[C8]] step %[[C1]] iter_args(%[[A:.*]] = %[[E]]) -> (tensor<64x128xf16>) {
// CHECK: %[[O:.*]] = affine.apply #[[OFFSET]](%[[I]])
// CHECK: %[[S:.*]] = tensor.extract_slice %[[X]][%[[O]], 0] [8, 128] [1, 1] : tensor<64x128xf16> to tensor<8x128xf16>
// CHECK: %[[EXP:.*]] = linalg.generic {{.*}} ins(%[[S]] : tensor<8x128xf16>) {{.*}}"exp"
// CHECK: %[[MUL:.*]] = linalg.generic {{.*}} ins(%[[EXP]], %[[S]] : {{.*}}"mul"
// CHECK: %[[N:.*]] = tensor.insert_slice %[[MUL]] into %[[A]][%[[O]], 0] [8, 128] [1, 1]
// CHECK-NEXT: scf.yield %[[N]]
// CHECK: return %[[R]]
#a = affine_map<(d0, d1) -> (d0, d1)>
func.func @run(%x: tensor<64x128xf16>) -> tensor<64x128xf16> {
  %e0 = tensor.empty() : tensor<64x128xf16>
  %0 = linalg.generic {indexing_maps = [#a, #a], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<64x128xf16>) outs(%e0 : tensor<64x128xf16>)
      attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 8 : i64}]} {
  ^bb0(%a0: f16, %o: f16):
    %r = math.exp %a0 : f16
    linalg.yield %r : f16
  } -> tensor<64x128xf16>
  %1 = linalg.generic {indexing_maps = [#a, #a, #a], iterator_types = ["parallel", "parallel"]} ins(%0, %x : tensor<64x128xf16>, tensor<64x128xf16>) outs(%e0 : tensor<64x128xf16>)
      attrs = {sdsc.op = #sdsc.op<"mul", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 8 : i64}]} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.mulf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<64x128xf16>
  return %1 : tensor<64x128xf16>
}

// -----

// The matmul is tiled along M and K, the sum along M only: one loop over M around both, and the product is complete
// when the loop over K has ended. Its first tile begins the accumulator, before the loop.
// CHECK-LABEL: func.func @shared(
// CHECK-SAME: %[[X:\w+]]: tensor<64x256xf16>, %[[Y:\w+]]: tensor<256x128xf16>, %[[Z:\w+]]: tensor<64x128xf16>
// CHECK-DAG: %[[C4:.*]] = arith.constant 4 : index
// CHECK-DAG: %[[C1:.*]] = arith.constant 1 : index
// CHECK-DAG: %[[C8:.*]] = arith.constant 8 : index
// CHECK: scf.for %[[I:.*]] = %{{.*}} to %[[C8]] step %[[C1]] iter_args(%[[A:.*]] = %{{.*}}) -> (tensor<64x128xf16>)
// CHECK: %[[O:.*]] = affine.apply
// CHECK-DAG: %[[X0:.*]] = tensor.extract_slice %[[X]][%[[O]], 0] [8, 64]
// CHECK-DAG: %[[Y0:.*]] = tensor.extract_slice %[[Y]][0, 0] [64, 128]
// CHECK: %[[FIRST:.*]] = linalg.generic {{.*}} ins(%[[X0]], %[[Y0]] : {{.*}}"batchmatmul"
// CHECK: %[[P:.*]] = scf.for %[[J:.*]] = %[[C1]] to %[[C4]] step %[[C1]] iter_args(%[[SO_FAR:.*]] = %[[FIRST]]) -> (tensor<8x128xf16>)
// CHECK: %[[K:.*]] = affine.apply {{.*}}(%[[J]])
// CHECK-DAG: %[[XK:.*]] = tensor.extract_slice %[[X]][%[[O]], %[[K]]] [8, 64]
// CHECK-DAG: %[[YK:.*]] = tensor.extract_slice %[[Y]][%[[K]], 0] [64, 128]
// CHECK: %[[PART:.*]] = linalg.generic {{.*}} ins(%[[XK]], %[[YK]] : {{.*}}"batchmatmul"
// CHECK: %[[SUM:.*]] = linalg.generic {{.*}} ins(%[[SO_FAR]], %[[PART]] : {{.*}}parts of 'batchmatmul'{{.*}}"add"
// CHECK: scf.yield %[[SUM]]
// CHECK: %[[Z0:.*]] = tensor.extract_slice %[[Z]][%[[O]], 0] [8, 128]
// CHECK: %[[Q:.*]] = linalg.generic {{.*}} ins(%[[P]], %[[Z0]] : {{.*}}"add"
// CHECK: tensor.insert_slice %[[Q]] into %[[A]][%[[O]], 0]
#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>
#d = affine_map<(d0, d1) -> (d0, d1)>
func.func @shared(%x: tensor<64x256xf16>, %y: tensor<256x128xf16>, %z: tensor<64x128xf16>) -> tensor<64x128xf16> {
  %e0 = tensor.empty() : tensor<64x128xf16>
  %c1 = arith.constant 0.0 : f16
  %f1 = linalg.fill ins(%c1 : f16) outs(%e0 : tensor<64x128xf16>) -> tensor<64x128xf16>
  %0 = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %y : tensor<64x256xf16>, tensor<256x128xf16>) outs(%f1 : tensor<64x128xf16>)
      attrs = {sdsc.op = #sdsc.op<"batchmatmul", {}>, sdsc.tiling = [{loop = "3.M", dim = 0 : i64, tiles = 8 : i64}, {loop = "4.K", dim = 2 : i64, tiles = 4 : i64}]} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %p = arith.mulf %a0, %a1 : f16
    %s = arith.addf %o, %p : f16
    linalg.yield %s : f16
  } -> tensor<64x128xf16>
  %1 = linalg.generic {indexing_maps = [#d, #d, #d], iterator_types = ["parallel", "parallel"]} ins(%0, %z : tensor<64x128xf16>, tensor<64x128xf16>) outs(%e0 : tensor<64x128xf16>)
      attrs = {sdsc.op = #sdsc.op<"add", {}>, sdsc.tiling = [{loop = "3.M", dim = 0 : i64, tiles = 8 : i64}]} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.addf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<64x128xf16>
  return %1 : tensor<64x128xf16>
}

// -----

// Reduction only: the accumulator is the whole result.
// CHECK-LABEL: func.func @columns(
// CHECK: %[[FIRST:.*]] = linalg.generic {{.*}}"batchmatmul"
// CHECK: %[[R:.*]] = scf.for {{.*}} iter_args(%[[SO_FAR:.*]] = %[[FIRST]]) -> (tensor<64x128xf16>)
// CHECK: linalg.generic {{.*}} ins(%[[SO_FAR]], %{{.*}} : {{.*}}"add"
// CHECK: return %[[R]]
#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func @columns(%x: tensor<64x256xf16>, %y: tensor<256x128xf16>) -> tensor<64x128xf16> {
  %e0 = tensor.empty() : tensor<64x128xf16>
  %c1 = arith.constant 0.0 : f16
  %f1 = linalg.fill ins(%c1 : f16) outs(%e0 : tensor<64x128xf16>) -> tensor<64x128xf16>
  %0 = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %y : tensor<64x256xf16>, tensor<256x128xf16>) outs(%f1 : tensor<64x128xf16>)
      attrs = {sdsc.op = #sdsc.op<"batchmatmul", {}>, sdsc.tiling = [{loop = "1.K", dim = 2 : i64, tiles = 4 : i64}]} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %p = arith.mulf %a0, %a1 : f16
    %s = arith.addf %o, %p : f16
    linalg.yield %s : f16
  } -> tensor<64x128xf16>
  return %0 : tensor<64x128xf16>
}

// -----

// Minima are combined by the minimum.
// CHECK-LABEL: func.func @minima(
// CHECK: %[[FIRST:.*]] = linalg.generic {{.*}}"minnonstick"
// CHECK: scf.for {{.*}} iter_args(%[[SO_FAR:.*]] = %[[FIRST]]) -> (tensor<128xf16>)
// CHECK: %[[PART:.*]] = linalg.generic {{.*}}"minnonstick"
// CHECK: linalg.generic {{.*}} ins(%[[SO_FAR]], %[[PART]] : {{.*}}"minimum"
#a = affine_map<(d0, d1) -> (d0, d1)>
#b = affine_map<(d0, d1) -> (d1)>
func.func @minima(%x: tensor<64x128xf16>) -> tensor<128xf16> {
  %e0 = tensor.empty() : tensor<128xf16>
  %c1 = arith.constant 0x7C00 : f16
  %f1 = linalg.fill ins(%c1 : f16) outs(%e0 : tensor<128xf16>) -> tensor<128xf16>
  %0 = linalg.generic {indexing_maps = [#a, #b], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<64x128xf16>) outs(%f1 : tensor<128xf16>)
      attrs = {sdsc.op = #sdsc.op<"minnonstick", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 8 : i64}]} {
  ^bb0(%a0: f16, %o: f16):
    %r = arith.minimumf %a0, %o : f16
    linalg.yield %r : f16
  } -> tensor<128xf16>
  return %0 : tensor<128xf16>
}

// -----

// Products are combined by the product.
// CHECK-LABEL: func.func @products(
// CHECK: %[[FIRST:.*]] = linalg.generic {{.*}}"prod"
// CHECK: scf.for {{.*}} iter_args(%[[SO_FAR:.*]] = %[[FIRST]]) -> (tensor<128xf16>)
// CHECK: %[[PART:.*]] = linalg.generic {{.*}}"prod"
// CHECK: linalg.generic {{.*}} ins(%[[SO_FAR]], %[[PART]] : {{.*}}"mul"
#a = affine_map<(d0, d1) -> (d0, d1)>
#b = affine_map<(d0, d1) -> (d1)>
func.func @products(%x: tensor<64x128xf16>) -> tensor<128xf16> {
  %e0 = tensor.empty() : tensor<128xf16>
  %c1 = arith.constant 1.0 : f16
  %f1 = linalg.fill ins(%c1 : f16) outs(%e0 : tensor<128xf16>) -> tensor<128xf16>
  %0 = linalg.generic {indexing_maps = [#a, #b], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<64x128xf16>) outs(%f1 : tensor<128xf16>)
      attrs = {sdsc.op = #sdsc.op<"prod", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 8 : i64}]} {
  ^bb0(%a0: f16, %o: f16):
    %r = arith.mulf %a0, %o : f16
    linalg.yield %r : f16
  } -> tensor<128xf16>
  return %0 : tensor<128xf16>
}

// -----

// Largest magnitudes are combined by the maximum.
// CHECK-LABEL: func.func @magnitudes(
// CHECK: %[[FIRST:.*]] = linalg.generic {{.*}}"absmaxnonstick"
// CHECK: scf.for {{.*}} iter_args(%[[SO_FAR:.*]] = %[[FIRST]]) -> (tensor<128xf16>)
// CHECK: %[[PART:.*]] = linalg.generic {{.*}}"absmaxnonstick"
// CHECK: linalg.generic {{.*}} ins(%[[SO_FAR]], %[[PART]] : {{.*}}"maximum"
#a = affine_map<(d0, d1) -> (d0, d1)>
#b = affine_map<(d0, d1) -> (d1)>
func.func @magnitudes(%x: tensor<64x128xf16>) -> tensor<128xf16> {
  %e0 = tensor.empty() : tensor<128xf16>
  %c1 = arith.constant 0.0 : f16
  %f1 = linalg.fill ins(%c1 : f16) outs(%e0 : tensor<128xf16>) -> tensor<128xf16>
  %0 = linalg.generic {indexing_maps = [#a, #b], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<64x128xf16>) outs(%f1 : tensor<128xf16>)
      attrs = {sdsc.op = #sdsc.op<"absmaxnonstick", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 8 : i64}]} {
  ^bb0(%a0: f16, %o: f16):
    %b = math.absf %a0 : f16
    %r = arith.maximumf %b, %o : f16
    linalg.yield %r : f16
  } -> tensor<128xf16>
  return %0 : tensor<128xf16>
}

// -----

// A mean of 64 numbers is the sum of a 64th of each: the parts keep the factor and are added.
// CHECK-LABEL: func.func @means(
// CHECK: %[[FIRST:.*]] = linalg.generic {{.*}}"meannonstick", {scaling_factor = 1.562500e-02 : f64}
// CHECK: scf.for {{.*}} iter_args(%[[SO_FAR:.*]] = %[[FIRST]]) -> (tensor<128xf16>)
// CHECK: %[[PART:.*]] = linalg.generic {{.*}}"meannonstick", {scaling_factor = 1.562500e-02 : f64}
// CHECK: linalg.generic {{.*}} ins(%[[SO_FAR]], %[[PART]] : {{.*}}"add"
#a = affine_map<(d0, d1) -> (d0, d1)>
#b = affine_map<(d0, d1) -> (d1)>
func.func @means(%x: tensor<64x128xf16>) -> tensor<128xf16> {
  %e0 = tensor.empty() : tensor<128xf16>
  %c1 = arith.constant 0.0 : f16
  %f1 = linalg.fill ins(%c1 : f16) outs(%e0 : tensor<128xf16>) -> tensor<128xf16>
  %0 = linalg.generic {indexing_maps = [#a, #b], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<64x128xf16>) outs(%f1 : tensor<128xf16>)
      attrs = {sdsc.op = #sdsc.op<"meannonstick", {scaling_factor = 1.5625e-02 : f64}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 8 : i64}]} {
  ^bb0(%a0: f16, %o: f16):
    %s = arith.constant 0.015625 : f16
    %m = arith.mulf %a0, %s : f16
    %r = arith.addf %m, %o : f16
    linalg.yield %r : f16
  } -> tensor<128xf16>
  return %0 : tensor<128xf16>
}

// -----

// Views in a loop are views of tiles: the tile of 8 rows is the first of the 8 pieces that a row becomes.
// CHECK-LABEL: func.func @views(
// CHECK: scf.for
// CHECK: linalg.generic {{.*}} ins(%{{.*}} : tensor<8x128xf16>) {{.*}}"exp"
// CHECK: tensor.expand_shape %{{.*}} {{.*}} output_shape [1, 8, 128]
// CHECK: linalg.transpose ins(%{{.*}} : tensor<1x8x128xf16>) outs(%{{.*}} : tensor<1x128x8xf16>)
// CHECK: tensor.insert_slice %{{.*}} into %{{.*}}[%{{.*}}, 0, 0] [1, 128, 8]
#a = affine_map<(d0, d1) -> (d0, d1)>
#b = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
func.func @views(%x: tensor<64x128xf16>) -> tensor<8x128x8xf16> {
  %e0 = tensor.empty() : tensor<64x128xf16>
  %0 = linalg.generic {indexing_maps = [#a, #a], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<64x128xf16>) outs(%e0 : tensor<64x128xf16>)
      attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 8 : i64}]} {
  ^bb0(%a0: f16, %o: f16):
    %r = math.exp %a0 : f16
    linalg.yield %r : f16
  } -> tensor<64x128xf16>
  %v = tensor.expand_shape %0 [[0, 1], [2]] output_shape [8, 8, 128] : tensor<64x128xf16> into tensor<8x8x128xf16>
  %te = tensor.empty() : tensor<8x128x8xf16>
  %w = linalg.transpose ins(%v : tensor<8x8x128xf16>) outs(%te : tensor<8x128x8xf16>) permutation = [0, 2, 1]
  %e1 = tensor.empty() : tensor<8x128x8xf16>
  %1 = linalg.generic {indexing_maps = [#b, #b], iterator_types = ["parallel", "parallel", "parallel"]} ins(%w : tensor<8x128x8xf16>) outs(%e1 : tensor<8x128x8xf16>)
      attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 8 : i64}]} {
  ^bb0(%a0: f16, %o: f16):
    %r = math.exp %a0 : f16
    linalg.yield %r : f16
  } -> tensor<8x128x8xf16>
  return %1 : tensor<8x128x8xf16>
}

// -----

// A value that leaves the loop and is read inside is both: the whole, and the tile that is read.
// CHECK-LABEL: func.func @leaves(
// CHECK: %[[R:.*]]:2 = scf.for
// CHECK: %[[EXP:.*]] = linalg.generic {{.*}}"exp"
// CHECK: linalg.generic {{.*}} ins(%[[EXP]], {{.*}}"mul"
// CHECK: tensor.insert_slice %[[EXP]] into
// CHECK: return %[[R]]#0, %[[R]]#1
#a = affine_map<(d0, d1) -> (d0, d1)>
func.func @leaves(%x: tensor<64x128xf16>) -> (tensor<64x128xf16>, tensor<64x128xf16>) {
  %e0 = tensor.empty() : tensor<64x128xf16>
  %0 = linalg.generic {indexing_maps = [#a, #a], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<64x128xf16>) outs(%e0 : tensor<64x128xf16>)
      attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 8 : i64}]} {
  ^bb0(%a0: f16, %o: f16):
    %r = math.exp %a0 : f16
    linalg.yield %r : f16
  } -> tensor<64x128xf16>
  %1 = linalg.generic {indexing_maps = [#a, #a, #a], iterator_types = ["parallel", "parallel"]} ins(%0, %x : tensor<64x128xf16>, tensor<64x128xf16>) outs(%e0 : tensor<64x128xf16>)
      attrs = {sdsc.op = #sdsc.op<"mul", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 8 : i64}]} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.mulf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<64x128xf16>
  return %0, %1 : tensor<64x128xf16>, tensor<64x128xf16>
}

// -----

// An operation that is not tiled is between two loops, and reads a whole tensor.
// CHECK-LABEL: func.func @between(
// CHECK: %[[FIRST:.*]] = scf.for
// CHECK: %[[WHOLE:.*]] = linalg.generic {{.*}} ins(%[[FIRST]] : tensor<64x128xf16>)
// CHECK: scf.for
// CHECK: tensor.extract_slice %[[WHOLE]][
#a = affine_map<(d0, d1) -> (d0, d1)>
func.func @between(%x: tensor<64x128xf16>) -> tensor<64x128xf16> {
  %e0 = tensor.empty() : tensor<64x128xf16>
  %0 = linalg.generic {indexing_maps = [#a, #a], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<64x128xf16>) outs(%e0 : tensor<64x128xf16>)
      attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 8 : i64}]} {
  ^bb0(%a0: f16, %o: f16):
    %r = math.exp %a0 : f16
    linalg.yield %r : f16
  } -> tensor<64x128xf16>
  %1 = linalg.generic {indexing_maps = [#a, #a], iterator_types = ["parallel", "parallel"]} ins(%0 : tensor<64x128xf16>) outs(%e0 : tensor<64x128xf16>)
      attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    %r = math.exp %a0 : f16
    linalg.yield %r : f16
  } -> tensor<64x128xf16>
  %2 = linalg.generic {indexing_maps = [#a, #a, #a], iterator_types = ["parallel", "parallel"]} ins(%1, %0 : tensor<64x128xf16>, tensor<64x128xf16>) outs(%e0 : tensor<64x128xf16>)
      attrs = {sdsc.op = #sdsc.op<"mul", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 8 : i64}]} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.mulf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<64x128xf16>
  return %2 : tensor<64x128xf16>
}

// -----

// Two loops side by side: tiles of other hints are not shared.
// CHECK-LABEL: func.func @others(
// CHECK-DAG: %[[C8:.*]] = arith.constant 8 : index
// CHECK-DAG: %[[C4:.*]] = arith.constant 4 : index
// CHECK: %[[FIRST:.*]] = scf.for {{.*}} to %[[C8]]
// CHECK: scf.for {{.*}} to %[[C4]]
// CHECK: tensor.extract_slice %[[FIRST]][%{{.*}}, 0] [16, 128]
#a = affine_map<(d0, d1) -> (d0, d1)>
func.func @others(%x: tensor<64x128xf16>) -> tensor<64x128xf16> {
  %e0 = tensor.empty() : tensor<64x128xf16>
  %0 = linalg.generic {indexing_maps = [#a, #a], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<64x128xf16>) outs(%e0 : tensor<64x128xf16>)
      attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 8 : i64}]} {
  ^bb0(%a0: f16, %o: f16):
    %r = math.exp %a0 : f16
    linalg.yield %r : f16
  } -> tensor<64x128xf16>
  %1 = linalg.generic {indexing_maps = [#a, #a, #a], iterator_types = ["parallel", "parallel"]} ins(%0, %x : tensor<64x128xf16>, tensor<64x128xf16>) outs(%e0 : tensor<64x128xf16>)
      attrs = {sdsc.op = #sdsc.op<"mul", {}>, sdsc.tiling = [{loop = "2.M", dim = 0 : i64, tiles = 4 : i64}]} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.mulf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<64x128xf16>
  return %1 : tensor<64x128xf16>
}

// -----

// A maximum over the tiles is there when its loop has ended: what subtracts it is in a loop of its own.
// CHECK-LABEL: func.func @whole(
// CHECK: %[[MAX:.*]] = scf.for
// CHECK: "maximum"
// CHECK: scf.for
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %[[MAX]] : {{.*}}"sub"
#a = affine_map<(d0, d1) -> (d0, d1)>
#b = affine_map<(d0, d1) -> (d1)>
func.func @whole(%x: tensor<64x128xf16>) -> tensor<64x128xf16> {
  %e0 = tensor.empty() : tensor<128xf16>
  %c1 = arith.constant 0xFC00 : f16
  %f1 = linalg.fill ins(%c1 : f16) outs(%e0 : tensor<128xf16>) -> tensor<128xf16>
  %0 = linalg.generic {indexing_maps = [#a, #b], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<64x128xf16>) outs(%f1 : tensor<128xf16>)
      attrs = {sdsc.op = #sdsc.op<"maxnonstick", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 8 : i64}]} {
  ^bb0(%a0: f16, %o: f16):
    %r = arith.maximumf %a0, %o : f16
    linalg.yield %r : f16
  } -> tensor<128xf16>
  %e1 = tensor.empty() : tensor<64x128xf16>
  %1 = linalg.generic {indexing_maps = [#a, #b, #a], iterator_types = ["parallel", "parallel"]} ins(%x, %0 : tensor<64x128xf16>, tensor<128xf16>) outs(%e1 : tensor<64x128xf16>)
      attrs = {sdsc.op = #sdsc.op<"sub", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 8 : i64}]} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.subf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<64x128xf16>
  return %1 : tensor<64x128xf16>
}

// -----

// A constant is sliced like an argument.
// CHECK-LABEL: func.func @table(
// CHECK: %[[T:.*]] = arith.constant dense<2.000000e+00> : tensor<64x128xf16>
// CHECK: scf.for
// CHECK: tensor.extract_slice %[[T]][%{{.*}}, 0] [8, 128]
#a = affine_map<(d0, d1) -> (d0, d1)>
func.func @table(%x: tensor<64x128xf16>) -> tensor<64x128xf16> {
  %t = arith.constant dense<2.0> : tensor<64x128xf16>
  %e0 = tensor.empty() : tensor<64x128xf16>
  %0 = linalg.generic {indexing_maps = [#a, #a, #a], iterator_types = ["parallel", "parallel"]} ins(%x, %t : tensor<64x128xf16>, tensor<64x128xf16>) outs(%e0 : tensor<64x128xf16>)
      attrs = {sdsc.op = #sdsc.op<"add", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 8 : i64}]} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.addf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<64x128xf16>
  return %0 : tensor<64x128xf16>
}

// -----

// An operation that is not tiled, and reads nothing that the loop makes, does not end it: it comes before.
// CHECK-LABEL: func.func @before(
// CHECK: %[[Y:.*]] = linalg.generic {{.*}} ins(%arg1 : tensor<64x128xf16>)
// CHECK: scf.for
// CHECK: "exp"
// CHECK: tensor.extract_slice %[[Y]][
// CHECK: "mul"
// CHECK-NOT: scf.for
// CHECK: return
#a = affine_map<(d0, d1) -> (d0, d1)>
func.func @before(%x: tensor<64x128xf16>, %y: tensor<64x128xf16>) -> tensor<64x128xf16> {
  %e0 = tensor.empty() : tensor<64x128xf16>
  %0 = linalg.generic {indexing_maps = [#a, #a], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<64x128xf16>) outs(%e0 : tensor<64x128xf16>)
      attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 8 : i64}]} {
  ^bb0(%a0: f16, %o: f16):
    %r = math.exp %a0 : f16
    linalg.yield %r : f16
  } -> tensor<64x128xf16>
  %1 = linalg.generic {indexing_maps = [#a, #a], iterator_types = ["parallel", "parallel"]} ins(%y : tensor<64x128xf16>) outs(%e0 : tensor<64x128xf16>)
      attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    %r = math.exp %a0 : f16
    linalg.yield %r : f16
  } -> tensor<64x128xf16>
  %2 = linalg.generic {indexing_maps = [#a, #a, #a], iterator_types = ["parallel", "parallel"]} ins(%0, %1 : tensor<64x128xf16>, tensor<64x128xf16>) outs(%e0 : tensor<64x128xf16>)
      attrs = {sdsc.op = #sdsc.op<"mul", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 8 : i64}]} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.mulf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<64x128xf16>
  return %2 : tensor<64x128xf16>
}

// -----

// An unrolled loop is its iterations with slices at fixed offsets: of a buffer of the outer iteration, which is then read.
// CHECK-LABEL: func.func @unrolled(
// CHECK: scf.for
// CHECK: %[[TILE:.*]] = tensor.empty() : tensor<64x256xf16>
// CHECK: "exp"
// CHECK: %[[FIRST:.*]] = tensor.insert_slice %{{.*}} into %[[TILE]][0, 0] [64, 128] [1, 1]
// CHECK: "exp"
// CHECK: %[[ALL:.*]] = tensor.insert_slice %{{.*}} into %[[FIRST]][0, 128] [64, 128] [1, 1]
// CHECK: linalg.generic {{.*}} ins(%[[ALL]] : tensor<64x256xf16>){{.*}}"sum"
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @unrolled(%x: tensor<128x256xf16>) -> tensor<128xf16> {
  %e = tensor.empty() : tensor<128x256xf16>
  %f = tensor.empty() : tensor<128xf16>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16>) outs(%e : tensor<128x256xf16>)
      attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 2 : i64}, {loop = "2.N", dim = 1 : i64, tiles = 2 : i64, unrolled = true}]} {
  ^bb0(%a: f16, %o: f16):
    %y = math.exp %a : f16
    linalg.yield %y : f16
  } -> tensor<128x256xf16>
  %1 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%0 : tensor<128x256xf16>) outs(%f : tensor<128xf16>)
      attrs = {sdsc.op = #sdsc.op<"sum", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 2 : i64}]} {
  ^bb0(%a: f16, %o: f16):
    %y = arith.addf %a, %o : f16
    linalg.yield %y : f16
  } -> tensor<128xf16>
  return %1 : tensor<128xf16>
}

// -----

// The inner loop goes on with the result that the outer one carries, and puts its tile at both offsets.
// CHECK-LABEL: func.func @nested(
// CHECK: scf.for %[[I:.*]] = {{.*}} iter_args(%[[OUTER:.*]] = %{{.*}}) -> (tensor<128x256xf16>)
// CHECK: scf.for %[[J:.*]] = {{.*}} iter_args(%[[INNER:.*]] = %[[OUTER]]) -> (tensor<128x256xf16>)
// CHECK: tensor.insert_slice %{{.*}} into %[[INNER]][%{{.*}}, %{{.*}}] [64, 128] [1, 1]
// CHECK-NOT: tensor.insert_slice
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @nested(%x: tensor<128x256xf16>) -> tensor<128x256xf16> {
  %e = tensor.empty() : tensor<128x256xf16>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<128x256xf16>) outs(%e : tensor<128x256xf16>)
      attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 2 : i64}, {loop = "1.N", dim = 1 : i64, tiles = 2 : i64}]} {
  ^bb0(%a: f16, %o: f16):
    %y = math.exp %a : f16
    linalg.yield %y : f16
  } -> tensor<128x256xf16>
  return %r : tensor<128x256xf16>
}
