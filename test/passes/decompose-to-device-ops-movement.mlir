// RUN: spyre-opt %s --decompose-to-device-ops --split-input-file | filecheck %s

// A returned argument is cloned: a result has a buffer of its own.
// CHECK-LABEL: func.func @argument(
// CHECK-SAME: %[[X:\w+]]: tensor<8x64xf16>
// CHECK-NEXT: %[[C:.*]] = "sdsc.clone"(%[[X]]) : (tensor<8x64xf16>) -> tensor<8x64xf16>
// CHECK-NEXT: return %[[C]]
func.func @argument(%x: tensor<8x64xf16>) -> tensor<8x64xf16> {
  return %x : tensor<8x64xf16>
}
// -----
// A value returned twice is cloned once.
// CHECK-LABEL: func.func @twice(
// CHECK: %[[V:.*]] = linalg.generic {{.*}}"exp"
// CHECK: %[[C:.*]] = "sdsc.clone"(%[[V]])
// CHECK-NEXT: return %[[V]], %[[C]]
#id = affine_map<(d0) -> (d0)>
func.func @twice(%x: tensor<64xf16>) -> (tensor<64xf16>, tensor<64xf16>) {
  %e = tensor.empty() : tensor<64xf16>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<64xf16>) outs(%e : tensor<64xf16>) {
  ^bb0(%a: f16, %o: f16):
    %r = math.exp %a : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  return %0, %0 : tensor<64xf16>, tensor<64xf16>
}
// -----
// A returned slice is cloned, a returned reshape of a value nobody else has is not.
// CHECK-LABEL: func.func @views(
// CHECK-SAME: %[[X:\w+]]: tensor<128xf16>
// CHECK: %[[S:.*]] = tensor.extract_slice %[[X]][64] [64] [1] : tensor<128xf16> to tensor<64xf16>
// CHECK: %[[E:.*]] = linalg.generic {{.*}}"exp"
// CHECK: %[[V:.*]] = tensor.expand_shape %[[E]] {{\[\[}}0, 1]]
// CHECK: %[[C:.*]] = "sdsc.clone"(%[[S]])
// CHECK-NEXT: return %[[C]], %[[V]]
#id = affine_map<(d0) -> (d0)>
func.func @views(%x: tensor<128xf16>) -> (tensor<64xf16>, tensor<2x64xf16>) {
  %e = tensor.empty() : tensor<128xf16>
  %s = tensor.extract_slice %x[64] [64] [1] : tensor<128xf16> to tensor<64xf16>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<128xf16>) outs(%e : tensor<128xf16>) {
  ^bb0(%a: f16, %o: f16):
    %r = math.exp %a : f16
    linalg.yield %r : f16
  } -> tensor<128xf16>
  %v = tensor.expand_shape %0 [[0, 1]] output_shape [2, 64] : tensor<128xf16> into tensor<2x64xf16>
  return %s, %v : tensor<64xf16>, tensor<2x64xf16>
}
// -----
// A reshape of a transposed value is a view of a linalg.transpose, itself a view.
// CHECK-LABEL: func.func @reshaped_transpose(
// CHECK-SAME: %[[X:\w+]]: tensor<8x64xf16>
// CHECK: %[[T:.*]] = linalg.transpose ins(%[[X]] : tensor<8x64xf16>) outs(%{{.*}} : tensor<64x8xf16>) permutation = [1, 0]
// CHECK-NEXT: %[[V:.*]] = tensor.collapse_shape %[[T]] {{\[\[}}0, 1]] : tensor<64x8xf16> into tensor<512xf16>
// CHECK-NEXT: %[[C:.*]] = "sdsc.clone"(%[[V]])
// CHECK-NEXT: return %[[C]]
func.func @reshaped_transpose(%x: tensor<8x64xf16>) -> tensor<512xf16> {
  %e = tensor.empty() : tensor<64x8xf16>
  %t = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x64xf16>) outs(%e : tensor<64x8xf16>) {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %a : f16
  } -> tensor<64x8xf16>
  %c = tensor.collapse_shape %t [[0, 1]] : tensor<64x8xf16> into tensor<512xf16>
  return %c : tensor<512xf16>
}
// -----
// A concat is insertions into one buffer; arguments are cloned into their place, a fresh value is not.
// CHECK-LABEL: func.func @concat(
// CHECK-SAME: %[[X:\w+]]: {{.*}}, %{{.*}}: tensor<8x64xf16> {sdsc
// CHECK: %[[N:.*]] = linalg.generic {{.*}}"neg"
// CHECK: %[[C:.*]] = "sdsc.clone"(%[[X]])
// CHECK-NEXT: %[[E:.*]] = tensor.empty() : tensor<16x64xf16>
// CHECK-NEXT: %[[A:.*]] = tensor.insert_slice %[[C]] into %[[E]][0, 0] [8, 64] [1, 1]
// CHECK-NEXT: %[[B:.*]] = tensor.insert_slice %[[N]] into %[[A]][8, 0] [8, 64] [1, 1]
// CHECK-NEXT: return %[[B]]
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @concat(%x: tensor<8x64xf16>, %y: tensor<8x64xf16>) -> tensor<16x64xf16> {
  %e = tensor.empty() : tensor<8x64xf16>
  %n = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%y : tensor<8x64xf16>) outs(%e : tensor<8x64xf16>) {
  ^bb0(%a: f16, %o: f16):
    %r = arith.negf %a : f16
    linalg.yield %r : f16
  } -> tensor<8x64xf16>
  %0 = tensor.concat dim(0) %x, %n : (tensor<8x64xf16>, tensor<8x64xf16>) -> tensor<16x64xf16>
  return %0 : tensor<16x64xf16>
}
// -----
// A pad is a filled buffer with an insertion.
// CHECK-LABEL: func.func @pad(
// CHECK-SAME: %[[X:\w+]]: tensor<8x64xf16>
// CHECK: %[[TWO:.*]] = arith.constant dense<2.000000e+00> : tensor<f16>
// CHECK: %[[F:.*]] = linalg.generic {{.*}} ins(%[[TWO]] : tensor<f16>) outs(%{{.*}} : tensor<10x64xf16>) {{.*}}"identity"
// CHECK: %[[C:.*]] = "sdsc.clone"(%[[X]])
// CHECK-NEXT: %[[V:.*]] = tensor.insert_slice %[[C]] into %[[F]][1, 0] [8, 64] [1, 1]
// CHECK-NEXT: return %[[V]]
func.func @pad(%x: tensor<8x64xf16>) -> tensor<10x64xf16> {
  %c = arith.constant 2.0 : f16
  %0 = tensor.pad %x low[1, 0] high[1, 0] {
  ^bb0(%i: index, %j: index):
    tensor.yield %c : f16
  } : tensor<8x64xf16> to tensor<10x64xf16>
  return %0 : tensor<10x64xf16>
}
// -----
// An insert_slice into an argument clones it, and clones the part.
// CHECK-LABEL: func.func @insert(
// CHECK-SAME: %[[X:\w+]]: {{.*}}, %[[Y:\w+]]: tensor<2x64xf16>
// CHECK: %[[A:.*]] = "sdsc.clone"(%[[X]])
// CHECK-NEXT: %[[B:.*]] = "sdsc.clone"(%[[Y]])
// CHECK-NEXT: %[[V:.*]] = tensor.insert_slice %[[B]] into %[[A]][3, 0] [2, 64] [1, 1]
// CHECK-NEXT: return %[[V]]
func.func @insert(%x: tensor<8x64xf16>, %y: tensor<2x64xf16>) -> tensor<8x64xf16> {
  %0 = tensor.insert_slice %y into %x[3, 0] [2, 64] [1, 1] : tensor<2x64xf16> into tensor<8x64xf16>
  return %0 : tensor<8x64xf16>
}
// -----
// A part that somebody else reads too is cloned into its place.
// CHECK-LABEL: func.func @shared_part(
// CHECK: %[[V:.*]] = linalg.generic {{.*}}"exp"
// CHECK: %[[A:.*]] = "sdsc.clone"(%[[V]])
// CHECK-NEXT: %[[B:.*]] = "sdsc.clone"(%[[V]])
// CHECK: tensor.insert_slice %[[A]] into
// CHECK: %[[W:.*]] = tensor.insert_slice %[[B]] into
// CHECK-NEXT: return %[[W]], %[[V]]
#id = affine_map<(d0) -> (d0)>
func.func @shared_part(%x: tensor<64xf16>) -> (tensor<128xf16>, tensor<64xf16>) {
  %e = tensor.empty() : tensor<64xf16>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<64xf16>) outs(%e : tensor<64xf16>) {
  ^bb0(%a: f16, %o: f16):
    %r = math.exp %a : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  %1 = tensor.concat dim(0) %0, %0 : (tensor<64xf16>, tensor<64xf16>) -> tensor<128xf16>
  return %1, %0 : tensor<128xf16>, tensor<64xf16>
}
// -----
// A copy that an earlier pass made stays one, of what its source is by then.
// CHECK-LABEL: func.func @clone(
// CHECK-SAME: %[[X:\w+]]: tensor<8x64xf16>
// CHECK: %[[T:.*]] = linalg.transpose ins(%[[X]] {{.*}} permutation = [1, 0]
// CHECK-NEXT: %[[C:.*]] = "sdsc.clone"(%[[T]]) : (tensor<64x8xf16>) -> tensor<64x8xf16>
// CHECK-NEXT: return %[[C]]
func.func @clone(%x: tensor<8x64xf16>) -> tensor<64x8xf16> {
  %e = tensor.empty() : tensor<64x8xf16>
  %t = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x64xf16>) outs(%e : tensor<64x8xf16>) {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %a : f16
  } -> tensor<64x8xf16>
  %c = "sdsc.clone"(%t) : (tensor<64x8xf16>) -> tensor<64x8xf16>
  return %c : tensor<64x8xf16>
}
