// RUN: spyre-opt %s --choose-layouts --split-input-file --verify-diagnostics | filecheck %s

// A pointwise result has the stick and the order of its operand; the default stick of an input is its last dim.
// CHECK: #[[ROWS:map.*]] = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
// CHECK-LABEL: func.func @inherit(
// CHECK-SAME: %{{.*}}: tensor<128x256xf16, #stick.layout<#[[ROWS]]>> {{.*}} -> tensor<128x256xf16, #stick.layout<#[[ROWS]]>> {
// CHECK-NOT: restickify
// CHECK: %[[V:.*]] = linalg.generic {{.*}} ins(%{{.*}} : tensor<128x256xf16, #stick.layout<#[[ROWS]]>>) outs(%{{.*}} : tensor<128x256xf16, #stick.layout<#[[ROWS]]>>)
// CHECK: return %[[V]]
func.func @inherit(%x: tensor<128x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<128x256xf16> {
  %e0 = tensor.empty() : tensor<128x256xf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16>) outs(%e0 : tensor<128x256xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16>
  return %0 : tensor<128x256xf16>
}
// -----
// Operands with different sticks: the smaller number of bytes is restickified, with the reason.
// CHECK: #[[ROWS:map.*]] = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
// CHECK: #[[TURNED:map.*]] = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
// CHECK-LABEL: func.func @converts(
// CHECK-SAME: %[[X:\w+]]: {{.*}}, %[[Y:\w+]]: tensor<256x128xf16, #stick.layout<#[[ROWS]]>> {{.*}}, %[[Z:\w+]]: tensor
// CHECK: %[[C:.*]] = "stick.restickify"(%[[Y]]) {{.*}} : (tensor<256x128xf16, #stick.layout<#[[ROWS]]>>) -> tensor<256x128xf16, #stick.layout<#[[TURNED]]>>
// CHECK: linalg.generic {{.*}} ins(%[[X]], %[[C]], %[[Z]] : {{.*}} outs(%{{.*}} : tensor<128x256xf16, #stick.layout<#[[ROWS]]>>)
func.func @converts(%x: tensor<128x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}, %y: tensor<256x128xf16> {sdsc.host = #sdsc.host<"y", "input", "f16">}, %z: tensor<128x256xf16> {sdsc.host = #sdsc.host<"z", "input", "f16">}) -> tensor<128x256xf16> {
  %e0 = tensor.empty() : tensor<128x256xf16>
  // expected-remark@below {{restickify: stick d1 -> d0: 'where3' reads it with d0 in the stick, for all operands of a pointwise operation have one stick (0 -> 4151)}}
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%x, %y, %z : tensor<128x256xf16>, tensor<256x128xf16>, tensor<128x256xf16>) outs(%e0 : tensor<128x256xf16>) attrs = {sdsc.op = #sdsc.op<"where3", {}>} {
  ^bb0(%a0: f16, %a1: f16, %a2: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16>
  return %0 : tensor<128x256xf16>
}
// -----
// A value that two readers want in another stick is converted once.
// CHECK-LABEL: func.func @once(
// CHECK-SAME: %[[X:\w+]]: {{.*}}, %[[Y:\w+]]: tensor
// CHECK: %[[C:.*]] = "stick.restickify"(%[[Y]])
// CHECK: %[[V:.*]] = linalg.generic {{.*}} ins(%[[X]], %[[C]] :
// CHECK-NOT: restickify
// CHECK: %[[W:.*]] = linalg.generic {{.*}} ins(%[[V]], %[[C]] :
// CHECK: return %[[W]]
func.func @once(%x: tensor<128x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}, %y: tensor<256x128xf16> {sdsc.host = #sdsc.host<"y", "input", "f16">}) -> tensor<128x256xf16> {
  %e0 = tensor.empty() : tensor<128x256xf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%x, %y : tensor<128x256xf16>, tensor<256x128xf16>) outs(%e0 : tensor<128x256xf16>) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16>
  %e1 = tensor.empty() : tensor<128x256xf16>
  %1 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%0, %y : tensor<128x256xf16>, tensor<256x128xf16>) outs(%e1 : tensor<128x256xf16>) attrs = {sdsc.op = #sdsc.op<"sub", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16>
  return %1 : tensor<128x256xf16>
}
// -----
// A parameter takes the stick that its reader wants, at no run-time cost.
// CHECK: #[[TURNED:map.*]] = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
// CHECK-LABEL: func.func @parameter(
// CHECK-SAME: %{{.*}}: tensor<256x128xf16, #stick.layout<#[[TURNED]]>> {sdsc.host = #sdsc.host<"w", "parameter", "f16">}
// CHECK-NOT: restickify
// CHECK: return
func.func @parameter(%x: tensor<128x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}, %w: tensor<256x128xf16> {sdsc.host = #sdsc.host<"w", "parameter", "f16">}) -> tensor<128x256xf16> {
  %e0 = tensor.empty() : tensor<128x256xf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%x, %w : tensor<128x256xf16>, tensor<256x128xf16>) outs(%e0 : tensor<128x256xf16>) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16>
  return %0 : tensor<128x256xf16>
}
// -----
// A weight that is wanted in two sticks is given twice: the further argument names its source.
// CHECK-DAG: #[[ROWS:map.*]] = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
// CHECK-DAG: #[[TURNED:map.*]] = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
// CHECK-LABEL: func.func @twice(
// CHECK-SAME: %[[W:\w+]]: tensor<128x128xf16, #stick.layout<#[[FIRST:map.*]]>> {sdsc.host = #sdsc.host<"w", "parameter", "f16">}
// CHECK-SAME: %[[V:\w+]]: tensor<128x128xf16, #stick.layout<#[[SECOND:map.*]]>> {sdsc.host = #sdsc.host<"w@1", "parameter", "f16">, sdsc.source = "w"}
// CHECK-NOT: restickify
// CHECK: "add"
// CHECK: return
func.func @twice(%x: tensor<128x128xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}, %z: tensor<128x128xf16, #stick.layout<affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>>> {sdsc.host = #sdsc.host<"z", "input", "f16">}, %w: tensor<128x128xf16> {sdsc.host = #sdsc.host<"w", "parameter", "f16">}) -> tensor<128x128xf16> {
  %e0 = tensor.empty() : tensor<128x128xf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%x, %w : tensor<128x128xf16>, tensor<128x128xf16>) outs(%e0 : tensor<128x128xf16>) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x128xf16>
  %e1 = tensor.empty() : tensor<128x128xf16>
  %1 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%z, %w : tensor<128x128xf16, #stick.layout<affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>>>, tensor<128x128xf16>) outs(%e1 : tensor<128x128xf16>) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x128xf16>
  %e2 = tensor.empty() : tensor<128x128xf16>
  %2 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%0, %1 : tensor<128x128xf16>, tensor<128x128xf16>) outs(%e2 : tensor<128x128xf16>) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x128xf16>
  return %2 : tensor<128x128xf16>
}
// -----
// A reduction over the stick gives a sparse result, which its readers broadcast.
// CHECK: #[[SPARSE:map.*]] = affine_map<(d0) -> (d0, 0)>
// CHECK-LABEL: func.func @sparse(
// CHECK: %[[M:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<128xf16, #stick.layout<#[[SPARSE]]>>) {{.*}}"max"
// CHECK-NOT: restickify
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %[[M]] : {{.*}}"sub"
func.func @sparse(%x: tensor<128x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<128x256xf16> {
  %e0 = tensor.empty() : tensor<128xf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<128x256xf16>) outs(%e0 : tensor<128xf16>) attrs = {sdsc.op = #sdsc.op<"max", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128xf16>
  %e1 = tensor.empty() : tensor<128x256xf16>
  %1 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%x, %0 : tensor<128x256xf16>, tensor<128xf16>) outs(%e1 : tensor<128x256xf16>) attrs = {sdsc.op = #sdsc.op<"sub", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16>
  return %1 : tensor<128x256xf16>
}
// -----
// A reduction over another dim keeps the stick.
// CHECK: #[[VEC:map.*]] = affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>
// CHECK-LABEL: func.func @other(
// CHECK-NOT: restickify
// CHECK: linalg.generic {{.*}} outs(%{{.*}} : tensor<256xf16, #stick.layout<#[[VEC]]>>) {{.*}}"sumnonstick"
func.func @other(%x: tensor<128x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<256xf16> {
  %e0 = tensor.empty() : tensor<256xf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<128x256xf16>) outs(%e0 : tensor<256xf16>) attrs = {sdsc.op = #sdsc.op<"sumnonstick", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<256xf16>
  return %0 : tensor<256xf16>
}
// -----
// The form of a reduction follows the layout: over the rows of a turned matrix it is the one over the stick.
// CHECK: #[[TURNED:map.*]] = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
// CHECK: #[[SPARSE:map.*]] = affine_map<(d0) -> (d0, 0)>
// CHECK-LABEL: func.func @form(
// CHECK-SAME: %[[X:\w+]]: tensor<128x256xf16, #stick.layout<#[[TURNED]]>>
// CHECK: linalg.generic {{.*}} ins(%[[X]] : {{.*}} outs(%{{.*}} : tensor<256xf16, #stick.layout<#[[SPARSE]]>>) {{.*}}sdsc.op = #sdsc.op<"sum", {}>
func.func @form(%x: tensor<128x256xf16, #stick.layout<affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>>> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<256xf16> {
  %e0 = tensor.empty() : tensor<256xf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>>>) outs(%e0 : tensor<256xf16>) attrs = {sdsc.op = #sdsc.op<"sumnonstick", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<256xf16>
  return %0 : tensor<256xf16>
}
// -----
// A product has no form over the stick: the operand gets another one.
// CHECK: #[[TURNED:map.*]] = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
// CHECK-LABEL: func.func @prod(
// CHECK-SAME: %[[X:\w+]]: tensor
// CHECK: %[[C:.*]] = "stick.restickify"(%[[X]]) {{.*}} : {{.*}} -> tensor<128x256xf16, #stick.layout<#[[TURNED]]>>
// CHECK: linalg.generic {{.*}} ins(%[[C]] : {{.*}}"prod"
func.func @prod(%x: tensor<128x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<128xf16> {
  %e0 = tensor.empty() : tensor<128xf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<128x256xf16>) outs(%e0 : tensor<128xf16>) attrs = {sdsc.op = #sdsc.op<"prod", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128xf16>
  return %0 : tensor<128xf16>
}
// -----
// A cast between 2 and 4 bytes leaves room for whole sticks of both: 20 elements take two sticks of fp32.
// CHECK: #[[WIDE:map.*]] = affine_map<(d0, d1) -> ((d1 floordiv 32) mod 2, d0, d1 mod 32)>
// CHECK-LABEL: func.func @cast(
// CHECK: linalg.generic {{.*}} outs(%{{.*}} : tensor<8x20xf32, #stick.layout<#[[WIDE]]>>) {{.*}}"dl16tofp32"
func.func @cast(%x: tensor<8x20xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<8x20xf32> {
  %e0 = tensor.empty() : tensor<8x20xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<8x20xf16>) outs(%e0 : tensor<8x20xf32>) attrs = {sdsc.op = #sdsc.op<"dl16tofp32", {}>} {
  ^bb0(%a0: f16, %o: f32):
    linalg.yield %o : f32
  } -> tensor<8x20xf32>
  return %0 : tensor<8x20xf32>
}
// -----
// Two buffers that begin with zeros: each has a fill of its own, before its part is made, and nothing is copied there.
// CHECK-LABEL: func.func @fills(
// CHECK: linalg.generic {{.*}} outs(%{{.*}} : tensor<4x64xf16
// CHECK: %[[A:.*]] = "sdsc.clone"(%{{\w+}})
// CHECK-NEXT: tensor.insert_slice %[[A]] into
// CHECK: linalg.generic {{.*}} outs(%{{.*}} : tensor<4x64xf16
// CHECK: %[[B:.*]] = "sdsc.clone"(%{{\w+}})
// CHECK-NEXT: tensor.insert_slice %[[B]] into
// CHECK-NOT: sdsc.clone
func.func @fills(%x: tensor<2x64xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> (tensor<4x64xf16>, tensor<4x64xf16>) {
  %zero = arith.constant dense<0.0> : tensor<f16>
  %e = tensor.empty() : tensor<4x64xf16>
  %f = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> ()>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%zero : tensor<f16>) outs(%e : tensor<4x64xf16>) attrs = {sdsc.op = #sdsc.op<"identity", {}>} {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %a : f16
  } -> tensor<4x64xf16>
  %a = "sdsc.clone"(%x) : (tensor<2x64xf16>) -> tensor<2x64xf16>
  %0 = tensor.insert_slice %a into %f[1, 0] [2, 64] [1, 1] : tensor<2x64xf16> into tensor<4x64xf16>
  %b = "sdsc.clone"(%x) : (tensor<2x64xf16>) -> tensor<2x64xf16>
  %1 = tensor.insert_slice %b into %f[2, 0] [2, 64] [1, 1] : tensor<2x64xf16> into tensor<4x64xf16>
  return %0, %1 : tensor<4x64xf16>, tensor<4x64xf16>
}
