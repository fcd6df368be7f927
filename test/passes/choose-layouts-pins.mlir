// RUN: spyre-opt %s --choose-layouts --split-input-file --verify-diagnostics | filecheck %s

// What a pin names is how its operand is made; the pin is gone then.
// CHECK: #[[TURNED:map.*]] = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
// CHECK-LABEL: func.func @made(
// CHECK-SAME: %[[X:\w+]]: tensor
// CHECK: %[[C:.*]] = "stick.restickify"(%[[X]])
// CHECK: %[[V:.*]] = linalg.generic {{.*}} ins(%[[C]] : {{.*}} outs(%{{.*}} : tensor<128x256xf16, #stick.layout<#[[TURNED]]>>) {{.*}}"exp"
// CHECK-NOT: stick.pin
// CHECK: return %[[V]]
func.func @made(%x: tensor<128x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<128x256xf16> {
  %e0 = tensor.empty() : tensor<128x256xf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16>) outs(%e0 : tensor<128x256xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16>
  %1 = "stick.pin"(%0) {stick.to = #stick.layout<affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>>} : (tensor<128x256xf16>) -> tensor<128x256xf16>
  return %1 : tensor<128x256xf16>
}
// -----
// A reader that cannot take the pinned layout gets a conversion, the pin holds.
// CHECK-DAG: #[[ROWS:map.*]] = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
// CHECK-DAG: #[[TURNED:map.*]] = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
// CHECK-LABEL: func.func @converted(
// CHECK: %[[V:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<128x128xf16, #stick.layout<#[[TURNED]]>>) {{.*}}"exp"
// CHECK: %[[C:.*]] = "stick.restickify"(%[[V]]) {{.*}} -> tensor<128x128xf16, #stick.layout<#[[ROWS]]>>
// CHECK: linalg.generic {{.*}} ins(%[[C]], %{{.*}} outs(%{{.*}} : tensor<128x128xf16, #stick.layout<#[[ROWS]]>>) {{.*}}"add"
func.func @converted(%x: tensor<128x128xf16, #stick.layout<affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>>> {sdsc.host = #sdsc.host<"x", "input", "f16">}, %y: tensor<128x128xf16> {sdsc.host = #sdsc.host<"y", "input", "f16">}) -> tensor<128x128xf16> {
  %e0 = tensor.empty() : tensor<128x128xf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x128xf16, #stick.layout<affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>>>) outs(%e0 : tensor<128x128xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x128xf16>
  %1 = "stick.pin"(%0) {stick.to = #stick.layout<affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>>} : (tensor<128x128xf16>) -> tensor<128x128xf16>
  %e1 = tensor.empty() : tensor<128x128xf16>
  %2 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%1, %y : tensor<128x128xf16>, tensor<128x128xf16>) outs(%e1 : tensor<128x128xf16>) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x128xf16>
  %3 = "stick.pin"(%2) {stick.to = #stick.layout<affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>>} : (tensor<128x128xf16>) -> tensor<128x128xf16>
  return %3 : tensor<128x128xf16>
}
// -----
// The layout in the type of an argument is the caller's: it stays, and what reads it follows.
// CHECK: #[[TURNED:map.*]] = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
// CHECK-LABEL: func.func @argument(
// CHECK-SAME: %[[X:\w+]]: tensor<128x256xf16, #stick.layout<#[[TURNED]]>> {{.*}} -> tensor<128x256xf16, #stick.layout<#[[TURNED]]>>
// CHECK-NOT: restickify
// CHECK: linalg.generic {{.*}} ins(%[[X]] :
func.func @argument(%x: tensor<128x256xf16, #stick.layout<affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>>> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<128x256xf16> {
  %e0 = tensor.empty() : tensor<128x256xf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>>>) outs(%e0 : tensor<128x256xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16>
  return %0 : tensor<128x256xf16>
}
// -----
// A pinned weight is laid out as the pin says, ahead of time.
// CHECK: #[[TURNED:map.*]] = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
// CHECK-LABEL: func.func @weight(
// CHECK-SAME: tensor<128x256xf16, #stick.layout<#[[TURNED]]>> {sdsc.host = #sdsc.host<"w", "parameter", "f16">}) ->
// CHECK: return
func.func @weight(%w: tensor<128x256xf16> {sdsc.host = #sdsc.host<"w", "parameter", "f16">}) -> tensor<128x256xf16> {
  %1 = "stick.pin"(%w) {stick.to = #stick.layout<affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>>} : (tensor<128x256xf16>) -> tensor<128x256xf16>
  %e0 = tensor.empty() : tensor<128x256xf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%1 : tensor<128x256xf16>) outs(%e0 : tensor<128x256xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16>
  return %0 : tensor<128x256xf16>
}
// -----
// A restickify of the program stays where it stands, and its readers take what it makes.
// CHECK: #[[TURNED:map.*]] = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
// CHECK-LABEL: func.func @kept(
// CHECK-SAME: %[[X:\w+]]: tensor
// CHECK: %[[C:.*]] = "stick.restickify"(%[[X]]) {{.*}} -> tensor<128x256xf16, #stick.layout<#[[TURNED]]>>
// CHECK-NOT: restickify
// CHECK: linalg.generic {{.*}} ins(%[[C]] : {{.*}} outs(%{{.*}} : tensor<128x256xf16, #stick.layout<#[[TURNED]]>>)
func.func @kept(%x: tensor<128x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<128x256xf16> {
  // expected-remark@below {{restickify: the program requests it}}
  %0 = "stick.restickify"(%x) {stick.to = #stick.layout<affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>>} : (tensor<128x256xf16>) -> tensor<128x256xf16>
  %e0 = tensor.empty() : tensor<128x256xf16>
  %1 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%0 : tensor<128x256xf16>) outs(%e0 : tensor<128x256xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16>
  return %1 : tensor<128x256xf16>
}
// -----
// Even one that nothing needs: the program asked for it.
// CHECK-LABEL: func.func @needless(
// CHECK: %[[C:.*]] = "stick.restickify"
// CHECK: return %[[C]]
func.func @needless(%x: tensor<128x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<128x256xf16> {
  %0 = "stick.restickify"(%x) {stick.to = #stick.layout<affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>>} : (tensor<128x256xf16>) -> tensor<128x256xf16>
  return %0 : tensor<128x256xf16>
}
// -----
// A pinned view is a copy where the view does not lie like that.
// CHECK: #[[ROWS:map.*]] = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
// CHECK-LABEL: func.func @view(
// CHECK-SAME: %[[X:\w+]]: tensor
// CHECK: %[[V:.*]] = linalg.transpose ins(%[[X]]
// CHECK: %[[C:.*]] = "stick.restickify"(%[[V]]) {{.*}} -> tensor<256x128xf16, #stick.layout<#[[ROWS]]>>
// CHECK: linalg.generic {{.*}} ins(%[[C]] :
func.func @view(%x: tensor<128x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<256x128xf16> {
  %e = tensor.empty() : tensor<256x128xf16>
  %v = linalg.transpose ins(%x : tensor<128x256xf16>) outs(%e : tensor<256x128xf16>) permutation = [1, 0]
  %1 = "stick.pin"(%v) {stick.to = #stick.layout<affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>>} : (tensor<256x128xf16>) -> tensor<256x128xf16>
  %e0 = tensor.empty() : tensor<256x128xf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%1 : tensor<256x128xf16>) outs(%e0 : tensor<256x128xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<256x128xf16>
  return %0 : tensor<256x128xf16>
}
