// RUN: spyre-opt %s --choose-layouts --split-input-file --verify-diagnostics | filecheck %s

// A view's layout is composed from its source: nothing moves.
// CHECK: #[[VIEW:map.*]] = affine_map<(d0, d1, d2) -> (d1, d0, d2 mod 64)>
// CHECK-LABEL: func.func @composed(
// CHECK-NOT: restickify
// CHECK: %[[V:.*]] = tensor.expand_shape {{.*}} into tensor<128x4x64xf16, #stick.layout<#[[VIEW]]>>
// CHECK: linalg.generic {{.*}} ins(%[[V]] :
func.func @composed(%x: tensor<128x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<128x4x64xf16> {
  %v = tensor.expand_shape %x [[0], [1, 2]] output_shape [128, 4, 64] : tensor<128x256xf16> into tensor<128x4x64xf16>
  %e0 = tensor.empty() : tensor<128x4x64xf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%v : tensor<128x4x64xf16>) outs(%e0 : tensor<128x4x64xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x4x64xf16>
  return %0 : tensor<128x4x64xf16>
}
// -----
// A transpose renames dims.
// CHECK: #[[TURNED:map.*]] = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
// CHECK-LABEL: func.func @transposed(
// CHECK-SAME: %[[X:\w+]]: tensor
// CHECK: %[[V:.*]] = linalg.transpose ins(%[[X]] : {{.*}} outs(%{{.*}} : tensor<256x128xf16, #stick.layout<#[[TURNED]]>>)
// CHECK: "sdsc.clone"(%[[V]])
func.func @transposed(%x: tensor<128x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<256x128xf16> {
  %e = tensor.empty() : tensor<256x128xf16>
  %v = linalg.transpose ins(%x : tensor<128x256xf16>) outs(%e : tensor<256x128xf16>) permutation = [1, 0]
  %0 = "sdsc.clone"(%v) : (tensor<256x128xf16>) -> tensor<256x128xf16>
  return %0 : tensor<256x128xf16>
}
// -----
// A slice of whole sticks is a view.
// CHECK-LABEL: func.func @slice(
// CHECK-SAME: %[[X:\w+]]: tensor
// CHECK: %[[V:.*]] = tensor.extract_slice %[[X]][0, 64]
// CHECK: "sdsc.clone"(%[[V]])
func.func @slice(%x: tensor<128x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<128x128xf16> {
  %v = tensor.extract_slice %x[0, 64] [128, 128] [1, 1] : tensor<128x256xf16> to tensor<128x128xf16>
  %0 = "sdsc.clone"(%v) : (tensor<128x128xf16>) -> tensor<128x128xf16>
  return %0 : tensor<128x128xf16>
}
// -----
// A slice that cuts a stick moves the stick to another dim first.
// CHECK: #[[TURNED:map.*]] = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
// CHECK-LABEL: func.func @cut(
// CHECK-SAME: %[[X:\w+]]: tensor
// CHECK: %[[C:.*]] = "stick.restickify"(%[[X]]) {{.*}} : {{.*}} -> tensor<128x256xf16, #stick.layout<#[[TURNED]]>>
// CHECK: %[[V:.*]] = tensor.extract_slice %[[C]][0, 32]
// CHECK: "sdsc.clone"(%[[V]])
func.func @cut(%x: tensor<128x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<128x128xf16> {
  // expected-remark@below {{restickify: stick d1 -> d0: with d1 in the stick it has no such view: a slice from 32 by 1 cuts the sticks of dim 1}}
  %v = tensor.extract_slice %x[0, 32] [128, 128] [1, 1] : tensor<128x256xf16> to tensor<128x128xf16>
  %0 = "sdsc.clone"(%v) : (tensor<128x128xf16>) -> tensor<128x128xf16>
  return %0 : tensor<128x128xf16>
}
// -----
// The buffer of insertions has a stick that none of them cuts; the copies are made with that stick.
// CHECK: #[[TURNED:map.*]] = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
// CHECK-LABEL: func.func @insertion(
// CHECK-SAME: %[[X:\w+]]: {{.*}}, %[[Y:\w+]]: tensor
// CHECK: %[[C:.*]] = "stick.restickify"(%[[X]])
// CHECK: %[[A:.*]] = "sdsc.clone"(%[[C]]) : {{.*}} -> tensor<128x32xf16, #stick.layout<#[[TURNED]]>>
// CHECK: tensor.insert_slice %[[A]] into %{{.*}} into tensor<128x64xf16, #stick.layout<#[[TURNED]]>>
func.func @insertion(%x: tensor<128x32xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}, %y: tensor<128x32xf16> {sdsc.host = #sdsc.host<"y", "input", "f16">}) -> tensor<128x64xf16> {
  %a = "sdsc.clone"(%x) : (tensor<128x32xf16>) -> tensor<128x32xf16>
  %b = "sdsc.clone"(%y) : (tensor<128x32xf16>) -> tensor<128x32xf16>
  %e = tensor.empty() : tensor<128x64xf16>
  %0 = tensor.insert_slice %a into %e[0, 0] [128, 32] [1, 1] : tensor<128x32xf16> into tensor<128x64xf16>
  %1 = tensor.insert_slice %b into %0[0, 32] [128, 32] [1, 1] : tensor<128x32xf16> into tensor<128x64xf16>
  return %1 : tensor<128x64xf16>
}
// -----
// What is made for one place only is made there: nothing is copied.
// CHECK-LABEL: func.func @in_place(
// CHECK-NOT: sdsc.clone
// CHECK: %[[A:.*]] = linalg.generic {{.*}}"exp"
// CHECK: %[[B:.*]] = linalg.generic {{.*}}"tanh"
// CHECK: %[[C:.*]] = tensor.insert_slice %[[A]] into
// CHECK: tensor.insert_slice %[[B]] into %[[C]]
func.func @in_place(%x: tensor<64x64xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}, %y: tensor<64x64xf16> {sdsc.host = #sdsc.host<"y", "input", "f16">}) -> tensor<128x64xf16> {
  %e0 = tensor.empty() : tensor<64x64xf16>
  %a = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<64x64xf16>) outs(%e0 : tensor<64x64xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<64x64xf16>
  %e1 = tensor.empty() : tensor<64x64xf16>
  %b = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%y : tensor<64x64xf16>) outs(%e1 : tensor<64x64xf16>) attrs = {sdsc.op = #sdsc.op<"tanh", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<64x64xf16>
  %e = tensor.empty() : tensor<128x64xf16>
  %0 = tensor.insert_slice %a into %e[0, 0] [64, 64] [1, 1] : tensor<64x64xf16> into tensor<128x64xf16>
  %1 = tensor.insert_slice %b into %0[64, 0] [64, 64] [1, 1] : tensor<64x64xf16> into tensor<128x64xf16>
  return %1 : tensor<128x64xf16>
}
// -----
// A pinned part stays as its pin says: it is copied to a place with another order of dims.
// CHECK: #[[PIN:map.*]] = affine_map<(d0, d1, d2) -> (d0, d2 floordiv 64, d1, d2 mod 64)>
// CHECK-LABEL: func.func @pinned_part(
// CHECK: %[[A:.*]] = "stick.restickify"(%{{.*}}) {{.*}} -> tensor<64x64x128xf16, #stick.layout<#[[PIN]]>>
// CHECK: %[[B:.*]] = "sdsc.clone"(%[[A]])
// CHECK: tensor.insert_slice %[[B]] into
func.func @pinned_part(%x: tensor<64x64x128xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}, %y: tensor<64x64x128xf16> {sdsc.host = #sdsc.host<"y", "input", "f16">}) -> tensor<128x64x128xf16> {
  %a = "stick.restickify"(%x) {stick.to = #stick.layout<affine_map<(d0, d1, d2) -> (d0, d2 floordiv 64, d1, d2 mod 64)>>} : (tensor<64x64x128xf16>) -> tensor<64x64x128xf16>
  %e = tensor.empty() : tensor<128x64x128xf16>
  %0 = tensor.insert_slice %a into %e[0, 0, 0] [64, 64, 128] [1, 1, 1] : tensor<64x64x128xf16> into tensor<128x64x128xf16>
  %1 = tensor.insert_slice %y into %0[64, 0, 0] [64, 64, 128] [1, 1, 1] : tensor<64x64x128xf16> into tensor<128x64x128xf16>
  %2 = "stick.pin"(%1) {stick.to = #stick.layout<affine_map<(d0, d1, d2) -> (d2 floordiv 64, d1, d0, d2 mod 64)>>} : (tensor<128x64x128xf16>) -> tensor<128x64x128xf16>
  return %2 : tensor<128x64x128xf16>
}
// -----
// Insertions of whole sticks keep the last dim in the stick.
// CHECK: #[[ROWS:map.*]] = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
// CHECK-LABEL: func.func @whole_sticks(
// CHECK-NOT: restickify
// CHECK: tensor.insert_slice {{.*}} into tensor<128x128xf16, #stick.layout<#[[ROWS]]>>
func.func @whole_sticks(%x: tensor<128x64xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}, %y: tensor<128x64xf16> {sdsc.host = #sdsc.host<"y", "input", "f16">}) -> tensor<128x128xf16> {
  %a = "sdsc.clone"(%x) : (tensor<128x64xf16>) -> tensor<128x64xf16>
  %b = "sdsc.clone"(%y) : (tensor<128x64xf16>) -> tensor<128x64xf16>
  %e = tensor.empty() : tensor<128x128xf16>
  %0 = tensor.insert_slice %a into %e[0, 0] [128, 64] [1, 1] : tensor<128x64xf16> into tensor<128x128xf16>
  %1 = tensor.insert_slice %b into %0[0, 64] [128, 64] [1, 1] : tensor<128x64xf16> into tensor<128x128xf16>
  return %1 : tensor<128x128xf16>
}
