// RUN: spyre-opt %s --decompose-to-device-ops --split-input-file --verify-diagnostics | filecheck %s

// The caller's layout of an argument stays in its type, and on its slices; a cast that drops it is nothing.
// CHECK: #[[COLUMNS:.*]] = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
// CHECK-LABEL: func.func @argument(
// CHECK-SAME: %[[X:\w+]]: tensor<64x128xf16, #stick.layout<#[[COLUMNS]]>>
// CHECK: %[[S:.*]] = tensor.extract_slice %[[X]]{{.*}} to tensor<64x64xf16, #stick.layout<#[[COLUMNS]]>>
// CHECK: linalg.generic {{.*}} ins(%[[S]], %[[S]] : tensor<64x64xf16, #stick.layout<#[[COLUMNS]]>>, {{.*}}) outs(%{{.*}} : tensor<64x64xf16>)
// CHECK: %[[C:.*]] = "sdsc.clone"(%[[X]]) : (tensor<64x128xf16, #stick.layout<#[[COLUMNS]]>>) -> tensor<64x128xf16>
// CHECK: return %{{.*}}, %[[C]]
#columns = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @argument(%x: tensor<64x128xbf16, #stick.layout<#columns>>) -> (tensor<64x64xbf16>, tensor<64x128xbf16>) {
  %p = tensor.cast %x : tensor<64x128xbf16, #stick.layout<#columns>> to tensor<64x128xbf16>
  %s = tensor.extract_slice %p[0, 64] [64, 64] [1, 1] : tensor<64x128xbf16> to tensor<64x64xbf16>
  %e = tensor.empty() : tensor<64x64xbf16>
  %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%s, %s : tensor<64x64xbf16>, tensor<64x64xbf16>) outs(%e : tensor<64x64xbf16>) {
  ^bb0(%a: bf16, %b: bf16, %o: bf16):
    %r = arith.addf %a, %b : bf16
    linalg.yield %r : bf16
  } -> tensor<64x64xbf16>
  return %0, %p : tensor<64x64xbf16>, tensor<64x128xbf16>
}
// -----
// A pin and a restickify take the device's tensor, and a pinned result has the buffer of what is pinned.
// CHECK-LABEL: func.func @requests(
// CHECK-SAME: %[[X:\w+]]: tensor<64x128xi32>
// CHECK: %[[R:.*]] = "stick.restickify"(%[[X]]) {stick.to = #stick.layout<#{{.*}}>} : (tensor<64x128xi32>) -> tensor<64x128xi32>
// CHECK: %[[V:.*]] = linalg.generic {{.*}}ins(%[[R]], %[[R]] : {{.*}}"addi32toi32"
// CHECK: %[[P:.*]] = "stick.pin"(%[[V]]) {stick.to = #stick.layout<#{{.*}}>} : (tensor<64x128xi32>) -> tensor<64x128xi32>
// CHECK-NEXT: return %[[P]]
#columns = affine_map<(d0, d1) -> (d0 floordiv 32, d1, d0 mod 32)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @requests(%x: tensor<64x128xi32>) -> tensor<64x128xi32> {
  %0 = "stick.restickify"(%x) {stick.to = #stick.layout<#columns>} : (tensor<64x128xi32>) -> tensor<64x128xi32>
  %e = tensor.empty() : tensor<64x128xi32>
  %1 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%0, %0 : tensor<64x128xi32>, tensor<64x128xi32>) outs(%e : tensor<64x128xi32>) {
  ^bb0(%a: i32, %b: i32, %o: i32):
    %r = arith.addi %a, %b : i32
    linalg.yield %r : i32
  } -> tensor<64x128xi32>
  %2 = "stick.pin"(%1) {stick.to = #stick.layout<#columns>} : (tensor<64x128xi32>) -> tensor<64x128xi32>
  return %2 : tensor<64x128xi32>
}
// -----
// A new tensor of one number is written where it is pinned; a second layout of an equal one is a tensor of its own.
// CHECK-LABEL: func.func @fills(
// CHECK: %[[F:.*]] = linalg.generic {{.*}}"identity"
// CHECK: %[[A:.*]] = "stick.pin"(%[[F]]) {stick.to = #stick.layout<#[[M:.*]]>}
// CHECK: %[[G:.*]] = linalg.generic {{.*}}"identity"
// CHECK: %[[C:.*]] = "sdsc.clone"(%[[G]])
// CHECK: %[[B:.*]] = "stick.pin"(%[[C]]) {stick.to = #stick.layout<#{{.*}}>}
// CHECK: return %[[A]], %[[B]]
#dense = affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>
#sparse = affine_map<(d0) -> (d0, 0)>
func.func @fills() -> (tensor<70xf16>, tensor<70xf16>) {
  %z = arith.constant dense<0.0> : tensor<70xf16>
  %0 = "stick.pin"(%z) {stick.to = #stick.layout<#dense>} : (tensor<70xf16>) -> tensor<70xf16>
  %1 = "stick.pin"(%z) {stick.to = #stick.layout<#sparse>} : (tensor<70xf16>) -> tensor<70xf16>
  return %0, %1 : tensor<70xf16>, tensor<70xf16>
}
// -----
// The stick is that of the device's type: 64 elements of fp16.
#short = affine_map<(d0) -> (d0 floordiv 32, d0 mod 32)>
// expected-error@below {{this tensor cannot have this layout: its last result must be 'd0 mod 64' or 0 for f16}}
func.func @stick(%x: tensor<70xf16, #stick.layout<#short>>) {
  return
}
// -----
// A map that puts two elements at one place is no layout.
#half = affine_map<(d0, d1) -> (d0 floordiv 2, d1 floordiv 64, d1 mod 64)>
func.func @shared(%x: tensor<70x70xf16>) {
  // expected-error@below {{a tensor of type tensor<70x70xf16> cannot have this layout: the elements of d0 share places}}
  %0 = "stick.pin"(%x) {stick.to = #stick.layout<#half>} : (tensor<70x70xf16>) -> tensor<70x70xf16>
  return
}
// -----
// A cast that changes more than the layout.
func.func @cast(%x: tensor<70xf16>) -> tensor<?xf16> {
  // expected-error@below {{type tensor<?xf16> has no static shape}}
  %0 = tensor.cast %x : tensor<70xf16> to tensor<?xf16>
  return %0 : tensor<?xf16>
}
