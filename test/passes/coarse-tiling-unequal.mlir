// RUN: spyre-opt %s --split-input-file --coarse-tiling --verify-device-ops --cse | filecheck %s

// Three tiles of 16 rows are a loop, the fourth, of 3 rows, is by itself behind it, and goes into the same tensor.
// CHECK: #[[OFFSET:map.*]] = affine_map<(d0) -> (d0 * 16)>
// CHECK-LABEL: func.func @rows(
// CHECK-SAME: %[[X:\w+]]: tensor<51x128xf16>
// CHECK-DAG: %[[C3:.*]] = arith.constant 3 : index
// CHECK: %[[E:.*]] = tensor.empty() : tensor<51x128xf16>
// CHECK: %[[R:.*]] = scf.for %[[I:.*]] = %{{.*}} to %[[C3]] step %{{.*}} iter_args(%[[A:.*]] = %[[E]]) -> (tensor<51x128xf16>) {
// CHECK: %[[O:.*]] = affine.apply #[[OFFSET]](%[[I]])
// CHECK: %[[S:.*]] = tensor.extract_slice %[[X]][%[[O]], 0] [16, 128] [1, 1]
// CHECK: %[[EXP:.*]] = linalg.generic {{.*}} ins(%[[S]] : tensor<16x128xf16>) {{.*}}"exp"
// CHECK: %[[MUL:.*]] = linalg.generic {{.*}} ins(%[[EXP]], %[[S]] : {{.*}}"mul"
// CHECK: tensor.insert_slice %[[MUL]] into %[[A]][%[[O]], 0] [16, 128] [1, 1]
// CHECK: %[[S3:.*]] = tensor.extract_slice %[[X]][48, 0] [3, 128] [1, 1]
// CHECK: %[[EXP3:.*]] = linalg.generic {{.*}} ins(%[[S3]] : tensor<3x128xf16>) {{.*}}"exp"
// CHECK: %[[MUL3:.*]] = linalg.generic {{.*}} ins(%[[EXP3]], %[[S3]] : {{.*}}"mul"
// CHECK: %[[N:.*]] = tensor.insert_slice %[[MUL3]] into %[[R]][48, 0] [3, 128] [1, 1]
// CHECK: return %[[N]]
#a = affine_map<(d0, d1) -> (d0, d1)>
func.func @rows(%x: tensor<51x128xf16>) -> tensor<51x128xf16> {
  %e0 = tensor.empty() : tensor<51x128xf16>
  %0 = linalg.generic {indexing_maps = [#a, #a], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<51x128xf16>) outs(%e0 : tensor<51x128xf16>)
      attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 4 : i64, tile = 16 : i64}]} {
  ^bb0(%a0: f16, %o: f16):
    %r = math.exp %a0 : f16
    linalg.yield %r : f16
  } -> tensor<51x128xf16>
  %1 = linalg.generic {indexing_maps = [#a, #a, #a], iterator_types = ["parallel", "parallel"]} ins(%0, %x : tensor<51x128xf16>, tensor<51x128xf16>) outs(%e0 : tensor<51x128xf16>)
      attrs = {sdsc.op = #sdsc.op<"mul", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 4 : i64, tile = 16 : i64}]} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    %r = arith.mulf %a0, %a1 : f16
    linalg.yield %r : f16
  } -> tensor<51x128xf16>
  return %1 : tensor<51x128xf16>
}

// -----

// Of a reduced dim the first tile begins the sum, the loop goes on with it, and so does the smaller last tile.
// CHECK-LABEL: func.func @sum(
// CHECK-SAME: %[[X:\w+]]: tensor<51x128xf16>
// CHECK-DAG: %[[C1:.*]] = arith.constant 1 : index
// CHECK-DAG: %[[C3:.*]] = arith.constant 3 : index
// CHECK: %[[X0:.*]] = tensor.extract_slice %[[X]][0, 0] [16, 128]
// CHECK: %[[FIRST:.*]] = linalg.generic {{.*}} ins(%[[X0]] : {{.*}}"sumnonstick"
// CHECK: %[[P:.*]] = scf.for %{{.*}} = %[[C1]] to %[[C3]] step %[[C1]] iter_args(%{{.*}} = %[[FIRST]]) -> (tensor<128xf16>)
// CHECK: %[[X3:.*]] = tensor.extract_slice %[[X]][48, 0] [3, 128]
// CHECK: %[[LAST:.*]] = linalg.generic {{.*}} ins(%[[X3]] : {{.*}}"sumnonstick"
// CHECK: %[[SUM:.*]] = linalg.generic {{.*}} ins(%[[P]], %[[LAST]] : {{.*}}"add"
// CHECK: return %[[SUM]]
#x = affine_map<(d0, d1) -> (d0, d1)>
#r = affine_map<(d0, d1) -> (d1)>
func.func @sum(%x: tensor<51x128xf16>) -> tensor<128xf16> {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<128xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<128xf16>) -> tensor<128xf16>
  %0 = linalg.generic {indexing_maps = [#x, #r], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<51x128xf16>) outs(%f : tensor<128xf16>)
      attrs = {sdsc.op = #sdsc.op<"sumnonstick", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 4 : i64, tile = 16 : i64}]} {
  ^bb0(%a: f16, %o: f16):
    %s = arith.addf %o, %a : f16
    linalg.yield %s : f16
  } -> tensor<128xf16>
  return %0 : tensor<128xf16>
}

// -----

// Two loops with a smaller last tile: four bodies, of 16 x 64, 16 x 8, 3 x 64 and 3 x 8.
// CHECK-LABEL: func.func @both(
// CHECK: scf.for
// CHECK: scf.for
// CHECK: linalg.generic {{.*}} outs(%{{.*}} : tensor<16x64xf16>)
// CHECK-NOT: scf.for
// CHECK: linalg.generic {{.*}} outs(%{{.*}} : tensor<16x8xf16>)
// CHECK: scf.for
// CHECK: linalg.generic {{.*}} outs(%{{.*}} : tensor<3x64xf16>)
// CHECK-NOT: scf.for
// CHECK: linalg.generic {{.*}} outs(%{{.*}} : tensor<3x8xf16>)
#a = affine_map<(d0, d1) -> (d0, d1)>
func.func @both(%x: tensor<51x136xf16>) -> tensor<51x136xf16> {
  %e0 = tensor.empty() : tensor<51x136xf16>
  %0 = linalg.generic {indexing_maps = [#a, #a], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<51x136xf16>) outs(%e0 : tensor<51x136xf16>)
      attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 4 : i64, tile = 16 : i64}, {loop = "1.N", dim = 1 : i64, tiles = 3 : i64, tile = 64 : i64}]} {
  ^bb0(%a0: f16, %o: f16):
    %r = math.exp %a0 : f16
    linalg.yield %r : f16
  } -> tensor<51x136xf16>
  return %0 : tensor<51x136xf16>
}
