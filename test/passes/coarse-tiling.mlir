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
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @run(%x: tensor<64x128xf16>) -> tensor<64x128xf16> {
  %e = tensor.empty() : tensor<64x128xf16>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<64x128xf16>) outs(%e : tensor<64x128xf16>)
      attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 8 : i64}]} {
  ^bb0(%a: f16, %o: f16):
    %y = math.exp %a : f16
    linalg.yield %y : f16
  } -> tensor<64x128xf16>
  %1 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%0, %x : tensor<64x128xf16>, tensor<64x128xf16>) outs(%e : tensor<64x128xf16>)
      attrs = {sdsc.op = #sdsc.op<"mul", {}>, sdsc.tiling = [{loop = "1.M", dim = 0 : i64, tiles = 8 : i64}]} {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %y = arith.mulf %a, %b : f16
    linalg.yield %y : f16
  } -> tensor<64x128xf16>
  return %1 : tensor<64x128xf16>
}
