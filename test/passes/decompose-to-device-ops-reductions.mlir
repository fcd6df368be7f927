// RUN: spyre-opt %s --decompose-to-device-ops --split-input-file | filecheck %s

// Over the last dim: the operation over the stick. A neutral start value needs no op.
// CHECK-LABEL: func.func @last(
// CHECK-SAME: %[[X:\w+]]: tensor<8x64xf16>
// CHECK: %[[LOW:.*]] = arith.constant 0xFC00 : f16
// CHECK: %[[F:.*]] = linalg.fill ins(%{{.*}} : f16)
// CHECK: %[[V:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} ins(%[[X]] : tensor<8x64xf16>) outs(%[[F]] : tensor<8xf16>) {{.*}}sdsc.op = #sdsc.op<"max", {}>
// CHECK-NEXT: ^bb0(%[[A:.*]]: f16, %[[O:.*]]: f16):
// CHECK-NEXT: arith.maximumf %[[O]], %[[A]] : f16
// CHECK: return %[[V]]
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @last(%x: tensor<8x64xf16>) -> tensor<8xf16> {
  %low = arith.constant 0xFC00 : f16
  %e = tensor.empty() : tensor<8xf16>
  %f = linalg.generic {indexing_maps = [affine_map<(d0) -> ()>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%low : f16) outs(%e : tensor<8xf16>) {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %a : f16
  } -> tensor<8xf16>
  %0 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<8x64xf16>) outs(%f : tensor<8xf16>) {
  ^bb0(%a: f16, %o: f16):
    %r = arith.maximumf %a, %o : f16
    linalg.yield %r : f16
  } -> tensor<8xf16>
  return %0 : tensor<8xf16>
}
// -----
// Over another dim: the operation over others.
// CHECK-LABEL: func.func @other(
// CHECK: %[[V:.*]] = linalg.generic {{.*}} iterator_types = ["reduction", "parallel"]} {{.*}}"sumnonstick"
// CHECK: return %[[V]]
#id = affine_map<(d0, d1) -> (d0, d1)>
#col = affine_map<(d0, d1) -> (d1)>
func.func @other(%x: tensor<8x64xf16>) -> tensor<64xf16> {
  %f = arith.constant dense<0.0> : tensor<64xf16>
  %0 = linalg.generic {indexing_maps = [#id, #col], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<8x64xf16>) outs(%f : tensor<64xf16>) {
  ^bb0(%a: f16, %o: f16):
    %r = arith.addf %o, %a : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  return %0 : tensor<64xf16>
}
// -----
// Over several dims with the last: first the last, then the others.
// CHECK-LABEL: func.func @several(
// CHECK-SAME: %[[X:\w+]]: tensor<4x8x64xf16>
// CHECK: %[[M:.*]] = linalg.generic {{.*}} ["parallel", "parallel", "reduction"]} ins(%[[X]] : tensor<4x8x64xf16>) outs(%{{.*}} : tensor<4x8xf16>) {{.*}}"min"
// CHECK: %[[V:.*]] = linalg.generic {{.*}} ["reduction", "parallel"]} ins(%[[M]] : tensor<4x8xf16>) outs(%{{.*}} : tensor<8xf16>) {{.*}}"minnonstick"
// CHECK: return %[[V]]
#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#mid = affine_map<(d0, d1, d2) -> (d1)>
func.func @several(%x: tensor<4x8x64xf16>) -> tensor<8xf16> {
  %f = arith.constant dense<0x7C00> : tensor<8xf16>
  %0 = linalg.generic {indexing_maps = [#id, #mid], iterator_types = ["reduction", "parallel", "reduction"]} ins(%x : tensor<4x8x64xf16>) outs(%f : tensor<8xf16>) {
  ^bb0(%a: f16, %o: f16):
    %r = arith.minimumf %a, %o : f16
    linalg.yield %r : f16
  } -> tensor<8xf16>
  return %0 : tensor<8xf16>
}
// -----
// A product has one form for all dims.
// CHECK-LABEL: func.func @product(
// CHECK: %[[V:.*]] = linalg.generic {{.*}} ["reduction", "reduction"]} {{.*}} outs(%{{.*}} : tensor<f16>) {{.*}}"prod"
// CHECK: return %[[V]]
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @product(%x: tensor<8x64xf16>) -> tensor<f16> {
  %f = arith.constant dense<1.0> : tensor<f16>
  %0 = linalg.generic {indexing_maps = [#id, affine_map<(d0, d1) -> ()>], iterator_types = ["reduction", "reduction"]} ins(%x : tensor<8x64xf16>) outs(%f : tensor<f16>) {
  ^bb0(%a: f16, %o: f16):
    %r = arith.mulf %a, %o : f16
    linalg.yield %r : f16
  } -> tensor<f16>
  return %0 : tensor<f16>
}
// -----
// A start value that is not neutral, or that is a tensor, is combined with the result.
// CHECK-LABEL: func.func @start(
// CHECK-SAME: %{{.*}}, %[[S:\w+]]: tensor<8xf16>
// CHECK: %[[SUM:.*]] = linalg.generic {{.*}}"sum"
// CHECK: %[[FIVE:.*]] = arith.constant dense<5.000000e+00> : tensor<f16>
// CHECK: %[[V:.*]] = linalg.generic {{.*}} ins(%[[SUM]], %[[FIVE]] : tensor<8xf16>, tensor<f16>) {{.*}}"add"
// CHECK: %[[MAX:.*]] = linalg.generic {{.*}}"max"
// CHECK: %[[W:.*]] = linalg.generic {{.*}} ins(%[[MAX]], %[[S]] : tensor<8xf16>, tensor<8xf16>) {{.*}}"maximum"
// CHECK: return %[[V]], %[[W]]
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @start(%x: tensor<8x64xf16>, %s: tensor<8xf16>) -> (tensor<8xf16>, tensor<8xf16>) {
  %f = arith.constant dense<5.0> : tensor<8xf16>
  %0 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<8x64xf16>) outs(%f : tensor<8xf16>) {
  ^bb0(%a: f16, %o: f16):
    %r = arith.addf %a, %o : f16
    linalg.yield %r : f16
  } -> tensor<8xf16>
  %1 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<8x64xf16>) outs(%s : tensor<8xf16>) {
  ^bb0(%a: f16, %o: f16):
    %r = arith.maximumf %a, %o : f16
    linalg.yield %r : f16
  } -> tensor<8xf16>
  return %0, %1 : tensor<8xf16>, tensor<8xf16>
}
// -----
// What the body does before it combines are ops over the whole; all and any are min and max of 0.0 and 1.0.
// CHECK-LABEL: func.func @prologue(
// CHECK-SAME: %[[X:\w+]]: {{.*}}, %[[B:\w+]]: tensor<8x64xf16> {sdsc.host
// CHECK: %[[E:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<8x64xf16>) {{.*}}"exp"
// CHECK: %[[V:.*]] = linalg.generic {{.*}} ins(%[[E]] : tensor<8x64xf16>) outs(%{{.*}} : tensor<8xf16>) {{.*}}"sum"
// CHECK: %[[W:.*]] = linalg.generic {{.*}} ins(%[[B]] : tensor<8x64xf16>) {{.*}}"min"
// CHECK: return %[[V]], %[[W]]
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @prologue(%x: tensor<8x64xf16>, %b: tensor<8x64xi1>) -> (tensor<8xf16>, tensor<8xi1>) {
  %f = arith.constant dense<0.0> : tensor<8xf16>
  %t = arith.constant dense<true> : tensor<8xi1>
  %0 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<8x64xf16>) outs(%f : tensor<8xf16>) {
  ^bb0(%a: f16, %o: f16):
    %n = math.exp %a : f16
    %r = arith.addf %n, %o : f16
    linalg.yield %r : f16
  } -> tensor<8xf16>
  %1 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%b : tensor<8x64xi1>) outs(%t : tensor<8xi1>) {
  ^bb0(%a: i1, %o: i1):
    %r = arith.andi %a, %o : i1
    linalg.yield %r : i1
  } -> tensor<8xi1>
  return %0, %1 : tensor<8xf16>, tensor<8xi1>
}
// -----
// A reduced dim that the operand does not have is written out first.
// CHECK-LABEL: func.func @missing(
// CHECK-SAME: %[[X:\w+]]: tensor<8xf16>
// CHECK: %[[B:.*]] = linalg.generic {{.*}} ins(%[[X]] : tensor<8xf16>) outs(%{{.*}} : tensor<8x4xf16>) {{.*}}"identity"
// CHECK: linalg.generic {{.*}} ins(%[[B]] : tensor<8x4xf16>) {{.*}}"sum"
#row = affine_map<(d0, d1) -> (d0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @missing(%x: tensor<8xf16>) -> tensor<8xf16> {
  %f = arith.constant dense<0.0> : tensor<8xf16>
  %e = tensor.empty() : tensor<8x4xf16>
  %b = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<8xf16>) outs(%e : tensor<8x4xf16>) {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %a : f16
  } -> tensor<8x4xf16>
  %0 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%b : tensor<8x4xf16>) outs(%f : tensor<8xf16>) {
  ^bb0(%a: f16, %o: f16):
    %r = arith.addf %a, %o : f16
    linalg.yield %r : f16
  } -> tensor<8xf16>
  return %0 : tensor<8xf16>
}
// -----
// A fp16 operand of an fp32 sum is cast before.
// CHECK-LABEL: func.func @wide(
// CHECK: %[[W:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<64xf32>) {{.*}}"dl16tofp32"
// CHECK: linalg.generic {{.*}} ins(%[[W]] : tensor<64xf32>) outs(%{{.*}} : tensor<f32>) {{.*}}"sum"
#id = affine_map<(d0) -> (d0)>
func.func @wide(%x: tensor<64xf16>) -> tensor<f32> {
  %f = arith.constant dense<0.0> : tensor<f32>
  %0 = linalg.generic {indexing_maps = [#id, affine_map<(d0) -> ()>], iterator_types = ["reduction"]} ins(%x : tensor<64xf16>) outs(%f : tensor<f32>) {
  ^bb0(%a: f16, %o: f32):
    %w = arith.extf %a : f16 to f32
    %r = arith.addf %w, %o : f32
    linalg.yield %r : f32
  } -> tensor<f32>
  return %0 : tensor<f32>
}
