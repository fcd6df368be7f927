// RUN: spyre-opt %s --verify-each=false --place-in-hbm --split-input-file --verify-diagnostics | filecheck %s

// The result has its kernel argument, intermediates share the pool: a buffer whose last reader is done is free again.
// CHECK-LABEL: func.func @chain(
// CHECK-SAME: {{.*}} attributes {sdsc.pool_bytes = 131072 : i64}
// CHECK: "exp", {}>, sdsc.placement = #sdsc.hbm<"pool", 0 : i64>
// CHECK: "exp", {}>, sdsc.placement = #sdsc.hbm<"pool", 65536 : i64>
// CHECK: "exp", {}>, sdsc.placement = #sdsc.hbm<"pool", 0 : i64>
// CHECK: "exp", {}>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @chain(%x: tensor<128x256xf16, #stick.layout<#rows>>) -> tensor<128x256xf16, #stick.layout<#rows>> {
  %e0 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %e1 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %e2 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %e3 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e1 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%1 : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e2 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  %3 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%2 : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e3 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  return %3 : tensor<128x256xf16, #stick.layout<#rows>>
}
// -----
// A view lies in the buffer of its source, which lives until the view's last reader.
// CHECK-LABEL: func.func @view(
// CHECK-SAME: {{.*}} attributes {sdsc.pool_bytes = 131072 : i64}
// CHECK: "exp", {}>, sdsc.placement = #sdsc.hbm<"pool", 0 : i64>
// CHECK: "exp", {}>, sdsc.placement = #sdsc.hbm<"pool", 65536 : i64>
// CHECK: "sdsc.clone"(%{{[^)]*}}) {sdsc.placement = #sdsc.hbm<"result1", 0 : i64>}
// CHECK: "add", {}>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @view(%x: tensor<128x256xf16, #stick.layout<#rows>>) -> (tensor<128x256xf16, #stick.layout<#rows>>, tensor<64x256xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %e1 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %e3 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  %v = tensor.extract_slice %0[0, 0] [64, 256] [1, 1] : tensor<128x256xf16, #stick.layout<#rows>> to tensor<64x256xf16, #stick.layout<#rows>>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e1 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  %2 = "sdsc.clone"(%v) : (tensor<64x256xf16, #stick.layout<#rows>>) -> tensor<64x256xf16, #stick.layout<#rows>>
  %3 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%1, %1 : tensor<128x256xf16, #stick.layout<#rows>>, tensor<128x256xf16, #stick.layout<#rows>>) outs(%e3 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%a0: f16, %a1: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  return %3, %2 : tensor<128x256xf16, #stick.layout<#rows>>, tensor<64x256xf16, #stick.layout<#rows>>
}
// -----
// The buffer that insertions fill is the empty tensor they start from; the parts lie in it.
// CHECK-LABEL: func.func @filled(
// CHECK-SAME: {{.*}} attributes {sdsc.pool_bytes = 0 : i64}
// CHECK: tensor.empty() {sdsc.placement = #sdsc.hbm<"result0", 0 : i64>}
// CHECK-NOT: placement
// CHECK: return
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
func.func @filled(%x: tensor<64x256xf16, #stick.layout<#rows>>) -> tensor<128x256xf16, #stick.layout<#rows>> {
  %e = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %a = "sdsc.clone"(%x) : (tensor<64x256xf16, #stick.layout<#rows>>) -> tensor<64x256xf16, #stick.layout<#rows>>
  %b = "sdsc.clone"(%x) : (tensor<64x256xf16, #stick.layout<#rows>>) -> tensor<64x256xf16, #stick.layout<#rows>>
  %0 = tensor.insert_slice %a into %e[0, 0] [64, 256] [1, 1] : tensor<64x256xf16, #stick.layout<#rows>> into tensor<128x256xf16, #stick.layout<#rows>>
  %1 = tensor.insert_slice %b into %0[64, 0] [64, 256] [1, 1] : tensor<64x256xf16, #stick.layout<#rows>> into tensor<128x256xf16, #stick.layout<#rows>>
  return %1 : tensor<128x256xf16, #stick.layout<#rows>>
}
// -----
// A returned argument has no buffer that the kernel could write.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
func.func @argument(%x: tensor<128x256xf16, #stick.layout<#rows>>) -> tensor<128x256xf16, #stick.layout<#rows>> {
  // expected-error@below {{result 0 has no buffer of its own}}
  return %x : tensor<128x256xf16, #stick.layout<#rows>>
}
// -----
// A value returned twice has only one.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @twice(%x: tensor<128x256xf16, #stick.layout<#rows>>) -> (tensor<128x256xf16, #stick.layout<#rows>>, tensor<128x256xf16, #stick.layout<#rows>>) {
  %e0 = tensor.empty() : tensor<128x256xf16, #stick.layout<#rows>>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<128x256xf16, #stick.layout<#rows>>) outs(%e0 : tensor<128x256xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<128x256xf16, #stick.layout<#rows>>
  // expected-error@below {{result 1 has no buffer of its own}}
  return %0, %0 : tensor<128x256xf16, #stick.layout<#rows>>, tensor<128x256xf16, #stick.layout<#rows>>
}
// -----
// Intermediates that do not fit.
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
// expected-error@below {{intermediates need 17179869184 bytes at once, the pool has 16106127360}}
func.func @pool(%x: tensor<131072x65536xf16, #stick.layout<#rows>>) -> tensor<131072x65536xf16, #stick.layout<#rows>> {
  %e0 = tensor.empty() : tensor<131072x65536xf16, #stick.layout<#rows>>
  %e1 = tensor.empty() : tensor<131072x65536xf16, #stick.layout<#rows>>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<131072x65536xf16, #stick.layout<#rows>>) outs(%e0 : tensor<131072x65536xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<131072x65536xf16, #stick.layout<#rows>>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : tensor<131072x65536xf16, #stick.layout<#rows>>) outs(%e1 : tensor<131072x65536xf16, #stick.layout<#rows>>) attrs = {sdsc.op = #sdsc.op<"exp", {}>} {
  ^bb0(%a0: f16, %o: f16):
    linalg.yield %o : f16
  } -> tensor<131072x65536xf16, #stick.layout<#rows>>
  return %1 : tensor<131072x65536xf16, #stick.layout<#rows>>
}
