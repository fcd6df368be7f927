// RUN: spyre-opt %s --verify-device-ops --choose-layouts="argument-layouts=default" --verify-laid-out --split-input-file --verify-diagnostics | filecheck %s

// What a loop carries has one layout before, in and after it; a tile is made in its place: nothing is copied.
// CHECK: #[[ROWS:map.*]] = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
// CHECK-LABEL: func.func @carried(
// CHECK: %[[E:.*]] = tensor.empty() : tensor<512x256xf16, #stick.layout<#[[ROWS]]>>
// CHECK: scf.for {{.*}} iter_args(%[[A:.*]] = %[[E]]) -> (tensor<512x256xf16, #stick.layout<#[[ROWS]]>>) {
// CHECK-NOT: sdsc.clone
// CHECK: %[[T:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<128x256xf16, #stick.layout<#[[ROWS]]>>)
// CHECK: tensor.insert_slice %[[T]] into %[[A]]
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @carried(%x: tensor<512x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<512x256xf16> {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c512 = arith.constant 512 : index
  %e = tensor.empty() : tensor<512x256xf16>
  %r = scf.for %i = %c0 to %c512 step %c128 iter_args(%acc = %e) -> (tensor<512x256xf16>) {
    %s = tensor.extract_slice %x[%i, 0] [128, 256] [1, 1] : tensor<512x256xf16> to tensor<128x256xf16>
    %d = tensor.extract_slice %acc[%i, 0] [128, 256] [1, 1] : tensor<512x256xf16> to tensor<128x256xf16>
    %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<128x256xf16>) outs(%d : tensor<128x256xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
    ^bb0(%a0: f16, %o: f16):
      linalg.yield %o : f16
    } -> tensor<128x256xf16>
    %n = tensor.insert_slice %t into %acc[%i, 0] [128, 256] [1, 1] : tensor<128x256xf16> into tensor<512x256xf16>
    scf.yield %n : tensor<512x256xf16>
  }
  return %r : tensor<512x256xf16>
}
// -----
// What is made outside of a loop is converted there, once.
// CHECK-LABEL: func.func @hoisted(
// CHECK-SAME: %{{.*}}, %[[Y:\w+]]: tensor
// CHECK: %[[C:.*]] = "stick.restickify"(%[[Y]])
// CHECK: scf.for
// CHECK-NOT: restickify
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %[[C]] :
// CHECK-NOT: restickify
// CHECK: return
#id = affine_map<(d0, d1) -> (d0, d1)>
#turned = affine_map<(d0, d1) -> (d1, d0)>
func.func @hoisted(%x: tensor<512x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}, %y: tensor<256x128xf16> {sdsc.host = #sdsc.host<"y", "input", "f16">}) -> tensor<512x256xf16> {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c512 = arith.constant 512 : index
  %e = tensor.empty() : tensor<512x256xf16>
  %d = tensor.empty() : tensor<128x256xf16>
  %r = scf.for %i = %c0 to %c512 step %c128 iter_args(%acc = %e) -> (tensor<512x256xf16>) {
    %s = tensor.extract_slice %x[%i, 0] [128, 256] [1, 1] : tensor<512x256xf16> to tensor<128x256xf16>
    %t = linalg.generic {indexing_maps = [#id, #turned, #id], iterator_types = ["parallel", "parallel"]} ins(%s, %y : tensor<128x256xf16>, tensor<256x128xf16>) outs(%d : tensor<128x256xf16>) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
    ^bb0(%a0: f16, %a1: f16, %o: f16):
      linalg.yield %o : f16
    } -> tensor<128x256xf16>
    %n = tensor.insert_slice %t into %acc[%i, 0] [128, 256] [1, 1] : tensor<128x256xf16> into tensor<512x256xf16>
    scf.yield %n : tensor<512x256xf16>
  }
  return %r : tensor<512x256xf16>
}
// -----
// A parameter is laid out ahead of time for its reader in a loop.
// CHECK: #[[TURNED:map.*]] = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
// CHECK-LABEL: func.func @parameter(
// CHECK-SAME: %[[Y:\w+]]: tensor<256x128xf16, #stick.layout<#[[TURNED]]>> {sdsc.host = #sdsc.host<"y", "parameter", "f16">}
// CHECK-NOT: restickify
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %[[Y]] :
// CHECK-NOT: restickify
// CHECK: return
#id = affine_map<(d0, d1) -> (d0, d1)>
#turned = affine_map<(d0, d1) -> (d1, d0)>
func.func @parameter(%x: tensor<512x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}, %y: tensor<256x128xf16> {sdsc.host = #sdsc.host<"y", "parameter", "f16">}) -> tensor<512x256xf16> {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c512 = arith.constant 512 : index
  %e = tensor.empty() : tensor<512x256xf16>
  %d = tensor.empty() : tensor<128x256xf16>
  %r = scf.for %i = %c0 to %c512 step %c128 iter_args(%acc = %e) -> (tensor<512x256xf16>) {
    %s = tensor.extract_slice %x[%i, 0] [128, 256] [1, 1] : tensor<512x256xf16> to tensor<128x256xf16>
    %t = linalg.generic {indexing_maps = [#id, #turned, #id], iterator_types = ["parallel", "parallel"]} ins(%s, %y : tensor<128x256xf16>, tensor<256x128xf16>) outs(%d : tensor<128x256xf16>) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
    ^bb0(%a0: f16, %a1: f16, %o: f16):
      linalg.yield %o : f16
    } -> tensor<128x256xf16>
    %n = tensor.insert_slice %t into %acc[%i, 0] [128, 256] [1, 1] : tensor<128x256xf16> into tensor<512x256xf16>
    scf.yield %n : tensor<512x256xf16>
  }
  return %r : tensor<512x256xf16>
}
// -----
// Where a loop reads little of a tensor, its slices are converted, in the loop.
// CHECK-LABEL: func.func @inside(
// CHECK-SAME: %[[X:\w+]]: tensor
// CHECK-NOT: restickify
// CHECK: scf.for
// CHECK: %[[S:.*]] = tensor.extract_slice %[[X]]
// CHECK: %[[C:.*]] = "stick.restickify"(%[[S]])
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %[[C]], %{{.*}} :
#id = affine_map<(d0, d1) -> (d0, d1)>
#turned = affine_map<(d0, d1) -> (d1, d0)>
func.func @inside(%x: tensor<256x4096xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}, %y: tensor<256x256xf16> {sdsc.host = #sdsc.host<"y", "input", "f16">}, %z: tensor<128x256xf16> {sdsc.host = #sdsc.host<"z", "input", "f16">}) -> tensor<256x256xf16> {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c256 = arith.constant 256 : index
  %e = tensor.empty() : tensor<256x256xf16>
  %d = tensor.empty() : tensor<128x256xf16>
  %r = scf.for %i = %c0 to %c256 step %c128 iter_args(%acc = %e) -> (tensor<256x256xf16>) {
    %s = tensor.extract_slice %x[0, %i] [256, 128] [1, 1] : tensor<256x4096xf16> to tensor<256x128xf16>
    %u = tensor.extract_slice %y[%i, 0] [128, 256] [1, 1] : tensor<256x256xf16> to tensor<128x256xf16>
    %t = linalg.generic {indexing_maps = [#id, #turned, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%u, %s, %z : tensor<128x256xf16>, tensor<256x128xf16>, tensor<128x256xf16>) outs(%d : tensor<128x256xf16>) attrs = {sdsc.op = #sdsc.op<"where3", {}>} {
    ^bb0(%a0: f16, %a1: f16, %a2: f16, %o: f16):
      linalg.yield %o : f16
    } -> tensor<128x256xf16>
    %n = tensor.insert_slice %t into %acc[%i, 0] [128, 256] [1, 1] : tensor<128x256xf16> into tensor<256x256xf16>
    scf.yield %n : tensor<256x256xf16>
  }
  return %r : tensor<256x256xf16>
}
// -----
// Where the slices of a tensor are read again in another loop, it is converted, outside of both.
// CHECK-LABEL: func.func @outside(
// CHECK-SAME: %[[X:\w+]]: tensor
// CHECK: %[[C:.*]] = "stick.restickify"(%[[X]])
// CHECK: scf.for
// CHECK: scf.for
// CHECK-NOT: {{restickify|clone}}
// CHECK: tensor.extract_slice %[[C]]
// CHECK-NOT: {{restickify|clone}}
// CHECK: return
#id = affine_map<(d0, d1) -> (d0, d1)>
#turned = affine_map<(d0, d1) -> (d1, d0)>
func.func @outside(%x: tensor<256x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}, %y: tensor<256x256xf16> {sdsc.host = #sdsc.host<"y", "input", "f16">}) -> tensor<256x256xf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c128 = arith.constant 128 : index
  %c256 = arith.constant 256 : index
  %e = tensor.empty() : tensor<256x256xf16>
  %d = tensor.empty() : tensor<128x256xf16>
  %z = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%y : tensor<256x256xf16>) outs(%e : tensor<256x256xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<256x256xf16>
  %r = scf.for %j = %c0 to %c4 step %c1 iter_args(%acc = %z) -> (tensor<256x256xf16>) {
    %q = scf.for %i = %c0 to %c256 step %c128 iter_args(%acc2 = %acc) -> (tensor<256x256xf16>) {
      %s = tensor.extract_slice %x[0, %i] [256, 128] [1, 1] : tensor<256x256xf16> to tensor<256x128xf16>
      %u = tensor.extract_slice %acc2[%i, 0] [128, 256] [1, 1] : tensor<256x256xf16> to tensor<128x256xf16>
      %t = linalg.generic {indexing_maps = [#id, #turned, #id], iterator_types = ["parallel", "parallel"]} ins(%u, %s : tensor<128x256xf16>, tensor<256x128xf16>) outs(%d : tensor<128x256xf16>) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
      ^bb0(%a0: f16, %a1: f16, %o: f16):
        linalg.yield %o : f16
      } -> tensor<128x256xf16>
      %n = tensor.insert_slice %t into %acc2[%i, 0] [128, 256] [1, 1] : tensor<128x256xf16> into tensor<256x256xf16>
      scf.yield %n : tensor<256x256xf16>
    }
    scf.yield %q : tensor<256x256xf16>
  }
  return %r : tensor<256x256xf16>
}
// -----
// Slices that move by whole sticks keep their dim in the stick.
// CHECK: #[[ROWS:map.*]] = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
// CHECK-LABEL: func.func @whole_sticks(
// CHECK-NOT: restickify
// CHECK: tensor.insert_slice {{.*}} into tensor<128x256xf16, #stick.layout<#[[ROWS]]>>
// CHECK-NOT: restickify
// CHECK: return
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @whole_sticks(%x: tensor<128x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<128x256xf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %e = tensor.empty() : tensor<128x256xf16>
  %d = tensor.empty() : tensor<128x64xf16>
  %r = scf.for %i = %c0 to %c4 step %c1 iter_args(%acc = %e) -> (tensor<128x256xf16>) {
    %at = affine.apply affine_map<(d0) -> (d0 * 64)>(%i)
    %s = tensor.extract_slice %x[0, %at] [128, 64] [1, 1] : tensor<128x256xf16> to tensor<128x64xf16>
    %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<128x64xf16>) outs(%d : tensor<128x64xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
    ^bb0(%a0: f16, %o: f16):
      linalg.yield %o : f16
    } -> tensor<128x64xf16>
    %n = tensor.insert_slice %t into %acc[0, %at] [128, 64] [1, 1] : tensor<128x64xf16> into tensor<128x256xf16>
    scf.yield %n : tensor<128x256xf16>
  }
  return %r : tensor<128x256xf16>
}
// -----
// Slices that move by half a stick want another dim in it.
// CHECK: #[[TURNED:map.*]] = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
// CHECK-LABEL: func.func @half_sticks(
// CHECK: "stick.restickify"
// CHECK: scf.for
// CHECK-NOT: restickify
// CHECK: tensor.insert_slice {{.*}} into tensor<128x256xf16, #stick.layout<#[[TURNED]]>>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @half_sticks(%x: tensor<128x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<128x256xf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %e = tensor.empty() : tensor<128x256xf16>
  %d = tensor.empty() : tensor<128x32xf16>
  %r = scf.for %i = %c0 to %c8 step %c1 iter_args(%acc = %e) -> (tensor<128x256xf16>) {
    %at = affine.apply affine_map<(d0) -> (d0 * 32)>(%i)
    %s = tensor.extract_slice %x[0, %at] [128, 32] [1, 1] : tensor<128x256xf16> to tensor<128x32xf16>
    %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<128x32xf16>) outs(%d : tensor<128x32xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
    ^bb0(%a0: f16, %o: f16):
      linalg.yield %o : f16
    } -> tensor<128x32xf16>
    %n = tensor.insert_slice %t into %acc[0, %at] [128, 32] [1, 1] : tensor<128x32xf16> into tensor<128x256xf16>
    scf.yield %n : tensor<128x256xf16>
  }
  return %r : tensor<128x256xf16>
}
// -----
// The partial sums of rows are sparse, and so is what they are added up in.
// CHECK: #[[SPARSE:map.*]] = affine_map<(d0) -> (d0, 0)>
// CHECK-LABEL: func.func @partial_sums(
// CHECK-NOT: restickify
// CHECK: linalg.fill {{.*}} -> tensor<256xf16, #stick.layout<#[[SPARSE]]>>
// CHECK: scf.for {{.*}} -> (tensor<256xf16, #stick.layout<#[[SPARSE]]>>)
// CHECK-NOT: restickify
// CHECK: return
#id = affine_map<(d0, d1) -> (d0, d1)>
#first = affine_map<(d0, d1) -> (d0)>
#vector = affine_map<(d0) -> (d0)>
func.func @partial_sums(%x: tensor<256x1024xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<256xf16> {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c1024 = arith.constant 1024 : index
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<256xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<256xf16>) -> tensor<256xf16>
  %r = scf.for %k = %c0 to %c1024 step %c128 iter_args(%acc = %f) -> (tensor<256xf16>) {
    %s = tensor.extract_slice %x[0, %k] [256, 128] [1, 1] : tensor<256x1024xf16> to tensor<256x128xf16>
    %p = linalg.generic {indexing_maps = [#id, #first], iterator_types = ["parallel", "reduction"]} ins(%s : tensor<256x128xf16>) outs(%e : tensor<256xf16>) attrs = {sdsc.op = #sdsc.op<"sum", {}>} {
    ^bb0(%a0: f16, %o: f16):
      linalg.yield %o : f16
    } -> tensor<256xf16>
    %t = linalg.generic {indexing_maps = [#vector, #vector, #vector], iterator_types = ["parallel"]} ins(%acc, %p : tensor<256xf16>, tensor<256xf16>) outs(%e : tensor<256xf16>) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
    ^bb0(%a0: f16, %a1: f16, %o: f16):
      linalg.yield %o : f16
    } -> tensor<256xf16>
    scf.yield %t : tensor<256xf16>
  }
  return %r : tensor<256xf16>
}
// -----
// An argument is copied before a loop goes on with it; in the loop, tiles are updated where they are.
// CHECK-LABEL: func.func @argument(
// CHECK-SAME: %[[X:\w+]]: tensor
// CHECK: %[[C:.*]] = "sdsc.clone"(%[[X]])
// CHECK: scf.for {{.*}} iter_args(%{{.*}} = %[[C]])
// CHECK-NOT: clone
// CHECK: return
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @argument(%x: tensor<512x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<512x256xf16> {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c512 = arith.constant 512 : index
  %d = tensor.empty() : tensor<128x256xf16>
  %r = scf.for %i = %c0 to %c512 step %c128 iter_args(%acc = %x) -> (tensor<512x256xf16>) {
    %s = tensor.extract_slice %acc[%i, 0] [128, 256] [1, 1] : tensor<512x256xf16> to tensor<128x256xf16>
    %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<128x256xf16>) outs(%d : tensor<128x256xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
    ^bb0(%a0: f16, %o: f16):
      linalg.yield %o : f16
    } -> tensor<128x256xf16>
    %n = tensor.insert_slice %t into %acc[%i, 0] [128, 256] [1, 1] : tensor<128x256xf16> into tensor<512x256xf16>
    scf.yield %n : tensor<512x256xf16>
  }
  return %r : tensor<512x256xf16>
}
// -----
// A pin in a loop holds for what the loop carries.
// CHECK: #[[TURNED:map.*]] = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
// CHECK-LABEL: func.func @pin(
// CHECK-SAME: %[[X:\w+]]: tensor
// CHECK: %[[C:.*]] = "stick.restickify"(%[[X]])
// CHECK: scf.for {{.*}} iter_args(%{{.*}} = %[[C]]) -> (tensor<512x256xf16, #stick.layout<#[[TURNED]]>>)
// CHECK-NOT: {{restickify|clone}}
// CHECK: return
#id = affine_map<(d0, d1) -> (d0, d1)>
#columns = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
func.func @pin(%x: tensor<512x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<512x256xf16> {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c512 = arith.constant 512 : index
  %d = tensor.empty() : tensor<128x256xf16>
  %r = scf.for %i = %c0 to %c512 step %c128 iter_args(%acc = %x) -> (tensor<512x256xf16>) {
    %p = "stick.pin"(%acc) {stick.to = #stick.layout<#columns>} : (tensor<512x256xf16>) -> tensor<512x256xf16>
    %s = tensor.extract_slice %acc[%i, 0] [128, 256] [1, 1] : tensor<512x256xf16> to tensor<128x256xf16>
    %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<128x256xf16>) outs(%d : tensor<128x256xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
    ^bb0(%a0: f16, %o: f16):
      linalg.yield %o : f16
    } -> tensor<128x256xf16>
    %n = tensor.insert_slice %t into %acc[%i, 0] [128, 256] [1, 1] : tensor<128x256xf16> into tensor<512x256xf16>
    scf.yield %n : tensor<512x256xf16>
  }
  return %r : tensor<512x256xf16>
}
// -----
// Two pins of what a loop carries.
#id = affine_map<(d0, d1) -> (d0, d1)>
#columns = affine_map<(d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)>
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
func.func @pins(%x: tensor<512x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<512x256xf16> {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c512 = arith.constant 512 : index
  %d = tensor.empty() : tensor<128x256xf16>
  %r = scf.for %i = %c0 to %c512 step %c128 iter_args(%acc = %x) -> (tensor<512x256xf16>) {
    %p = "stick.pin"(%acc) {stick.to = #stick.layout<#columns>} : (tensor<512x256xf16>) -> tensor<512x256xf16>
    %s = tensor.extract_slice %acc[%i, 0] [128, 256] [1, 1] : tensor<512x256xf16> to tensor<128x256xf16>
    %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<128x256xf16>) outs(%d : tensor<128x256xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
    ^bb0(%a0: f16, %o: f16):
      linalg.yield %o : f16
    } -> tensor<128x256xf16>
    %n = tensor.insert_slice %t into %acc[%i, 0] [128, 256] [1, 1] : tensor<128x256xf16> into tensor<512x256xf16>
    scf.yield %n : tensor<512x256xf16>
  }
  // expected-error@below {{is pinned to another layout already: (d0, d1) -> (d0 floordiv 64, d1, d0 mod 64)}}
  %q = "stick.pin"(%r) {stick.to = #stick.layout<#rows>} : (tensor<512x256xf16>) -> tensor<512x256xf16>
  return %q : tensor<512x256xf16>
}
// -----
// What upstream's tiling writes: destinations that are slices of the buffer, of an empty tensor, and filled.
// CHECK-LABEL: func.func @tiled(
// CHECK-SAME: %[[X:\w+]]: {{.*}}, %[[W:\w+]]: tensor
// CHECK-NOT: {{restickify|clone}}
// CHECK: %[[A:.*]] = tensor.extract_slice %[[X]]
// CHECK: %[[B:.*]] = tensor.extract_slice %[[W]]
// CHECK-NOT: tensor.extract_slice
// CHECK: linalg.generic {{.*}} ins(%[[A]], %[[B]] : {{.*}}"batchmatmul"
// CHECK: %[[T:.*]] = linalg.generic {{.*}}"exp"
// CHECK: tensor.insert_slice %[[T]]
// CHECK-NOT: {{restickify|clone}}
// CHECK: return
#id = affine_map<(d0, d1) -> (d0, d1)>
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (k, n)>
#c = affine_map<(m, n, k) -> (m, n)>
func.func @tiled(%x: tensor<512x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}, %w: tensor<256x512xf16> {sdsc.host = #sdsc.host<"w", "parameter", "f16">}) -> tensor<512x512xf16> {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c256 = arith.constant 256 : index
  %c512 = arith.constant 512 : index
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<512x512xf16>
  %r = scf.for %j = %c0 to %c512 step %c256 iter_args(%all = %e) -> (tensor<512x512xf16>) {
    %q = scf.for %i = %c0 to %c512 step %c128 iter_args(%acc = %all) -> (tensor<512x512xf16>) {
      %x0 = tensor.extract_slice %x[%i, 0] [128, 256] [1, 1] : tensor<512x256xf16> to tensor<128x256xf16>
      %w0 = tensor.extract_slice %w[0, %j] [256, 256] [1, 1] : tensor<256x512xf16> to tensor<256x256xf16>
      %d0 = tensor.extract_slice %e[%i, %j] [128, 256] [1, 1] : tensor<512x512xf16> to tensor<128x256xf16>
      %f = linalg.fill ins(%zero : f16) outs(%d0 : tensor<128x256xf16>) -> tensor<128x256xf16>
      %p = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x0, %w0 : tensor<128x256xf16>, tensor<256x256xf16>) outs(%f : tensor<128x256xf16>) attrs = {sdsc.op = #sdsc.op<"batchmatmul", {}>} {
      ^bb0(%a0: f16, %a1: f16, %o: f16):
        linalg.yield %o : f16
      } -> tensor<128x256xf16>
      %d1 = tensor.extract_slice %acc[%i, %j] [128, 256] [1, 1] : tensor<512x512xf16> to tensor<128x256xf16>
      %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%p : tensor<128x256xf16>) outs(%d1 : tensor<128x256xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
      ^bb0(%a0: f16, %o: f16):
        linalg.yield %o : f16
      } -> tensor<128x256xf16>
      %n = tensor.insert_slice %t into %acc[%i, %j] [128, 256] [1, 1] : tensor<128x256xf16> into tensor<512x512xf16>
      scf.yield %n : tensor<512x512xf16>
    }
    scf.yield %q : tensor<512x512xf16>
  }
  return %r : tensor<512x512xf16>
}
// -----
// Rows one by one, as vectors: the dim that the loop goes along is not in the stick.
// CHECK: #[[VECTOR:map.*]] = affine_map<(d0) -> (d0 floordiv 64, d0 mod 64)>
// CHECK-LABEL: func.func @rows(
// CHECK-NOT: {{restickify|clone}}
// CHECK: tensor.extract_slice {{.*}} to tensor<256xf16, #stick.layout<#[[VECTOR]]>>
// CHECK-NOT: {{restickify|clone}}
// CHECK: return
#vector = affine_map<(d0) -> (d0)>
func.func @rows(%x: tensor<512x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<512x256xf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c512 = arith.constant 512 : index
  %e = tensor.empty() : tensor<512x256xf16>
  %d = tensor.empty() : tensor<256xf16>
  %r = scf.for %i = %c0 to %c512 step %c1 iter_args(%acc = %e) -> (tensor<512x256xf16>) {
    %s = tensor.extract_slice %x[%i, 0] [1, 256] [1, 1] : tensor<512x256xf16> to tensor<256xf16>
    %t = linalg.generic {indexing_maps = [#vector, #vector], iterator_types = ["parallel"]} ins(%s : tensor<256xf16>) outs(%d : tensor<256xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
    ^bb0(%a0: f16, %o: f16):
      linalg.yield %o : f16
    } -> tensor<256xf16>
    %n = tensor.insert_slice %t into %acc[%i, 0] [1, 256] [1, 1] : tensor<256xf16> into tensor<512x256xf16>
    scf.yield %n : tensor<512x256xf16>
  }
  return %r : tensor<512x256xf16>
}
// -----
// How often a loop runs has to be known.
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @bounds(%x: tensor<512x256xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<512x256xf16> {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c512 = arith.constant 512 : index
  %d = tensor.empty() : tensor<128x256xf16>
  %q = scf.for %j = %c0 to %c512 step %c128 iter_args(%all = %x) -> (tensor<512x256xf16>) {
    // expected-error@below {{a loop around device operations needs constant bounds and a constant step}}
    %r = scf.for %i = %c0 to %j step %c128 iter_args(%acc = %all) -> (tensor<512x256xf16>) {
      %s = tensor.extract_slice %acc[%i, 0] [128, 256] [1, 1] : tensor<512x256xf16> to tensor<128x256xf16>
      %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<128x256xf16>) outs(%d : tensor<128x256xf16>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
      ^bb0(%a0: f16, %o: f16):
        linalg.yield %o : f16
      } -> tensor<128x256xf16>
      %n = tensor.insert_slice %t into %acc[%i, 0] [128, 256] [1, 1] : tensor<128x256xf16> into tensor<512x256xf16>
      scf.yield %n : tensor<512x256xf16>
    }
    scf.yield %r : tensor<512x256xf16>
  }
  return %q : tensor<512x256xf16>
}
// -----
// An operation does not go on with the partial results of others.
#id = affine_map<(d0, d1) -> (d0, d1)>
#first = affine_map<(d0, d1) -> (d0)>
func.func @accumulates(%x: tensor<256x1024xf16> {sdsc.host = #sdsc.host<"x", "input", "f16">}) -> tensor<256xf16> {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c1024 = arith.constant 1024 : index
  %e = tensor.empty() : tensor<256xf16>
  %r = scf.for %k = %c0 to %c1024 step %c128 iter_args(%acc = %e) -> (tensor<256xf16>) {
    %s = tensor.extract_slice %x[0, %k] [256, 128] [1, 1] : tensor<256x1024xf16> to tensor<256x128xf16>
    // expected-error@below {{'sum' adds to the initial value of its output; compute the partial result separately and combine the two with another operation}}
    %p = linalg.generic {indexing_maps = [#id, #first], iterator_types = ["parallel", "reduction"]} ins(%s : tensor<256x128xf16>) outs(%acc : tensor<256xf16>) attrs = {sdsc.op = #sdsc.op<"sum", {}>} {
    ^bb0(%a0: f16, %o: f16):
      linalg.yield %o : f16
    } -> tensor<256xf16>
    scf.yield %p : tensor<256xf16>
  }
  return %r : tensor<256xf16>
}
